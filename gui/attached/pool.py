"""What is known of another server's prefix cache, in slots of our own. No Qt, no sockets.

The server tells which blocks its cache can be asked for, by hash: not where they lie, nor who uses them. Each gets the
first slot that is free here, and keeps it until it is removed.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...ipc.kv_events import DEVICE, AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, Hash
from ...ipc.telemetry import TierBlocks
from ...ipc.vocabulary import BlockState
from ..motion import Motion
from ..state import TierView

#: Slots of a pool of which nothing is known yet.
FEWEST = 64

#: A server that says it has more blocks is not believed.
MOST = 1 << 24

#: Mediums beyond so many are not shown: servers have a few.
MEDIUMS = 8

#: Blocks that are forgotten at a time: a million at once would take too long.
_FORGOTTEN = 20_000

_LATEST = np.iinfo(np.uint32).max
_DEEPEST = np.iinfo(np.uint16).max

_Key = tuple[int, Hash]  # group of layers, hash


@dataclass(slots=True)
class AttachedBlock:
    """One block as its server told of it. ``time`` in Unix seconds; ``depth`` from 1, 0 where the blocks before were
    never told. ``tokens``: packed, for there may be millions."""

    hash: Hash
    group: int
    parent: Hash | None
    depth: int
    tokens: bytes
    time: float
    children: int = 0

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(array("q", self.tokens))


class AttachedPool:
    """The blocks of one medium, drawn as a tier: ``tier`` has one entry a slot, when each was stored in seconds since
    ``since``."""

    def __init__(self, since: float) -> None:
        self.tier = TierView()
        self.blocks: dict[int, AttachedBlock] = {}  # by slot
        self.stored = self.removed = 0
        self._since = since
        self._slots: dict[_Key, int] = {}
        self._free: list[int] = []  # a heap of the slots below ``_fresh`` that are free
        self._fresh = 0  # no slot from here on was used
        self._depths, self._times = np.zeros(0, np.uint16), np.zeros(0, np.uint32)  # by slot; depth + 1, 0 where free
        self._changed: dict[int, Motion] = {}
        self._forgotten: list[dict[int, AttachedBlock] | dict[_Key, int]] = []
        self.capacity = 0  # blocks, as the server tells, if it does

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def tokens(self) -> int:
        return len(self.blocks) * self.tier.block_size

    def set_capacity(self, blocks: int, block_size: int) -> None:
        """The server's own number of blocks is known, of a size that counts until its events tell theirs."""
        self.tier.block_size = self.tier.block_size or block_size
        blocks = blocks * block_size // max(self.tier.block_size, 1)
        if blocks != self.capacity and 0 < blocks <= MOST:
            self.capacity = blocks
            self._resize(max(blocks, max(self.blocks, default=-1) + 1))

    def store(self, event: BlockStored, time: float) -> None:
        if not self.blocks and self.tier.block_size != event.block_size:
            self.tier.block_size = event.block_size
            self._resize(self.capacity or FEWEST)
        parent, size, told = event.parent, event.block_size, array("q", event.token_ids).tobytes()
        width = size * array("q").itemsize
        for position, hash in enumerate(event.hashes):
            tokens = told[position * width : (position + 1) * width]
            self._store_one(AttachedBlock(hash, event.group, parent, self._depth(event.group, parent), tokens, time))
            parent = hash

    def remove(self, event: BlockRemoved) -> None:
        for hash in event.hashes:
            slot = self._slots.pop((event.group, hash), None)
            if slot is not None:
                self._count_child(self.blocks.pop(slot), -1)
                heapq.heappush(self._free, slot)
                self._depths[slot] = self._times[slot] = 0
                self._changed[slot] = Motion.FREED
                self.removed += 1

    def clear(self) -> None:
        self._forgotten += self.blocks, self._slots
        self.blocks, self._slots = {}, {}
        slots = (self.capacity or FEWEST) if self.tier.num_blocks else 0
        self._resize(0)
        self._resize(slots)
        self.tier.remade = True

    def draw(self) -> None:
        """Bring ``tier`` up to what was told: O(changed)."""
        self._forget()
        if not self._changed:
            return
        ids = np.array(list(self._changed), np.uint32)
        kinds = np.array(list(self._changed.values()), np.uint8)
        self._changed.clear()
        self.tier.update(self._tell(ids))
        self.tier.moves.append((ids, kinds))

    def _forget(self) -> None:
        left = _FORGOTTEN
        while self._forgotten and left:
            old = self._forgotten[-1]
            for _ in range(min(left, len(old))):
                old.popitem()
                left -= 1
            if not old:
                self._forgotten.pop()

    def slot_of(self, group: int, hash: Hash) -> int | None:
        return self._slots.get((group, hash))

    def lineage(self, slot: int) -> list[int]:
        """The slots of the blocks that lead to one, the first first, and its own, as far as they are known."""
        path = [slot]
        while (block := self.blocks[path[-1]]).parent is not None and len(path) <= len(self.blocks):
            before = self.slot_of(block.group, block.parent)
            if before is None:
                break
            path.append(before)
        return path[::-1]

    def _depth(self, group: int, parent: Hash | None) -> int:
        if parent is None:
            return 1
        slot = self.slot_of(group, parent)
        known = 0 if slot is None else self.blocks[slot].depth
        return known + 1 if known else 0

    def _store_one(self, block: AttachedBlock) -> None:
        if (block.group, block.hash) in self._slots:
            return  # the server holds the same twice
        slot = self._take_slot()
        self._slots[block.group, block.hash] = slot
        self.blocks[slot] = block
        self._count_child(block, +1)
        self._depths[slot] = min(block.depth + 1, _DEEPEST)
        self._times[slot] = min(max(0, round(block.time - self._since)), _LATEST)
        self._changed[slot] = Motion.ALLOCATED
        self.stored += 1

    def _take_slot(self) -> int:
        """The first slot that is free."""
        if self._free:
            return heapq.heappop(self._free)
        if self._fresh == self.tier.num_blocks:
            self._resize(max(2 * self.tier.num_blocks, FEWEST))
        self._fresh += 1
        return self._fresh - 1

    def _count_child(self, block: AttachedBlock, sign: int) -> None:
        parent = None if block.parent is None else self.slot_of(block.group, block.parent)
        if parent is not None:
            self.blocks[parent].children += sign

    def _resize(self, slots: int) -> None:
        """All that is held lies below ``slots``."""
        if slots < self._fresh:
            self._free = [slot for slot in self._free if slot < slots]
            heapq.heapify(self._free)
            self._fresh = slots
        self._depths, self._times = _of_length(self._depths, slots), _of_length(self._times, slots)
        self._changed.clear()
        self.tier.num_blocks = slots
        self.tier.replace(self._tell(np.arange(slots)))

    def _tell(self, slots: np.ndarray) -> TierBlocks:
        """Some slots as a telemetry message tells blocks."""
        size, depths = self.tier.block_size, self._depths[slots]
        held = depths > 0
        return TierBlocks(
            num_blocks=self.tier.num_blocks,
            block_size=size,
            block_bytes=0,
            ids=slots.astype("<u4").tobytes(),
            state=np.where(held, BlockState.CACHED, BlockState.FREE).astype("<u1").tobytes(),
            fill=(held * size).astype("<u2").tobytes(),
            last_used=self._times[slots].astype("<u4").tobytes(),
            depth=(depths - held).astype("<u2").tobytes(),
        )


