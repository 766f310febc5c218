"""What the prefix index learns and forgets, as the events that routers of other engines understand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ipc.kv_events import (
    DEVICE,
    HOST,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    CacheEvent,
    EventBatch,
    encode,
    short_hash,
)

if TYPE_CHECKING:
    from ..cache.blocks import BlockPool
    from ..cache.cache_groups import CacheGroups
    from ..cache.kv_cache import KVCache

#: Blocks that one event stores at most.
TOGETHER = 256


class CacheEvents:
    """Reads what changed in ``cache`` since the last time, between steps, and gives it to ``send``. Costs O(changed).

    Another block size or another number of blocks makes other pools: then all is cleared, and what is there stored.
    """

    def __init__(self, cache: KVCache | CacheGroups, send: Callable[[bytes], None]) -> None:
        self._cache = cache
        self._send = send
        self._watch()

    def publish(self) -> None:
        """Send what happened, if anything did, as one batch."""
        events = list(self._events())
        if events:
            self._send(encode(EventBatch(time.time(), tuple(events))))

    def _watch(self) -> None:
        self._tiers = list(_tiers(self._cache))
        self._indices = [tier.pool.index for tier in self._tiers]
        for index in self._indices:
            index.touched = {}

    def _events(self) -> Iterator[CacheEvent]:
        if any(tier.pool is not known.pool for tier, known in zip(_tiers(self._cache), self._tiers, strict=True)):
            self._watch()
            yield AllBlocksCleared()
            for tier in self._tiers:
                yield from tier.stored(tier.pool.index.entries())
            return
        for tier in self._tiers:
            yield from tier.changed()


@dataclass(frozen=True, slots=True)
class Tier:
    """A pool and how its events are marked."""

    pool: BlockPool
    medium: str
    group: int
    window: int | None

    def changed(self) -> Iterator[CacheEvent]:
        """What came and what went; what did both does not count."""
        index = self.pool.index
        touched, index.touched = index.touched, {}
        if not touched:
            return
        now = {key: index.find(key) for key in touched if isinstance(key, bytes)}
        gone = tuple(short_hash(key) for key, block in now.items() if block is None and touched[key])
        if gone:
            yield BlockRemoved(gone, self.medium, self.group)
        yield from self.stored(block for key, block in now.items() if block is not None and not touched[key])

    def stored(self, blocks: Iterable[int]) -> Iterator[BlockStored]:
        """Blocks as events: those that continue one another together, and none before the one that it continues."""
        known = self.pool.index.entries()
        entries = {block: known[block] for block in blocks if isinstance(known[block].key, bytes)}
        following: dict[bytes | int, int] = {entry.before: block for block, entry in entries.items()}
        for first in sorted(entries, key=lambda block: entries[block].depth):
            run: list[int] = []
            block: int | None = first
            while block is not None and len(run) < TOGETHER and (entry := entries.pop(block, None)) is not None:
                run.append(block)
                block = following.get(entry.key)
            if run:
                yield self._event(run)

    def _event(self, run: list[int]) -> BlockStored:
        pool = self.pool
        entries = [pool.index.entries()[block] for block in run]
        first = entries[0]
        return BlockStored(
            hashes=tuple(short_hash(entry.key) for entry in entries if isinstance(entry.key, bytes)),
            parent=short_hash(first.before) if first.depth else None,
            token_ids=tuple(pool.contents_of(run).reshape(-1).tolist()),
            block_size=pool.block_size,
            medium=self.medium,
            group=self.group,
            window=self.window,
        )


def _tiers(cache: KVCache | CacheGroups) -> Iterator[Tier]:
    for number, group in enumerate(cache.groups):
        yield Tier(group.device, DEVICE, number, group.window or None)
        yield Tier(group.host, HOST, number, group.window or None)
