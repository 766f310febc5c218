"""Figures for Prometheus: an engine's, under names of our own and under vLLM's for the same quantities, and the
gateway's own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..protocol import EngineStatus
from ..telemetry import Histogram, Stats, TierStats
from ..vocabulary import HISTOGRAM_BUCKETS, HISTOGRAM_GROWTH, HISTOGRAM_SMALLEST_S, EngineState, FinishReason

#: Every so many of the engine's buckets make one of Prometheus's: each ends at about twice the one before.
_COARSE = 14

#: Our name, vLLM's, the engine's, and what is measured.
_DURATIONS = (
    ("time_to_first_token", "time_to_first_token", "ttft", "from a request's arrival to its first token"),
    ("inter_token_latency", "inter_token_latency", "itl", "from one token of a sample to the next"),
    ("request_latency", "e2e_request_latency", "e2e", "from a request's arrival to its end"),
    ("queue_time", "request_queue_time", "queue", "from a request's arrival until it first runs"),
    ("prefill_time", "request_prefill_time", "prefill", "from a request's first run to its first token"),
    ("decode_time", "request_decode_time", "decode", "from a request's first token to its end"),
)

#: What vLLM calls the ends of requests.
_VLLM_ENDS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.CANCELLED: "abort",
    FinishReason.FAILED: "error",
}


class RequestCounts:
    """HTTP requests by path and status, and those being answered."""

    def __init__(self) -> None:
        self.ended: Counter[tuple[str, int]] = Counter()
        self.running: Counter[str] = Counter()

    def families(self) -> Iterator[Metric]:
        ended = CounterMetricFamily("pagedeck_http_requests", "HTTP requests answered", labels=["path", "code"])
        for (path, code), count in sorted(self.ended.items()):
            ended.add_metric([path, str(code)], count)
        running = GaugeMetricFamily("pagedeck_http_requests_running", "HTTP requests being answered", labels=["path"])
        for path, count in sorted(self.running.items()):
            running.add_metric([path], count)
        yield from (ended, running)


class Counted:
    """Counts what passes. ``paths`` are told apart, with all below those that end in a parameter; others are one."""

    def __init__(self, app: ASGIApp, counts: RequestCounts, paths: Iterable[str]) -> None:
        self._app = app
        self._counts = counts
        self._whole = frozenset(path for path in paths if "{" not in path)
        self._below = tuple(path for path in paths if "{" in path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, code = self._path(scope["path"]), 500

        async def noting(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        self._counts.running[path] += 1
        try:
            await self._app(scope, receive, noting)
        finally:
            self._counts.running[path] -= 1
            self._counts.ended[path, code] += 1

    def _path(self, path: str) -> str:
        """What it is counted as: however many paths are asked for, few are told."""
        if path in self._whole:
            return path
        return next((known for known in self._below if path.startswith(known.partition("{")[0])), "other")


def exposition(status: EngineStatus | None, counts: RequestCounts) -> bytes:
    """All figures as Prometheus reads them. ``status`` is None where no engine answers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([*_engine(status), *counts.families()]))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families

    def describe(self) -> Iterable[Metric]:
        return ()  # nothing else is registered, so no name can be taken


def _engine(status: EngineStatus | None) -> Iterator[Metric]:
    state = GaugeMetricFamily("pagedeck_engine_state", "1 for the engine's state, 0 for the others", labels=["state"])
    for known in (*EngineState, "absent"):
        state.add_metric([known], float(known == (status.state if status else "absent")))
    yield state
    if status is not None and status.stats is not None:
        info = GaugeMetricFamily(
            "pagedeck_engine_info", "What the engine is", labels=["name", "model", "version", "device", "dtype"]
        )
        info.add_metric([status.name, status.model, status.version, status.device, status.dtype], 1.0)
        yield info
        yield _gauge("pagedeck_uptime_seconds", "Since the engine started", time.time() - status.started)
        yield from _own(status.stats)
        yield from _vllm(status.stats, status.model)


# --- names of our own -------------------------------------------------------------------------------------------


def _own(stats: Stats) -> Iterator[Metric]:
    requests = GaugeMetricFamily("pagedeck_requests", "Requests by what they do", labels=["state"])
    for name in ("running", "waiting", "swapped"):
        requests.add_metric([name], getattr(stats, name))
    ended = CounterMetricFamily("pagedeck_requests_ended", "Requests by how they ended", labels=["state"])
    for name in ("finished", "cancelled", "failed"):
        ended.add_metric([name], getattr(stats, name))
    yield from (requests, ended)
    samples = CounterMetricFamily("pagedeck_samples_ended", "Samples by how they ended", labels=["reason"])
    for reason, count in stats.ends.items():
        samples.add_metric([reason], count)
    yield samples
    for name, meaning, value in (
        ("prompt_tokens", "Tokens of prompts that began to run", stats.prefix_queried_tokens),
        ("prompt_tokens_cached", "Of them, those found in the prefix cache", stats.prefix_hit_tokens),
        ("output_tokens", "Tokens generated", stats.output_tokens),
        ("computed_tokens", "Tokens computed, of prompts and outputs", stats.computed_tokens),
        ("recomputed_tokens", "Of them, those computed again after a preemption", stats.redone_tokens),
        ("preemptions", "Sequences that lost their blocks", stats.preemptions),
        ("steps", "Steps of the engine", stats.steps),
    ):
        yield CounterMetricFamily(f"pagedeck_{name}", meaning, value=value)
    yield from _pools(stats)
    for name, _, latency, meaning in _DURATIONS:
        family = HistogramMetricFamily(f"pagedeck_{name}_seconds", f"Seconds {meaning}", labels=["class"])
        for kind, histogram in stats.histograms.get(latency, {}).items():
            _add(family, [kind], [histogram])
        yield family
    yield _step_tokens("pagedeck_step_tokens", stats, [], [])
    yield _gauge("pagedeck_process_memory_bytes", "Memory that the engine's process holds", stats.memory_bytes)
    yield _gauge("pagedeck_device_memory_bytes", "Memory that its tensors take on a GPU", stats.device_memory_bytes)
    yield _gauge("pagedeck_process_cpu_ratio", "Processors that it keeps busy", stats.cpu_percent / 100)


