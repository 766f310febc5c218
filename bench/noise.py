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
    return _around(_mean(runs, figure), means)


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
    draws = [(_resampled(runs, figure, rng), _resampled(others, figure, rng)) for _ in range(rounds)]
    return _around_ratio(_mean(runs, figure), _mean(others, figure), draws)


def paired_ratio(
    runs: Sequence[Sequence[T]],
    others: Sequence[Sequence[T]],
    figure: Callable[[Sequence[T]], float],
    *,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Interval:
    """:func:`ratio` where all are runs of one load, whose samples are of the same requests in the same order: the same
    ones are drawn on both sides, so that how requests differ from one another is no noise."""
    rng, count = random.Random(seed), len(runs[0])

    def drawn(each: Sequence[Sequence[T]], places: Sequence[int]) -> float:
        return _mean([[run[place] for place in places] for run in rng.choices(each, k=len(each))], figure)

    draws = []
    for _ in range(rounds):
        places = rng.choices(range(count), k=count)
        draws.append((drawn(runs, places), drawn(others, places)))
    return _around_ratio(_mean(runs, figure), _mean(others, figure), draws)


def _around_ratio(mean: float, other: float, draws: Sequence[tuple[float, float]]) -> Interval:
    """The ratio of two means, and how it varies over draws of both."""
    ratios = sorted(mine / theirs if theirs else 1.0 for mine, theirs in draws)
    return _around(mean / other if other else 1.0, ratios)


def _mean(runs: Sequence[Sequence[T]], figure: Callable[[Sequence[T]], float]) -> float:
    return sum(map(figure, runs)) / len(runs)


def _resampled(runs: Sequence[Sequence[T]], figure: Callable[[Sequence[T]], float], rng: random.Random) -> float:
    return _mean([rng.choices(run, k=len(run)) for run in rng.choices(runs, k=len(runs))], figure)


def _around(value: float, drawn: Sequence[float]) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    return Interval(value, percentile(drawn, tail), percentile(drawn, 1 - tail))
