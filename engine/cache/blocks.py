"""BlockPool: one tier's blocks. Who holds each, what is known of its content, and which to give up first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...ipc.vocabulary import BlockState
from .eviction import CachedBlocks
from .free_runs import FreeRuns
from .prefix import PrefixIndex

if TYPE_CHECKING:
    from .tables import BlockTable

_RESERVED = int(BlockState.RESERVED)  # a plain number is stored in a third of the time

#: The priority of content that nobody used yet: less urgent than any.
UNUSED = 2**31 - 1


class BlockPool:
    """Allocation, reference counts and eviction of ``num_blocks`` blocks of ``block_size`` slots.

    Every block is free; or held by ``ref`` sequences; or kept ahead: nobody else's while there are others, for one
    sequence to grow into; or cached: held by none, its content known to the prefix index and kept until the block is
    needed. Who releases a sequence's last block first has leaves evicted before the blocks that lead to them
    (:class:`CachedBlocks` has the order). Blocks kept ahead are given back before anything is evicted.

    No method costs more than what it changes, but :meth:`restore`. The arrays (one entry a block) are for reading:
    ``state`` u1 (:class:`BlockState`), ``ref`` i4, ``fill`` i4 (tokens held), ``owner`` u4 (number of the first
    request that holds it, 0 is none), ``last_used`` u4 (step), ``holder`` i8 (the first sequence that holds it, if
    any), ``priority`` i4 (the most urgent that used its content); ``tokens`` i4 has one entry a slot.

    ``evicting`` is called with a cached block just before its content is given up.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        host: bool = False,
        evicting: Callable[[int], None] | None = None,
        by_priority: bool = False,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.is_host = host
        self.step = 0
        self.state = np.zeros(num_blocks, np.uint8)
        self.ref = np.zeros(num_blocks, np.int32)
        self.fill = np.zeros(num_blocks, np.int32)
        self.owner = np.zeros(num_blocks, np.uint32)
        self.last_used = np.zeros(num_blocks, np.uint32)
        self.holder = np.zeros(num_blocks, np.int64)
        self.priority = np.full(num_blocks, UNUSED, np.int32)
        self.tokens = np.zeros(num_blocks * block_size, np.int32)
        self.index = PrefixIndex()
        self.used_count = 0
        self.empty_count = 0  # held, but without a token yet
        self.ahead_count = 0
        self.tokens_held = 0  # in used blocks
        self.references = 0  # entries of all block tables: used_count + empty_count if nothing were shared
        self.runs = 0  # of neighbours in all block tables
        # One entry at a time goes through memory views, which numpy's own indexing takes three times as long for.
        self._state = self.state.data
        self._ref = self.ref.data
        self._fill = self.fill.data
        self._owner = self.owner.data
        self._last_used = self.last_used.data
        self._holder = self.holder.data
        self._priority = self.priority.data
        self._tokens = self.tokens.data
        self._one_holder = int(BlockState.SWAPPED if host else BlockState.ACTIVE)
        self._many_holders = int(BlockState.SWAPPED if host else BlockState.SHARED)
        self._evicting = evicting
        self._free = FreeRuns(np.ones(num_blocks, np.bool_))
        self._cached = CachedBlocks(by_priority=by_priority)
        self._ahead: dict[int, tuple[int, int]] = {}  # sequence -> the run kept for it (first, length), oldest first
        self._holders: dict[int, dict[int, int]] = {}  # of shared blocks: sequence -> owner, oldest first
        self._changed: list[int] = []
        self._changed_together: list[np.ndarray] = []
        self._is_changed = np.zeros(num_blocks, np.bool_)
        self._was_changed = self._is_changed.data

    # --- counts ----------------------------------------------------------------------------------------------------

    @property
    def free_count(self) -> int:
        return self._free.count

    @property
    def cached_count(self) -> int:
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that :meth:`take` can give: free, cached, or kept ahead."""
        return self._free.count + len(self._cached) + self.ahead_count

    @property
    def reserved_count(self) -> int:
        """Blocks that are somebody's and hold no token."""
        return self.empty_count + self.ahead_count

    @property
    def saved_count(self) -> int:
        """Blocks that would be in use besides those that are, if nothing were shared."""
        return self.references - self.used_count - self.empty_count

    def take_changed(self) -> np.ndarray:
        """Ids (u4) of the blocks that changed since the last call, in no particular order."""
        changed = np.concatenate([np.array(self._changed, np.uint32), *self._changed_together])
        self._is_changed[changed] = False
        self._changed.clear()
        self._changed_together.clear()
        return changed

    @property
    def by_priority(self) -> bool:
        """Whether cached blocks are given up in the order of their priorities before that of their release."""
        return self._cached.by_priority

    @by_priority.setter
    def by_priority(self, on: bool) -> None:
        self._cached.by_priority = on

    def cached(self) -> list[int]:
        """Cached blocks, the next to be given up first."""
        return self._cached.order()

    def ahead(self) -> dict[int, tuple[int, int]]:
        """Runs kept ahead, as (first, length), by sequence."""
        return dict(self._ahead)

    def free_runs(self) -> list[tuple[int, int]]:
        """Maximal runs of free blocks as (first, length), in order."""
        return self._free.runs()

    def holders(self, block: int) -> list[int]:
        """The sequences that hold ``block``, the first to come first."""
        if not self._ref[block]:
            return []
        return list(self._holders.get(block, (self._holder[block],)))

    # --- holding and letting go ------------------------------------------------------------------------------------

    def take(self, count: int, seq: int, owner: int, after: int = -1) -> list[int]:
        """``count`` blocks for sequence ``seq``: those kept ahead for it, then neighbours of them or of block ``after``
        where free. Gives back what is kept for others and evicts cached blocks if it must. ``count`` must
        not exceed :attr:`available`."""
        runs = self._take_ahead(count, seq)
        if rest := count - sum(length for _, length in runs):
            while self._free.count < rest:
                if self._ahead:
                    self.give_back(next(iter(self._ahead)))
                else:
                    self.evict()
            runs += self._free.take(rest, runs[-1][0] + runs[-1][1] - 1 if runs else after)
        for start, length in runs:
            self._hold(start, start + length, seq, owner)
        return [block for start, length in runs for block in range(start, start + length)]

    def _take_ahead(self, count: int, seq: int) -> list[tuple[int, int]]:
        start, length = self._ahead.get(seq, (0, 0))
        if not length or not count:
            return []
        taken = min(count, length)
        self.ahead_count -= taken
        if taken == length:
            del self._ahead[seq]
        else:
            self._ahead[seq] = start + taken, length - taken
        return [(start, taken)]

    def keep_ahead(self, count: int, seq: int, owner: int, after: int) -> None:
        """Keep up to ``count`` free blocks that follow block ``after`` for ``seq``, unless it has some left."""
        if seq in self._ahead or not (length := self._free.take_next(count, after)):
            return
        start, stop = after + 1, after + 1 + length
        self._ahead[seq] = start, length
        self.ahead_count += length
        self.state[start:stop] = BlockState.RESERVED
        self.owner[start:stop] = owner
        self.last_used[start:stop] = self.step
        self._mark_run(start, stop)

    def give_back(self, seq: int) -> None:
        """What is kept ahead for ``seq``, if anything, is free again."""
        start, length = self._ahead.pop(seq, (0, 0))
        if length:
            self.ahead_count -= length
            self.state[start : start + length] = BlockState.FREE
            self.owner[start : start + length] = 0
            self._free.give(start, length)
            self._mark_run(start, start + length)

    def _hold(self, start: int, stop: int, seq: int, owner: int) -> None:
        for block in range(start, stop):
            self._state[block] = _RESERVED
            self._ref[block] = 1
            self._owner[block] = owner
            self._holder[block] = seq
            self._last_used[block] = self.step
            self._mark(block)
        self.empty_count += stop - start
        self.references += stop - start

    def share(self, block: int, seq: int, owner: int) -> None:
        """``seq`` holds ``block`` too; it is cached or held by others."""
        self._ref[block] += 1
        self.references += 1
        self._last_used[block] = self.step
        if self._ref[block] == 1:
            self._cached.remove(block, self._priority[block])
            self._holder[block] = seq
            self._owner[block] = owner
            self._state[block] = self._one_holder
            self.used_count += 1
            self.tokens_held += self._fill[block]
        else:
            if block not in self._holders:
                self._holders[block] = {self._holder[block]: self._owner[block]}
            self._holders[block][seq] = owner
            self._state[block] = self._many_holders
        self._mark(block)

    def release(self, block: int, seq: int, priority: int = 0) -> None:
        """``seq``, which was of this priority, lets go of ``block``. Held by none, it stays cached if the prefix index
        knows it by its hash, and is free otherwise."""
        self._ref[block] -= 1
        self.references -= 1
        if priority < self._priority[block]:
            self._priority[block] = priority
        if self._ref[block]:
            self._let_go_shared(block, seq)
        else:
            self._let_go_last(block)
        self._mark(block)

    def _let_go_shared(self, block: int, seq: int) -> None:
        holders = self._holders[block]
        del holders[seq]
        self._holder[block], self._owner[block] = next(iter(holders.items()))
        if len(holders) == 1:
            del self._holders[block]
            self._state[block] = self._one_holder

    def _let_go_last(self, block: int) -> None:
        self._owner[block] = 0
        if self._fill[block]:
            self.used_count -= 1
            self.tokens_held -= self._fill[block]
        else:
            self.empty_count -= 1
        entry = self.index.entry(block)
        if entry is not None and isinstance(entry.key, bytes):
            self._cached.add(block, self._priority[block])
            self._state[block] = BlockState.CACHED
            self._last_used[block] = self.step
        else:
            self._discard(block)

    def evict(self) -> None:
        """Give up the cached block whose turn it is."""
        block = self._cached.first()
        if self._evicting is not None:
            self._evicting(block)
        self.drop(block)

    def drop(self, block: int) -> None:
        """A cached block becomes free."""
        self._cached.remove(block, self._priority[block])
        self._discard(block)
        self._mark(block)

    def touch(self, block: int, priority: int) -> None:
        """A cached block was used with this priority."""
        self._cached.remove(block, self._priority[block])
        self._priority[block] = min(priority, self._priority[block])
        self._cached.add(block, self._priority[block])
        self._last_used[block] = self.step
        self._mark(block)

    def _discard(self, block: int) -> None:
        self.index.remove(block)
        self._fill[block] = 0
        self._priority[block] = UNUSED
        self._state[block] = BlockState.FREE
        self._free.give(block)

    # --- content ---------------------------------------------------------------------------------------------------

    def write(self, block: int, offset: int, tokens: Sequence[int] | np.ndarray) -> None:
        """``block``, which is held, now has ``tokens`` from slot ``offset`` on, up to which it was full."""
        before, fill = self._fill[block], offset + len(tokens)
        first = block * self.block_size + offset
        if len(tokens) == 1:
            self._tokens[first] = tokens[0]
        else:
            self.tokens[first : first + len(tokens)] = tokens
        if not before:
            self.empty_count -= 1
            self.used_count += 1
            self._state[block] = self._one_holder if self._ref[block] == 1 else self._many_holders
        self._fill[block] = fill
        self.tokens_held += fill - before
        self._last_used[block] = self.step
        self._mark(block)

    def append(self, blocks: np.ndarray, offsets: np.ndarray, tokens: np.ndarray) -> None:
        """Each of ``blocks``, which one sequence holds, now has one of ``tokens`` at its slot of ``offsets``, up to
        which it was full."""
        self.tokens[blocks * self.block_size + offsets] = tokens
        self.fill[blocks] = offsets + 1
        self.last_used[blocks] = self.step
        self.tokens_held += len(blocks)
        begun = blocks[offsets == 0]
        self.state[begun] = self._one_holder
        self.empty_count -= len(begun)
        self.used_count += len(begun)
        new = blocks[~self._is_changed[blocks]]
        self._is_changed[new] = True
        self._changed_together.append(new.astype(np.uint32))

    def contents(self, block: int) -> np.ndarray:
        """The token ids (int32) that ``block`` holds. A view."""
        first = block * self.block_size
        return self.tokens[first : first + self._fill[block]]

    def content_bytes(self, block: int) -> bytes:
        """The token ids (int32) that ``block`` holds, as bytes."""
        first = block * self.block_size
        return self._tokens[first : first + self._fill[block]].tobytes()

    def restore(self, tables: list[BlockTable], cached: list[int]) -> None:
        """Begin anew with what ``fill``, ``tokens``, ``last_used`` and ``priority`` say already: ``tables`` hold their
        blocks, none holds those of ``cached`` (the next to be given up first), and all others are free."""
        held = np.concatenate([np.zeros(0, np.int32), *(table.kept for table in tables)])
        self.ref[:] = np.bincount(held, minlength=self.num_blocks)
        for table in reversed(tables):
            self.owner[table.kept] = table.owner
            self.holder[table.kept] = table.seq
        for table in tables:
            for block in table.kept[self.ref[table.kept] > 1].tolist():
                self._holders.setdefault(block, {})[table.seq] = table.owner
        self.state[self.ref == 1] = self._one_holder
        self.state[self.ref > 1] = self._many_holders
        self.state[cached] = BlockState.CACHED
        for block in cached:
            self._cached.add(block, self._priority[block])
        self._free = FreeRuns(self.state == BlockState.FREE)
        used = self.ref > 0
        self.used_count = int(np.count_nonzero(used))
        self.tokens_held = int(self.fill[used].sum())
        self.references = len(held)

    def _mark(self, block: int) -> None:
        if not self._was_changed[block]:
            self._was_changed[block] = True
            self._changed.append(block)

    def _mark_run(self, start: int, stop: int) -> None:
        for block in range(start, stop):
            self._mark(block)
