"""Percentiles within 1 %, of the last minute only, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from pagedeck.engine.metrics import Latency, Metrics, Rates
from pagedeck.engine.request import Request, Sequence
from pagedeck.ipc.vocabulary import (
    HISTOGRAM_GROWTH,
    HISTOGRAM_SMALLEST_S,
    FinishReason,
    RequestState,
    SamplingParams,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_percentiles_are_those_of_numpy_within_one_percent() -> None:
    samples = np.random.default_rng(1).lognormal(-3, 1.5, 20_000)
    latency = Latency()
    for index, part in enumerate(np.split(samples, 100)):
        latency.add(part.tolist(), 1000 + index / 4)
    found = latency.percentiles(1025)
    exact = np.percentile(samples, [50, 95, 99], method="inverted_cdf")
    assert found.count == 20_000
    assert [found.p50, found.p95, found.p99] == pytest.approx(exact.tolist(), rel=0.0101)


def test_extremes_are_kept_in_range() -> None:
    latency = Latency()
    latency.add([0.0, -1.0, 1e9], 5.0)
    found = latency.percentiles(5.0)
    assert found.count == 3
    assert found.p50 == pytest.approx(1e-5, rel=0.02)
    assert found.p99 > 3600


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    latency = Latency()
    latency.add([1.0], 100.5)
    latency.add([3.0], 130.5)
    assert latency.percentiles(159.9).count == 2
    assert latency.percentiles(160.1).count == 1
    assert latency.percentiles(160.1).p50 == pytest.approx(3.0, rel=0.01)
    assert latency.percentiles(191.0).count == 0
    latency.add([1.0], 10_000.0)
    assert latency.percentiles(10_000.0).count == 1


def test_rates_look_back_ten_seconds() -> None:
    rates = Rates(now=1000.0)
    for second in range(1000, 1020):
        for _ in range(10):
            rates.add(20, 5, 1, second + 0.5)
    assert rates.per_second(1020.0) == (200.0, 50.0, 10.0)
    assert rates.per_second(1025.0) == (100.0, 25.0, 5.0)
    assert rates.per_second(1100.0) == (0.0, 0.0, 0.0)


def test_rates_of_a_young_engine_are_not_diluted() -> None:
    rates = Rates(now=1000.2)
    rates.add(0, 30, 0, 1000.5)
    assert rates.per_second(1000.6)[1] == 30.0
    rates.add(0, 30, 0, 1001.5)
    assert rates.per_second(1002.1)[1] == 30.0


def test_counters_tell_ends_apart() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    for state, error in (
        (RequestState.FINISHED, ""),
        (RequestState.CANCELLED, ""),
        (RequestState.FAILED, "broken"),
        (RequestState.FINISHED, ""),
    ):
        request = Request(1, "a", [1], SamplingParams(), 10, arrival=clock.now - 2)
        request.sequences.append(Sequence(1, request, 0, [1], state=state))
        request.error = error
        metrics.ended(request, clock.now)
    counters = metrics.counters
    assert (counters.finished, counters.cancelled, counters.failed) == (2, 1, 1)
    latency = metrics.latency()["e2e"]
    assert latency.count == 2
    assert latency.p50 == pytest.approx(2.0, rel=0.01)


def test_totals_are_those_of_dashboards() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    for reason in (FinishReason.STOP, FinishReason.LENGTH):
        request = Request(1, "a", [1], SamplingParams(), 10, arrival=clock.now - 4, started=clock.now - 3)
        request.first_token = clock.now - 1
        request.sequences.append(Sequence(1, request, 0, [1], state=RequestState.FINISHED, finish_reason=reason))
        metrics.ended(request, clock.now)
    assert (metrics.ends[FinishReason.STOP], metrics.ends[FinishReason.LENGTH]) == (1, 1)
    prefill, decode = metrics.histograms["prefill"]["normal"], metrics.histograms["decode"]["normal"]
    assert (prefill.sum, decode.sum, prefill.counts.sum(), decode.counts.sum()) == (4.0, 2.0, 2, 2)
    for tokens in (0, 1, 2, 3, 4, 5, 2**30):
        metrics.step(0, tokens, 0, preempted=0, swapped=0, times=(0.0, 0.0, 0.0, 0.0))
    assert metrics.step_tokens[:4] == [1, 1, 2, 1] and metrics.step_tokens[-1] == 1


def test_a_step_is_split_into_its_times() -> None:
    metrics = Metrics(Clock())
    metrics.step(100, 5, 10, preempted=2, swapped=1, times=(1.0, 20.0, 3.0, 0.5))
    metrics.step(0, 7, 0, preempted=0, swapped=0, times=(1.0, 10.0, 3.0, 0.5))
    metrics.output(7, {"normal": [0.1], "batch": [0.2]}, 1000.0)
    counters = metrics.counters
    assert (counters.schedule_ms, counters.forward_ms, counters.sample_ms, counters.other_ms) == (2.0, 30.0, 6.0, 1.0)
    assert (counters.steps, counters.preemptions, counters.swaps, counters.redone_tokens) == (2, 3, 1, 10)
    assert (counters.prompt_tokens, counters.output_tokens) == (100, 7)
    assert metrics.latency()["itl"].count == 2


def test_durations_are_counted_by_class_since_the_start() -> None:
    metrics = Metrics(Clock())
    metrics.output(4, {"normal": [0.03, 0.03, 5_000.0], "batch": [0.0]}, 1000.0)
    metrics.output(1, {"normal": [0.03]}, 100_000.0)
    counts = {name: histogram.counts for name, histogram in metrics.histograms["itl"].items()}
    assert {name: int(c.sum()) for name, c in counts.items()} == {"interactive": 0, "normal": 4, "batch": 1}
    bucket = int(np.flatnonzero(counts["normal"])[0])
    low = HISTOGRAM_SMALLEST_S * HISTOGRAM_GROWTH**bucket
    assert low <= 0.03 < low * HISTOGRAM_GROWTH
    assert counts["normal"][bucket] == 3
    assert counts["normal"][-1] == 1
    assert counts["batch"][0] == 1
