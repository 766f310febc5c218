"""Sequences in the order of their turns."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

from ..request import Sequence

_turn = attrgetter("turn")


class Turns:
    """A sorted list of sequences, with how many of them each priority has.

    Adding and removing cost O(log n) comparisons; the first and the last are at hand. A sequence's turn must not
    change while it is in here.
    """

    def __init__(self) -> None:
        self.order: list[Sequence] = []
        self.classes: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.order)

    def add(self, sequence: Sequence) -> None:
        insort(self.order, sequence, key=_turn)
        self.classes[sequence.request.priority] += 1

    def discard(self, sequence: Sequence) -> bool:
        """Take the sequence out; whether it was in."""
        at = bisect_left(self.order, sequence.turn, key=_turn)
        if at == len(self.order) or self.order[at] is not sequence:
            return False
        del self.order[at]
        priority = sequence.request.priority
        self.classes[priority] -= 1
        if not self.classes[priority]:
            del self.classes[priority]
        return True

    def first_of(self, rank: int) -> Sequence | None:
        """The first sequence of exactly this rank."""
        at = bisect_left(self.order, (rank,), key=_turn)
        if at < len(self.order) and self.order[at].rank == rank:
            return self.order[at]
        return None

    def place_after(self, rank: int) -> int:
        """Where in the order the first sequence of a later rank stands."""
        return bisect_left(self.order, (rank + 1,), key=_turn)
