"""What changed between two results, beyond noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..ipc.vocabulary import Refused
from .figures import Limits, figures_with, good, smoothed_goodput
from .noise import Interval, ratio
from .results import Results


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of a system, as a ratio of after to before. ``better`` is none where the difference is within noise."""

    name: str
    figure: str
    ratio: Interval
    better: bool | None


def changes(before: Results, after: Results) -> list[Change]:
    """Every figure of every system that both results have; goodput where one of them states limits, the later's first.

    Raises:
        Refused: they have no system in common, or their loads differ.
    """
    names = [name for name in after.names() if name in before.names()]
    if not names:
        raise Refused(
            f"The results have no run in common: one has {', '.join(before.names())}, the other "
            f"{', '.join(after.names())}.",
            field="results",
        )
    if before.load != after.load:
        raise Refused("The results are of different loads, which cannot be compared.", field="results")
    limits = Limits(**(after.limits or before.limits))
    return [_change(before, after, name, figure, limits) for name in names for figure in figures_with(limits)]


def _change(before: Results, after: Results, name: str, figure: str, limits: Limits) -> Change:
    _, more_is_better, of = figures_with(limits)[figure]
    if figure == "goodput":
        of = partial(smoothed_goodput, limits=limits)
    mine, theirs = ([good(run) for run in each.repetitions(name)] for each in (after, before))
    changed = ratio(mine, theirs, of)
    better = (changed.value > 1) == more_is_better if changed.excludes(1.0) else None
    return Change(name, figure, changed, better)
