"""The free blocks of a pool, kept as maximal runs of neighbours, so that sequences can stay in one piece."""

from __future__ import annotations

from array import array
from collections.abc import Collection

#: A new run begins at a multiple of this where it can, so that merging its blocks into larger ones moves nothing.
ALIGNED = 16


class FreeRuns:
    """Takes and gives blocks in constant time whatever the pool's size, and always the same way.

    Boundary tags (Knuth, The Art of Computer Programming, volume 1, section 2.5): the length of each maximal free run
    stands at its first and last block, and 0 everywhere else, so that a block given back finds its free neighbours.
    Runs are filed by the bit length of their length. Blocks that are ``set_aside`` are not free from the start.
    """

    def __init__(self, num_blocks: int, set_aside: Collection[int] = ()) -> None:
        self.count = num_blocks - len(set_aside)
        self._tag = array("i", bytes(4 * num_blocks))
        self._filed: list[dict[int, None]] = [{} for _ in range(num_blocks.bit_length() + 1)]
        self._nonempty = 0  # bit c is set where _filed[c] holds a run
        start = 0
        for block in [*sorted(set_aside), num_blocks]:
            if block > start:
                self._add(start, block - start)
            start = block + 1

    def take(self, count: int, after: int = -1) -> list[tuple[int, int]]:
        """``count`` free blocks as (first, length) runs: the ones that follow block ``after``, which is in use, as
        far as they are free; then from the longest runs. ``count`` must not exceed what is free."""
        runs = []
        if count and 0 < after + 1 < len(self._tag) and self._tag[after + 1]:
            start, length = after + 1, self._tag[after + 1]
            taken = min(count, length)
            self._remove(start, length)
            self._split(start, length, start, taken)
            runs.append((start, taken))
            count -= taken
        while count:
            start, length = self._pop_long()
            taken = min(count, length)
            # In the middle: the sequence before this run keeps room to grow, and so does the new one.
            first = start + (length - taken) // 2 if start else start
            first = max(start, first - first % ALIGNED)
            self._split(start, length, first, taken)
            runs.append((first, taken))
            count -= taken
        return runs

    def give(self, block: int) -> None:
        """``block`` is free again."""
        start, length = block, 1
        if block and (before := self._tag[block - 1]):
            self._remove(block - before, before)
            start, length = block - before, length + before
        if block + 1 < len(self._tag) and (behind := self._tag[block + 1]):
            self._remove(block + 1, behind)
            length += behind
        self._add(start, length)
        self.count += 1

    def runs(self) -> list[tuple[int, int]]:
        """All free runs as (first, length), in the pool's order. Costs time in proportion to the number of runs."""
        return sorted((start, self._tag[start]) for filed in self._filed for start in filed)

    def _pop_long(self) -> tuple[int, int]:
        kind = self._nonempty.bit_length() - 1
        start, _ = self._filed[kind].popitem()
        length = self._tag[start]
        self._untag(start, length, kind)
        return start, length

    def _split(self, start: int, length: int, first: int, taken: int) -> None:
        if first > start:
            self._add(start, first - start)
        if rest := start + length - (first + taken):
            self._add(first + taken, rest)
        self.count -= taken

    def _add(self, start: int, length: int) -> None:
        self._tag[start] = self._tag[start + length - 1] = length
        kind = length.bit_length()
        self._filed[kind][start] = None
        self._nonempty |= 1 << kind

    def _remove(self, start: int, length: int) -> None:
        kind = length.bit_length()
        del self._filed[kind][start]
        self._untag(start, length, kind)

    def _untag(self, start: int, length: int, kind: int) -> None:
        self._tag[start] = self._tag[start + length - 1] = 0
        if not self._filed[kind]:
            self._nonempty &= ~(1 << kind)
