"""Another block size, or another number of blocks, for a live tier: what stays, where it goes, what must move.

A plan is made first and changes nothing, so that it can be shown, or refused, and the tier is as it was. Old and new
blocks are both seen as runs of *units*, the smaller of the two sizes: splitting a block is then a change of view, and
merging moves only units that do not stand where they belong already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .blocks import BlockPool
from .moves import Batch, Move, in_batches
from .prefix import Entry, chain_digest

if TYPE_CHECKING:
    from .kv_cache import BlockTable

#: A new block's content: the old units that it is made of, in order.
Units = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repage:
    """What a change of the block size does. Moves are batches of slots, to be run one after another."""

    old_size: int
    new_size: int
    num_blocks: int
    num_host_blocks: int
    device_moves: list[Batch]
    host_moves: list[Batch]
    blocks_moved: int  # new blocks of both tiers with a slot that moves
    cached_dropped: int  # old cached blocks whose content is given up

    @property
    def slots_moved(self) -> int:
        return sum(len(source) for source, _ in self.device_moves + self.host_moves)


@dataclass(frozen=True, slots=True)
class HostResize:
    """What a change of the host tier's size does. The moves are to be run before the pool shrinks."""

    old: int  # blocks
    new: int
    moves: list[Batch]
    cached_dropped: int


@dataclass(slots=True)
class _CachedRun:
    """Cached content that is kept: what stands between two old chain hashes."""

    before: bytes
    key: bytes
    depth: int  # of its first chunk in the new chain
    chunks: list[Units]


