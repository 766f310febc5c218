"""Change settings of a live engine: all of a request's changes or none, with what they cost."""

from __future__ import annotations

import copy
import copyreg
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from ..ipc.vocabulary import Refused, RequestState
from .capacity import blocks_needed
from .config import GIB, EngineConfig
from .kv_cache import KVCache, OutOfBlocks
from .request import Sequence

if TYPE_CHECKING:
    from .core import Engine
    from .repage import HostResize, Repage

# The cache reads its arrays through memory views. Copied along with the arrays, they show the copies.
copyreg.pickle(memoryview, lambda view: (memoryview, (view.obj,)))


@dataclass(slots=True)
class Reconfiguration:
    """The fields of ``protocol.ReconfigureReport``: what a change did, or with ``dry_run`` would do. Counts are exact
    in both; the pause is measured, or in a dry run estimated from measured speeds."""

    dry_run: bool
    changes: dict[str, tuple[Any, Any]]  # field -> (before, after)
    pause_ms: float = 0.0
    blocks_moved: int = 0
    bytes_copied: int = 0
    cached_dropped: int = 0
    preempted: int = 0
    notes: list[str] = field(default_factory=list)


def reconfigure(engine: Engine, changes: dict[str, Any], *, dry_run: bool) -> Reconfiguration:
    """Check all of ``changes``, then apply them, or with ``dry_run`` tell what that would do.

    Raises:
        Refused: a change that is not acceptable; nothing has changed.
    """
    before, after = engine.config, engine.config.changed(changes)
    if after.token_budget is None:
        raise Refused.value("token_budget", None, "an integer from 1 to 1,000,000 tokens while the engine runs")
    report = Reconfiguration(
        dry_run, {name: (getattr(before, name), getattr(after, name)) for name in changes
                  if getattr(before, name) != getattr(after, name)}
    )  # fmt: skip
    host_blocks = None
    if "swap_space_gib" in report.changes:
        host_blocks = int(after.swap_space_gib * GIB) // (engine.runner.slot_bytes * after.block_size)
        _check_host_memory(engine, host_blocks, after)
    if "block_size" in report.changes:
        _check_requests_fit(engine, after.block_size)
    begun = time.perf_counter()
    if dry_run:
        _rehearse(engine, report, after, host_blocks)
        rate = engine.speeds.copy.value or _memory_speed()
        report.pause_ms = (time.perf_counter() - begun + report.bytes_copied / rate) * 1e3
    else:
        _apply(engine, report, after, host_blocks)
        report.pause_ms = (time.perf_counter() - begun) * 1e3
    _add_notes(report, engine, after, host_blocks)
    return report


def _apply(engine: Engine, report: Reconfiguration, after: EngineConfig, host_blocks: int | None) -> None:
    scheduler, runner = engine.scheduler, engine.runner
    engine.run_journal()  # what is still to be copied speaks of today's blocks

    def give_up(sequence: Sequence) -> None:
        scheduler.give_up(sequence)
        report.preempted += 1

    change = _Change(engine.cache, list(scheduler.running), _swapped(engine), give_up)
    if "block_size" in report.changes:
        _count_repage(report, _repage(engine, change, after.block_size), runner.slot_bytes)
    if host_blocks is not None:
        resize = change.fit_host(host_blocks)
        try:
            runner.resize_host(resize, after.block_size)
        except (MemoryError, RuntimeError) as error:
            if "block_size" in report.changes:
                _repage(engine, change, engine.config.block_size)
            raise Refused(
                f"swap_space_gib is {after.swap_space_gib}, and the machine did not give that memory: {error}",
                field="swap_space_gib",
            ) from error
        engine.cache.resize_host(host_blocks)
        _count_resize(report, resize, after.block_size, runner.slot_bytes)
    engine.cache.prefix_caching = after.prefix_caching
    engine.config = after
    scheduler.configure(after)


def _repage(engine: Engine, change: _Change, block_size: int) -> Repage:
    repage = change.repage(block_size)
    begun = time.perf_counter()
    moved = engine.runner.move(repage)
    engine.speeds.copy.add(moved, time.perf_counter() - begun)
    return repage


