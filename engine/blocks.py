"""BlockPool: one tier's blocks. Who holds each, what is known of its content, and which to give up first."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence

import numpy as np

from ..ipc.vocabulary import BlockState
from .free_runs import FreeRuns
from .prefix import PrefixIndex


class BlockPool:
    """Allocation, reference counts and eviction of ``num_blocks`` blocks of ``block_size`` slots.

    Every block is free; or held by ``ref`` sequences; or cached: held by none, its content known to the prefix index
    and kept until the block is needed. Cached blocks are given up in the order in which they were released, so who
    releases a sequence's last block first has leaves evicted before the blocks that lead to them.

    No method costs more than what it changes; none depends on ``num_blocks``. The arrays (one entry a block) are for
    reading: ``state`` u1 (:class:`BlockState`), ``ref`` i4, ``fill`` i4 (tokens held), ``owner`` u4 (number of the
    first request that holds it, 0 is none), ``last_used`` u4 (step); ``tokens`` i4 has one entry a slot.

    ``evicting`` is called with a cached block just before its content is given up. Blocks that are ``set_aside`` are
    not free from the start: each waits for its :meth:`hold`.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        host: bool = False,
        evicting: Callable[[int], None] | None = None,
        set_aside: Collection[int] = (),
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.step = 0
        self.state = np.zeros(num_blocks, np.uint8)
        self.ref = np.zeros(num_blocks, np.int32)
        self.fill = np.zeros(num_blocks, np.int32)
        self.owner = np.zeros(num_blocks, np.uint32)
        self.last_used = np.zeros(num_blocks, np.uint32)
        self.tokens = np.zeros(num_blocks * block_size, np.int32)
        self.index = PrefixIndex()
        self.reserved_count = 0
        self.used_count = 0
        self.tokens_held = 0  # in used blocks
        self.references = 0  # entries of all block tables: used_count + reserved_count if nothing were shared
        # One entry at a time goes through memory views, which numpy's own indexing takes three times as long for.
        self._state = self.state.data
        self._ref = self.ref.data
        self._fill = self.fill.data
        self._owner = self.owner.data
        self._last_used = self.last_used.data
        self._tokens = self.tokens.data
        self._one_holder = BlockState.SWAPPED if host else BlockState.ACTIVE
        self._many_holders = BlockState.SWAPPED if host else BlockState.SHARED
        self._evicting = evicting
        self._free = FreeRuns(num_blocks, set_aside)
        self._cached: OrderedDict[int, None] = OrderedDict()  # the first is the next to be given up
        self._holder = array("q", bytes(8 * num_blocks))  # the first sequence that holds the block
        self._holders: dict[int, dict[int, int]] = {}  # of shared blocks: sequence -> owner, oldest first
        self._changed: list[int] = []
        self._is_changed = bytearray(num_blocks)

    # --- counts ----------------------------------------------------------------------------------------------------

    @property
    def free_count(self) -> int:
        return self._free.count

    @property
    def cached_count(self) -> int:
        return len(self._cached)

    @property
    def available(self) -> int:
        """Blocks that :meth:`take` can give: free ones and cached ones."""
        return self._free.count + len(self._cached)

    @property
    def saved_count(self) -> int:
        """Blocks that would be in use besides those that are, if nothing were shared."""
        return self.references - self.used_count - self.reserved_count

    def take_changed(self) -> np.ndarray:
        """Ids (u4) of the blocks that changed since the last call, in no particular order."""
        changed = np.array(self._changed, np.uint32)
        for block in self._changed:
            self._is_changed[block] = 0
        self._changed.clear()
        return changed

    def cached(self) -> list[int]:
        """Cached blocks, the next to be given up first."""
        return list(self._cached)

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
        """``count`` blocks for sequence ``seq``, neighbours of block ``after`` where free; evicts cached blocks if
        it must. ``count`` must not exceed :attr:`available`."""
        while self._free.count < count:
            self.evict()
        runs = self._free.take(count, after)
        for start, length in runs:
            self._hold(start, start + length, seq, owner)
        return [block for start, length in runs for block in range(start, start + length)]

    def hold(self, block: int, seq: int, owner: int) -> None:
        """``seq`` holds ``block``, which was set aside."""
        self._hold(block, block + 1, seq, owner)

    def _hold(self, start: int, stop: int, seq: int, owner: int) -> None:
        self.state[start:stop] = BlockState.RESERVED
        self.ref[start:stop] = 1
        self.owner[start:stop] = owner
        self.last_used[start:stop] = self.step
        self.reserved_count += stop - start
        self.references += stop - start
        for block in range(start, stop):
            self._holder[block] = seq
            self._mark(block)

    def share(self, block: int, seq: int, owner: int) -> None:
        """``seq`` holds ``block`` too; it is cached or held by others."""
        self._ref[block] += 1
        self.references += 1
        self._last_used[block] = self.step
        if self._ref[block] == 1:
            del self._cached[block]
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

    def release(self, block: int, seq: int) -> None:
        """``seq`` lets go of ``block``. Held by none, it stays cached if the prefix index knows it by its hash, and
        is free otherwise."""
        self._ref[block] -= 1
        self.references -= 1
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
            self.reserved_count -= 1
        entry = self.index.entry(block)
        if entry is not None and isinstance(entry.key, bytes):
            self._cached[block] = None
            self._state[block] = BlockState.CACHED
            self._last_used[block] = self.step
        else:
            self._discard(block)

    def evict(self) -> None:
        """Give up the cached block that was released longest ago."""
        block = next(iter(self._cached))
        if self._evicting is not None:
            self._evicting(block)
        self.drop(block)

    def drop(self, block: int) -> None:
        """A cached block becomes free."""
        del self._cached[block]
        self._discard(block)
        self._mark(block)

    def touch(self, block: int) -> None:
        """A cached block becomes the last to be given up."""
        self._cached.move_to_end(block)
        self._last_used[block] = self.step
        self._mark(block)

    def _discard(self, block: int) -> None:
        self.index.remove(block)
        self._fill[block] = 0
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
            self.reserved_count -= 1
            self.used_count += 1
            self._state[block] = self._one_holder if self._ref[block] == 1 else self._many_holders
        self._fill[block] = fill
        self.tokens_held += fill - before
        self._last_used[block] = self.step
        self._mark(block)

    def contents(self, block: int) -> np.ndarray:
        """The token ids (int32) that ``block`` holds. A view."""
        first = block * self.block_size
        return self.tokens[first : first + self._fill[block]]

    def _mark(self, block: int) -> None:
        if not self._is_changed[block]:
            self._is_changed[block] = 1
            self._changed.append(block)
