"""A small model of an engine that tells what a real one would tell: requests, blocks, steps, statistics, events."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from pagedeck.ipc.protocol import EngineStatus, RequestDetail, SettingInfo, SnapshotReply
from pagedeck.ipc.telemetry import (
    TOPIC_BLOCKS,
    TOPIC_EVENT,
    TOPIC_STATS,
    TOPIC_STEP,
    BlocksUpdate,
    DeviceStats,
    Event,
    Histogram,
    MachineStats,
    Percentiles,
    RequestRow,
    Stats,
    StepEntry,
    StepRecord,
    Steps,
    TelemetryMessage,
    TierBlocks,
    TierStats,
)
from pagedeck.ipc.vocabulary import (
    HISTOGRAM_BUCKETS,
    HISTOGRAM_GROWTH,
    HISTOGRAM_SMALLEST_S,
    PRIORITIES,
    BlockState,
)

FIELDS = {"state": "<u1", "ref": "<u2", "fill": "<u2", "owner": "<u4", "last_used": "<u4", "depth": "<u2"}
BLOCK_BYTES_A_TOKEN = 46_080

#: Latency -> its median in seconds, and how many are measured a second.
MEASURED = {"ttft": (0.2, 2), "itl": (0.034, 60), "queue": (0.02, 2), "e2e": (2.1, 2)}


class Tier:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free = deque(range(num_blocks))
        self.cached: deque[int] = deque()
        self.changed: set[int] = set()
        for name, dtype in FIELDS.items():
            setattr(self, name, np.zeros(num_blocks, dtype))

    def put(self, block: int, state: BlockState, ref: int, fill: int, owner: int, step: int) -> None:
        self.state[block], self.ref[block], self.fill[block] = state, ref, fill
        self.owner[block], self.last_used[block] = owner, step
        self.changed.add(block)

    def take(self) -> int:
        if self.free:
            return self.free.popleft()
        return self.cached.popleft()

    def blocks(self, ids: np.ndarray | None) -> TierBlocks:
        which = slice(None) if ids is None else ids
        parts = {name: np.ascontiguousarray(getattr(self, name)[which]).tobytes() for name in FIELDS}
        shape = (self.num_blocks, self.block_size, self.block_size * BLOCK_BYTES_A_TOKEN)
        return TierBlocks(*shape, ids=b"" if ids is None else ids.astype("<u4").tobytes(), **parts)

    def delta(self) -> TierBlocks:
        ids = np.array(sorted(self.changed), "<u4")
        self.changed.clear()
        return self.blocks(ids)

    def stats(self) -> TierStats:
        held = self.state >= BlockState.SWAPPED
        count = np.bincount(self.state, minlength=6)
        shared = int(np.maximum(self.ref.astype(int) - 1, 0).sum())
        return TierStats(
            self.num_blocks, self.block_size, self.block_size * BLOCK_BYTES_A_TOKEN, int(count[0]), int(count[1]),
            int(count[2]), int(held.sum()), int(self.fill[held].sum()),
            saved=shared, mean_run=5.2 if held.any() else 0.0,
        )  # fmt: skip


@dataclass
class Running:
    row: RequestRow
    prompt: int
    length: int  # tokens it will have at its end
    computed: int = 0
    table: list[int] = field(default_factory=list)
    shared: int = 0


class Feeder:
    """``advance`` runs steps and gives back the telemetry messages that they make, each with its sequence number."""

    def __init__(
        self, num_blocks: int = 4032, block_size: int = 32, host_blocks: int = 1024, *, seed: int = 1, epoch: str = "e1"
    ) -> None:
        self.random = random.Random(seed)
        self.epoch, self.step, self.budget = epoch, 0, 256
        self.device, self.host = Tier(num_blocks, block_size), Tier(host_blocks, block_size)
        self.running: list[Running] = []
        self.waiting: list[Running] = []
        self.swapped: list[Running] = []
        self.rows: dict[int, RequestRow] = {}
        self.sequences = {b"blocks": 0, b"step": 0, b"stats": 0, b"event": 0}
        self.number = 0
        self.time = 1_764_000_000.0
        self.prefix: list[int] = []
        self.counts = {name: {kind: np.zeros(HISTOGRAM_BUCKETS, np.int64) for kind in PRIORITIES} for name in MEASURED}
        self.finished = 0

    def status(self, state: str = "ready") -> EngineStatus:
        return EngineStatus(
            name="pagedeck", state=state, model="SmolLM2-135M-Instruct", epoch=self.epoch, pid=1, version="0.1.0",
            device="CPU", dtype="float32", context_length=8192, parameters=134_515_008, vocabulary=49_152,
            started=self.time, chat_template=True,
        )  # fmt: skip

    def settings(self) -> list[SettingInfo]:
        return [
            SettingInfo(
                "block_size", self.device.block_size, "Tokens in a block", "tokens", True, choices=[16, 32, 64]
            ),
            SettingInfo("token_budget", self.budget, "The most tokens in a step", "tokens", True, 1, 1_000_000),
        ]

    def snapshot(self) -> SnapshotReply:
        self.device.changed.clear()
        self.host.changed.clear()
        return SnapshotReply(
            epoch=self.epoch,
            sequences={topic.decode(): number for topic, number in self.sequences.items()},
            blocks=BlocksUpdate(self.epoch, self.step, True, self.device.blocks(None), self.host.blocks(None)),
            requests=list(self.rows.values()),
        )

    def message(self, topic: bytes, body: TelemetryMessage) -> tuple[bytes, int, TelemetryMessage]:
        self.sequences[topic] += 1
        return topic, self.sequences[topic], body

    def submit(self, prompt: int | None = None, output: int | None = None, priority: int | None = None) -> Running:
        self.number += 1
        prompt = prompt or self.random.choice([24, 80, 160, 320, 900, 2400])
        output = output or self.random.choice([30, 60, 120, 240])
        priority = self.random.choice([0, 10, 10, 20]) if priority is None else priority
        row = RequestRow(
            self.number, f"chat-{self.number}", "waiting", priority, "app", prompt, 0, output, arrival=self.time
        )
        self.rows[self.number] = row
        request = Running(row, prompt, prompt + output)
        self.waiting.append(request)
        return request

    def advance(
        self, steps: int = 1, *, arrivals: float = 0.0, stats: bool = False
    ) -> list[tuple[bytes, int, TelemetryMessage]]:
        records, events = [], []
        for _ in range(steps):
            if self.random.random() < arrivals:
                events.append(self.event("submitted", self.submit().row))
            records.append(self._run(events))
        messages = [self.message(TOPIC_EVENT, event) for event in events]
        messages.append(self.message(TOPIC_STEP, Steps(self.epoch, records)))
        messages.append(
            self.message(
                TOPIC_BLOCKS, BlocksUpdate(self.epoch, self.step, False, self.device.delta(), self.host.delta())
            )
        )
        if stats:
            messages.append(self.message(TOPIC_STATS, self.stats()))
        return messages

    def event(self, kind: str, row: RequestRow) -> Event:
        return Event(self.epoch, self.time, kind, f"Request {row.number} {kind}", row=row)

    def stats(self) -> Stats:
        wave = 1 + 0.3 * self.random.random()
        return Stats(
            epoch=self.epoch, time=self.time,
            sequences={topic.decode(): number for topic, number in self.sequences.items()},
            device=self.device.stats(), host=self.host.stats(),
            running=len(self.running), waiting=len(self.waiting), swapped=len(self.swapped),
            prompt_tokens_per_s=310 * wave, output_tokens_per_s=148 * wave, requests_per_s=1.2,
            latency={
                "ttft": Percentiles(40, 0.21 * wave, 0.31 * wave, 0.52 * wave),
                "itl": Percentiles(900, 0.034 * wave, 0.048 * wave, 0.081 * wave),
                "queue": Percentiles(40, 0.02 * wave, 0.11 * wave, 0.2 * wave),
                "e2e": Percentiles(40, 2.1 * wave, 4.4 * wave, 6.0 * wave),
            },
            prefix_queried_tokens=9_000, prefix_hit_tokens=3_000, preemptions=2, steps=self.step,
            finished=self.finished, failed=0, cancelled=0, cpu_percent=180.0, memory_bytes=3 << 30,
            device_memory_bytes=0, requests=list(self.rows.values()), computed_tokens=20_000, redone_tokens=500,
            computed_last_minute=4_000, redone_last_minute=40,
        )  # fmt: skip

    def measured(self, *, gpu: bool = False) -> Stats:
        """As :meth:`stats`, with histograms and what the machine tells; each call has measured some more."""
        stats = self.stats()
        drawn = np.random.default_rng(self.step + len(self.rows) + int(self.time) % 1_000)
        for at, (name, (middle, count)) in enumerate(MEASURED.items()):
            for place, kind in enumerate(PRIORITIES):
                spread = drawn.lognormal(np.log(middle * (1 + place)), 0.5 + 0.1 * at, count)
                buckets = np.log(spread / HISTOGRAM_SMALLEST_S) / np.log(HISTOGRAM_GROWTH)
                np.add.at(self.counts[name][kind], np.clip(buckets, 0, HISTOGRAM_BUCKETS - 1).astype(int), 1)
        stats.histograms = {
            name: {kind: Histogram(0, counts.astype("<u4").tobytes()) for kind, counts in classes.items()}
            for name, classes in self.counts.items()
        }
        device = DeviceStats("GPU 1", 0.6 + 0.3 * self.random.random(), 9 << 30, 24 << 30, 240.0, 350.0, 61.0)
        load = 0.3 + 0.5 * self.random.random()
        stats.machine = MachineStats(8, load, 11 << 30, 32 << 30, device if gpu else None)
        stats.device_memory_bytes = 8 << 30 if gpu else 0
        return stats

    def detail(self, number: int) -> RequestDetail:
        request = next(r for r in self.running + self.swapped if r.row.number == number)
        return RequestDetail(row=request.row, block_tables=[list(request.table)])

    @property
    def room(self) -> int:
        return len(self.device.free) + len(self.device.cached)

    def _run(self, events: list[Event]) -> StepRecord:
        self.step += 1
        entries: list[StepEntry] = []
        preempted: list[int] = []
        swapped_out: list[int] = []
        resumed: list[int] = []
        left = self.budget
        while self.waiting and len(self.running) < 48 and self.room > min(200, self.device.num_blocks // 4):
            request = self.waiting.pop(0)
            self._adopt(request)
            request.row.state = "running"
            self.running.append(request)
            events.append(self.event("started", request.row))
        if self.room < min(64, self.device.num_blocks // 8) and len(self.running) > 1:
            victim = self.running.pop()
            self._swap_out(victim)
            (swapped_out if victim.row.state == "swapped" else preempted).append(victim.row.number)
        elif self.swapped and self.room > min(400, self.device.num_blocks // 2):
            request = self.swapped.pop(0)
            self._swap_in(request)
            resumed.append(request.row.number)
        for request in list(self.running):
            prefill = request.computed < request.prompt
            count = min(left, request.prompt - request.computed) if prefill else min(left, 1)
            if not count:
                continue
            if len(request.table) * self.device.block_size < request.computed + count and self.room < 1 + count // 8:
                continue
            left -= count
            entries.append(StepEntry(request.row.number, count, prefill))
            self._grow(request, count)
            if request.computed >= request.length:
                self._finish(request)
                events.append(self.event("finished", request.row))
        prefill_tokens = sum(e.tokens for e in entries if e.prefill)
        decode_tokens = sum(e.tokens for e in entries if not e.prefill)
        forward = 12 + 0.22 * (prefill_tokens + decode_tokens) + self.random.random() * 4
        record = StepRecord(
            self.step, self.time, self.budget, prefill_tokens, decode_tokens, len(self.running), len(self.waiting),
            len(self.swapped), 0.4 + self.random.random() * 0.2, forward, 1.2 + 0.03 * len(entries), 0.8, entries,
            preempted, swapped_out, resumed,
        )  # fmt: skip
        self.time += (forward + 2.5) / 1000
        return record

    def _adopt(self, request: Running) -> None:
        """Some requests begin like an earlier one."""
        usable = [b for b in self.prefix if self.device.state[b] in (BlockState.ACTIVE, BlockState.SHARED)]
        if request.prompt < 320 or self.random.random() < 0.4 or len(usable) < 4:
            return
        blocks = usable[: (request.prompt - 1) // self.device.block_size]
        for block in blocks:
            self.device.put(
                block, BlockState.SHARED, int(self.device.ref[block]) + 1, self.device.block_size,
                int(self.device.owner[block]), self.step,
            )  # fmt: skip
        request.table = list(blocks)
        request.shared = len(blocks)
        request.computed = len(blocks) * self.device.block_size
        request.row.cached_tokens = request.computed

    def _grow(self, request: Running, count: int) -> None:
        size = self.device.block_size
        request.computed += count
        while len(request.table) * size < request.computed:
            request.table.append(self.device.take())
        first = max(request.shared, (request.computed - count) // size)
        for index in range(first, len(request.table)):
            fill = min(size, request.computed - index * size)
            self.device.put(request.table[index], BlockState.ACTIVE, 1, fill, request.row.number, self.step)
        row = request.row
        row.computed_tokens = request.computed
        row.output_tokens = max(0, request.computed - request.prompt)
        row.blocks, row.shared_blocks = len(request.table), request.shared
        if row.output_tokens and row.ttft_s is None:
            row.ttft_s = self.time - row.arrival
        if len(self.prefix) < 20 and request.prompt > 800:
            self.prefix = request.table[:20]

    def _finish(self, request: Running) -> None:
        self.running.remove(request)
        request.row.state = "finished"
        request.row.e2e_s = self.time - request.row.arrival
        self.finished += 1
        self._release(request, request.table)

    def _release(self, request: Running, blocks: list[int]) -> None:
        size = self.device.block_size
        for block in blocks:
            ref = int(self.device.ref[block]) - 1
            if ref > 0:
                state = BlockState.SHARED if ref > 1 else BlockState.ACTIVE
                self.device.put(block, state, ref, size, int(self.device.owner[block]), self.step)
            elif self.device.fill[block] == size:
                self.device.put(block, BlockState.CACHED, 0, size, 0, self.step)
                self.device.cached.append(block)
            else:
                self.device.put(block, BlockState.FREE, 0, 0, 0, self.step)
                self.device.free.append(block)

    def _swap_out(self, request: Running) -> None:
        fits = len(request.table) <= len(self.host.free)
        request.row.preemptions += 1
        old = request.table
        if fits:
            request.table = [self.host.take() for _ in old]
            for index, block in enumerate(request.table):
                fill = min(self.host.block_size, request.computed - index * self.host.block_size)
                self.host.put(block, BlockState.SWAPPED, 1, max(fill, 1), request.row.number, self.step)
            request.row.state = "swapped"
            request.row.host_blocks = len(request.table)
            self.swapped.append(request)
        else:
            request.table, request.computed = [], 0
            request.row.state = "preempted"
            self.waiting.insert(0, request)
        request.shared = 0
        self._release(request, old)

    def _swap_in(self, request: Running) -> None:
        for block in request.table:
            self.host.put(block, BlockState.FREE, 0, 0, 0, self.step)
            self.host.free.append(block)
        count = len(request.table)
        request.table = [self.device.take() for _ in range(count)]
        for index, block in enumerate(request.table):
            fill = min(self.device.block_size, request.computed - index * self.device.block_size)
            self.device.put(block, BlockState.ACTIVE, 1, max(fill, 1), request.row.number, self.step)
        request.row.state, request.row.host_blocks = "running", 0
        self.running.append(request)
