"""Into how many programs the context of a decoding sequence is cut.

A program takes a segment: ``span`` neighbouring positions of one sequence and one key-value head. All of a step's
segments are equally long, whatever their sequence, so a long one among short ones is many programs, not a slow one,
and a short one is few. The cut depends on how many sequences a step holds at most, on how long a context may be and on
the device, all of which the host knows without asking, and which stay what they are while a captured graph is
replayed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

WAVE = 4  # programs a processor holds at once, about; fewer leave memory waiting
SHORTEST = 256  # positions; below this a segment's partial result costs more than the cut gains
LONGEST = 2048  # positions; a longer one would still run when all others are done
GRAIN = 128  # positions: a multiple of every tile
OVERHEAD = 64  # positions that a program could read while it starts, and while its partial result is written and merged


class Split(NamedTuple):
    """At most ``segments`` programs a sequence and key-value head, ``span`` positions each."""

    segments: int
    span: int


def split(sequences: int, kv_heads: int, context: int, processors: int) -> Split:
    """The cut for ``sequences`` at once that see ``context`` positions at most: the one whose programs, all equally
    long and as many at a time as the device holds, are done first."""
    return _best(sequences * kv_heads, max(1, _ceil(context, GRAIN)) * GRAIN, WAVE * processors)


@lru_cache(4096)
def _best(rows: int, context: int, places: int) -> Split:
    def cost(cut: Split) -> int:
        overhead = OVERHEAD if cut.segments > 1 else 0
        return _ceil(rows * cut.segments, places) * (cut.span + overhead)

    spans = range(min(SHORTEST, context), min(LONGEST, context) + 1, GRAIN)
    return min((Split(_ceil(context, span), span) for span in reversed(spans)), key=cost)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
