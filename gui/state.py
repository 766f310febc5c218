"""What is known of the engine: connection, blocks, steps, latency, requests, events. No Qt, no sockets.

Telemetry is applied in O(changed) and all memory is bounded. Widgets read; only the link writes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from operator import attrgetter

import msgspec
import numpy as np

from ..ipc.protocol import EngineStatus, SettingInfo, SnapshotReply
from ..ipc.subscriber import BlocksFeed, Sequences
from ..ipc.telemetry import (
    TOPIC_BLOCKS,
    BlocksUpdate,
    DeviceStats,
    Event,
    GroupBlocks,
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
from ..ipc.vocabulary import PRIORITIES, BlockState, RequestState, priority_name
from .class_table import ClassTable
from .durations import LATENCIES, QUANTILES, Durations
from .history import History
from .motion import HELD, UNMOVED, Delta, motions

STEPS_KEPT = 10_000
LATENCY_KEPT = 7_200  # two hours at 1 Hz
EVENTS_KEPT = 5_000
ENDED_KEPT = 1_000
CHANGES_KEPT = 64

CLASSES = tuple(PRIORITIES)
_ENDED = frozenset(state.value for state in RequestState if state.ended)


class ConnectionState(StrEnum):
    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    NOT_ANSWERING = "not_answering"  # the process lives, but says nothing
    DIED = "died"  # the process is gone, unasked
    STOPPED = "stopped"


_GONE = frozenset(
    {
        ConnectionState.DISCONNECTED,
        ConnectionState.STOPPED,
        ConnectionState.DIED,
        ConnectionState.NOT_ANSWERING,
    }
)


class TierView:
    """One tier's blocks as arrays of equal length: ``state`` u1, ``ref`` u2, ``fill`` u2, ``owner`` u4,
    ``last_used`` u4, ``depth`` u2 (as in :class:`TierBlocks`).

    ``counts[s]`` is the number of blocks in :class:`BlockState` *s*, ``held`` the tokens in blocks that sequences
    hold, ``saved`` the blocks that there would be besides if nothing were shared. ``version`` grows with every change.
    ``classes`` tells the classes of the owners.
    """

    _FIELDS = (
        ("state", "<u1"), ("ref", "<u2"), ("fill", "<u2"), ("owner", "<u4"), ("last_used", "<u4"), ("depth", "<u2"),
    )  # fmt: skip

    def __init__(self, classes: ClassTable | None = None) -> None:
        self.classes = classes or ClassTable()
        self.num_blocks = 0
        self.block_size = 0
        self.block_bytes = 0
        self.state = np.zeros(0, np.uint8)
        self.ref = np.zeros(0, np.uint16)
        self.fill = np.zeros(0, np.uint16)
        self.owner = np.zeros(0, np.uint32)
        self.last_used = np.zeros(0, np.uint32)
        self.depth = np.zeros(0, np.uint16)
        self.counts = np.zeros(len(BlockState), np.int64)
        self.held = 0
        self.saved = 0
        self.version = 0
        self.moves: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=CHANGES_KEPT)  # ids and motions, to be taken
        self.remade = False  # all blocks mean something else since this was last taken
        self._changes: deque[tuple[int, np.ndarray]] = deque(maxlen=CHANGES_KEPT)

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return int(self.counts[BlockState.SWAPPED :].sum())

    @property
    def allocated(self) -> int:
        """Blocks that sequences hold or keep for their growth."""
        return self.used + int(self.counts[BlockState.RESERVED])

    @property
    def filled(self) -> float:
        """Share of the slots in allocated blocks that hold a token, 0 to 1. Shared tokens count once."""
        slots = self.allocated * self.block_size
        return self.held / slots if slots else 0.0

    def replace(self, blocks: TierBlocks) -> None:
        """Forget all and take a full update."""
        for name, dtype in self._FIELDS:
            setattr(self, name, _array(blocks, name, dtype, blocks.num_blocks).copy())
        self._shape(blocks)
        self.counts[:] = np.bincount(self.state, minlength=len(BlockState))[: len(BlockState)]
        self.held = int(self.fill[self.state >= HELD].sum(dtype=np.int64))
        self.saved = _saved(self.ref)
        self._changes.clear()
        self.version += 1

    def update(self, blocks: TierBlocks) -> Delta:
        """Apply a delta, and tell what the blocks were and are: O(changed)."""
        ids = np.frombuffer(blocks.ids, "<u4")
        if not len(ids):
            return UNMOVED
        turns = {}
        for name, dtype in self._FIELDS:
            column = getattr(self, name)
            turns[name] = turn = np.empty((2, len(ids)), dtype)
            turn[0] = column[ids]
            turn[1] = _array(blocks, name, dtype, len(ids))
            column[ids] = turn[1]
        delta = Delta(ids, turns["state"], turns["ref"], turns["fill"], turns["owner"])
        self._count(delta)
        self.version += 1
        self._changes.append((self.version, ids))
        return delta

    def swap(self, other: TierView) -> None:
        """Take each other's place: what is known of one pool is known under the other's name."""
        kept = {"version", "moves", "remade", "_changes"}
        mine = {name: value for name, value in vars(self).items() if name not in kept}
        vars(self).update({name: value for name, value in vars(other).items() if name not in kept})
        vars(other).update(mine)
        for view in (self, other):
            view._changes.clear()
            view.moves.clear()
            view.version += 1

    def whole(self) -> TierBlocks:
        """All blocks as a full update tells them."""
        arrays = {name: getattr(self, name).astype(dtype).tobytes() for name, dtype in self._FIELDS}
        return TierBlocks(self.num_blocks, self.block_size, self.block_bytes, **arrays)

    def redraw_after(self, other: TierView) -> None:
        """Whoever drew ``other`` until now has to draw all of this."""
        self._changes.clear()
        self.version = max(self.version, other.version) + 1

    def fits(self, blocks: TierBlocks) -> bool:
        """Whether a delta is about the pool as it is known here."""
        return (blocks.num_blocks, blocks.block_size) == (self.num_blocks, self.block_size)

    def changed_since(self, version: int) -> np.ndarray | None:
        """Ids changed after ``version`` (perhaps repeated), or None when only a full redraw is safe."""
        if version == self.version:
            return np.zeros(0, np.uint32)
        if not self._changes or self._changes[0][0] > version + 1:
            return None
        return np.concatenate([ids for at, ids in self._changes if at > version])

    def _shape(self, blocks: TierBlocks) -> None:
        self.num_blocks, self.block_size = blocks.num_blocks, blocks.block_size
        self.block_bytes = blocks.block_bytes

    def _count(self, delta: Delta) -> None:
        for sign, state in zip((-1, +1), delta.state, strict=True):
            self.counts += sign * np.bincount(state, minlength=len(BlockState))[: len(BlockState)]
        held = (delta.fill * (delta.state >= HELD)).sum(axis=1, dtype=np.int64)
        others = np.maximum(delta.ref, 1).sum(axis=1, dtype=np.int64)  # and one more for each block
        self.held += int(held[1] - held[0])
        self.saved += int(others[1] - others[0])


def _array(blocks: TierBlocks, name: str, dtype: str, length: int) -> np.ndarray:
    """One of its arrays; zeros for what an older engine does not send."""
    data = getattr(blocks, name)
    return np.frombuffer(data, dtype) if data else np.zeros(length, dtype)


def _saved(ref: np.ndarray) -> int:
    return int(ref.sum(dtype=np.int64)) - int(np.count_nonzero(ref))


_ENTRY = np.dtype([("request", "<u4"), ("tokens", "<i4"), ("prefill", "?")])

_STEP_FIGURES = (
    "step", "time", "budget", "prefill_tokens", "decode_tokens", "running", "waiting", "swapped",
    "schedule_ms", "forward_ms", "sample_ms", "other_ms",
)  # fmt: skip
_FIGURES = attrgetter(*_STEP_FIGURES)
_BY_CLASS = tuple((prefill, name) for prefill in (True, False) for name in CLASSES)
STEP_COLUMNS = (
    *_STEP_FIGURES, "preempted_count", "swapped_out_count", "resumed_count",
    *(f"{'prefill' if prefill else 'decode'}_{name}" for prefill, name in _BY_CLASS),
)  # fmt: skip


class StepHistory(History):
    """The last steps. Columns are the numbers of :class:`StepRecord`, the lengths of its lists, and tokens by kind
    and class (``prefill_interactive`` …); :meth:`record` gives a whole record back."""

    def __init__(self, capacity: int = STEPS_KEPT) -> None:
        super().__init__(STEP_COLUMNS, capacity)
        self._details: deque[tuple[np.ndarray, StepRecord]] = deque(maxlen=capacity)

    def add(self, record: StepRecord, class_of: dict[int, str]) -> None:
        shares = [(entry.request, entry.tokens, entry.prefill) for entry in record.entries]
        by_class = dict.fromkeys(_BY_CLASS, 0)
        for request, tokens, prefill in shares:
            by_class[prefill, class_of.get(request, "normal")] += tokens
        lengths = len(record.preempted), len(record.swapped_out), len(record.resumed)
        self.append(dict(zip(STEP_COLUMNS, (*_FIGURES(record), *lengths, *by_class.values()), strict=True)))
        entries = np.array(shares, _ENTRY)
        self._details.append((entries, msgspec.structs.replace(record, entries=[])))

    def record(self, index: int) -> StepRecord:
        """The record at ``index`` of the columns (0 is the oldest kept)."""
        entries, record = self._details[index]
        return msgspec.structs.replace(record, entries=[StepEntry(int(r), int(t), bool(p)) for r, t, p in entries])

    def holds(self, start: int) -> list[str]:
        """Of each record from ``start`` on, why the first in line waited."""
        return [self._details[index][1].hold for index in range(start, len(self))]

    def shares(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """All requests' shares in the records from ``start`` to ``stop``, by record, decodes first, then by request:
        the index of each one's record after ``start``, and entries (``request``, ``tokens``, ``prefill``)."""
        parts = [self._details[index][0] for index in range(start, min(stop, len(self)))]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, _ENTRY)
        records = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        entries = np.concatenate(parts)
        order = np.lexsort((entries["request"], entries["prefill"], records))
        return records[order], entries[order]

    def including(self, request: int, start: int, stop: int) -> list[int]:
        """Indices from ``start`` to ``stop`` of the records in which a request had a share."""
        chosen = range(start, min(stop, len(self)))
        return [index for index in chosen if request in self._details[index][0]["request"]]

    def clear(self) -> None:
        super().clear()
        self._details.clear()


