"""How long things took, by class: the engine's histograms over time, and what can be read off them. No Qt.

The engine counts since its start, so what happened between two moments is the difference of two messages, and a message
that got lost takes nothing with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np

from ..ipc.telemetry import Histogram, Stats
from ..ipc.vocabulary import HISTOGRAM_BUCKETS, HISTOGRAM_GROWTH, HISTOGRAM_SMALLEST_S, PRIORITIES
from .history import History

LATENCIES = ("ttft", "itl", "queue", "e2e")
QUANTILES = ("count", "p50", "p95", "p99")

WINDOW_S = 60  # what percentiles over time look back on, as the engine's own do
SPACING_S = 5.0  # between two messages that are kept
KEPT = 1_441  # of them: two hours

#: Lower ends of the buckets and the upper end of the last, in seconds.
EDGES = HISTOGRAM_SMALLEST_S * HISTOGRAM_GROWTH ** np.arange(HISTOGRAM_BUCKETS + 1)

_Told = Mapping[str, Mapping[str, Histogram]]


class Durations:
    """``over_time`` has a row for each message, with percentiles by class (``batch_ttft_p95`` …)."""

    def __init__(self) -> None:
        self.over_time = History(
            ("time", *(f"{kind}_{name}_{q}" for kind in PRIORITIES for name in LATENCIES for q in QUANTILES)), 7_200
        )
        self._kept: deque[tuple[float, _Told]] = deque(maxlen=KEPT)
        self._newest: tuple[float, _Told] | None = None

    def clear(self) -> None:
        self.over_time.clear()
        self._kept.clear()
        self._newest = None

    def add(self, stats: Stats) -> None:
        """Take a second's message; an older engine's tells nothing."""
        if not stats.histograms and self._newest is None:
            return
        self._newest = stats.time, stats.histograms
        if not self._kept or stats.time - self._kept[-1][0] >= SPACING_S:
            self._kept.append(self._newest)
        row = {"time": stats.time}
        for kind in PRIORITIES:
            for name in LATENCIES:
                counts = self.counts(name, [kind], stats.time - WINDOW_S)
                total = int(counts.sum())
                row[f"{kind}_{name}_count"] = total
                for quantile, value in zip(QUANTILES[1:], percentiles(counts, (0.5, 0.95, 0.99)), strict=True):
                    row[f"{kind}_{name}_{quantile}"] = value
        self.over_time.append(row)

    def counts(self, latency: str, classes: Iterable[str], start: float, end: float = math.inf) -> np.ndarray:
        """int64 ``[HISTOGRAM_BUCKETS]``: what ended between two moments (Unix seconds), as exactly as is kept. Of what
        was before anybody looked nothing is known."""
        after, before = self._at(end), self._at(start)
        counts = np.zeros(HISTOGRAM_BUCKETS, np.int64)
        for kind in classes:
            counts += _whole(after, latency, kind) - _whole(before, latency, kind)
        return np.maximum(counts, 0)

    def _at(self, moment: float) -> _Told:
        """The last message of a moment, or the first one that is kept."""
        if self._newest is None:
            return {}
        if self._newest[0] <= moment:
            return self._newest[1]
        return next((told for time, told in reversed(self._kept) if time <= moment), self._kept[0][1])


def _whole(told: _Told, latency: str, kind: str) -> np.ndarray:
    counts = np.zeros(HISTOGRAM_BUCKETS, np.int64)
    histogram = told.get(latency, {}).get(kind)
    if histogram is not None:
        some = np.frombuffer(histogram.counts, "<u4")[: HISTOGRAM_BUCKETS - histogram.first]
        counts[histogram.first : histogram.first + len(some)] = some
    return counts


def percentiles(counts: np.ndarray, shares: Iterable[float]) -> list[float]:
    """Durations in seconds below which these shares of what is counted lie; NaN for nothing. Right within a bucket's
    width of 5 %."""
    below = np.cumsum(counts)
    total = int(below[-1])
    if not total:
        return [math.nan for _ in shares]
    found = []
    for share in shares:
        rank = max(1, math.ceil(share * total))
        bucket = int(np.searchsorted(below, rank))
        part = (rank - (below[bucket] - counts[bucket]) - 0.5) / counts[bucket]
        found.append(float(EDGES[bucket] * HISTOGRAM_GROWTH**part))
    return found
