"""What is known of another server's prefix cache, in slots of our own. No Qt, no sockets.

The server tells which blocks its cache can be asked for, by hash: not where they lie, nor who uses them. Each gets the
first slot that is free here, and keeps it until it is removed.
"""

from __future__ import annotations

import heapq
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

_Key = tuple[int, Hash]  # group of layers, hash


@dataclass(slots=True)
class AttachedBlock:
    """One block as its server told of it. ``time`` in Unix seconds; ``depth`` from 1, 0 where the blocks before were
    never told."""

    hash: Hash
    group: int
    parent: Hash | None
    depth: int
    token_ids: tuple[int, ...]
    time: float
    children: int = 0


class AttachedPool:
    """The blocks of one medium, drawn as a tier: ``tier`` has one entry a slot, when each was stored in seconds since
    ``since``."""

    def __init__(self, since: float) -> None:
        self.tier = TierView()
        self.blocks: dict[int, AttachedBlock] = {}  # by slot
        self.stored = self.removed = 0
        self._since = since
        self._slots: dict[_Key, int] = {}
        self._free: list[int] = []
        self._changed: dict[int, Motion] = {}
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
        if blocks != self.capacity:
            self.capacity = blocks
            self._resize(max(blocks or FEWEST, max(self.blocks, default=-1) + 1))

    def store(self, event: BlockStored, time: float) -> None:
        if not self.blocks and self.tier.block_size != event.block_size:
            self.tier.block_size = event.block_size
            self._resize(self.capacity or FEWEST)
        parent = event.parent
        for position, hash in enumerate(event.hashes):
            tokens = event.token_ids[position * event.block_size : (position + 1) * event.block_size]
            self._store_one(AttachedBlock(hash, event.group, parent, self._depth(event.group, parent), tokens, time))
            parent = hash

    def remove(self, event: BlockRemoved) -> None:
        for hash in event.hashes:
            slot = self._slots.pop((event.group, hash), None)
            if slot is not None:
                self._count_child(self.blocks.pop(slot), -1)
                heapq.heappush(self._free, slot)
                self._changed[slot] = Motion.FREED
                self.removed += 1

    def clear(self) -> None:
        self._slots.clear()
        self.blocks.clear()
        self._changed.clear()
        self._resize(self.capacity or FEWEST if self.tier.num_blocks else 0)
        self.tier.remade = True

    def draw(self) -> None:
        """Bring ``tier`` up to what was told: O(changed)."""
        if not self._changed:
            return
        ids = np.array(list(self._changed), np.uint32)
        kinds = np.array(list(self._changed.values()), np.uint8)
        self._changed.clear()
        self.tier.update(self._tell(ids))
        self.tier.moves.append((ids, kinds))

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
        if not self._free:
            self._resize(2 * self.tier.num_blocks)
        slot = heapq.heappop(self._free)
        self._slots[block.group, block.hash] = slot
        self.blocks[slot] = block
        self._count_child(block, +1)
        self._changed[slot] = Motion.ALLOCATED
        self.stored += 1

    def _count_child(self, block: AttachedBlock, sign: int) -> None:
        parent = None if block.parent is None else self.slot_of(block.group, block.parent)
        if parent is not None:
            self.blocks[parent].children += sign

    def _resize(self, slots: int) -> None:
        self._free = [slot for slot in range(slots) if slot not in self.blocks]
        self._changed.clear()
        self.tier.num_blocks = slots
        self.tier.replace(self._tell(np.arange(slots)))

    def _tell(self, slots: np.ndarray) -> TierBlocks:
        """Some slots as a telemetry message tells blocks."""
        blocks = [self.blocks.get(slot) for slot in slots.tolist()]
        size = self.tier.block_size
        held = np.array([block is not None for block in blocks], bool)
        last = [0 if block is None else max(0, round(block.time - self._since)) for block in blocks]
        depth = [0 if block is None else min(block.depth, 0xFFFF) for block in blocks]
        return TierBlocks(
            num_blocks=self.tier.num_blocks,
            block_size=size,
            block_bytes=0,
            ids=slots.astype("<u4").tobytes(),
            state=np.where(held, BlockState.CACHED, BlockState.FREE).astype("<u1").tobytes(),
            fill=(held * size).astype("<u2").tobytes(),
            last_used=np.array(last, "<u4").tobytes(),
            depth=np.array(depth, "<u2").tobytes(),
        )


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
                elif isinstance(event, BlockStored):
                    self._pool(event.medium).store(event, batch.time)
                else:
                    self._pool(event.medium).remove(event)
        for pool in self.pools.values():
            pool.draw()

    @property
    def device(self) -> AttachedPool:
        return self.pools[DEVICE]

    def _pool(self, medium: str) -> AttachedPool:
        return self.pools.setdefault(medium, AttachedPool(self.since))

    def __iter__(self) -> Iterator[tuple[str, AttachedPool]]:
        return iter(self.pools.items())