_MACHINE_FIGURES = ("cpus", "cpu_load", "memory_used", "memory_total")
_DEVICE_FIGURES = ("load", "memory_used", "memory_total", "power_w", "power_limit_w", "temperature_c")
LATENCY_COLUMNS = (
    "time", "prompt_tokens_per_s", "output_tokens_per_s", "requests_per_s", "running", "waiting", "swapped",
    "preemptions", "cpu_percent", "memory_bytes", "device_memory_bytes",
    "cpus", "cpu_load", "memory_used", "memory_total",
    *(f"device_{name}" for name in _DEVICE_FIGURES),
    *(f"{name}_{quantile}" for name in LATENCIES for quantile in QUANTILES),
)  # fmt: skip


class LatencyHistory(History):
    """One row a second: rates, gauges, and percentiles in seconds (``ttft_p95`` …). NaN is what was not measured, or
    what the machine (``cpu_load`` …) or its GPU (``device_load`` …) does not tell."""

    def __init__(self, capacity: int = LATENCY_KEPT) -> None:
        super().__init__(LATENCY_COLUMNS, capacity)

    def add(self, stats: Stats) -> None:
        row = {name: float(getattr(stats, name)) for name in LATENCY_COLUMNS[:11]}
        row |= {name: _told(stats.machine, name) for name in _MACHINE_FIGURES}
        device = stats.machine.device if stats.machine is not None else None
        row |= {f"device_{name}": _told(device, name) for name in _DEVICE_FIGURES}
        for name in LATENCIES:
            measured = stats.latency.get(name, Percentiles())
            for quantile in QUANTILES:
                missing = quantile != "count" and not measured.count
                row[f"{name}_{quantile}"] = float("nan") if missing else getattr(measured, quantile)
        self.append(row)


