"""All claims, in order, and their measurement."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ...ipc.vocabulary import Refused
from ..results import Claim
from . import batching, memory, serving
from .ground import Ground, Row

ROWS: list[Row] = [*memory.ROWS, *batching.ROWS, *serving.ROWS]


def chosen(keys: Sequence[str]) -> list[Row]:
    """The rows of these keys; all if none is named.

    Raises:
        Refused: there is no such row.
    """
    known = {row.key: row for row in ROWS}
    for key in keys:
        if key not in known:
            raise Refused.value("only", key, ", ".join(known))
    return [known[key] for key in keys] or ROWS


def measure(rows: Sequence[Row], ground: Ground) -> Iterator[Claim]:
    """Each row's claim as soon as it is measured."""
    whole = sum(row.minutes for row in rows)
    for place, row in enumerate(rows):
        ground.begin(row.name, sum(done.minutes for done in rows[:place]) / whole)
        begun = time.monotonic()
        found = row.measure(ground)
        took = round(time.monotonic() - begun, 1)
        yield Claim(row.name, row.claimed, found.text, row.how, found.met, found.spread, found.samples, took)
