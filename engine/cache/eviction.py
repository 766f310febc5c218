"""Which cached block is given up next."""

from __future__ import annotations

from collections import OrderedDict
from heapq import merge


class CachedBlocks:
    """Cached blocks, each with the most urgent priority that used it.

    By default the one released longest ago goes first. With ``by_priority`` the least urgent go first and, among
    equals, the one released longest ago: what a batch job leaves behind cannot wash out what interactive requests
    share. Whoever uses a block uses all blocks that lead to it, so these are never less urgent, and where whoever
    releases them begins with the last, both orders give leaves up before the blocks that lead to them.

    Cost: constant but for :meth:`order`, and for :meth:`first` the number of different priorities.
    """

    def __init__(self, *, by_priority: bool = False) -> None:
        self.by_priority = by_priority
        self._queues: dict[int, OrderedDict[int, int]] = {}  # priority -> block -> turn, in order
        self._turn = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, block: int, priority: int) -> None:
        """``block`` is the last to be given up among those of its priority."""
        self._turn += 1
        self._count += 1
        self._queues.setdefault(priority, OrderedDict())[block] = self._turn

    def remove(self, block: int, priority: int) -> None:
        queue = self._queues[priority]
        del queue[block]
        self._count -= 1
        if not queue:
            del self._queues[priority]

    def first(self) -> int:
        """The block to give up next."""
        if self.by_priority:
            return next(iter(self._queues[max(self._queues)]))
        block, _ = min((next(iter(queue.items())) for queue in self._queues.values()), key=lambda item: item[1])
        return block

    def order(self) -> list[int]:
        """All of them, the next to be given up first."""
        if self.by_priority:
            return [block for priority in sorted(self._queues, reverse=True) for block in self._queues[priority]]
        queues = (queue.items() for queue in self._queues.values())
        return [block for block, _ in merge(*queues, key=lambda item: item[1])]