def _pools(stats: Stats) -> Iterator[Metric]:
    labels = ["tier", "group"]
    blocks = GaugeMetricFamily("pagedeck_blocks", "Blocks of the KV cache by state", labels=[*labels, "state"])
    slots = GaugeMetricFamily("pagedeck_block_tokens", "Tokens that a block holds", labels=labels)
    size = GaugeMetricFamily("pagedeck_pool_bytes", "Size of a pool", labels=labels)
    filled = GaugeMetricFamily("pagedeck_pool_filled_ratio", "Tokens ÷ slots of the blocks in use", labels=labels)
    evicted = CounterMetricFamily("pagedeck_blocks_evicted", "Cached blocks given up for others", labels=labels)
    for tier, group, facts in _tiers(stats):
        for state in ("free", "reserved", "cached", "used"):
            blocks.add_metric([tier, group, state], getattr(facts, state))
        slots.add_metric([tier, group], facts.block_size)
        size.add_metric([tier, group], facts.num_blocks * facts.block_bytes)
        filled.add_metric([tier, group], facts.filled)
        evicted.add_metric([tier, group], facts.evicted)
    yield from (blocks, slots, size, filled, evicted)


def _tiers(stats: Stats) -> Iterator[tuple[str, str, TierStats]]:
    """Tier, group of layers (the first has no name), pool."""
    for group, device, host in (("", stats.device, stats.host), *((g.name, g.device, g.host) for g in stats.groups)):
        yield "device", group, device
        yield "host", group, host


# --- vLLM's names -----------------------------------------------------------------------------------------------


def _vllm(stats: Stats, model: str) -> Iterator[Metric]:
    names, values = ["model_name", "engine"], [model, "0"]

    def counter(name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", meaning, labels=names)
        family.add_metric(values, value)
        return family

    def gauge(name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", meaning, labels=names)
        family.add_metric(values, value)
        return family

    yield gauge("num_requests_running", "Sequences that run", stats.running)
    yield gauge("num_requests_waiting", "Sequences that wait", stats.waiting + stats.swapped)
    yield gauge("kv_cache_usage_perc", "Share of the device pool in use, 0 to 1", stats.device.allocated)
    yield counter("num_preemptions", "Sequences that lost their blocks", stats.preemptions)
    yield counter("prefix_cache_queries", "Prompt tokens looked for in the prefix cache", stats.prefix_queried_tokens)
    yield counter("prefix_cache_hits", "Prompt tokens found there", stats.prefix_hit_tokens)
    yield counter("prompt_tokens", "Tokens of prompts that began to run", stats.prefix_queried_tokens)
    yield counter("generation_tokens", "Tokens generated", stats.output_tokens)
    success = CounterMetricFamily(
        "vllm:request_success", "Samples by how they ended", labels=[*names, "finished_reason"]
    )
    for reason, name in _VLLM_ENDS.items():
        success.add_metric([*values, name], stats.ends.get(reason.value, 0))
    yield success
    for _, theirs, latency, meaning in _DURATIONS:
        family = HistogramMetricFamily(f"vllm:{theirs}_seconds", f"Seconds {meaning}", labels=names)
        _add(family, values, list(stats.histograms.get(latency, {}).values()))
        yield family
    yield _step_tokens("vllm:iteration_tokens_total", stats, names, values)
    facts = {"block_size": stats.device.block_size, "num_gpu_blocks": stats.device.num_blocks,
             "num_cpu_blocks": stats.host.num_blocks}  # fmt: skip
    config = GaugeMetricFamily("vllm:cache_config_info", "The KV cache", labels=["engine", *facts])
    config.add_metric(["0", *map(str, facts.values())], 1.0)
    yield config


# --- shapes -----------------------------------------------------------------------------------------------------


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _add(family: HistogramMetricFamily, labels: list[str], histograms: list[Histogram]) -> None:
    """All of ``histograms`` together; their bounds are those of the engine's buckets, so no count is a guess."""
    counts = [0] * HISTOGRAM_BUCKETS
    for histogram in histograms:
        for i, count in enumerate(memoryview(histogram.counts).cast("I"), histogram.first):
            counts[min(i, HISTOGRAM_BUCKETS - 1)] += count
    below = list(accumulate(counts))
    buckets = [
        (f"{HISTOGRAM_SMALLEST_S * HISTOGRAM_GROWTH**edge:.6g}", float(below[edge - 1]))
        for edge in range(_COARSE, HISTOGRAM_BUCKETS, _COARSE)
    ]
    family.add_metric(labels, [*buckets, ("+Inf", float(below[-1]))], sum(h.sum for h in histograms))


def _step_tokens(name: str, stats: Stats, labels: list[str], values: list[str]) -> Metric:
    family = HistogramMetricFamily(name, "Tokens in a step", labels=labels)
    below = list(accumulate(stats.step_tokens)) or [0]
    buckets = [(str(float(2**i)), float(count)) for i, count in enumerate(below[:-1])]
    family.add_metric(values, [*buckets, ("+Inf", float(below[-1]))], stats.computed_tokens)
    return family
