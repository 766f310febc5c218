"""The cache of layers that see a sliding window: a sequence keeps only the blocks that its next token may look into.

Its block table keeps the places of those that it let go, so that positions index it as ever; attention never reads
there, since a window begins after them. What was let go stays cached until evicted, as a closed sequence's blocks do.

Of a cached prefix, only the last window is needed. So blocks may be evicted in any order, and what counts as found is
the longest prefix whose last window is there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from .blocks import BlockPool
from .kv_cache import Found, KVCache
from .prefix import PrefixChain
from .reshape import Reshape, TierPlan
from .tables import BlockTable


def window_blocks(window: int, chunk: int, block_size: int) -> int:
    """The most blocks that a sequence holds while it computes ``chunk`` tokens: they and the ``window - 1`` before the
    first of them, wherever blocks begin."""
    return (window + chunk + block_size - 3) // block_size + 1


class WindowedCache(KVCache):
    """A :class:`KVCache` of layers in which a token sees itself and the ``window - 1`` before it."""

    leaves_first = False

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int = 0,
        *,
        window: int,
        prefix_caching: bool = True,
        contiguous_blocks: int = 0,
        eviction: str = "lru",
    ) -> None:
        super().__init__(
            num_blocks,
            block_size,
            num_host_blocks,
            prefix_caching=prefix_caching,
            contiguous_blocks=contiguous_blocks,
            eviction=eviction,
        )
        self.window = window
        self.name = f"window {window}"

    # --- how much it takes -----------------------------------------------------------------------------------------

    @property
    def chunk(self) -> int:
        return self._chunk(self.device.num_blocks, self.block_size)

    def bound(self, samples: int, num_blocks: int, block_size: int) -> float:
        chunk = self._chunk(num_blocks, block_size)
        first, other = (window_blocks(self.window, tokens, block_size) for tokens in (chunk, 1))
        return first + (samples - 1) * other

    def claim(self, seq: int, length: int, chunk: int) -> int:
        table = self.tables[seq]
        peak = window_blocks(self.window, min(chunk, self.chunk), self.block_size)
        now = self.swap_in_cost(seq) if table.pool is self.host else self._needs(table, length)[1]
        return min(super().claim(seq, length, chunk), now + max(0, peak - len(table.kept)))

    def growth(self, tokens: float) -> float:
        """At most what all windows take beyond what they have."""
        windows = len(self.tables) * window_blocks(self.window, 1, self.block_size)
        return min(super().growth(tokens), max(0, windows - self.device.used_count - self.device.empty_count))

    def _chunk(self, num_blocks: int, block_size: int) -> int:
        """A step's tokens need slots besides the window's: half of what it leaves of the pool, so that no sequence
        takes all of it. In a pool of less than a window, there are only sequences that fit whole."""
        rest = (num_blocks - 1) * block_size + 2 - self.window
        return max(1, rest // 2) if rest > 0 else num_blocks * block_size

    # --- a sequence's life -----------------------------------------------------------------------------------------

    def find(self, chain: PrefixChain, limit: int | None = None) -> Found:
        end = len(chain) if limit is None else limit
        while self.prefix_caching and end:
            first = self._first_seen(self.computed_by(end, len(chain.tokens)))
            blocks = []
            for depth in reversed(range(first, end)):
                place = self._place(chain, depth)
                if place is None:
                    end = depth  # whatever is longer needs this block, too
                    break
                blocks.append(place)
            else:
                if sum(self._is_taken(*place) for place in blocks) <= self.device.available:
                    return Found(first, end, blocks[::-1])
                end -= 1
        return Found(0, 0, [])

    def commit(self, seq: int, tokens: list[int], computed: int) -> None:
        super().commit(seq, tokens, computed)
        self._let_go(self.tables[seq])

    def commit_next(self, seqs: Sequence[int], tokens: Sequence[int]) -> None:
        super().commit_next(seqs, tokens)
        unseen = self._rows.computed[self.rows(seqs)] - self.window + 1
        for at in np.flatnonzero((unseen > 0) & (unseen % self.block_size == 0)).tolist():
            self._let_go(self.tables[seqs[at]])

    def _let_go(self, table: BlockTable) -> None:
        """Give back the blocks that no later token sees, the first of them to be evicted first."""
        old, first = table.first, self._first_seen(table.computed)
        if first <= old:
            return
        known = len(table.passed) - old * self.block_size
        tokens = np.concatenate([table.tokens(position) for position in range(old, first)])
        table.pool.release(table.blocks[old:first], table.seq, table.priority)
        table.skip(tokens[known:].tolist())

    def _first_seen(self, computed: int) -> int:
        """The first block that the token at position ``computed`` sees."""
        return max(0, computed - self.window + 1) // self.block_size

    # --- changes of shape ------------------------------------------------------------------------------------------

    def reshape(self, change: Reshape, renamed: dict[bytes, bytes] | None = None) -> None:
        super().reshape(change, renamed)
        for table in self.tables.values():  # smaller blocks end earlier
            self._let_go(table)

    def _plan_tier(
        self,
        pool: BlockPool,
        num_blocks: int,
        block_size: int,
        turns: Sequence[int],
        leaving: Collection[int],
        reached: set[bytes],
    ) -> TierPlan | None:
        if block_size == self.block_size:  # hashes stay, and nothing has to lead to a block
            reached = reached.union(entry.before for entry in pool.index.entries().values())
        return super()._plan_tier(pool, num_blocks, block_size, turns, leaving, reached)

    # --- looking ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        for table in self.tables.values():
            unseen = max(0, table.computed - self.window + 1)
            assert len(table.passed) <= unseen, f"sequence {table.seq} let go of what it will see"
            kept = table.first == unseen // self.block_size
            assert kept, f"sequence {table.seq} holds blocks that it will not see"
