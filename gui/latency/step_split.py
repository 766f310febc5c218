"""Where a step's time goes, averaged over each second. No Qt."""

from __future__ import annotations

import numpy as np

from ..state import StepHistory

#: Parts of a step, in the order in which they are stacked.
PARTS = ("forward_ms", "sample_ms", "schedule_ms", "other_ms")


def split_by_second(steps: StepHistory, since: float) -> tuple[np.ndarray, list[np.ndarray]]:
    """Unix seconds with at least one step, and the mean of each of :data:`PARTS` there, in seconds."""
    time = steps.column("time")
    first = int(np.searchsorted(time, since))
    time = time[first:]
    if not len(time):
        return np.zeros(0), [np.zeros(0) for _ in PARTS]
    second = np.floor(time)
    starts = np.flatnonzero(np.concatenate([[True], second[1:] != second[:-1]]))
    counts = np.diff(np.append(starts, len(time)))
    means = [np.add.reduceat(steps.column(name)[first:], starts) / counts / 1000 for name in PARTS]
    return second[starts] + 0.5, means
