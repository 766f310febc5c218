"""What the pool would look like under other rules, for the same requests: the ghosts laid over the live map. No Qt.

*Contiguous*: each running request takes its longest length in one piece, as engines without blocks do. *Unshared*: each
block table has blocks of its own. Both are counted in blocks of the shown pool, from what telemetry tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import BlockState, RequestState
from ..state import EngineView, TierView

#: What a ghost does with a cell. ``ODD`` is added for every other piece, so that neighbouring pieces can be told apart.
NOTHING, HELD, EMPTY, BEYOND, ODD = 0, 1, 2, 3, 4


class GhostKind(StrEnum):
    NONE = "none"
    CONTIGUOUS = "contiguous"
    UNSHARED = "unshared"


@dataclass(frozen=True)
class Ghost:
    """``cells`` (uint8): what each block's cell would be, then as many cells beyond the last block as are worth
    drawing, at most as many again; ``beyond``: how many blocks would be beyond it in all."""

    cells: np.ndarray = field(repr=False)
    beyond: int


@dataclass(frozen=True)
class ContiguousGhost(Ghost):
    """``reserved`` blocks for those of ``requests`` that fit, of whose slots the share ``empty`` holds nothing;
    ``needed`` blocks for all of them."""

    requests: int
    fitting: int
    reserved: int
    empty: float
    needed: int


@dataclass(frozen=True)
class UnsharedGhost(Ghost):
    """``needed`` blocks instead of those that are allocated: ``copies`` more, of which ``evicting`` would take the
    place of cached ones."""

    needed: int
    copies: int
    evicting: int


def make_ghost(kind: GhostKind, view: EngineView) -> Ghost | None:
    """The ghost over the device pool as it is known now; None for none, or before anything is known."""
    tier = view.device
    if kind is GhostKind.NONE or not tier.num_blocks:
        return None
    if kind is GhostKind.UNSHARED:
        return unshared(tier)
    return contiguous(view.live(), tier, view.status.context_length if view.status is not None else 0)


def contiguous(rows: Iterable[RequestRow], tier: TierView, context_length: int) -> ContiguousGhost:
    """Running requests in the order of their arrival, each at the first place after those before it. One that does not
    fit there goes beyond the pool's end; a smaller one after it may still fit. ``context_length`` 0 is not known."""
    running = sorted((row for row in rows if row.state == RequestState.RUNNING), key=lambda row: row.number)
    cells = np.zeros(2 * tier.num_blocks, np.uint8)
    inside, outside, fitting, held = 0, tier.num_blocks, 0, 0
    for place, row in enumerate(running):
        longest = row.prompt_tokens + row.max_tokens
        longest = min(longest, context_length) if context_length else longest
        piece = -(-longest // tier.block_size)
        odd = ODD * (place % 2)
        if inside + row.samples * piece <= tier.num_blocks:
            tokens = min(row.computed_tokens, row.samples * longest)
            full = -(-tokens // (row.samples * tier.block_size))
            for _ in range(row.samples):
                cells[inside : inside + full] = HELD + odd
                cells[inside + full : inside + piece] = EMPTY + odd
                inside += piece
            fitting += 1
            held += tokens
        else:
            cells[outside : outside + row.samples * piece] = BEYOND + odd
            outside += row.samples * piece
    beyond = outside - tier.num_blocks
    return ContiguousGhost(
        cells=cells[:outside],
        beyond=beyond,
        requests=len(running),
        fitting=fitting,
        reserved=inside,
        empty=1 - held / (inside * tier.block_size) if inside else 0.0,
        needed=inside + beyond,
    )


def unshared(tier: TierView) -> UnsharedGhost:
    """A copy of a shared block for each table that names it but the first: in free blocks, then in place of cached
    ones, then beyond the pool's end."""
    cells = np.zeros(2 * tier.num_blocks, np.uint8)
    left = copies = tier.saved
    taken = []
    for state in (BlockState.FREE, BlockState.CACHED):
        places = np.flatnonzero(tier.state == state)[:left]
        cells[places] = HELD
        taken.append(len(places))
        left -= len(places)
    cells[tier.num_blocks : tier.num_blocks + left] = BEYOND
    return UnsharedGhost(
        cells=cells[: tier.num_blocks + left],
        beyond=left,
        needed=tier.allocated + copies,
        copies=copies,
        evicting=taken[1],
    )
