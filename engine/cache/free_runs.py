"""The free blocks of a pool, kept as maximal runs of neighbours, so that sequences can stay in one piece."""

from __future__ import annotations

from array import array

import numpy as np

#: A new run begins at a multiple of this where it can, so that merging its blocks into larger ones moves nothing.
ALIGNED = 16


class FreeRuns:
    """Takes and gives blocks in constant time whatever the pool's size, and always the same way.

    Boundary tags (Knuth, The Art of Computer Programming, volume 1, section 2.5): the length of each maximal free run
    stands at its first and last block, and 0 everywhere else, so that a block given back finds its free neighbours.
    Runs are filed by the bit length of their length.
    """

    def __init__(self, free: np.ndarray) -> None:
        """``free`` (bool, one a block) says which blocks are free from the start."""
        self.count = int(np.count_nonzero(free))
        self._tag = array("i", bytes(4 * len(free)))
        self._filed: list[dict[int, None]] = [{} for _ in range(len(free).bit_length() + 1)]
        self._nonempty = 0  # bit c is set where _filed[c] holds a run
        edges = np.flatnonzero(np.diff(free, prepend=False, append=False))
        for start, stop in edges.reshape(-1, 2).tolist():
            self._add(start, stop - start)

    def take(self, count: int, after: int = -1) -> list[tuple[int, int]]:
        """``count`` free blocks as (first, length) runs: the ones that follow block ``after``, which is in use, as
        far as they are free; then from the longest runs. ``count`` must not exceed what is free."""
        runs = []
        if neighbours := self.take_next(count, after):
            runs.append((after + 1, neighbours))
            count -= neighbours
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

    def take_next(self, count: int, after: int) -> int:
        """Up to ``count`` free blocks that follow block ``after``, which is in use; returns how many there were."""
        if not count or not 0 < after + 1 < len(self._tag) or not self._tag[after + 1]:
            return 0
        start, length = after + 1, self._tag[after + 1]
        taken = min(count, length)
        self._remove(start, length)
        self._split(start, length, start, taken)
        return taken

    @property
    def longest(self) -> int:
        """Blocks in the longest free run."""
        return max((self._tag[start] for start in self._filed[self._nonempty.bit_length() - 1]), default=0)

    def take_run(self, count: int) -> int:
        """``count`` neighbours, from the shortest free run that has so many; returns the first of them. There must be
        such a run. Costs time in proportion to the number of runs."""
        runs = (run for kind in range(count.bit_length(), len(self._filed)) for run in self._filed[kind].items())
        length, start = min((self._tag[start], start) for start, _ in runs if self._tag[start] >= count)
        self._remove(start, length)
        self._split(start, length, start, count)
        return start

    def give(self, start: int, length: int = 1) -> None:
        """The ``length`` blocks from ``start`` on are free again."""
        stop = start + length
        self.count += length
        if start and (before := self._tag[start - 1]):
            self._remove(start - before, before)
            start -= before
        if stop < len(self._tag) and (behind := self._tag[stop]):
            self._remove(stop, behind)
            stop += behind
        self._add(start, stop - start)

    def give_all(self, blocks: np.ndarray) -> None:
        """Different ``blocks``, in any order, are free again."""
        blocks = np.sort(blocks)
        cuts = np.flatnonzero(np.diff(blocks) != 1) + 1
        starts = blocks[np.concatenate([[0], cuts])] if len(blocks) else blocks
        lengths = np.diff(cuts, prepend=0, append=len(blocks)) if len(blocks) else blocks
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            self.give(start, length)

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
