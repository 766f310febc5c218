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

#: The priority of content that nobody used yet: less urgent than any.
UNUSED = 2**31 - 1

#: A pool that must evict makes room for more than it needs, a 512th of its blocks, at most so many: evicting many at
#: once costs each of them a fraction of what it costs one.
EVICTED_TOGETHER = 512


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

    Methods that take several blocks take different ones. ``evicting`` is called with cached blocks (int64), in the
    order of their eviction, just before their content is given up.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        host: bool = False,
        evicting: Callable[[np.ndarray], None] | None = None,
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
        self.index = PrefixIndex(num_blocks)
        self.used_count = 0
        self.empty_count = 0  # held, but without a token yet
        self.ahead_count = 0
        self.tokens_held = 0  # in used blocks
        self.references = 0  # entries of all block tables: used_count + empty_count if nothing were shared
        self.runs = 0  # of neighbours in all block tables
        self.evicted_count = 0  # ever
        self._one_holder = int(BlockState.SWAPPED if host else BlockState.ACTIVE)
        self._many_holders = int(BlockState.SWAPPED if host else BlockState.SHARED)
        self._evicting = evicting
        self._free = FreeRuns(np.ones(num_blocks, np.bool_))
        self._cached = CachedBlocks(self.priority, by_priority=by_priority)
        self._ahead: dict[int, tuple[int, int]] = {}  # sequence -> the run kept for it (first, length), oldest first
        self._holders: dict[int, dict[int, int]] = {}  # of shared blocks: sequence -> owner, oldest first
        self._changed = [np.zeros(0, np.uint32)]
        self._is_changed = np.zeros(num_blocks, np.bool_)

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
        changed = np.concatenate(self._changed)
        self._is_changed[changed] = False
        self._changed = [changed[:0]]
        return changed

    @property
    def by_priority(self) -> bool:
        """Whether cached blocks are given up in the order of their priorities before that of their release."""
        return self._cached.by_priority

    @by_priority.setter
    def by_priority(self, on: bool) -> None:
        self._cached.by_priority = on

    def requeue_cached(self) -> None:
        """Take in that priorities of cached blocks changed."""
        self._cached.requeue()

    def cached(self) -> list[int]:
        """Cached blocks, the next to be given up first."""
        return self._cached.order().tolist()

    def ahead(self) -> dict[int, tuple[int, int]]:
        """Runs kept ahead, as (first, length), by sequence."""
        return dict(self._ahead)

    def free_runs(self) -> list[tuple[int, int]]:
        """Maximal runs of free blocks as (first, length), in order."""
        return self._free.runs()

    def holders(self, block: int) -> list[int]:
        """The sequences that hold ``block``, the first to come first."""
        if not self.ref[block]:
            return []
        return list(self._holders.get(block, (int(self.holder[block]),)))

    # --- holding and letting go ------------------------------------------------------------------------------------

    def take(self, count: int, seq: int, owner: int, after: int = -1) -> list[int]:
        """``count`` blocks for sequence ``seq``: those kept ahead for it, then neighbours of them or of block ``after``
        where free. Gives back what is kept for others and evicts cached blocks if it must. ``count`` must
        not exceed :attr:`available`."""
        runs = self._take_ahead(count, seq)
        if rest := count - sum(length for _, length in runs):
            self._make_room(rest)
            runs += self._free.take(rest, runs[-1][0] + runs[-1][1] - 1 if runs else after)
        blocks = [block for start, length in runs for block in range(start, start + length)]
        self._hold(np.array(blocks, np.int64), seq, owner)
        return blocks

    @property
    def longest_run(self) -> int:
        """Neighbouring blocks that are free."""
        return self._free.longest

    def take_run(self, count: int, seq: int, owner: int) -> list[int]:
        """``count`` neighbouring blocks for ``seq``, at most :attr:`longest_run`."""
        start = self._free.take_run(count)
        blocks = list(range(start, start + count))
        self._hold(np.array(blocks, np.int64), seq, owner)
        return blocks

    def take_each(self, seqs: Sequence[int], owners: Sequence[int], after: Sequence[int]) -> list[int]:
        """As :meth:`take` of one block for each of ``seqs``, in the time of a few."""
        blocks = []
        for seq, last in zip(seqs, after, strict=True):
            runs = self._take_ahead(1, seq)
            if not runs:
                self._make_room(1)
                runs = self._free.take(1, last)
            blocks.append(runs[0][0])
        self._hold(np.array(blocks, np.int64), np.array(seqs, np.int64), np.array(owners, np.uint32))
        return blocks

    def _make_room(self, count: int) -> None:
        """At least ``count`` blocks are free, which are available."""
        while self._ahead and self._free.count < count:
            self.give_back(next(iter(self._ahead)))
        if self._free.count < count:
            together = min(EVICTED_TOGETHER, self.num_blocks // 512)
            self.evict(max(count - self._free.count, together))

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

    def _hold(self, blocks: np.ndarray, seqs: int | np.ndarray, owners: int | np.ndarray) -> None:
        self.state[blocks] = BlockState.RESERVED
        self.ref[blocks] = 1
        self.owner[blocks] = owners
        self.holder[blocks] = seqs
        self.last_used[blocks] = self.step
        self.empty_count += len(blocks)
        self.references += len(blocks)
        self._mark(blocks)

    def share(self, blocks: Sequence[int] | np.ndarray, seq: int, owner: int) -> None:
        """``seq`` holds ``blocks``, too; each is cached or held by others."""
        blocks = np.asarray(blocks, np.int64)
        ref = self.ref[blocks] + 1
        self.ref[blocks] = ref
        self.references += len(blocks)
        self.last_used[blocks] = self.step
        cached, held = blocks[ref == 1], blocks[ref > 1]
        self._cached.remove(cached)
        self.holder[cached] = seq
        self.owner[cached] = owner
        self.state[cached] = self._one_holder
        self.used_count += len(cached)
        self.tokens_held += int(self.fill[cached].sum())
        for block in held.tolist():
            if block not in self._holders:
                self._holders[block] = {int(self.holder[block]): int(self.owner[block])}
            self._holders[block][seq] = owner
        self.state[held] = self._many_holders
        self._mark(blocks)

    def release(self, blocks: Sequence[int] | np.ndarray, seq: int, priority: int | np.ndarray = UNUSED) -> None:
        """``seq``, which was of this priority (of each block, if it is an array), lets go of ``blocks``, in this order.
        Those held by none stay cached if the prefix index knows them by their hashes, and are free otherwise."""
        blocks = np.asarray(blocks, np.int64)
        ref = self.ref[blocks] - 1
        self.ref[blocks] = ref
        self.references -= len(blocks)
        self.priority[blocks] = np.minimum(self.priority[blocks], priority)
        for block in blocks[ref > 0].tolist():
            self._let_go_shared(block, seq)
        self._let_go_last(blocks[ref == 0])
        self._mark(blocks)

    def _let_go_shared(self, block: int, seq: int) -> None:
        holders = self._holders[block]
        del holders[seq]
        self.holder[block], self.owner[block] = next(iter(holders.items()))
        if len(holders) == 1:
            del self._holders[block]
            self.state[block] = self._one_holder

    def _let_go_last(self, blocks: np.ndarray) -> None:
        self.owner[blocks] = 0
        fill = self.fill[blocks]
        used = int(np.count_nonzero(fill))
        self.used_count -= used
        self.empty_count -= len(blocks) - used
        self.tokens_held -= int(fill.sum())
        known = self.index.hashed[blocks]
        cached = blocks[known]
        self.state[cached] = BlockState.CACHED
        self.last_used[cached] = self.step
        self._cached.add(cached)
        self._discard(blocks[~known])

    def evict(self, count: int) -> None:
        """Give up the ``count`` cached blocks whose turn it is, or all."""
        blocks = self._cached.first(count)
        if self._evicting is not None:
            self._evicting(blocks)
        self.evicted_count += len(blocks)
        self.drop(blocks)

    def drop(self, blocks: Sequence[int] | np.ndarray) -> None:
        """Cached ``blocks`` become free."""
        blocks = np.asarray(blocks, np.int64)
        self._cached.remove(blocks)
        self._discard(blocks)
        self._mark(blocks)

    def outranked(self, priorities: np.ndarray, count: int) -> int:
        """How many of newcomers with these ``priorities``, the first to be given up first, would be given up at once
        if ``count`` blocks had to be, of them and of those that are cached."""
        if count <= 0:
            return 0
        priority = np.concatenate([self.priority[self._cached.first(count)], priorities])
        before = len(priority) - len(priorities)
        order = np.argsort(-priority, kind="stable") if self.by_priority else np.arange(len(priority))
        return int(np.count_nonzero(order[:count] >= before))

    def _discard(self, blocks: np.ndarray) -> None:
        self.index.remove(blocks.tolist())
        self.fill[blocks] = 0
        self.priority[blocks] = UNUSED
        self.state[blocks] = BlockState.FREE
        self._free.give_all(blocks)

    # --- content ---------------------------------------------------------------------------------------------------

    def write(self, blocks: Sequence[int] | np.ndarray, offset: int, tokens: Sequence[int] | np.ndarray) -> None:
        """``blocks``, which are held, now have ``tokens`` one block after another, from slot ``offset`` of the first
        one on, up to which it was full."""
        blocks = np.asarray(blocks, np.int64)
        place = offset + np.arange(len(tokens))
        self.tokens[blocks[place // self.block_size] * self.block_size + place % self.block_size] = tokens
        last = offset + len(tokens) - np.arange(len(blocks)) * self.block_size
        self._fill(blocks, np.minimum(last, self.block_size))

    def copy(self, blocks: np.ndarray, other: BlockPool, sources: np.ndarray) -> None:
        """``blocks``, which are held and empty, now have what ``sources`` of the ``other`` pool have."""
        size = self.block_size
        self.tokens.reshape(-1, size)[blocks] = other.tokens.reshape(-1, size)[sources]
        self.priority[blocks] = other.priority[sources]
        self._fill(blocks, other.fill[sources])

    def _fill(self, blocks: np.ndarray, fill: np.ndarray) -> None:
        before = self.fill[blocks]
        begun = blocks[before == 0]
        self.state[begun] = np.where(self.ref[begun] == 1, self._one_holder, self._many_holders)
        self.empty_count -= len(begun)
        self.used_count += len(begun)
        self.fill[blocks] = fill
        self.tokens_held += int(fill.sum()) - int(before.sum())
        self.last_used[blocks] = self.step
        self._mark(blocks)

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
        self._mark(blocks)

    def contents(self, block: int) -> np.ndarray:
        """The token ids (int32) that ``block`` holds. A view."""
        first = block * self.block_size
        return self.tokens[first : first + self.fill[block]]

    def contents_of(self, blocks: Sequence[int] | np.ndarray) -> np.ndarray:
        """The token ids (int32 [n, block_size]) of full ``blocks``."""
        return self.tokens.reshape(-1, self.block_size)[np.asarray(blocks, np.int64)]

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
        self._cached.add(np.array(cached, np.int64))
        self._free = FreeRuns(self.state == BlockState.FREE)
        used = self.ref > 0
        self.used_count = int(np.count_nonzero(used))
        self.tokens_held = int(self.fill[used].sum())
        self.references = len(held)

    def _mark(self, blocks: np.ndarray) -> None:
        new = blocks[~self._is_changed[blocks]]
        self._is_changed[new] = True
        self._changed.append(new.astype(np.uint32))

    def _mark_run(self, start: int, stop: int) -> None:
        self._mark(np.arange(start, stop))
