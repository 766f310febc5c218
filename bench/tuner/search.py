"""The search, in three stages.

A *sweep* over all combinations of a few values: the simulator, on a device as fast as this engine's steps were measured
to be, discards what cannot win; what is left is measured on part of the load. The best few are measured under *half* of
the traffic. From the best of those on, single settings are changed under the *full* load, each change made while the
engine runs, as long as one of them gains more than noise.

All of it is measured on one engine that never restarts. Each trial is kept as soon as it is measured, so a search that
was interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...ipc.client import Client, EngineError
from ..drive import Outcome, drive
from ..inside.predict import Device, fit, predict
from ..results import FULL, Changed, Run, Trial
from ..witness import Witness
from ..workload import Item
from .objective import Objective
from .space import VALUES, Settings, coarse, neighbours

Report = Callable[[str, float | None], None]

SWEEP, HALF = "sweep", "half traffic"

#: How many are measured in the sweep and under half of the traffic, and shares of the load that the sweep runs.
SWEPT, HALVED, SWEEP_SHARE = 6, 3, 0.5

#: What is predicted to be so much worse than the best cannot win: the simulator is not that wrong.
HOPELESS = 0.8


@dataclass(frozen=True, slots=True)
class Tried:
    """Settings under a stage's traffic, with what became of the requests."""

    settings: Settings
    stage: str
    outcomes: list[Outcome]


class OutOfTime(Exception):
    """The search has used up its time."""


