"""How sure a figure is: bootstrap intervals (Efron, 1979), over runs and over the requests of each run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .workload import percentile

T = TypeVar("T")

ROUNDS = 400
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and between which values it lies with a confidence of 95 %."""

    value: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        return not self.low <= value <= self.high


def interval(
    runs: Sequence[Sequence[T]], figure: Callable[[Sequence[T]], float], *, rounds: int = ROUNDS, seed: int = 0
) -> Interval:
    """The mean of a figure over runs. Each round draws runs with replacement, and from each run samples likewise, so
    that both what differs from run to run and what differs from request to request counts."""
    rng = random.Random(seed)
    means = sorted(_resampled(runs, figure, rng) for _ in range(rounds))
    value = sum(map(figure, runs)) / len(runs)
    return _around(value, means)


def ratio(
    runs: Sequence[Sequence[T]],
    others: Sequence[Sequence[T]],
    figure: Callable[[Sequence[T]], float],
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Interval:
    """How many times as large a figure is in ``runs`` as it is in ``others``. Beyond noise where it excludes 1."""
    rng = random.Random(seed)
    ratios = []
    for _ in range(rounds):
        mine, theirs = _resampled(runs, figure, rng), _resampled(others, figure, rng)
        ratios.append(mine / theirs if theirs else 1.0)
    mean, other = (sum(map(figure, each)) / len(each) for each in (runs, others))
    return _around(mean / other if other else 1.0, sorted(ratios))


def _resampled(runs: Sequence[Sequence[T]], figure: Callable[[Sequence[T]], float], rng: random.Random) -> float:
    drawn = rng.choices(runs, k=len(runs))
    return sum(figure(rng.choices(run, k=len(run))) for run in drawn) / len(drawn)


def _around(value: float, drawn: Sequence[float]) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    return Interval(value, percentile(drawn, tail), percentile(drawn, 1 - tail))
