"""Change settings of a live engine: all of a request's changes or none, with what they cost."""

from __future__ import annotations

import dataclasses
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

from ..ipc.vocabulary import Refused, RequestState
from .cache.capacity import check_places, shortage
from .cache.reshape import Reshape
from .config import GIB, EngineConfig
from .core import Engine
from .denied import is_denial


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


def reconfigure(engine: Engine, changes: dict[str, Any], *, dry_run: bool = False) -> Reconfiguration:
    """Check all of ``changes`` of live settings, then apply them, or with ``dry_run`` tell what that would do. Steps in
    flight land first.

    Raises:
        Refused: a change that is not acceptable; nothing has changed.
    """
    engine.land()
    before, after = engine.config, engine.config.changed(changes)
    if after.token_budget is None:
        raise Refused.value("token_budget", None, "an integer from 1 to 1,000,000 tokens while the engine runs")
    if after.num_blocks is None and "num_blocks" in changes:
        raise Refused.value("num_blocks", None, "an integer from 1 to 100,000,000 blocks while the engine runs")
    report = Reconfiguration(
        dry_run, {name: (getattr(before, name), getattr(after, name)) for name in changes
                  if getattr(before, name) != getattr(after, name)}
    )  # fmt: skip
    for request in engine.requests.values():
        check_places(request, request.priority, after)
    begun = time.perf_counter()
    num_blocks = after.num_blocks if "num_blocks" in changes else None
    if num_blocks == engine.cache.device.num_blocks and "block_size" not in report.changes:
        num_blocks = None
    change = _plan(engine, report, after, num_blocks)
    if change is not None:
        report.blocks_moved = change.blocks_moved
        report.bytes_copied = change.bytes_copied(engine.runner.slot_bytes)
        report.cached_dropped = change.cached_dropped
        report.preempted = len(change.victims)
        _add_notes(report, engine, change)
    if not dry_run:
        _apply(engine, change, after)
    report.pause_ms = (time.perf_counter() - begun) * 1e3
    if dry_run and report.bytes_copied:
        report.pause_ms += report.bytes_copied / (engine.speeds.copy.value or _memory_speed()) * 1e3
    batch = report.changes.get("max_batch_size")
    if batch and len(engine.scheduler.running) > batch[1]:
        report.notes.append("Sequences beyond the new batch size go back to the queue at the next step.")
    return report


def _plan(engine: Engine, report: Reconfiguration, after: EngineConfig, num_blocks: int | None) -> Reshape | None:
    """What the pools have to become, if they change at all. Sequences that do not fit then give up their blocks, the
    last turn first."""
    size = after.block_size
    host = None
    if "swap_space_gib" in report.changes:  # in proportion to the device pools
        pools = engine.cache.shape(size, num_blocks)
        host = int(after.swap_space_gib * GIB) * pools[0] // _bytes(engine, pools, size)
    if num_blocks is None and host is None and "block_size" not in report.changes:
        return None
    if host is not None:
        _check_host_memory(engine, host, after)
    if num_blocks is not None:
        _check_device_memory(engine, num_blocks, after)
    _check_requests_fit(engine, after, num_blocks)
    try:
        engine.run_journal()  # what is still to be copied speaks of today's blocks
    except (MemoryError, RuntimeError) as error:
        if not is_denial(error):
            raise
        text = "There is too little memory now to copy the blocks that wait for it; the same change can be tried again."
        raise Refused(text, code="memory") from error
    scheduler = engine.scheduler
    turns = [*scheduler.running, *(s for s in scheduler.waiting if s.state is RequestState.SWAPPED)]
    return engine.cache.plan_reshape(
        block_size=size, num_blocks=num_blocks, num_host_blocks=host, turns=[sequence.number for sequence in turns]
    )


