"""Another block size, or another number of blocks, for a live tier: what stays, where it goes, what must move.

A plan is made first and changes nothing, so that it can be shown, or refused, and the tier is as it was. Old and new
blocks are both seen as runs of *units*, the smaller of the two sizes: splitting a block is then a change of view, and
merging moves only units that do not stand where they belong already. All that grows with the pool is done on arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .blocks import BlockPool
from .moves import SCRATCH_SLOTS, Batch, in_batches, to_slots
from .prefix import Entry, chain_digest

if TYPE_CHECKING:
    from .tables import BlockTable


@dataclass(frozen=True, slots=True)
class Reshape:
    """What a change of the block size or of the pools' sizes does. A tier without a plan stays as it is."""

    old_size: int  # tokens in a block
    block_size: int
    old_slots: int
    num_slots: int  # of the device tier
    old_host_slots: int
    num_host_slots: int
    device: TierPlan | None
    host: TierPlan | None
    others: tuple[Reshape, ...] = ()  # the same change of further groups of layers, with the same victims

    @property
    def parts(self) -> tuple[Reshape, ...]:
        """One a group of layers."""
        return (self, *self.others)

    @property
    def plans(self) -> list[TierPlan]:
        return [plan for plan in (self.device, self.host) if plan is not None]

    @property
    def victims(self) -> list[int]:
        """Sequences that have to give up their blocks, in that order."""
        return [seq for plan in self.plans for seq in plan.victims]

    @property
    def blocks_moved(self) -> int:
        """New blocks of both tiers of which a part stands elsewhere than before."""
        return sum(plan.blocks_moved for part in self.parts for plan in part.plans)

    @property
    def cached_dropped(self) -> int:
        """Old cached blocks whose content is given up."""
        return sum(plan.cached_dropped for part in self.parts for plan in part.plans)

    def bytes_copied(self, slot_bytes: tuple[int, ...]) -> int:
        """With so many bytes a slot in each group."""
        return sum(part.slots_copied * slot for part, slot in zip(self.parts, slot_bytes, strict=True))

    @property
    def slots_copied(self) -> int:
        """In this group's pools: where a pool keeps its slots, those that move; in a pool of another size, all that
        is kept."""
        device, host = self.device, self.host
        return (0 if device is None else device.slots_copied(self.old_slots != self.num_slots)) + (
            0 if host is None else host.slots_copied(self.old_host_slots != self.num_host_slots)
        )