def _told(source: MachineStats | DeviceStats | None, name: str) -> float:
    value = getattr(source, name, None)
    return float("nan") if value is None else float(value)


class EngineView:
    """Everything the app knows of one engine.

    ``feed`` keeps block updates in order and says when a snapshot is wanted; the link asks for it and hands it to
    :meth:`apply_snapshot`.
    """

    def __init__(self) -> None:
        self.connection = ConnectionState.DISCONNECTED
        self.detail = ""
        self.progress: float | None = None
        self.since = time.monotonic()  # when the connection state was entered
        self.status: EngineStatus | None = None
        self.stats: Stats | None = None
        self.settings: list[SettingInfo] = []
        self.epoch = ""
        self.step = 0
        self._class_table = ClassTable()
        self.device = TierView(self._class_table)
        self.host = TierView(self._class_table)
        self.groups: list[str] = []  # of layers with pools of their own, by name; empty where there is one
        self.group = ""  # whose pools `device` and `host` are
        self._hidden: dict[str, tuple[TierView, TierView]] = {}  # the pools of the others
        self.known = False  # whether the blocks are known at all
        self.watch_motion = False  # whether somebody takes the tiers' `moves`
        self.steps = StepHistory()
        self.latency = LatencyHistory()
        self.durations = Durations()
        self.requests: dict[int, RequestRow] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.feed = BlocksFeed()
        self._sequences = Sequences()
        self._classes: dict[int, str] = {}
        self._ended: deque[int] = deque()

    @property
    def present(self) -> bool:
        """Whether figures are of now: not the last ones of an engine that tells none any more."""
        return self.connection not in _GONE

    def tier(self, name: str) -> TierView:
        return self.host if name == "host" else self.device

    def show_group(self, name: str) -> None:
        """``device`` and ``host`` become the pools of another group of layers."""
        if name in self._hidden:
            device, host = self._hidden.pop(name)
            self.device.swap(device)
            self.host.swap(host)
            self._hidden[self.group] = device, host
            self.group = name

    def group_stats(self) -> tuple[TierStats, TierStats] | None:
        """Figures of the pools that are shown."""
        if self.stats is None:
            return None
        shown = next((g for g in self.stats.groups if g.name == self.group), self.stats)
        return shown.device, shown.host

    def set_connection(self, state: ConnectionState, detail: str = "", progress: float | None = None) -> bool:
        """Whether anything changed. ``since`` is kept while the state stays."""
        if (state, detail, progress) == (self.connection, self.detail, self.progress):
            return False
        if state != self.connection:
            self.since = time.monotonic()
        self.connection, self.detail, self.progress = state, detail, progress
        return True

    def begin(self, epoch: str) -> None:
        """A life of an engine begins (or begins to be watched): what was known of another one is dropped.

        Events are kept: they are the story of what happened.
        """
        self.epoch = epoch
        self.status = None
        self.stats = None
        self.step = 0
        self.settings = []
        self._arrange([""])
        for tier in (self.device, self.host):
            tier.replace(TierBlocks(0, tier.block_size, tier.block_bytes))
        self.known = False
        self.steps.clear()
        self.latency.clear()
        self.durations.clear()
        self._forget_requests()
        self._sequences = Sequences()
        self._resync()

    def apply(self, topic: bytes, sequence: int, message: TelemetryMessage) -> None:
        """Take one telemetry message. Messages of another epoch than :meth:`begin`'s are ignored."""
        if message.epoch != self.epoch:
            return
        lost = self._sequences.take(topic, sequence, message)
        if isinstance(message, BlocksUpdate):
            for update in self.feed.take(sequence, message):
                self._take_blocks(update, whole=update.full)
        elif isinstance(message, Steps):
            for record in message.steps:
                self.steps.add(record, self._classes)
                self.step = max(self.step, record.step)
        elif isinstance(message, Stats):
            self.feed.stats(message)
            self.stats = message
            self.latency.add(message)
            self.durations.add(message)
            for row in message.requests:
                self._put(row)
        else:
            if lost:  # a request may have ended unheard
                self._resync()
            if message.row is not None:
                self._put(message.row)
            self.events.append(message)

    def apply_snapshot(self, reply: SnapshotReply) -> None:
        """Take a snapshot, and the held updates that it does not include."""
        if reply.epoch != self.epoch:
            return
        for update in self.feed.snapshot(reply):
            self._take_blocks(update, whole=update.full or update is reply.blocks)
        self._forget_requests()
        for row in reply.requests:
            self._put(row)

    def snapshot(self) -> SnapshotReply:
        """What :meth:`apply_snapshot` takes to know the blocks and requests that are known here."""
        pools = {name: (device.whole(), host.whole()) for name, (device, host) in self._hidden.items()}
        pools[self.group] = self.device.whole(), self.host.whole()
        first, *others = self.groups or [self.group]
        blocks = BlocksUpdate(
            self.epoch,
            self.step,
            True,
            *pools[first],
            name=first,
            groups=[GroupBlocks(name, *pools[name]) for name in others],
        )
        ended = [self.requests[number] for number in self._ended]  # in the order in which they are forgotten
        return SnapshotReply(
            epoch=self.epoch,
            sequences={TOPIC_BLOCKS.decode(): self.feed.applied or 0},
            blocks=blocks if self.known else None,
            requests=ended + self.live(),
        )

    def redraw_after(self, other: EngineView) -> None:
        """As :meth:`TierView.redraw_after`."""
        self.device.redraw_after(other.device)
        self.host.redraw_after(other.host)

    def live(self) -> list[RequestRow]:
        return [row for row in self.requests.values() if row.state not in _ENDED]

    def class_of(self, number: int) -> str:
        """The class of a request, ``normal`` where it is not known."""
        return self._classes.get(number, "normal")

    def _take_blocks(self, update: BlocksUpdate, *, whole: bool) -> None:
        self.step = max(self.step, update.step)
        pools = {update.name: (update.device, update.host)} | {g.name: (g.device, g.host) for g in update.groups}
        if whole:
            self._arrange(list(pools))
            for view, blocks in self._pairs(pools):
                view.remade = self.known and (view.num_blocks, view.block_size) != (
                    blocks.num_blocks,
                    blocks.block_size,
                )
                view.replace(blocks)
                view.moves.clear()
            self.known = True
        elif pools.keys() == {self.group, *self._hidden} and all(v.fits(blocks) for v, blocks in self._pairs(pools)):
            if self.watch_motion:
                self._observe(*pools.pop(self.group))
            for view, blocks in self._pairs(pools):
                view.update(blocks)
        else:
            self._resync()

    def _observe(self, device: TierBlocks, host: TierBlocks) -> None:
        """Apply a delta of the pools that are shown, and keep what moved."""
        deltas = self.device.update(device), self.host.update(host)
        for view, delta, kinds in zip(
            (self.device, self.host), deltas, motions(*deltas, self.device.block_size), strict=True
        ):
            if kinds.any():
                view.moves.append((delta.ids, kinds))

    def _arrange(self, names: list[str]) -> None:
        """Views for these groups of layers; the one that is shown stays, if it is among them."""
        if {self.group, *self._hidden} != set(names):
            self.group = names[0]
            self._hidden = {name: (TierView(self._class_table), TierView(self._class_table)) for name in names[1:]}
        self.groups = names if len(names) > 1 else []

    def _pairs(self, pools: dict[str, tuple[TierBlocks, TierBlocks]]) -> Iterator[tuple[TierView, TierBlocks]]:
        for name, blocks in pools.items():
            yield from zip(self._hidden.get(name, (self.device, self.host)), blocks, strict=True)

    def _resync(self) -> None:
        self.feed = BlocksFeed()
        self.feed.epoch = self.epoch

    def _put(self, row: RequestRow) -> None:
        known = self.requests.get(row.number)
        if row.state in _ENDED and (known is None or known.state not in _ENDED):
            self._ended.append(row.number)
        self.requests[row.number] = row
        self._classes[row.number] = priority_name(row.priority)
        self._class_table.put(row.number, self._classes[row.number])
        while len(self._ended) > ENDED_KEPT:
            oldest = self._ended.popleft()
            del self.requests[oldest]
            del self._classes[oldest]

    def _forget_requests(self) -> None:
        self.requests.clear()
        self._classes.clear()
        self._ended.clear()