def _apply(engine: Engine, change: Reshape | None, after: EngineConfig) -> None:
    """All of it or, where memory is denied, nothing: that is asked for before anything else happens."""
    scheduler, cache = engine.scheduler, engine.cache
    if change is not None:
        begun = time.perf_counter()
        try:
            copied = engine.runner.reshape(change)
        except (MemoryError, RuntimeError) as error:
            field = "num_blocks" if change.num_slots != change.old_slots else "swap_space_gib"
            raise Refused(
                f"{field} is {getattr(after, field)}, and the machine did not give that memory: {error}",
                field=field,
                code="memory",
            ) from error
        engine.speeds.copy.add(copied, time.perf_counter() - begun)
        sequences = {s.number: s for s in [*scheduler.running, *scheduler.waiting]}
        for victim in change.victims:
            scheduler.give_up(sequences[victim])
        cache.reshape(change)
        after = dataclasses.replace(after, num_blocks=cache.device.num_blocks)
    cache.prefix_caching = after.prefix_caching
    cache.contiguous_blocks = after.contiguous_blocks
    cache.eviction = after.eviction
    engine.config = after
    scheduler.configure(after)


def _check_host_memory(engine: Engine, host_blocks: int, after: EngineConfig) -> None:
    pools = engine.cache.shape(after.block_size)
    wanted = host_blocks * _bytes(engine, pools, after.block_size) // pools[0]
    held = _bytes(engine, [group.host.num_blocks for group in engine.cache.groups], engine.cache.block_size)
    free = psutil.virtual_memory().available
    # Growing holds the old pool and the new one until the content has moved.
    if wanted > held and wanted > free:
        raise Refused.value(
            "swap_space_gib", after.swap_space_gib, f"up to {free / GIB:.2f} GiB, the host memory that is free now"
        )


def _check_device_memory(engine: Engine, num_blocks: int, after: EngineConfig) -> None:
    def taken(blocks: int) -> int:
        return _bytes(engine, engine.cache.shape(after.block_size, blocks), after.block_size)

    most = bisect_right(range(1, num_blocks + 1), engine.runner.room(), key=taken)
    if num_blocks > most:
        raise Refused(
            f"num_blocks is {num_blocks:,}, which takes {taken(num_blocks) / GIB:,.2f} GiB beside what has to "
            f"stay until it is copied; accepted are up to {most:,}, which fit into the memory that is free now.",
            field="num_blocks",
            code="memory",
        )


def _check_requests_fit(engine: Engine, after: EngineConfig, num_blocks: int | None) -> None:
    for request in engine.requests.values():
        short = shortage(request, engine.context_length, engine.cache, after.block_size, num_blocks)
        if short is not None:
            needed, blocks = short
            if num_blocks is None:
                raise Refused(
                    f"block_size is {after.block_size}, which makes {blocks:,} blocks, and request {request.id!r} "
                    f"needs {needed:,} of that size; accepted is a size at which every live request fits.",
                    field="block_size",
                )
            raise Refused(
                f"num_blocks is {num_blocks:,}, and request {request.id!r} needs {needed:,} blocks of "
                f"{after.block_size} tokens; accepted is a number at which every live request fits.",
                field="num_blocks",
            )


def _bytes(engine: Engine, blocks: Sequence[int], block_size: int) -> int:
    """What so many blocks of each group of layers take."""
    return sum(number * block_size * slot for number, slot in zip(blocks, engine.runner.slot_bytes, strict=True))


def _memory_speed() -> float:
    """Bytes/s of a copy within memory, measured now."""
    source = np.ones(4 * 1024 * 1024, np.uint8)
    begun = time.perf_counter()
    target = source.copy()
    return target.nbytes / max(time.perf_counter() - begun, 1e-6)


def _add_notes(report: Reconfiguration, engine: Engine, change: Reshape) -> None:
    notes, size, slot_bytes = report.notes, change.block_size, engine.runner.slot_bytes
    parts = list(zip(change.parts, slot_bytes, strict=True))
    if report.changes.keys() & {"block_size", "num_blocks"}:
        blocks, idle = divmod(change.num_slots, size)
        notes.append(f"The device pool has {blocks:,} blocks of {size} tokens.")
        if idle:
            notes.append(f"{idle:,} of its {change.num_slots:,} slots fill no block and stay unused.")
    if "swap_space_gib" in report.changes:
        pool = sum(part.num_host_slots * slot for part, slot in parts) / GIB
        notes.append(f"The host pool has {change.num_host_slots // size:,} blocks of {size} tokens ({pool:,.2f} GiB).")
    if report.preempted:
        notes.append(f"{report.preempted:,} sequences give up their blocks to make room and are computed again.")