class TierPlan:
    """One tier as ``num_blocks`` blocks of ``block_size``.

    The ``tables`` of the tier keep all that they hold, but for ``victims``: as few of ``turns`` as possible, the last
    first, that have to give up their blocks for the rest to fit. If that is not enough, ``needed`` says how many
    blocks it would take. Cached content, that of the victims included, is kept as far as it fills blocks and there is
    room, the last to be evicted first.

    ``leaving`` are victims already, and later in ``turns`` than all who are not.

    ``reached`` holds the chain hashes that end a new block in another tier; those of this tier are added to it.
    """

    def __init__(
        self,
        pool: BlockPool,
        tables: list[BlockTable],
        num_blocks: int,
        block_size: int,
        turns: Sequence[int],
        leaving: Collection[int],
        reached: set[bytes],
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.old_size = pool.block_size
        self.unit = min(pool.block_size, block_size)
        self.victims: list[int] = []
        self._each = max(1, self.old_size // block_size)  # new blocks that an old one makes, or ends
        self._rows: dict[int, np.ndarray] = {}  # by sequence: the contents of its blocks, as rows of `_contents`
        self._boundaries: dict[int, dict[int, bytes]] = {}  # by sequence: position in the new table -> old hash there
        gone = self._choose(tables, turns, leaving)
        self.needed = len(self._contents)
        for table in tables:
            if table.seq in self._rows:
                self._boundaries[table.seq] = self._boundaries_of(pool, table)
                reached.update(self._boundaries[table.seq].values())
        self._cached: list[Entry] = []  # of kept cached content, where it ends; predecessors first
        self.cached_dropped = self._keep_cached(pool, gone, reached)
        self._place = self._assign() if self.needed <= num_blocks else np.zeros(0, np.int64)

    @property
    def renames(self) -> bool:
        """Whether full blocks get other hashes."""
        return self.block_size != self.old_size

    @property
    def blocks_moved(self) -> int:
        return len(np.unique(self._moves()[:, 1] * self.unit // self.block_size))

    def batches(self) -> Iterator[Batch]:
        """What moves within the pool: batches of slots, to be run one after another."""
        return in_batches(self._moves(), self.unit)

    def copies(self) -> Iterator[Batch]:
        """All that is kept, a scratch buffer's slots at a time: where it stands, and where it belongs in another
        pool."""
        parts, capacity = self._parts(), max(1, SCRATCH_SLOTS // self.unit)
        return (to_slots(parts[i : i + capacity], self.unit) for i in range(0, len(parts), capacity))

    def slots_copied(self, resized: bool) -> int:
        return int((self._parts() if resized else self._moves())[:, 2].sum())

    def build(self, old: BlockPool, new: BlockPool, tables: list[BlockTable]) -> None:
        """Fill ``new`` and point ``tables`` to it. Where hashes change, its prefix index stays empty."""
        there = self._contents >= 0
        place, units = self._place, np.where(there, self._contents, self._contents.max(axis=1, keepdims=True))
        sources = units * self.unit // old.block_size
        last = there.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)[:, None]
        new.tokens.reshape(-1, units.shape[1], self.unit)[place] = old.tokens.reshape(-1, self.unit)[units]
        new.fill[place] = self._fill
        new.last_used[place] = old.last_used[sources].max(axis=1, initial=0)
        new.priority[place] = old.priority[np.take_along_axis(sources, last, axis=1)[:, 0]]
        for table in tables:
            table.move(new, place[self._rows[table.seq]].tolist())
        new.restore(tables, self._cached_blocks())
        if not self.renames:
            where = np.full(old.num_blocks, -1)
            where[self._contents[:, 0]] = place
            entries = old.index.entries()
            for entry, to in zip(entries.values(), where[list(entries)].tolist(), strict=True):
                if to >= 0:
                    new.index.add(to, entry)

    def find_again(self, pool: BlockPool, tables: list[BlockTable], renamed: dict[bytes, bytes]) -> None:
        """Make the kept cached content findable, once what ``tables`` hold is in the index. ``renamed`` maps old chain
        hashes to new ones and is added to."""
        for table in tables:
            for position, before in self._boundaries[table.seq].items():
                entry = pool.index.entry(table.at(position))
                if entry is not None and isinstance(entry.key, bytes):
                    renamed[before] = entry.key
        blocks = self._place[self.needed :].reshape(-1, self._each).tolist()
        for end, chunks in zip(self._cached, blocks, strict=True):
            self._find_run(end, chunks, pool, renamed)
        pool.drop([block for block in self._cached_blocks() if not pool.index.hashed[block]])
        pool.requeue_cached()

    # --- what is kept ------------------------------------------------------------------------------------------------

    def _units_of(self, blocks: np.ndarray, tokens: int, passed: int = 0) -> np.ndarray:
        """The first ``tokens`` tokens of old ``blocks`` as contents of new blocks: each a row of the old units that it
        is made of, in order, and -1 before and after those. Without the blocks that ``passed`` tokens fill."""
        split, merged = self.old_size // self.unit, self.block_size // self.unit
        units = (blocks[:, None].astype(np.int64) * split + np.arange(split)).reshape(-1)[: -(-tokens // self.unit)]
        padded = np.full(-(-len(units) // merged) * merged, -1, np.int64)
        padded[: len(units)] = units
        padded[: passed // self.unit] = -1
        return padded.reshape(-1, merged)[passed // self.block_size :]

    def _choose(self, tables: list[BlockTable], turns: Sequence[int], leaving: Collection[int]) -> list[BlockTable]:
        """Take in as many tables as fit, those in ``turns`` last and in this order; returns the rest, which have to
        go, the last first."""
        turn = {seq: number for number, seq in enumerate(turns)}
        tables = sorted(tables, key=lambda table: turn.get(table.seq, -1))
        rows = [self._units_of(table.blocks, table.held, len(table.passed)) for table in tables]
        stops = np.cumsum([len(part) for part in rows], dtype=np.int64)
        width = self.block_size // self.unit
        contents, number = _distinct(np.concatenate([np.zeros((0, width), np.int64), *rows]))
        # Numbered as they first appear, the contents of the first tables are the first ones.
        seen = np.concatenate([[0], np.maximum.accumulate(number) + 1])
        fitting = int(np.searchsorted(seen[stops], self.num_blocks, side="right"))
        kept = max(fitting, sum(table.seq not in turn for table in tables))
        kept = min(kept, sum(table.seq not in leaving for table in tables))
        self._contents = contents[: seen[stops[kept - 1]] if kept else 0]
        self._fill = np.zeros(len(self._contents), np.int64)
        for table, stop, part in zip(tables[:kept], stops, rows, strict=False):
            self._rows[table.seq] = own = number[stop - len(part) : stop]
            position = len(table.passed) // self.block_size + np.arange(len(part))
            self._fill[own] = np.minimum(self.block_size, table.held - position * self.block_size)
        self.victims = [table.seq for table in reversed(tables[kept:])]
        return tables[: kept - 1 : -1] if kept else tables[::-1]

    def _boundaries_of(self, pool: BlockPool, table: BlockTable) -> dict[int, bytes]:
        boundaries, size = {}, pool.block_size
        step = max(1, self.block_size // size)
        for end, block in enumerate(table.blocks[: table.hashed].tolist()[step - 1 :: step], 1):
            entry, position = pool.index.entry(block), end * step * size // self.block_size - 1
            whole = position * self.block_size >= len(table.passed)
            if whole and entry is not None and isinstance(entry.key, bytes):
                boundaries[position] = entry.key
        return boundaries

    def _keep_cached(self, pool: BlockPool, gone: list[BlockTable], reached: set[bytes]) -> int:
        """Choose the cached content to keep; returns how many cached blocks are given up."""
        queue = _cached_without(pool, gone)
        room = self.num_blocks - self.needed
        paths: list[list[int]] = []
        for block in reversed(queue):
            if room < self._each:
                break
            path = self._path(pool, block)
            if path is None:
                continue
            first, end = pool.index.entry(path[0]), pool.index.entry(block)
            assert first is not None and end is not None and isinstance(end.key, bytes)
            if first.depth and first.before not in reached:
                continue
            self._cached.append(Entry(end.key, first.before, first.depth))
            reached.add(end.key)
            paths.append(path)
            room -= self._each
        kept = np.array(paths, np.int64).reshape(-1)
        contents = self._units_of(kept, len(kept) * self.old_size)
        self._contents = np.concatenate([self._contents, contents])
        self._fill = np.concatenate([self._fill, np.full(len(contents), self.block_size)])
        return len(set(queue).difference(kept.tolist()))

    def _path(self, pool: BlockPool, block: int) -> list[int] | None:
        """The old blocks that make up the new blocks which end with ``block``; none where ``block`` does not end
        one, or some of them are gone."""
        span = max(1, self.block_size // self.old_size)
        path: list[int] = []
        at: int | None = block
        while len(path) < span:
            entry = None if at is None else pool.index.entry(at)
            if at is None or entry is None or (not path and (entry.depth + 1) % span):
                return None
            path.append(at)
            at = pool.index.find(entry.before)
        return path[::-1]

    def _cached_blocks(self) -> list[int]:
        """New blocks of cached content, the next to be given up first."""
        return self._place[self.needed :][::-1].tolist()

    # --- where it goes -----------------------------------------------------------------------------------------------

    def _assign(self) -> np.ndarray:
        """A block for each content: the one where most of it stands already, else the first that is left."""
        width = self._contents.shape[1]
        place = np.full(len(self._contents), -1, np.int64)
        free = np.ones(self.num_blocks, np.bool_)
        content, at = np.nonzero((self._contents % width == np.arange(width)) & (self._contents >= 0))
        claims, count = np.unique(
            content * (self.num_blocks + 1) + np.minimum(self._contents[content, at] // width, self.num_blocks),
            return_counts=True,
        )
        claims = np.stack(np.divmod(claims[np.argsort(-count, kind="stable")], self.num_blocks + 1), axis=1)
        claims = claims[claims[:, 1] < self.num_blocks]
        while len(claims):
            # The best claim of both a content and a block is granted; claims of either are then settled.
            granted = claims[_first(claims[:, 0]) & _first(claims[:, 1])]
            place[granted[:, 0]] = granted[:, 1]
            free[granted[:, 1]] = False
            claims = claims[(place[claims[:, 0]] < 0) & free[claims[:, 1]]]
        left = np.flatnonzero(place < 0)
        place[left] = np.flatnonzero(free)[: len(left)]
        return place

    def _parts(self) -> np.ndarray:
        """All units that hold tokens, as moves: from unit, to unit, slots; int64 [n, 3]."""
        width = self._contents.shape[1]
        offset = np.arange(width)
        parts = np.stack(
            [
                self._contents,
                self._place[:, None] * width + offset,
                np.clip(self._fill[:, None] - offset * self.unit, 0, self.unit),
            ],
            axis=-1,
        ).reshape(-1, 3)
        return parts[(parts[:, 0] >= 0) & (parts[:, 2] > 0)]

    def _moves(self) -> np.ndarray:
        """Those of :meth:`_parts` that stand elsewhere; as if at once."""
        parts = self._parts()
        return parts[parts[:, 0] != parts[:, 1]]

    def _find_run(self, end: Entry, blocks: list[int], pool: BlockPool, renamed: dict[bytes, bytes]) -> None:
        digest = renamed.get(end.before) if end.depth else end.before
        if digest is None:
            return
        for depth, block in enumerate(blocks, end.depth * self.old_size // self.block_size):
            entry = Entry(chain_digest(digest, pool.contents(block).tobytes()), digest, depth)
            same = pool.index.find(entry.key)
            if same is None:
                pool.index.add(block, entry)
            else:  # what follows is found by way of that one, which must not be given up before it
                pool.priority[same] = min(pool.priority[same], pool.priority[block])
            assert isinstance(entry.key, bytes)
            digest = entry.key
        assert isinstance(end.key, bytes)
        renamed[end.key] = digest


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of an array of integers from -1, in the order in which they first appear, and for each row
    which of them it is."""
    code = rows[:, 0]
    for column in rows.T[1:]:
        _, code = np.unique(code * (rows.max(initial=0) + 2) + column + 1, return_inverse=True)
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rows[first[order]], rank[number]


def _first(values: np.ndarray) -> np.ndarray:
    """Where each value appears for the first time."""
    mask = np.zeros(len(values), np.bool_)
    mask[np.unique(values, return_index=True)[1]] = True
    return mask


def _cached_without(pool: BlockPool, gone: list[BlockTable]) -> list[int]:
    """The cached blocks, the next to be given up first, as they would be once the ``gone`` are closed in this order."""
    queue, left = pool.cached(), pool.ref.copy()
    priority = {block: int(pool.priority[block]) for block in queue}
    for table in gone:
        for block in table.kept[::-1].tolist():
            left[block] -= 1
            priority[block] = min(priority.get(block, int(pool.priority[block])), table.priority)
            entry = pool.index.entry(block)
            if not left[block] and entry is not None and isinstance(entry.key, bytes):
                queue.append(block)
    return sorted(queue, key=lambda block: -priority[block]) if pool.by_priority else queue
