"""Block tables: which blocks hold a sequence's tokens, in order. A row each in arrays that a step reads whole."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .blocks import BlockPool


class TableRows:
    """A row a sequence: ``ids`` int32 [rows, width], its block ids and then zeros; ``held`` and ``computed`` int64
    [rows] as in :class:`BlockTable`."""

    def __init__(self) -> None:
        self.ids = np.zeros((0, 16), np.int32)
        self.held = np.zeros(0, np.int64)
        self.computed = np.zeros(0, np.int64)
        self._free: list[int] = []
        self._resize(64, 16)

    def take(self) -> int:
        """A row for a new sequence."""
        if not self._free:
            self._resize(2 * len(self.ids), self.ids.shape[1])
        return self._free.pop()

    def give(self, row: int) -> None:
        self.ids[row] = 0
        self._free.append(row)

    def make_wide(self, count: int) -> None:
        """Rows hold at least ``count`` block ids."""
        if count > self.ids.shape[1]:
            self._resize(len(self.ids), max(count, 2 * self.ids.shape[1]))

    def _resize(self, rows: int, width: int) -> None:
        ids, held, computed = self.ids, self.held, self.computed
        self._free += range(rows - 1, len(ids) - 1, -1)
        self.ids = np.zeros((rows, width), np.int32)
        self.held, self.computed = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self.ids[: ids.shape[0], : ids.shape[1]] = ids
        self.held[: len(held)] = held
        self.computed[: len(computed)] = computed
        # One entry at a time goes through memory views, which numpy's own indexing takes three times as long for.
        self.id_at, self.held_at, self.computed_at = self.ids.data, self.held.data, self.computed.data


#: Stands in a block table for a block that the sequence let go: whatever reads it by mistake finds no such slot.
HOLE = -1


@dataclass(slots=True, eq=False)
class BlockTable:
    """One sequence's blocks in ``pool``, in order.

    ``passed`` are the first tokens, which no later one sees: blocks wholly before their end are let go, and the first
    entries :data:`HOLE`. Else ``held`` tokens are in the blocks. ``computed`` is one less than that where the whole
    prompt was found in the cache: its last token still has to run for its logits, but not to be stored.
    """

    rows: TableRows
    row: int
    pool: BlockPool
    seq: int
    owner: int
    priority: int
    root: bytes
    longest: int  # tokens that the sequence may come to hold
    digest: bytes | None  # of the first `hashed` blocks; none: the rest of the sequence cannot be hashed
    hashed: int = 0
    writable: int = 0  # positions from `held` up to here have slots that no other sequence sees
    count: int = 0
    runs: int = 0  # of neighbouring blocks
    passed: array[int] = field(default_factory=lambda: array("i"))

    @property
    def held(self) -> int:
        return self.rows.held_at[self.row]

    @held.setter
    def held(self, tokens: int) -> None:
        self.rows.held_at[self.row] = tokens

    @property
    def computed(self) -> int:
        return self.rows.computed_at[self.row]

    @computed.setter
    def computed(self, tokens: int) -> None:
        self.rows.computed_at[self.row] = tokens

    @property
    def blocks(self) -> np.ndarray:
        """Block ids (int32), holes included; a view that the next change makes stale."""
        return self.rows.ids[self.row, : self.count]

    @property
    def first(self) -> int:
        """How many holes there are."""
        return len(self.passed) // self.pool.block_size

    @property
    def kept(self) -> np.ndarray:
        """Block ids (int32) without the holes; a view, too."""
        return self.rows.ids[self.row, self.first : self.count]

    @property
    def last(self) -> int:
        """The last block, or -1."""
        return self.at(self.count - 1) if self.count else -1

    def tokens(self, position: int) -> np.ndarray:
        """The tokens (int32) of the block at ``position``."""
        size, start = self.pool.block_size, position * self.pool.block_size
        known = np.array(self.passed[start : start + size], np.int32)
        if len(known) == size:
            return known
        return np.concatenate([known, self.pool.contents(self.at(position))[len(known) :]])

    def at(self, position: int) -> int:
        return self.rows.id_at[self.row, position]

    def extend(self, blocks: list[int]) -> None:
        end = self.count + len(blocks)
        self.rows.make_wide(end)
        runs, last, first = 0, self.last, self.first
        for position, block in enumerate(blocks, self.count):
            self.rows.id_at[self.row, position] = block
            runs += block != last + 1 or position == first
            last = block
        self.count = end
        self._add_runs(runs)

    def append(self, block: int) -> None:
        """One more block."""
        self.rows.make_wide(self.count + 1)
        self.rows.id_at[self.row, self.count] = block
        joined = self.count > self.first and self._joined(self.count)
        self.count += 1
        if not joined:
            self._add_runs(1)

    def put(self, position: int, block: int) -> None:
        """Another block at ``position``."""
        around = range(max(self.first + 1, position), min(position + 2, self.count))
        joined = sum(self._joined(i) for i in around)
        self.rows.id_at[self.row, position] = block
        self._add_runs(joined - sum(self._joined(i) for i in around))

    def skip(self, tokens: Iterable[int]) -> None:
        """The next ``tokens`` are seen no more: blocks wholly before their end, or their places, become holes."""
        self.passed.extend(tokens)
        first = self.first
        self.rows.make_wide(first)
        self.rows.ids[self.row, :first] = HOLE
        self.count = max(self.count, first)
        kept = self.kept
        runs = 1 + int(np.count_nonzero(np.diff(kept) != 1)) if len(kept) else 0
        self._add_runs(runs - self.runs)

    def clear(self) -> None:
        """No blocks any more."""
        self.blocks[:] = 0
        self.count = self.writable = 0
        self._add_runs(-self.runs)

    def move(self, pool: BlockPool, blocks: list[int]) -> None:
        """``blocks`` of ``pool`` instead, after the holes."""
        self.clear()
        self.pool = pool
        self.skip([])
        self.extend(blocks)

    def _joined(self, position: int) -> bool:
        return self.at(position) == self.at(position - 1) + 1

    def _add_runs(self, runs: int) -> None:
        self.runs += runs
        self.pool.runs += runs
