"""Histograms over time: what happened between two moments, by class, whatever got lost on the way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pagedeck.engine.metrics import Metrics
from pagedeck.engine.serving.publisher import histogram
from pagedeck.gui.durations import EDGES, SPACING_S, WINDOW_S, Durations, percentiles
from pagedeck.ipc.telemetry import Histogram, Stats
from pagedeck.ipc.vocabulary import HISTOGRAM_BUCKETS

from .feeder import Feeder


class Engine:
    """Measures as the real one does, and tells once a second."""

    def __init__(self) -> None:
        self.feeder, self.metrics = Feeder(), Metrics()

    def second(self, name: str = "normal", *gaps: float) -> Stats:
        self.feeder.time += 1
        if gaps:
            self.metrics.output(len(gaps), {name: list(gaps)}, self.feeder.time)
        stats = self.feeder.stats()
        stats.histograms = {
            latency: {kind: histogram(h.counts) for kind, h in classes.items() if h.counts.any()}
            for latency, classes in self.metrics.histograms.items()
        }
        return stats


@pytest.mark.parametrize("values", [[0.02], [0.001, 0.03, 0.031, 2.0], list(np.geomspace(2e-4, 500, 997))])
def test_percentiles_are_right_within_a_bucket(values: list[float]) -> None:
    counts = np.histogram(values, EDGES)[0]
    for share, found in zip((0.5, 0.95, 0.99), percentiles(counts, (0.5, 0.95, 0.99)), strict=True):
        exact = np.sort(values)[max(0, math.ceil(share * len(values)) - 1)]
        assert found == pytest.approx(exact, rel=0.05)
    assert all(math.isnan(value) for value in percentiles(np.zeros(HISTOGRAM_BUCKETS, np.int64), (0.5, 0.99)))


def test_between_two_moments_is_what_the_engine_counted_there() -> None:
    engine, durations = Engine(), Durations()
    for _ in range(20):
        durations.add(engine.second("normal", 0.01))
    middle = engine.feeder.time
    for _ in range(20):
        durations.add(engine.second("batch", 0.5, 0.5))
    now = engine.feeder.time
    assert durations.counts("itl", ["batch"], middle).sum() == 40
    assert durations.counts("itl", ["normal"], middle).sum() <= SPACING_S
    assert durations.counts("itl", ["normal", "batch"], now - 10).sum() == pytest.approx(20, abs=2 * SPACING_S)
    assert durations.counts("itl", ["batch"], 0.0, middle).sum() == 0
    assert durations.counts("ttft", ["batch"], 0.0).sum() == 0


def test_what_was_before_anybody_looked_is_not_counted() -> None:
    engine, durations = Engine(), Durations()
    for _ in range(5):
        engine.second("normal", 0.01)
    durations.add(engine.second())
    durations.add(engine.second("normal", 0.01))
    assert durations.counts("itl", ["normal"], 0.0).sum() == 1


def test_a_lost_message_loses_nothing() -> None:
    engine, durations = Engine(), Durations()
    durations.add(engine.second())
    for _ in range(50):
        engine.second("normal", 0.01)
    durations.add(engine.second())
    assert durations.counts("itl", ["normal"], 0.0).sum() == 50


def test_percentiles_over_time_are_by_class_and_of_the_last_minute() -> None:
    engine, durations = Engine(), Durations()
    for _ in range(3 * WINDOW_S):
        durations.add(engine.second("interactive", 0.02))
    for _ in range(2 * WINDOW_S):
        durations.add(engine.second("batch", 0.2))
    over_time = durations.over_time
    assert over_time.column("interactive_itl_p50")[WINDOW_S] == pytest.approx(0.02, rel=0.05)
    assert np.isnan(over_time.column("interactive_itl_p95")[-1])
    assert over_time.column("batch_itl_p99")[-1] == pytest.approx(0.2, rel=0.05)
    assert over_time.column("batch_itl_count")[-1] == pytest.approx(WINDOW_S, abs=SPACING_S)
    assert np.isnan(over_time.column("batch_ttft_p50")[-1])
    durations.clear()
    assert len(over_time) == 0 and durations.counts("itl", ["batch"], 0.0).sum() == 0


def test_an_older_engine_tells_no_histograms() -> None:
    durations = Durations()
    durations.add(Feeder().stats())
    assert len(durations.over_time) == 0


def test_counts_beyond_the_known_buckets_are_left_out() -> None:
    durations, feeder = Durations(), Feeder()
    for amount in (1, 5):
        stats = feeder.stats()
        stats.histograms = {"itl": {"normal": Histogram(HISTOGRAM_BUCKETS - 1, np.full(3, amount, "<u4").tobytes())}}
        durations.add(stats)
    assert durations.counts("itl", ["normal"], 0.0).sum() == 4
