"""Telemetry: what changed in the engine, as messages, at most so many a second and none that nobody hears."""

from __future__ import annotations

import hashlib
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import psutil

from ...ipc.telemetry import (
    MAX_RATE_HZ,
    TOPIC_BLOCKS,
    TOPIC_EVENT,
    TOPIC_STATS,
    TOPIC_STEP,
    BlocksUpdate,
    Event,
    GroupBlocks,
    GroupStats,
    Histogram,
    Percentiles,
    RequestRow,
    Stats,
    StepEntry,
    StepRecord,
    Steps,
    TierBlocks,
    TierStats,
)
from ...ipc.trace import PIECE
from ...ipc.vocabulary import RequestState
from ..cache.blocks import BlockPool
from ..facts import request_facts
from ..request import Request
from .doorkeeper import OWNER
from .machine import Machine
from .switchboard import Switchboard

if TYPE_CHECKING:
    from ..core import Engine, StepReport, StepResult

STATS_S = 1.0
_INTERVAL_S = 1.0 / MAX_RATE_HZ

#: Ids of blocks on the device and on the host; ``None`` is all.
_Ids = tuple[np.ndarray | None, np.ndarray | None]


def prefix_numbers(prompt: Sequence[int], salt: bytes) -> list[int]:
    """A number for each whole ``PIECE`` tokens of a prompt, chained: equal as long as prompts are. A secret ``salt``
    keeps them from telling anybody what the tokens are."""
    numbers: list[int] = []
    digest = salt
    tokens = np.array(prompt, np.int32)
    for start in range(0, len(prompt) - PIECE + 1, PIECE):
        digest = hashlib.blake2b(tokens[start : start + PIECE].tobytes() + digest, digest_size=8, key=salt).digest()
        numbers.append(int.from_bytes(digest[:6], "big"))
    return numbers


