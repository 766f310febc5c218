"""Which cached blocks are given up next."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

#: Blocks in a piece of a queue at most, and so what looking at its first ones costs at most beyond these.
_PIECE = 512


class CachedBlocks:
    """Cached blocks, each with the most urgent priority that used it.

    By default the one released longest ago goes first. With ``by_priority`` the least urgent go first and, among
    equals, the one released longest ago: what a batch job leaves behind cannot wash out what interactive requests
    share. Whoever uses a block uses all blocks that lead to it, so these are never less urgent, and where whoever
    releases them begins with the last, both orders give leaves up before the blocks that lead to them.

    A block that is added gets the next *turn*, and one that is removed loses it; queues are pieces of arrays in the
    order of turns, in which only those whose turn still is theirs count. So any number of blocks is added, removed or
    looked up in a few calls. Cost: that of what is added, removed or returned, but for :meth:`order`.
    """

    def __init__(self, priority: np.ndarray, *, by_priority: bool = False) -> None:
        """``priority`` (int32, one a block) changes while a block is cached only before :meth:`requeue`."""
        self._priority = priority
        self._by_priority = by_priority
        self._turn = np.zeros(len(priority), np.int64)  # 0: not cached
        self._queues: dict[int, deque[tuple[np.ndarray, np.ndarray]]] = {}  # rank -> pieces of (turns, blocks)
        self._next = 1
        self._count = 0
        self._queued = 0  # places in all queues

    def __len__(self) -> int:
        return self._count

    @property
    def by_priority(self) -> bool:
        return self._by_priority

    @by_priority.setter
    def by_priority(self, on: bool) -> None:
        self._by_priority = on
        self.requeue()

    def add(self, blocks: np.ndarray) -> None:
        """``blocks`` are the last to be given up among those of their priorities, in this order."""
        turns = np.arange(self._next, self._next + len(blocks))
        self._turn[blocks] = turns
        self._next += len(blocks)
        self._count += len(blocks)
        self._queue(turns, blocks)
        if self._queued > 2 * self._count + 2 * _PIECE:
            self.requeue()

    def remove(self, blocks: np.ndarray) -> None:
        self._turn[blocks] = 0
        self._count -= len(blocks)

    def first(self, count: int) -> np.ndarray:
        """The ``count`` blocks to be given up next, in order; all if there are fewer."""
        found = [np.zeros(0, np.int64)]
        for rank in sorted(self._queues):
            queue, looked_at = self._queues[rank], []
            while queue and count:
                turns, blocks = queue.popleft()
                still = self._turn[blocks] == turns
                self._queued -= len(still) - int(np.count_nonzero(still))
                looked_at.append((turns[still], blocks[still]))
                found.append(looked_at[-1][1][:count])
                count -= len(found[-1])
            queue.extendleft(piece for piece in reversed(looked_at) if len(piece[0]))
            if not queue:
                del self._queues[rank]
        return np.concatenate(found)

    def order(self) -> np.ndarray:
        """All of them, the next to be given up first."""
        blocks = np.flatnonzero(self._turn)
        return blocks[np.lexsort((self._turn[blocks], self._ranks(blocks)))]

    def _ranks(self, blocks: np.ndarray) -> np.ndarray:
        """Of different ranks, the lowest goes first."""
        return -self._priority[blocks] if self._by_priority else np.zeros(len(blocks), np.int32)

    def requeue(self) -> None:
        """Take in that priorities of cached blocks, or what they mean, changed."""
        blocks = self.order()
        self._queues.clear()
        self._queued = 0
        self._queue(self._turn[blocks], blocks)

    def _queue(self, turns: np.ndarray, blocks: np.ndarray) -> None:
        rank = self._ranks(blocks)
        cuts = [0, *(np.flatnonzero(rank[1:] != rank[:-1]) + 1).tolist(), len(blocks)]
        for start, stop in pairwise(cuts):
            for at in range(start, stop, _PIECE):
                end = min(stop, at + _PIECE)
                self._queues.setdefault(int(rank[at]), deque()).append((turns[at:end], blocks[at:end]))
        self._queued += len(blocks)
