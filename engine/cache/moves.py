"""Carrying out many moves inside one pool "as if at once", with bounded scratch memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

#: The most slots in a batch: what a mover must be able to hold aside, of one layer.
SCRATCH_SLOTS = 4096

#: (source, target) slots, int64 each: all sources are read before any target is written.
Batch = tuple[np.ndarray, np.ndarray]


class Move(NamedTuple):
    """The first ``length`` slots of unit ``source`` go to unit ``target``; a unit is a run of neighbouring slots."""

    source: int
    target: int
    length: int


def in_batches(moves: np.ndarray, unit: int, scratch_slots: int = SCRATCH_SLOTS) -> Iterator[Batch]:
    """``moves`` (int64 [n, 3], each a :class:`Move`), which are meant as if at once, as batches to run one after
    another.

    No unit is the target of two moves; any may be the source of several. A move runs once nobody needs its target's
    old content any more; what remains then are cycles, each turned in one batch or, if longer than a batch, in
    several that each leave a shorter cycle. (Parallel moves as compilers resolve them: May, "The parallel assignment
    problem redefined", 1989.)
    """
    capacity = max(2, scratch_slots // unit)
    single, cycles = _resolve(moves)
    batches = [single[i : i + capacity] for i in range(0, len(single), capacity)]
    room = 0
    for turn in [turn for cycle in cycles for turn in _turns(cycle, capacity)]:
        if len(turn) > room:
            batches.append(np.zeros((0, 3), np.int64))
            room = capacity
        batches[-1] = np.concatenate([batches[-1], turn])
        room -= len(turn)
    return (to_slots(batch, unit) for batch in batches)


def to_slots(moves: np.ndarray, unit: int) -> Batch:
    """``moves`` (int64 [n, 3]) slot by slot."""
    source, target, length = moves.T
    first = np.cumsum(length) - length
    offset = np.arange(length.sum()) - np.repeat(first, length)
    return np.repeat(source * unit, length) + offset, np.repeat(target * unit, length) + offset


def _resolve(moves: np.ndarray) -> tuple[np.ndarray, list[list[Move]]]:
    """Moves that can run one by one, in an order in which they can, and the cycles that remain."""
    ready = []
    while len(moves):
        needed = np.isin(moves[:, 1], moves[:, 0])
        ready.append(moves[~needed])
        # Long chains would take a round a link; what is left of them is followed link by link.
        few, moves = np.count_nonzero(~needed) < len(moves) / 8, moves[needed]
        if few:
            break
    chained, cycles = _follow([Move(*move) for move in moves.tolist()])
    return np.concatenate([*ready, np.array(chained, np.int64).reshape(-1, 3)]), cycles


def _follow(moves: list[Move]) -> tuple[list[Move], list[list[Move]]]:
    into = {move.target: move for move in moves}
    readers: dict[int, int] = {}
    for move in moves:
        readers[move.source] = readers.get(move.source, 0) + 1
    single = [move for move in moves if move.target not in readers]
    for move in single:  # grows while it runs
        del into[move.target]
        readers[move.source] -= 1
        if not readers[move.source] and move.source in into:
            single.append(into[move.source])
    cycles = []
    while into:
        _, move = into.popitem()
        cycle = [move]
        while cycle[-1].source in into:
            cycle.append(into.pop(cycle[-1].source))
        cycles.append(cycle[::-1])
    return single, cycles


def _turns(cycle: list[Move], capacity: int) -> list[list[Move]]:
    """A cycle (each move's target is the next one's source) as turns of at most ``capacity`` moves."""
    turns = []
    while len(cycle) > capacity:
        turn, cycle = cycle[:capacity], cycle[capacity:]
        last, start = turn[-1], turn[0].source
        turn[-1] = Move(last.source, start, last.length)  # parked where the cycle began, its content being gone
        turns.append(turn)
        cycle.insert(0, Move(start, last.target, last.length))
    return [*turns, cycle]