class TierPlan:
    """One tier as ``num_blocks`` blocks of ``block_size``.

    The ``tables`` of the tier keep all that they hold, even if that needs more blocks than there are (``needed`` says
    how many). Cached content is kept as far as it fills blocks and there is room, last used first.

    ``reached`` holds the chain hashes that end a new block in another tier; those of this tier are added to it.
    """

    def __init__(
        self, pool: BlockPool, tables: list[BlockTable], num_blocks: int, block_size: int, reached: set[bytes]
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.unit = min(pool.block_size, block_size)
        self.fill: dict[Units, int] = {}  # tokens of each new block, by its content
        self.place: dict[Units, int] = {}  # its id
        self._chunks: dict[int, list[Units]] = {}  # by sequence
        self._boundaries: dict[int, dict[int, bytes]] = {}  # by sequence: position in the new table -> old hash there
        self._cached: list[_CachedRun] = []  # predecessors first
        for table in tables:
            self._chunks[table.seq] = self._chunks_of(pool, table)
            self._boundaries[table.seq] = self._boundaries_of(pool, table)
            reached.update(self._boundaries[table.seq].values())
        self.needed = len(self.fill)
        self.cached_dropped = pool.cached_count - self._keep_cached(pool, reached)
        if self.needed <= num_blocks:
            self._assign()
        self._moves = list(self._find_moves())

    @property
    def blocks_moved(self) -> int:
        return len({move.target * self.unit // self.block_size for move in self._moves})

    def batches(self) -> list[Batch]:
        return in_batches(self._moves, self.unit)

    def build(self, old: BlockPool, new: BlockPool, tables: list[BlockTable]) -> None:
        """Fill ``new``, a pool with ``place`` set aside, and point ``tables`` to it. The prefix index stays empty,
        and cached content is held by sequence -1 until :meth:`settle`."""
        for table in tables:
            for units in self._chunks[table.seq]:
                if new.ref[self.place[units]]:
                    new.share(self.place[units], table.seq, table.owner)
                else:
                    self._put(units, old, new, table.seq, table.owner)
            table.replace([self.place[units] for units in self._chunks[table.seq]])
        for run in self._cached:
            for units in run.chunks:
                self._put(units, old, new, -1, 0)

    def settle(self, pool: BlockPool, tables: list[BlockTable], renamed: dict[bytes, bytes]) -> None:
        """Make the kept cached content findable and evictable in its old order, once what ``tables`` hold is in the
        index. ``renamed`` maps old chain hashes to new ones and is added to."""
        for table in tables:
            for position, before in self._boundaries[table.seq].items():
                entry = pool.index.entry(table.at[position])
                if entry is not None and isinstance(entry.key, bytes):
                    renamed[before] = entry.key
        for run in self._cached:
            self._find_again(run, pool, renamed)
        for block in [self.place[units] for run in reversed(self._cached) for units in reversed(run.chunks)]:
            last_used = pool.last_used[block]
            pool.release(block, -1)
            pool.last_used[block] = last_used

    # --- planning --------------------------------------------------------------------------------------------------

    def _units(self, blocks: list[int], block_size: int, tokens: int) -> list[Units]:
        """The first ``tokens`` tokens of old ``blocks`` as the contents of new blocks."""
        split, merged = block_size // self.unit, self.block_size // self.unit
        units = [block * split + i for block in blocks for i in range(split)][: -(-tokens // self.unit)]
        return [tuple(units[i : i + merged]) for i in range(0, len(units), merged)]

    def _chunks_of(self, pool: BlockPool, table: BlockTable) -> list[Units]:
        chunks = self._units(table.blocks.tolist(), pool.block_size, table.held)
        for position, units in enumerate(chunks):
            self.fill[units] = min(self.block_size, table.held - position * self.block_size)
        return chunks

    def _boundaries_of(self, pool: BlockPool, table: BlockTable) -> dict[int, bytes]:
        boundaries = {}
        for position, block in enumerate(table.blocks[: table.hashed].tolist()):
            entry, end = pool.index.entry(block), (position + 1) * pool.block_size
            if end % self.block_size == 0 and entry is not None and isinstance(entry.key, bytes):
                boundaries[end // self.block_size - 1] = entry.key
        return boundaries

    def _keep_cached(self, pool: BlockPool, reached: set[bytes]) -> int:
        """Choose the cached content to keep; returns how many cached blocks it comes from."""
        room = self.num_blocks - self.needed
        kept: set[int] = set()
        for block in reversed(pool.cached()):
            path = self._path(pool, block)
            if path is None:
                continue
            first, last = pool.index.entry(path[0]), pool.index.entry(block)
            assert first is not None and last is not None and isinstance(last.key, bytes)
            chunks = self._units(path, pool.block_size, len(path) * pool.block_size)
            if len(chunks) > room or (first.depth and first.before not in reached):
                continue
            depth = first.depth * pool.block_size // self.block_size
            self._cached.append(_CachedRun(first.before, last.key, depth, chunks))
            self.fill.update(dict.fromkeys(chunks, self.block_size))
            reached.add(last.key)
            room -= len(chunks)
            kept.update(path)
        return sum(not pool.ref[block] for block in kept)

    def _path(self, pool: BlockPool, block: int) -> list[int] | None:
        """The old blocks that make up the new blocks which end with ``block``; none where ``block`` does not end
        one, or some of them are gone."""
        span = max(1, self.block_size // pool.block_size)
        path: list[int] = []
        at: int | None = block
        while len(path) < span:
            entry = None if at is None else pool.index.entry(at)
            if at is None or entry is None or (not path and (entry.depth + 1) % span):
                return None
            path.append(at)
            at = pool.index.find(entry.before)
        return path[::-1]

    def _assign(self) -> None:
        """Give each content a block: the one where most of it stands already, else the first that is left."""
        width = self.block_size // self.unit
        claims = []
        for order, units in enumerate(self.fill):
            homes = Counter(unit // width for i, unit in enumerate(units) if unit % width == i)
            claims += [(-count, order, home, units) for home, count in homes.items() if home < self.num_blocks]
        taken: set[int] = set()
        for _, _, home, units in sorted(claims):
            if home not in taken and units not in self.place:
                self.place[units] = home
                taken.add(home)
        left = (block for block in range(self.num_blocks) if block not in taken)
        for units in self.fill:
            if units not in self.place:
                self.place[units] = next(left)

    def _find_moves(self) -> Iterator[Move]:
        """Of units, as if at once."""
        width = self.block_size // self.unit
        for units, block in self.place.items():
            for i, unit in enumerate(units):
                if unit != block * width + i:
                    yield Move(unit, block * width + i, min(self.unit, self.fill[units] - i * self.unit))

    # --- building --------------------------------------------------------------------------------------------------

    def _put(self, units: Units, old: BlockPool, new: BlockPool, seq: int, owner: int) -> None:
        block, unit = self.place[units], self.unit
        new.hold(block, seq, owner)
        tokens = np.concatenate([old.tokens[source * unit : (source + 1) * unit] for source in units])
        new.write(block, 0, tokens[: self.fill[units]])
        new.last_used[block] = max(old.last_used[source * unit // old.block_size] for source in units)

    def _find_again(self, run: _CachedRun, pool: BlockPool, renamed: dict[bytes, bytes]) -> None:
        digest = renamed.get(run.before) if run.depth else run.before
        if digest is None:
            return
        for depth, units in enumerate(run.chunks, run.depth):
            block = self.place[units]
            entry = Entry(chain_digest(digest, pool.contents(block).tobytes()), digest, depth)
            if pool.index.find(entry.key) is None:
                pool.index.add(block, entry)
            assert isinstance(entry.key, bytes)
            digest = entry.key
        renamed[run.key] = digest
