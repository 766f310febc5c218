"""A change on trial: what was measured before it, what is measured since, and whether it helped. No Qt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..durations import Durations
from .evidence import Evidence, window
from .rule import Finding, Measurement, Rule, Verdict, compare, measure

#: Seconds after the change that do not count: what waited for it has to catch up.
SETTLE_S = 5.0


class Stage(StrEnum):
    MEASURING = "measuring"
    MEASURED = "measured"
    DISTURBED = "disturbed"  # another change of settings came before the end
    UNDONE = "undone"


@dataclass
class Trial:
    """``undo`` are the values from before. ``price`` is measured where the rule names one."""

    rule: Rule
    finding: Finding
    undo: dict[str, Any]
    begun: float  # Unix seconds
    before: Measurement
    price_before: Measurement | None
    after: Measurement | None = None
    price_after: Measurement | None = None
    stage: Stage = Stage.MEASURING

    @property
    def progress(self) -> float:
        """0 to 1: how much of the time before has been measured again."""
        return min(1.0, self.after.seconds / self.before.seconds) if self.after is not None else 0.0

    @property
    def verdict(self) -> Verdict:
        return compare(self.rule.quantity, self.before, self.after) if self.after is not None else Verdict.UNKNOWN

    @property
    def price_verdict(self) -> Verdict:
        if self.rule.price is None or self.price_before is None or self.price_after is None:
            return Verdict.UNKNOWN
        return compare(self.rule.price, self.price_before, self.price_after)

    def go_on(self, evidence: Evidence, durations: Durations) -> None:
        """Measure what there is since the change, until it is as much as there was before."""
        if self.stage is not Stage.MEASURING:
            return
        since = window(evidence, durations, int(self.before.seconds), self.begun + SETTLE_S)
        if not since.seconds:
            return
        self.after = measure(self.rule.quantity, since)
        self.price_after = measure(self.rule.price, since) if self.rule.price is not None else None
        if self.after.seconds >= self.before.seconds:
            self.stage = Stage.MEASURED


def begin(
    rule: Rule,
    finding: Finding,
    undo: dict[str, Any],
    evidence: Evidence,
    durations: Durations,
    since: float,
    at: float,
) -> Trial:
    """A change was made ``at``, the one before it ``since`` (Unix seconds)."""
    seen = window(evidence, durations, rule.seconds, since, at)
    price = measure(rule.price, seen) if rule.price is not None else None
    return Trial(rule, finding, undo, at, measure(rule.quantity, seen), price)