class Publisher:
    """Reads the core's state between steps and publishes it. Costs O(changed), and next to nothing unheard.

    What happens while a topic has no subscriber is not kept, except that the first ``blocks`` message after such a
    time holds all that changed in it.
    """

    def __init__(self, epoch: str, engine: Engine, switchboard: Switchboard) -> None:
        self.epoch = epoch
        self.stats: Stats | None = None
        self._engine = engine
        self._switchboard = switchboard
        self._audience = switchboard.audience
        self._process = psutil.Process()
        self._process.cpu_percent()  # the first call has nothing to compare with
        self._device_memory = _device_memory()
        self._machine = Machine()
        self._salt = secrets.token_bytes(16)
        self._full = False
        self._steps: list[StepRecord] = []
        self._changed: dict[int, Request] = {}  # since the last stats, by number
        self._ends: list[tuple[RequestRow, str]] = []  # since then, with their clients; the engine may forget them
        self._requests: dict[int, Request] = {}  # live ones, by number
        self._blocks_due = self._steps_due = self._stats_due = 0.0

    # --- what happened ----------------------------------------------------------------------------------------------

    def submitted(self, request: Request) -> None:
        self._requests[request.number] = self._changed[request.number] = request
        self._request_event(
            "submitted", request, f"{request.id} is queued with {request.prompt_length:,} prompt tokens."
        )

    def prioritised(self, request: Request) -> None:
        self._changed[request.number] = request

    def reconfigured(self, text: str) -> None:
        """Block ids mean something else from here on."""
        self._full = True
        self.event("reconfigured", text)

    def stepped(self, result: StepResult) -> None:
        """Take in one step: its batch, what became of requests, and which of them changed."""
        report = result.report
        if self._audience.wanted(TOPIC_STEP) and report.entries:
            self._steps.append(step_record(report))
        for number, _, _ in report.entries:
            self._note(number)
        for request in result.started:
            self._request_event("started", request, f"{request.id} runs for the first time.")
        for number in report.preempted:
            self._number_event("preempted", number, "{id} gave its blocks up and will be recomputed.")
        for number in report.swapped_out:
            self._number_event("preempted", number, "The blocks of {id} went to the host pool.")
        for number in report.resumed:
            self._number_event("resumed", number, "{id} runs again.")
        for request in result.ended:
            self._ended(request)

    def _note(self, number: int) -> None:
        request = self._requests.get(number)
        if request is not None:
            self._changed[number] = request

    def _ended(self, request: Request) -> None:
        self._changed.pop(request.number, None)
        if self._audience.wanted(TOPIC_STATS):
            self._ends.append((self.row(request), request.client))
        self._requests.pop(request.number, None)
        state = request.state
        if state is RequestState.FAILED:
            self._request_event("failed", request, f"{request.id} failed: {request.error}", level="error")
        elif state is RequestState.CANCELLED:
            self._request_event("cancelled", request, f"{request.id} was cancelled.")
        else:
            self._finished(request)

    def _finished(self, request: Request) -> None:
        if self._audience.wanted(TOPIC_EVENT):
            text = f"{request.id} finished with {request.output_tokens:,} tokens."
            row = msgspec.structs.replace(self.row(request), prefix=prefix_numbers(request.prompt, self._salt))
            event = Event(epoch=self.epoch, time=time.time(), kind="finished", text=text, row=row)
            self._switchboard.publish(TOPIC_EVENT, event, [request.client])

    def event(self, kind: str, text: str) -> None:
        if self._audience.wanted(TOPIC_EVENT):
            self._switchboard.publish(TOPIC_EVENT, Event(epoch=self.epoch, time=time.time(), kind=kind, text=text))

    def _number_event(self, kind: str, number: int, text: str) -> None:
        self._note(number)
        request = self._requests.get(number)
        if request is not None:
            self._request_event(kind, request, text.format(id=request.id))

    def _request_event(self, kind: str, request: Request, text: str, level: str = "info") -> None:
        if self._audience.wanted(TOPIC_EVENT):
            event = Event(epoch=self.epoch, time=time.time(), kind=kind, text=text, level=level, row=self.row(request))
            self._switchboard.publish(TOPIC_EVENT, event, [request.client])

    # --- in time ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Publish what is due at ``now`` (monotonic seconds); returns the seconds until something may be due again."""
        if now >= self._steps_due and self._steps:
            self._switchboard.publish(TOPIC_STEP, Steps(epoch=self.epoch, steps=self._steps))
            self._steps = []
            self._steps_due = now + _INTERVAL_S
        blocks_wait = self._tick_blocks(now)
        if now >= self._stats_due:
            self._stats_due = now + STATS_S
            self.stats = self._make_stats()
            if self._audience.wanted(TOPIC_STATS):
                self._publish_stats(self.stats)
            self._changed.clear()
            self._ends.clear()
        steps_wait = self._steps_due - now if self._steps else STATS_S
        return max(0.0, min(self._stats_due - now, steps_wait, blocks_wait))

    def _publish_stats(self, stats: Stats) -> None:
        """With the rows that changed, which are of no meaning to who asks how the engine is."""
        told = [*self._ends, *((self.row(request), request.client) for request in self._changed.values())]
        rows, clients = [row for row, _ in told], [client for _, client in told]
        self._switchboard.publish(TOPIC_STATS, msgspec.structs.replace(stats, requests=rows), clients)

    def _tick_blocks(self, now: float) -> float:
        if not self._audience.wanted(TOPIC_BLOCKS):
            return STATS_S
        if now < self._blocks_due:
            return self._blocks_due - now
        changed: list[_Ids] = [(g.device.take_changed(), g.host.take_changed()) for g in self._engine.cache.groups]
        if self._full:
            self._full = False
            self._switchboard.publish(TOPIC_BLOCKS, self.snapshot())
        elif any(ids is not None and len(ids) for group in changed for ids in group):
            self._switchboard.publish(TOPIC_BLOCKS, self._blocks(changed))
        else:
            return STATS_S
        self._blocks_due = now + _INTERVAL_S
        return STATS_S

    def _blocks(self, changed: list[_Ids] | None) -> BlocksUpdate:
        """The blocks ``changed`` on the device and on the host, by group of layers, or all."""
        groups, slots = self._engine.cache.groups, self._engine.runner.slot_bytes
        everything: list[_Ids] = [(None, None)] * len(groups)
        first, *others = [
            GroupBlocks(g.name, tier_blocks(g.device, slot, on_device), tier_blocks(g.host, slot, on_host))
            for g, slot, (on_device, on_host) in zip(groups, slots, changed or everything, strict=True)
        ]
        return BlocksUpdate(
            epoch=self.epoch,
            step=self._engine.step_number,
            full=changed is None,
            device=first.device,
            host=first.host,
            name=first.name if others else "",
            groups=others,
        )

    # --- all of it --------------------------------------------------------------------------------------------------

    def snapshot(self) -> BlocksUpdate:
        """All blocks as they are now."""
        return self._blocks(None)

    def sequences(self, user: str = OWNER) -> dict[str, int]:
        """The last sequence number of each topic, as ``user`` hears it."""
        return self._audience.sequences(user)

    def row(self, request: Request) -> RequestRow:
        facts = request_facts(request, self._engine.cache)
        facts["client"] = self._switchboard.client_name(request.client)
        return RequestRow(**facts)

    def _make_stats(self) -> Stats:
        facts, metrics = self._engine.stats(), self._engine.metrics
        return Stats(
            epoch=self.epoch,
            time=time.time(),
            sequences=self.sequences(),
            device=TierStats(**facts.pop("device")),
            host=TierStats(**facts.pop("host")),
            groups=[
                GroupStats(g["name"], TierStats(**g["device"]), TierStats(**g["host"])) for g in facts.pop("groups")
            ],
            latency={
                name: Percentiles(count=p.count, p50=p.p50, p95=p.p95, p99=p.p99)
                for name, p in facts.pop("latency").items()
            },
            histograms={
                name: {kind: histogram(h.counts, h.sum) for kind, h in classes.items() if h.counts.any()}
                for name, classes in facts.pop("histograms").items()
            },
            machine=self._machine.stats(),
            output_tokens=metrics.counters.output_tokens,
            ends={reason.value: count for reason, count in metrics.ends.items()},
            step_tokens=list(metrics.step_tokens),
            cpu_percent=self._process.cpu_percent(),
            memory_bytes=self._process.memory_info().rss,
            device_memory_bytes=self._device_memory(),
            requests=[],
            **facts,
        )