def _of_length(column: np.ndarray, length: int) -> np.ndarray:
    """Cut, or with zeros at its end."""
    made = np.zeros(length, column.dtype)
    made[: len(column)] = column[:length]
    return made


class AttachedCache:
    """A server's prefix cache: one pool a medium, in the order in which they were first told of."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.pools: dict[str, AttachedPool] = {DEVICE: AttachedPool(since)}

    def apply(self, batches: Iterable[EventBatch]) -> None:
        for batch in batches:
            for event in batch.events:
                if isinstance(event, AllBlocksCleared):
                    for pool in self.pools.values():
                        pool.clear()
                elif (pool_of_it := self._pool(event.medium)) is None:
                    continue
                elif isinstance(event, BlockStored):
                    pool_of_it.store(event, batch.time)
                else:
                    pool_of_it.remove(event)
        for pool in self.pools.values():
            pool.draw()

    @property
    def device(self) -> AttachedPool:
        return self.pools[DEVICE]

    def _pool(self, medium: str) -> AttachedPool | None:
        pool = self.pools.get(medium)
        if pool is None and len(self.pools) < MEDIUMS:
            pool = self.pools[medium] = AttachedPool(self.since)
        return pool

    def __iter__(self) -> Iterator[tuple[str, AttachedPool]]:
        return iter(self.pools.items())
