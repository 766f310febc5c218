"""What the engine has done lately: latency percentiles, rates, counters. Memory is bounded, a token costs little."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ipc.vocabulary import (
    HISTOGRAM_BUCKETS,
    HISTOGRAM_GROWTH,
    HISTOGRAM_SMALLEST_S,
    PRIORITIES,
    FinishReason,
    RequestState,
    priority_name,
)
from .request import Request

WINDOW_S = 60  # what percentiles look back on
RATE_S = 10  # what rates look back on

#: Latency buckets grow by 2 % from 10 microseconds to about 3 hours, so a percentile is right within 1 %.
_SMALLEST = 1e-5
_LOG_STEP = math.log(1.02)
_BUCKETS = 1_050

#: Steps of up to 2**19 tokens are told apart by how many they have, in powers of two.
STEP_TOKENS_BUCKETS = 20


@dataclass(slots=True)
class Percentiles:
    """Of the last 60 seconds, in seconds. ``count`` 0 means that there was nothing to measure."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


class _Seconds:
    """A ring with one row of numbers for each of the last ``length`` seconds."""

    def __init__(self, length: int, width: int) -> None:
        self.rows = np.zeros((length, width), np.int64)
        self._newest = 0  # second of the newest row

    def row(self, now: float) -> np.ndarray:
        """The row of the current second."""
        self.advance(now)
        row: np.ndarray = self.rows[self._newest % len(self.rows)]
        return row

    def advance(self, now: float) -> None:
        """Empty the rows of the seconds that have passed since the last call."""
        second = int(now)
        passed = second - self._newest
        if passed >= len(self.rows):
            self.rows[:] = 0
        else:
            for skipped in range(self._newest + 1, second + 1):
                self.rows[skipped % len(self.rows)] = 0
        self._newest = max(second, self._newest)


class Latency:
    """Durations of the last 60 seconds, kept as one histogram a second."""

    def __init__(self) -> None:
        self._seconds = _Seconds(WINDOW_S, _BUCKETS)

    def add(self, durations: list[float], now: float) -> None:
        """``durations`` in seconds, all of which ended at ``now`` (monotonic seconds)."""
        if not durations:
            return
        scaled = np.log(np.maximum(durations, _SMALLEST) / _SMALLEST) / _LOG_STEP
        buckets = np.minimum(scaled.astype(np.int64), _BUCKETS - 1)
        self._seconds.row(now)[:] += np.bincount(buckets, minlength=_BUCKETS)

    def percentiles(self, now: float) -> Percentiles:
        self._seconds.advance(now)
        below = np.cumsum(self._seconds.rows.sum(axis=0))
        count = int(below[-1])
        if not count:
            return Percentiles()
        ranks = np.ceil(np.array([0.50, 0.95, 0.99]) * count)
        middles = _SMALLEST * np.exp((np.searchsorted(below, ranks) + 0.5) * _LOG_STEP)
        return Percentiles(count, *(float(value) for value in middles))


class Histogram:
    """Durations since the engine started, in the buckets of the wire."""

    def __init__(self) -> None:
        self.counts = np.zeros(HISTOGRAM_BUCKETS, np.int64)
        self.sum = 0.0  # seconds

    def add(self, durations: list[float]) -> None:
        self.sum += sum(durations)
        scaled = np.log(np.maximum(durations, HISTOGRAM_SMALLEST_S) / HISTOGRAM_SMALLEST_S) / math.log(HISTOGRAM_GROWTH)
        np.add.at(self.counts, np.minimum(scaled.astype(np.int64), HISTOGRAM_BUCKETS - 1), 1)


class Rates:
    """Prompt tokens, output tokens and finished requests a second, over the last 10 whole seconds."""

    def __init__(self, now: float) -> None:
        self._begun = now
        self._seconds = _Seconds(RATE_S + 1, 3)

    def add(self, prompt_tokens: int, output_tokens: int, requests: int, now: float) -> None:
        row = self._seconds.row(now)
        row[0] += prompt_tokens
        row[1] += output_tokens
        row[2] += requests

    def per_second(self, now: float) -> tuple[float, float, float]:
        row = self._seconds.row(now)
        whole = self._seconds.rows.sum(axis=0) - row
        # Before ten seconds have passed, what there is of them; the current second counts only if there is no other.
        seconds = min(RATE_S, int(now) - int(self._begun))
        if seconds < 1:
            whole, seconds = row, 1
        prompt, output, requests = (float(total) / seconds for total in whole)
        return prompt, output, requests


