"""A tier's blocks as one indexed image: where each block's cell lies, its colour code, and a max-pool pyramid. No Qt.

A code is an index into ``theme.lookup_table``. Codes are ordered by how much a viewer wants to see them, so that one
pixel that stands for many blocks shows the most telling one: a lone active block among a million stays visible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ...ipc.vocabulary import PRIORITIES, BlockState
from ..codes import (
    CODE_CLASS,
    CODE_DIMMED,
    CODE_NEUTRAL,
    CODE_RAMP,
    CODE_REQUEST,
    CODE_STATE,
    CODE_TRACED,
    CODE_VOID,
    RAMP_STEPS,
    REQUEST_COLOURS,
)
from ..state import TierView

#: Cells grow no further than this when the pool is fitted, in pixels, or than the side of a square as large as the
#: view, divided so. Where slots begin to be drawn is for who zooms in.
LARGEST_CELL, LARGEST_SHARE, SLOTLESS_CELL = 36, 8, 88
#: The most that one side of a fitted cell may exceed the other, so that the pool fills the view.
OBLONG = 2
#: Small cells of whole pixels have to fill so much of a view; else they are not of whole pixels.
FILLED = 0.75
#: Cells narrower than this are laid in tiles of ``TILE`` × ``TILE``.
TILED_BELOW, TILE = 3, 16
#: A delta of more than this share of the pool is drawn afresh: whole-array passes are quicker then.
FRESH_SHARE = 0.05
#: Reference counts, ages and depths from here on look alike (powers of two: they are shown on a logarithmic scale).
REF_TOP = 64
AGE_TOP = 4096
DEPTH_TOP = 256


class Colouring(StrEnum):
    STATE = "state"
    REQUEST = "request"
    CLASS = "class"
    REF = "ref"
    AGE = "age"
    FILL = "fill"
    DEPTH = "depth"


NO_ROWS = range(0)


def rows_around(*parts: range) -> range:
    """The rows from the first to the last of all parts."""
    some = [part for part in parts if part]
    return range(min(part.start for part in some), max(part.stop for part in some)) if some else NO_ROWS


@dataclass(frozen=True)
class Grid:
    """Where blocks lie: in reading order, or where cells are tiny in tiles of ``tile`` × ``tile`` cells (both the tiles
    and the cells in one in reading order), for neighbours make a visible patch there and a thin line otherwise.

    ``width`` and ``height`` are a fitted cell's sides in whole pixels, or the same power of two below one, so that a
    pixel stands for a square of whole cells.
    """

    columns: int
    rows: int
    width: float
    height: float
    tile: int = 1

    def place(self, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of blocks."""
        blocks = blocks.astype(np.int64)
        if self.tile == 1:
            return np.divmod(blocks, self.columns)
        tile, inside = np.divmod(blocks, self.tile * self.tile)
        down, across = np.divmod(tile, self.columns // self.tile)
        row, column = np.divmod(inside, self.tile)
        return down * self.tile + row, across * self.tile + column

    def rows_of(self, blocks: np.ndarray) -> range:
        """The rows from the first to the last of blocks, in whole tiles; none of no blocks."""
        if not len(blocks):
            return NO_ROWS
        band = self.columns * self.tile  # blocks in a row of tiles
        return range(int(blocks.min()) // band * self.tile, (int(blocks.max()) // band + 1) * self.tile)

    def place_one(self, block: int) -> tuple[int, int]:
        row, column = self.place(np.array([block]))
        return int(row[0]), int(column[0])

    def blocks_at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The blocks at rows and columns inside of the grid; beyond the pool's last one too."""
        tile = rows // self.tile * (self.columns // self.tile) + columns // self.tile
        return tile * self.tile**2 + rows % self.tile * self.tile + columns % self.tile

    def spread(self, values: np.ndarray) -> np.ndarray:
        """``[rows, columns]`` from one value a cell in order of blocks."""
        down, across = self.rows // self.tile, self.columns // self.tile
        return values.reshape(down, across, self.tile, self.tile).swapaxes(1, 2).reshape(self.rows, self.columns)


def largest_cell(width: int, height: int) -> int:
    """Pixels of the cells of a pool that has room to spare."""
    return max(LARGEST_CELL, min(math.isqrt(width * height) // LARGEST_SHARE, SLOTLESS_CELL))


def arrange(num_blocks: int, width: int, height: int) -> Grid:
    """The grid that shows ``num_blocks`` in ``width`` × ``height`` pixels with the largest cells, nearly square."""
    n, width, height = max(num_blocks, 1), max(width, 1), max(height, 1)
    spacious = _spacious(n, width, height)
    if spacious is not None:
        return spacious
    side = min(math.isqrt(width * height // n), largest_cell(width, height))
    best: tuple[float, Grid] | None = None
    for across in range(max(1, side // 2), min(side + 2, width) + 1):
        columns, rows, tile = _shape(n, width / across, across)
        down = min(height // rows, math.floor(across * OBLONG))
        if down * OBLONG >= across:
            score = across * down * min(across / down, down / across) ** 0.5
            if best is None or score > best[0]:
                best = score, Grid(columns, rows, across, down, tile)
    if best is None:
        return _dense(n, width, height)
    grid = best[1]
    empty = n * grid.width * grid.height < FILLED * width * height
    return _dense(n, width, height) if empty and grid.width < TILED_BELOW else grid


def _spacious(n: int, width: int, height: int) -> Grid | None:
    """Cells of the largest size in the view's own proportions, where there is room to spare."""
    cell = largest_cell(width, height)
    columns = min(math.ceil(math.sqrt(n * width / height)), width // cell, n)
    rows = math.ceil(n / max(columns, 1))
    return Grid(columns, rows, cell, cell) if columns and rows * cell <= height else None


def _dense(n: int, width: int, height: int) -> Grid:
    """Cells of a pixel or so, which are not to be told apart: whole pixels would leave much of the view empty."""
    cell = math.sqrt(width * height / n)
    columns, rows, tile = _shape(n, width / cell, cell)
    while rows * cell > height:
        cell *= 0.99
        columns, rows, tile = _shape(n, width / cell, cell)
    rounded = 1 - 1e-9
    return Grid(columns, rows, width / columns * rounded, height / rows * rounded, tile)


def _shape(n: int, room: float, cell: float) -> tuple[int, int, int]:
    """Columns, rows and tile for at most ``room`` columns of cells that are ``cell`` pixels wide."""
    columns = max(1, min(int(room), n))
    tile = TILE if cell < TILED_BELOW and columns >= 4 * TILE else 1
    columns -= columns % tile
    return columns, math.ceil(math.ceil(n / tile**2) / (columns // tile)) * tile, tile


def _logarithmic(top: int) -> np.ndarray:
    """uint8 ``[top + 1]``: ramp step of each value from 0 to ``top`` on a logarithmic scale."""
    return np.round(np.log2(np.arange(top + 1) + 1) / math.log2(top + 1) * (RAMP_STEPS - 1)).astype(np.uint8)


_REF_STEPS = CODE_RAMP + _logarithmic(REF_TOP)
_DEPTH_STEPS = CODE_RAMP + _logarithmic(DEPTH_TOP)
_AGE_STEPS = (CODE_RAMP + RAMP_STEPS - 1) - _logarithmic(AGE_TOP)  # the latest is the brightest


class BlockImage:
    """Codes of one tier, kept up in O(changed).

    Ages change with every step for every block, so with :attr:`Colouring.AGE` each refresh encodes the whole pool.
    """

    def __init__(self, tier: TierView) -> None:
        self.tier = tier
        self.grid = Grid(1, 1, 1, 1)
        self._colouring = Colouring.STATE
        self._shown: frozenset[BlockState] = frozenset()
        self._visible = np.ones(len(BlockState), bool)
        self._traced = np.zeros(0, np.uint32)
        self._traced_mask = np.zeros(0, np.uint8)
        self._levels: list[np.ndarray] = [np.zeros((1, 1), np.uint8)]
        self._blocks = -1  # of the pool that the levels were made for
        self._version = -1
        self._classes = -1  # version of the requests' classes
        self.step = 0  # of the last refresh

    @property
    def colouring(self) -> Colouring:
        return self._colouring

    @property
    def shown(self) -> frozenset[BlockState]:
        """States that the legend singles out; none singles out nothing."""
        return self._shown

    def set_colouring(self, colouring: Colouring) -> None:
        self._colouring = colouring
        self._version = -1

    def set_shown(self, states: frozenset[BlockState]) -> None:
        self._shown = states
        self._visible[:] = [not states or state in states for state in BlockState]
        self._version = -1

    @property
    def traced(self) -> np.ndarray:
        """Blocks of the traced request, in the order in which they were given."""
        return self._traced

    def trace(self, blocks: np.ndarray) -> bool:
        """Make these blocks stand out, and no others; whether that is a change."""
        if np.array_equal(blocks, self._traced):
            return False
        self._traced = blocks
        self._version = -1
        return True

    def set_grid(self, grid: Grid) -> None:
        if grid != self.grid:
            self.grid = grid
            self._version = -1

    def refresh(self, step: int) -> range:
        """Take in what changed in the tier; the rows between which it did. ``step`` is the engine's latest, for
        ages."""
        tier = self.tier
        aged = self._colouring is Colouring.AGE and step != self.step
        aged |= self._colouring is Colouring.CLASS and tier.classes.version != self._classes
        if tier.version == self._version and not aged:
            return NO_ROWS
        ids = tier.changed_since(self._version) if tier.num_blocks == self._blocks and not aged else None
        if ids is None or len(ids) > FRESH_SHARE * tier.num_blocks:
            self._draw_all(step)
        else:
            self._draw(ids, step)
        self._version, self.step, self._blocks = tier.version, step, tier.num_blocks
        self._classes = tier.classes.version
        return range(self.grid.rows) if ids is None else self.grid.rows_of(ids)

    def level(self, index: int) -> np.ndarray:
        """uint8 codes where each entry is the largest of a square of ``2**index`` cells; 0 is one entry a block."""
        while len(self._levels) <= index:
            self._levels.append(_halve(self._levels[-1]))
        return self._levels[index]

    def block_at(self, x: float, y: float) -> int | None:
        """The block at a point in cells, or None outside of the pool."""
        column, row = math.floor(x), math.floor(y)
        if not (0 <= column < self.grid.columns and 0 <= row < self.grid.rows):
            return None
        block = int(self.grid.blocks_at(np.array(row), np.array(column)))
        return block if block < self.tier.num_blocks else None

    def _draw_all(self, step: int) -> None:
        grid, n = self.grid, self.tier.num_blocks
        self._traced_mask = np.zeros(n, np.uint8)
        self._traced_mask[self._traced[self._traced < n]] = CODE_TRACED
        base = np.full(grid.rows * grid.columns, CODE_VOID, np.uint8)
        base[: min(n, len(base))] = self._encode(slice(None), step)[: len(base)]
        wanted = len(self._levels)
        self._levels = [grid.spread(base)]
        self.level(wanted - 1)

    def _draw(self, ids: np.ndarray, step: int) -> None:
        rows, columns = self.grid.place(ids)
        self._levels[0][rows, columns] = self._encode(ids, step)
        for below, above in zip(self._levels, self._levels[1:], strict=False):
            rows, columns = rows >> 1, columns >> 1
            # The neighbour beyond an odd edge is the edge itself.
            down = np.minimum(2 * rows + 1, below.shape[0] - 1)
            right = np.minimum(2 * columns + 1, below.shape[1] - 1)
            up, left = 2 * rows, 2 * columns
            above[rows, columns] = np.maximum(
                np.maximum(below[up, left], below[up, right]), np.maximum(below[down, left], below[down, right])
            )

    def _encode(self, which: slice | np.ndarray, step: int) -> np.ndarray:
        """uint8 codes of some blocks."""
        state = self.tier.state[which]
        codes = _ENCODERS[self._colouring](self.tier, which, state, step)
        if self._shown:
            codes = np.where(self._visible[state], codes, np.uint8(CODE_DIMMED))
        return codes | self._traced_mask[which] if len(self._traced) else codes


def _halve(codes: np.ndarray) -> np.ndarray:
    """Largest of each 2 × 2 square; an odd last row or column stands alone."""
    rows, columns = codes.shape
    if rows % 2 or columns % 2:
        codes = np.pad(codes, ((0, rows % 2), (0, columns % 2)), constant_values=CODE_VOID)
    flat = np.maximum(codes[0::2], codes[1::2])
    return np.maximum(flat[:, 0::2], flat[:, 1::2])


Encoder = Callable[[TierView, "slice | np.ndarray", np.ndarray, int], np.ndarray]


def _by_state(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    return state + np.uint8(CODE_STATE)


def _where_held(state: np.ndarray, codes: np.ndarray, lowest: BlockState = BlockState.CACHED) -> np.ndarray:
    """``codes`` from the state ``lowest`` on; what comes before is neutral."""
    return np.where(state >= lowest, codes, state + np.uint8(CODE_NEUTRAL)).astype(np.uint8, copy=False)


def _by_request(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    colour = (tier.owner[which] % REQUEST_COLOURS).astype(np.uint8) + np.uint8(CODE_REQUEST)
    return _where_held(state, colour, BlockState.SWAPPED)


def _by_class(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    most_urgent = np.uint8(CODE_CLASS + len(PRIORITIES) - 1)
    return _where_held(state, most_urgent - tier.classes.of(tier.owner[which]), BlockState.SWAPPED)


def _by_ref(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    return _where_held(state, _REF_STEPS[np.minimum(tier.ref[which], REF_TOP)], BlockState.SWAPPED)


def _by_age(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    last = tier.last_used[which]
    age = np.minimum(np.uint32(step) - np.minimum(last, np.uint32(step)), np.uint32(AGE_TOP))
    return _where_held(state, _AGE_STEPS[age])


def _by_fill(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    size = max(tier.block_size, 1)
    steps = (np.arange(size + 1) * (RAMP_STEPS - 1) // size).astype(np.uint8) + np.uint8(CODE_RAMP)
    return _where_held(state, steps[np.minimum(tier.fill[which], size)])


def _by_depth(tier: TierView, which: slice | np.ndarray, state: np.ndarray, step: int) -> np.ndarray:
    depth = tier.depth[which]
    codes = np.where(depth, _DEPTH_STEPS[np.minimum(depth, DEPTH_TOP)], np.uint8(CODE_NEUTRAL + BlockState.CACHED))
    return _where_held(state, codes)


_ENCODERS: dict[Colouring, Encoder] = {
    Colouring.STATE: _by_state,
    Colouring.REQUEST: _by_request,
    Colouring.CLASS: _by_class,
    Colouring.REF: _by_ref,
    Colouring.AGE: _by_age,
    Colouring.FILL: _by_fill,
    Colouring.DEPTH: _by_depth,
}