def tier_blocks(pool: BlockPool, slot_bytes: int, ids: np.ndarray | None) -> TierBlocks:
    """All blocks of a tier, or those named by ``ids``, as little-endian arrays."""
    which: Any = slice(None) if ids is None else ids
    return TierBlocks(
        num_blocks=pool.num_blocks,
        block_size=pool.block_size,
        block_bytes=pool.block_size * slot_bytes,
        ids=b"" if ids is None else ids.astype("<u4").tobytes(),
        state=pool.state[which].tobytes(),
        ref=np.minimum(pool.ref[which], 0xFFFF).astype("<u2").tobytes(),
        fill=pool.fill[which].astype("<u2").tobytes(),
        owner=pool.owner[which].astype("<u4").tobytes(),
        last_used=pool.last_used[which].astype("<u4").tobytes(),
        depth=np.minimum(pool.index.depth[which], 0xFFFF).astype("<u2").tobytes(),
    )


def histogram(counts: np.ndarray, seconds: float = 0.0) -> Histogram:
    """Without the empty buckets at both ends."""
    filled = np.flatnonzero(counts)
    first, last = int(filled[0]), int(filled[-1])
    return Histogram(first, counts[first : last + 1].astype("<u4").tobytes(), seconds)


def step_record(report: StepReport) -> StepRecord:
    return StepRecord(
        step=report.step,
        time=report.time,
        budget=report.budget,
        prefill_tokens=report.prefill_tokens,
        decode_tokens=report.decode_tokens,
        running=report.running,
        waiting=report.waiting,
        swapped=report.swapped,
        schedule_ms=report.schedule_ms,
        forward_ms=report.forward_ms,
        sample_ms=report.sample_ms,
        other_ms=report.other_ms,
        entries=[StepEntry(number, tokens, prefill) for number, tokens, prefill in report.entries],
        preempted=report.preempted,
        swapped_out=report.swapped_out,
        resumed=report.resumed,
        waited=report.waited,
        hold=report.hold,
    )


def _device_memory() -> Callable[[], int]:
    """Bytes of GPU memory that this process's tensors take."""
    torch = sys.modules.get("torch")  # loaded with the model
    return torch.cuda.memory_reserved if torch and torch.cuda.is_available() else lambda: 0