@dataclass(slots=True)
class Counters:
    """Totals since the engine started. Times in milliseconds."""

    steps: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    preemptions: int = 0
    swaps: int = 0  # of the preemptions, those to the host tier
    prompt_tokens: int = 0  # computed, those of recomputed prompts included
    output_tokens: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    computed_tokens: int = 0  # of prompts and outputs
    redone_tokens: int = 0  # of them, those that had been computed before
    schedule_ms: float = 0.0
    forward_ms: float = 0.0
    sample_ms: float = 0.0
    other_ms: float = 0.0


class Metrics:
    """Fed by the core. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.counters = Counters()
        self._latencies = {name: Latency() for name in ("ttft", "itl", "queue", "e2e")}
        measured = (*self._latencies, "prefill", "decode")
        self.histograms = {name: {kind: Histogram() for kind in PRIORITIES} for name in measured}  # by class
        self.ends = dict.fromkeys(FinishReason, 0)  # samples
        self.step_tokens = [0] * STEP_TOKENS_BUCKETS  # steps, as in telemetry.Stats
        self._rates = Rates(clock())
        self._work = _Seconds(WINDOW_S, 2)  # tokens computed, tokens of them redone

    def started(self, request: Request, now: float) -> None:
        """The request was scheduled for the first time."""
        self._measured("queue", priority_name(request.priority), [now - request.arrival], now)
        self.counters.prefix_queried_tokens += len(request.prompt)
        self.counters.prefix_hit_tokens += request.cached_tokens

    def first_token(self, request: Request, now: float) -> None:
        self._measured("ttft", priority_name(request.priority), [now - request.arrival], now)

    def output(self, tokens: int, gaps: dict[str, list[float]], now: float) -> None:
        """Output tokens came. ``gaps``: seconds since the token before, of each that had one, by class."""
        self.counters.output_tokens += tokens
        self._rates.add(0, tokens, 0, now)
        for name, durations in gaps.items():
            self._measured("itl", name, durations, now)

    def step(
        self,
        prefill_tokens: int,
        decode_tokens: int,
        redone_tokens: int,
        *,
        preempted: int,
        swapped: int,
        times: tuple[float, float, float, float],
    ) -> None:
        """A step ended. ``times``: milliseconds of scheduling, forward, sampling and the rest."""
        tokens = prefill_tokens + decode_tokens
        if tokens:
            self.step_tokens[min((tokens - 1).bit_length(), STEP_TOKENS_BUCKETS - 1)] += 1
        counters = self.counters
        counters.steps += 1
        counters.prompt_tokens += prefill_tokens
        counters.computed_tokens += tokens
        counters.redone_tokens += redone_tokens
        counters.preemptions += preempted + swapped
        counters.swaps += swapped
        counters.schedule_ms += times[0]
        counters.forward_ms += times[1]
        counters.sample_ms += times[2]
        counters.other_ms += times[3]
        now = self.clock()
        work = self._work.row(now)
        work[0] += tokens
        work[1] += redone_tokens
        if prefill_tokens:
            self._rates.add(prefill_tokens, 0, 0, now)

    def ended(self, request: Request, now: float) -> None:
        """A request ended, however it did; latencies count those that finished."""
        for sequence in request.sequences:
            if sequence.finish_reason is not None:
                self.ends[sequence.finish_reason] += 1
        state = request.state
        if state is RequestState.FAILED:
            self.counters.failed += 1
        elif state is RequestState.CANCELLED:
            self.counters.cancelled += 1
        else:
            self.counters.finished += 1
            self._rates.add(0, 0, 1, now)
            kind = priority_name(request.priority)
            self._measured("e2e", kind, [now - request.arrival], now)
            if request.started is not None and request.first_token is not None:
                self.histograms["prefill"][kind].add([request.first_token - request.started])
                self.histograms["decode"][kind].add([now - request.first_token])

    def _measured(self, latency: str, class_name: str, durations: list[float], now: float) -> None:
        self._latencies[latency].add(durations, now)
        self.histograms[latency][class_name].add(durations)

    def latency(self) -> dict[str, Percentiles]:
        """Percentiles of ``ttft``, ``itl``, ``queue`` and ``e2e``."""
        now = self.clock()
        return {name: latency.percentiles(now) for name, latency in self._latencies.items()}

    def rates(self) -> tuple[float, float, float]:
        """Prompt tokens computed, output tokens and finished requests a second."""
        return self._rates.per_second(self.clock())

    def work(self) -> tuple[int, int]:
        """Tokens computed in the last minute, and how many of them had been computed before."""
        self._work.advance(self.clock())
        computed, redone = self._work.rows.sum(axis=0).tolist()
        return computed, redone