class Search:
    """Looks for the best settings of ``client``'s engine for ``items``.

    ``kept`` are trials of an interrupted search over the same load; ``keep`` is given each new one. ``deadline`` is
    monotonic.
    """

    def __init__(
        self,
        client: Client,
        witness: Witness,
        items: Sequence[Item],
        objective: Objective,
        *,
        deadline: float,
        report: Report,
        kept: Sequence[Tried] = (),
        keep: Callable[[Tried], None] = lambda tried: None,
    ) -> None:
        self.tried: list[Tried] = list(kept)
        self.notes: dict[str, str] = {}
        self._client = client
        self._witness = witness
        self._items = items
        self._objective = objective
        self._deadline = deadline
        self._report = report
        self._keep = keep
        self._values = VALUES

    def run(self) -> Tried:
        """The best trial under the full load; within the deadline, as far as the search got."""
        start = self._current()
        self._values = self._allowed()
        base = self._trial(start, FULL)
        best = base
        try:
            swept = [self._trial(settings, SWEEP) for settings in self._promising(start)]
            halved = [self._trial(tried.settings, HALF) for tried in self._best(swept, HALVED)]
            best = self._better(base, self._trial(self._best(halved, 1)[0].settings, FULL))
            best = self._climb(best)
        except OutOfTime:
            self.notes["end"] = "Time was up before the search had ended."
        return best

    def evidence(self, best: Tried) -> list[tuple[str, str]]:
        """For each setting that differs from the start, what changing it alone gained where that was measured."""
        told = []
        for change in self.changed(best):
            text = "together with the others"
            if change.gain is not None:
                value, low, high = change.gain
                text = f"alone {value:.2f} × as good ({low:.2f} to {high:.2f}), {change.stage}"
            told.append((f"{change.setting} {change.before} → {change.after}", text))
        return told

    def gain(self, best: Tried) -> list[float]:
        """How many times as good it is as the start, with the ends of the interval; nothing for the start itself."""
        base = self._base
        if best.settings == base.settings:
            return []
        gain = self._objective.gain([best.outcomes], [base.outcomes])
        return [gain.value, gain.low, gain.high]

    def changed(self, best: Tried) -> list[Changed]:
        """The settings that differ from the start."""
        base = self._base
        told = []
        for name, value in best.settings.items():
            before = base.settings[name]
            if value == before:
                continue
            pairs = [
                (one, other)
                for one in self.tried
                for other in self.tried
                if one.stage == other.stage and one.settings == other.settings | {name: one.settings[name]}
                and one.settings[name] == value and other.settings[name] == before
            ]  # fmt: skip
            change = Changed(name, before, value)
            if pairs:
                one, other = pairs[-1]
                gain = self._objective.gain([one.outcomes], [other.outcomes])
                change.gain, change.stage = [gain.value, gain.low, gain.high], one.stage
            told.append(change)
        return told

    @property
    def _base(self) -> Tried:
        return next(tried for tried in self.tried if tried.stage == FULL)

    # --- stages -----------------------------------------------------------------------------------------------------

    def _promising(self, start: Settings) -> list[Settings]:
        """What the simulator does not discard, the best predictions first; ``start`` is always among them."""
        device = self._measure_device()
        candidates = coarse(start, self._values)
        values = []
        for done, settings in enumerate(candidates):
            self._check_time()
            self._report(f"Simulating {len(candidates)} combinations", done / len(candidates))
            values.append(self._predicted(device, settings))
        best = values[self._objective.best(values)]
        hopeful = [
            (value, settings)
            for value, settings in zip(values, candidates, strict=True)
            if (value / best if self._objective.more_is_better else best / max(value, 1e-9)) >= HOPELESS
        ]
        self.notes["sweep"] = (
            f"The simulator discarded {len(candidates) - len(hopeful)} of {len(candidates)} combinations."
        )
        hopeful.sort(key=lambda pair: -pair[0] if self._objective.more_is_better else pair[0])
        spread = _spread([settings for _, settings in hopeful if settings != start], SWEPT - 1)
        return [start, *spread]

    def _climb(self, best: Tried) -> Tried:
        """Change one setting at a time while something gains more than noise."""
        while True:
            gained = best
            for settings in neighbours(best.settings, self._values):
                gained = self._better(gained, self._trial(settings, FULL))
            if gained is best:
                return best
            best = gained

    # --- measuring --------------------------------------------------------------------------------------------------

    def _trial(self, settings: Settings, stage: str) -> Tried:
        for tried in self.tried:
            if tried.settings == settings and tried.stage == stage:
                return tried
        self._check_time()
        number = 1 + sum(tried.stage == stage for tried in self.tried)
        text = f"{stage}, trial {number}: {name_of(settings)}"
        self._configure(settings)
        self._check_time()
        outcomes = drive(self._client, traffic(self._items, stage), lambda share: self._report(text, share))
        for outcome in outcomes:
            if outcome.error:
                raise EngineError(outcome.error)
        tried = Tried(settings, stage, outcomes)
        self.tried.append(tried)
        self._keep(tried)
        return tried

    def _configure(self, settings: Settings) -> None:
        """Set them, with nothing in the cache that trials before have left."""
        self._client.reconfigure({**settings, "prefix_caching": False})
        self._client.reconfigure({"prefix_caching": True})

    def _current(self) -> Settings:
        known = {setting.name: setting.value for setting in self._client.config()}
        return {name: known[name] for name in VALUES}

    def _allowed(self) -> dict[str, tuple[Any, ...]]:
        """The values that this engine would take, as a machine may lack the memory for some."""
        return {name: tuple(v for v in values if self._takes(name, v)) for name, values in VALUES.items()}

    def _takes(self, name: str, value: Any) -> bool:
        try:
            self._client.reconfigure({name: value}, dry_run=True)
        except EngineError:
            return False
        return True

    def _measure_device(self) -> Device:
        """From the steps of the first trials."""
        steps = [step for step in self._witness.steps if step.prefill_tokens + step.decode_tokens]
        if len(steps) < 20:  # all trials so far were an interrupted search's
            drive(self._client, traffic(self._items, SWEEP), lambda share: self._report("Measuring steps", share))
            steps = [step for step in self._witness.steps if step.prefill_tokens + step.decode_tokens]
        stats = self._client.status().stats
        assert stats is not None, "an engine that has served has statistics"
        tier = stats.device
        return fit(steps, slots=tier.num_blocks * tier.block_size, slot_bytes=tier.block_bytes // tier.block_size)

    def _predicted(self, device: Device, settings: Settings) -> float:
        report = predict(device, settings, self._items)
        if self._objective.name == "latency":
            return report.e2e_p95_s
        return report.output_tokens / max(report.virtual_s, 1e-9)

    def _best(self, tried: Sequence[Tried], count: int) -> list[Tried]:
        sign = -1 if self._objective.more_is_better else 1
        return sorted(tried, key=lambda one: sign * self._objective.value(one.outcomes))[:count]

    def _better(self, one: Tried, other: Tried) -> Tried:
        """The other one only where it gains more than noise."""
        gain = self._objective.gain([other.outcomes], [one.outcomes])
        return other if gain.low > 1.0 else one

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime


def traffic(items: Sequence[Item], stage: str) -> list[Item]:
    """A stage's part of a load. Half of the traffic is the same requests in twice the time, or half of them where all
    are due at once."""
    if stage == FULL:
        return list(items)
    if stage == SWEEP:
        return _first(items, SWEEP_SHARE)
    if any(item.at for item in items):
        return [replace(item, at=2 * item.at) for item in items]
    return _first(items, 0.5)


def _first(items: Sequence[Item], share: float) -> list[Item]:
    return list(items[: max(1, round(share * len(items)))])


def _spread(ranked: Sequence[Settings], count: int) -> list[Settings]:
    """``count`` of ``ranked``, which begins with the best: the first one, then always one that differs from those taken
    in as many values as can be. What the simulator cannot tell apart is not all looked at."""
    taken: list[Settings] = []
    left = list(ranked)
    while left and len(taken) < count:
        best = max(left, key=lambda one: min((_distance(one, other) for other in taken), default=0))
        taken.append(best)
        left.remove(best)
    return taken


def _distance(one: Settings, other: Settings) -> int:
    return sum(one[name] != other[name] for name in one)


def trials(search_: Search, objective: Objective) -> list[Trial]:
    """All that was tried, for a file of results."""
    return [Trial(tried.settings, tried.stage, objective.figures([tried.outcomes])) for tried in search_.tried]


def run_of(tried: Tried) -> Run:
    return Run(f"{tried.stage}: {name_of(tried.settings)}", tried.outcomes, dict(tried.settings))


def name_of(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
