"""An engine under a load of one's choosing, as the advisor sees it: a second at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from pagedeck.engine.metrics import Histogram as Counted
from pagedeck.engine.serving.publisher import histogram
from pagedeck.gui.state import EngineView
from pagedeck.ipc.telemetry import (
    TOPIC_STATS,
    TOPIC_STEP,
    MachineStats,
    RequestRow,
    Stats,
    StepRecord,
    Steps,
    TelemetryMessage,
    TierStats,
)

EPOCH = "e1"
GIB = 1 << 30
STEPS = 10  # a second

#: A calm engine: nothing to advise.
CALM: dict[str, Any] = {
    "blocks": 1000, "block_size": 32, "block_bytes": 1 << 20, "used": 500, "tokens": 15_600, "cached": 0,
    "evicted": 0, "mean_run": 20.0, "host_blocks": 0, "host_used": 0, "running": 10, "waiting": 0, "contexts": 1_560,
    "preemptions": 0, "computed": 500, "redone": 0, "queried": 0, "hits": 0, "budget": 256, "step_tokens": 20,
    "prefill_steps": 0, "step_ms": 30.0, "prefill_ms": 40.0, "hold": "", "parked": 0, "memory": 3 * GIB,
    "free_memory": 16 * GIB, "itl": (0.03, 0.031), "queue": (0.01,), "ttft": (0.2,),
}  # fmt: skip


class Told:
    """Makes the messages of an engine; ``second(**load)`` gives those of one second under a load that differs from
    :data:`CALM` in what is named. ``evicted``, ``preemptions``, ``computed``, ``redone``, ``queried`` and ``hits`` are
    counted up by so much a second; durations (``itl`` …) are measured once each."""

    def __init__(self) -> None:
        self.time = 1_764_000_000.0
        self.totals = dict.fromkeys(("evicted", "preemptions", "computed", "redone", "queried", "hits"), 0)
        self.histograms = {name: Counted() for name in ("ttft", "itl", "queue", "e2e")}
        self.sequences = {TOPIC_STATS: 0, TOPIC_STEP: 0}
        self.step = 0

    def second(self, **load: Any) -> list[tuple[bytes, int, TelemetryMessage]]:
        told = CALM | load
        self.time += 1
        for name in self.totals:
            self.totals[name] += told[name]
        for name in ("itl", "queue", "ttft"):
            if told["running"]:
                self.histograms[name].add(list(told[name]))
        records = [self._record(told, place) for place in range(STEPS)] if told["running"] else []
        messages: list[tuple[bytes, TelemetryMessage]] = [
            (TOPIC_STEP, Steps(EPOCH, records)),
            (TOPIC_STATS, self._stats(told)),
        ]
        numbered = []
        for topic, message in messages:
            self.sequences[topic] += 1
            numbered.append((topic, self.sequences[topic], message))
        return numbered

    def _record(self, told: dict[str, Any], place: int) -> StepRecord:
        self.step += 1
        prefill = place < told["prefill_steps"]
        took = told["prefill_ms"] if prefill else told["step_ms"]
        share = (told["step_tokens"] - 1, 1) if prefill else (0, told["step_tokens"])
        return StepRecord(
            self.step, self.time - 1 + (place + 1) / (STEPS + 1), told["budget"], *share, told["running"],
            told["waiting"], 0, 0.0, took, 0.0, 0.0, [], [], [], [], [], told["hold"],
        )  # fmt: skip

    def _stats(self, told: dict[str, Any]) -> Stats:
        size, block_bytes = told["block_size"], told["block_bytes"]
        free = told["blocks"] - told["used"] - told["cached"]
        device = TierStats(
            told["blocks"], size, block_bytes, free, 0, told["cached"], told["used"], told["tokens"],
            mean_run=told["mean_run"], evicted=self.totals["evicted"],
        )  # fmt: skip
        host = TierStats(told["host_blocks"], size, block_bytes, 0, 0, 0, told["host_used"], 0)
        rows = [
            RequestRow(n + 1, f"r{n}", "running", 10, computed_tokens=told["contexts"]) for n in range(told["running"])
        ]
        parked = "preempted" if told["parked"] else "finished"
        rows.append(RequestRow(999, "parked", parked, 10, prompt_tokens=told["parked"]))
        return Stats(
            epoch=EPOCH, time=self.time, sequences={}, device=device, host=host, running=told["running"],
            waiting=told["waiting"], swapped=0, prompt_tokens_per_s=100.0, output_tokens_per_s=200.0,
            requests_per_s=1.0, latency={}, prefix_queried_tokens=self.totals["queried"],
            prefix_hit_tokens=self.totals["hits"], preemptions=self.totals["preemptions"], steps=self.step, finished=0,
            failed=0, cancelled=0, cpu_percent=100.0, memory_bytes=told["memory"], device_memory_bytes=0,
            requests=rows, computed_tokens=self.totals["computed"], redone_tokens=self.totals["redone"],
            histograms={
                name: {"normal": histogram(h.counts)} for name, h in self.histograms.items() if np.any(h.counts)
            },
            machine=MachineStats(8, 0.5, 32 * GIB - told["free_memory"], 32 * GIB),
        )  # fmt: skip


def watched(told: Told, seconds: int, **load: Any) -> EngineView:
    """What is known after ``seconds`` of a load."""
    view = EngineView()
    view.begin(EPOCH)
    for _ in range(seconds):
        for message in told.second(**load):
            view.apply(*message)
    return view
