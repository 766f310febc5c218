"""What is to be made best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ipc.vocabulary import Refused
from .. import figures
from ..drive import Outcome
from ..figures import FIGURES, Limits, goodput, smoothed_goodput
from ..noise import Interval, interval, paired_ratio

NO_LIMITS = Limits()

#: Objective -> the figure that tells it.
OBJECTIVES = {"throughput": "tokens_per_s", "latency": "e2e_p95", "goodput": "goodput"}


@dataclass(frozen=True, slots=True)
class Objective:
    """``throughput``: output tokens a second; ``latency``: the 95th percentile until the last token; ``goodput``:
    requests a second that keep ``limits``."""

    name: str
    limits: Limits = NO_LIMITS

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise Refused.value("objective", self.name, ", ".join(OBJECTIVES))
        if self.name == "goodput" and self.limits == NO_LIMITS:
            raise Refused("The objective goodput needs --ttft-limit or --itl-limit.", field="objective")

    @property
    def more_is_better(self) -> bool:
        return self.name != "latency"

    @property
    def figure(self) -> str:
        return OBJECTIVES[self.name]

    def value(self, outcomes: Sequence[Outcome]) -> float:
        return goodput(outcomes, self.limits) if self.name == "goodput" else FIGURES[self.figure][2](outcomes)

    def best(self, values: Sequence[float]) -> int:
        """The place of the best one."""
        return max(range(len(values)), key=lambda place: values[place] if self.more_is_better else -values[place])

    def gain(self, runs: Sequence[Sequence[Outcome]], others: Sequence[Sequence[Outcome]]) -> Interval:
        """How many times as good ``runs`` are as ``others`` of the same load: above 1 is better."""
        if self.name == "goodput":
            return paired_ratio(runs, others, lambda run: smoothed_goodput(run, self.limits))
        return paired_ratio(*((runs, others) if self.more_is_better else (others, runs)), self.value)

    def figures(self, runs: Sequence[Sequence[Outcome]]) -> dict[str, list[float]]:
        """What a trial is told by: value, low and high of each figure."""
        told = {name: FIGURES[name][2] for name in ("tokens_per_s", "ttft_p95", "itl_p95", "e2e_p95")}
        if self.name == "goodput":
            told["goodput"] = self.value
        answered = [figures.good(run) for run in runs]
        found = {name: interval(answered, figure) for name, figure in told.items()}
        return {name: [each.value, each.low, each.high] for name, each in found.items()}