def _rehearse(engine: Engine, report: Reconfiguration, after: EngineConfig, host_blocks: int | None) -> None:
    """Count what :func:`_apply` would do: by asking the cache where one answer is enough, else on a copy of it."""
    cache = engine.cache
    engine.run_journal()
    if "block_size" not in report.changes and host_blocks is None:
        return
    slot_bytes = engine.runner.slot_bytes
    with suppress(OutOfBlocks):
        if host_blocks is None:
            _count_repage(report, cache.repage(after.block_size, dry_run=True), slot_bytes)
            return
        if "block_size" not in report.changes:
            _count_resize(report, cache.resize_host(host_blocks, dry_run=True), after.block_size, slot_bytes)
            return
    cache = copy.deepcopy(cache)

    def give_up(sequence: Sequence) -> None:
        cache.close(sequence.number)
        report.preempted += 1

    change = _Change(cache, list(engine.scheduler.running), _swapped(engine), give_up)
    if "block_size" in report.changes:
        _count_repage(report, change.repage(after.block_size), slot_bytes)
    if host_blocks is not None:
        _count_resize(report, change.fit_host(host_blocks), after.block_size, slot_bytes)


class _Change:
    """Changes a cache's geometry; sequences whose blocks do not fit any more are given up, the last turn first."""

    def __init__(
        self, cache: KVCache, running: list[Sequence], swapped: list[Sequence], give_up: Callable[[Sequence], None]
    ) -> None:
        self._cache = cache
        self._victims = {"device": running, "host": swapped}
        self._give_up = give_up

    def repage(self, block_size: int) -> Repage:
        while True:
            try:
                return self._cache.repage(block_size)
            except OutOfBlocks as error:
                self._give_up(self._victims[error.tier].pop())

    def fit_host(self, num_host_blocks: int) -> HostResize:
        """What a host tier of that size takes; it only has to be applied."""
        while True:
            try:
                return self._cache.resize_host(num_host_blocks, dry_run=True)
            except OutOfBlocks as error:
                self._give_up(self._victims[error.tier].pop())


def _swapped(engine: Engine) -> list[Sequence]:
    return [s for s in engine.scheduler.waiting if s.state is RequestState.SWAPPED]


def _count_repage(report: Reconfiguration, repage: Repage, slot_bytes: int) -> None:
    report.blocks_moved += repage.blocks_moved
    report.bytes_copied += repage.slots_moved * slot_bytes
    report.cached_dropped += repage.cached_dropped


def _count_resize(report: Reconfiguration, resize: HostResize, block_size: int, slot_bytes: int) -> None:
    """Slots move within the old pool, then all blocks that stay are copied into the new one."""
    moved = sum(len(source) for source, _ in resize.moves)
    report.bytes_copied += (moved + min(resize.old, resize.new) * block_size) * slot_bytes
    report.cached_dropped += resize.cached_dropped


def _check_host_memory(engine: Engine, host_blocks: int, after: EngineConfig) -> None:
    slot_bytes = engine.runner.slot_bytes
    wanted = host_blocks * after.block_size * slot_bytes
    held = engine.cache.host.num_blocks * engine.cache.block_size * slot_bytes
    free = psutil.virtual_memory().available
    # Growing holds the old pool and the new one until the content has moved.
    if wanted > held and wanted > free:
        raise Refused.value(
            "swap_space_gib", after.swap_space_gib, f"up to {free / GIB:.2f} GiB, the host memory that is free now"
        )


def _check_requests_fit(engine: Engine, block_size: int) -> None:
    num_blocks = engine.cache.num_slots // block_size
    for request in engine.requests.values():
        needed = blocks_needed(request, engine.context_length, block_size)
        if needed > num_blocks:
            raise Refused(
                f"block_size is {block_size}, which makes {num_blocks:,} blocks, and request {request.id!r} needs "
                f"{needed:,} of that size; accepted is a size at which every live request fits.",
                field="block_size",
            )


def _memory_speed() -> float:
    """Bytes/s of a copy within memory, measured now."""
    source = np.ones(4 * 1024 * 1024, np.uint8)
    begun = time.perf_counter()
    target = source.copy()
    return target.nbytes / max(time.perf_counter() - begun, 1e-6)


def _add_notes(report: Reconfiguration, engine: Engine, after: EngineConfig, host_blocks: int | None) -> None:
    notes = report.notes
    if "block_size" in report.changes:
        blocks, idle = divmod(engine.cache.num_slots, after.block_size)
        notes.append(f"The device pool has {blocks:,} blocks of {after.block_size} tokens.")
        if idle:
            notes.append(f"{idle:,} of its {engine.cache.num_slots:,} slots fill no block and stay unused.")
    if host_blocks is not None:
        size = host_blocks * after.block_size * engine.runner.slot_bytes / GIB
        notes.append(f"The host pool has {host_blocks:,} blocks of {after.block_size} tokens ({size:,.2f} GiB).")
    if report.preempted:
        notes.append(f"{report.preempted:,} sequences give up their blocks to make room and are computed again.")
    batch = report.changes.get("max_batch_size")
    if batch and len(engine.scheduler.running) > batch[1]:
        notes.append("Sequences beyond the new batch size go back to the queue at the next step.")
