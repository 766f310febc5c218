"""The cells of a pool as they are painted: the image of the blocks, and what lies over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPen, QPolygonF, QTransform
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from ...ipc.vocabulary import BlockState
from .. import theme
from ..kept_picture import KeptPicture
from .slot_layer import SLOT_CELL, SlotPainter

if TYPE_CHECKING:
    from .pool_canvas import PoolCanvas

#: Cells from these sizes on (device pixels) get gaps, show how full they are, and are outlined when traced.
GAP_CELL = 5.0
FILL_CELL = 8.0
OUTLINE_CELL = 6.0
HALO_CELL = 14.0
#: A traced table with more turns than this is not drawn as a line: it would hide the pool.
TRACE_TURNS = 400
#: The least of the states in which a block has content. A plain number: arrays are compared with it five times faster.
_HOLDS = BlockState.CACHED.value


class Cells(QGraphicsItem):
    """The image of the blocks; over it gaps, how full they are, the trace, and the marks of hover and selection."""

    def __init__(self, canvas: PoolCanvas) -> None:
        super().__init__()
        self.num_blocks = -1
        self.ordered = False
        self._canvas = canvas
        self._line = QPolygonF()
        self._pixels = np.zeros((0, 0), np.uint32)  # kept: the image only borrows them
        self._image = QImage()
        self._place = QRectF()
        self._gaps = KeptPicture(canvas.viewport())
        self._visible_asked: object = None
        self._visible = np.zeros(0, np.int64)

    def set_image(self, pixels: np.ndarray, place: QRectF) -> None:
        """Show uint32 ``[rows, columns]`` pixels at a place in cells."""
        rows, columns = pixels.shape
        self._pixels, self._place = pixels, place
        self._image = (
            QImage(pixels.data, columns, rows, 4 * columns, QImage.Format.Format_RGB32) if pixels.size else QImage()
        )

    def show_rows(self, rows: range | None, unit: int) -> None:
        """Paint these rows of cells anew, in whole ``unit`` rows; None is all there is."""
        if rows is None:
            self.update()
        elif rows:
            top, bottom = rows.start // unit * unit, -(-rows.stop // unit) * unit
            self.update(QRectF(-1, top, self._canvas.image.grid.columns + 2, bottom - top))

    def set_pool(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.rearrange()

    def rearrange(self) -> None:
        """The grid changed."""
        self.prepareGeometryChange()
        self._line = self._trace_line()

    def set_trace(self, ordered: bool) -> None:
        self.ordered = ordered
        self._line = self._trace_line()
        self.update()

    def boundingRect(self) -> QRectF:
        grid = self._canvas.image.grid
        return QRectF(-1, -1, grid.columns + 2, max(grid.rows, self._canvas.ghost_rows) + 2)

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if not self._canvas.image.tier.num_blocks:
            return
        palette, cell = theme.current().palette, min(self._canvas.cell_size)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.drawImage(self._place, self._image)
        remade = self._canvas.remade_strength
        if remade > 0:
            wash = QColor(palette.accent)
            wash.setAlphaF(remade)
            painter.fillRect(self._place, wash)
        if cell >= SLOT_CELL:
            self._paint_slots(painter)
        elif cell >= FILL_CELL:
            self._paint_fill(painter, palette)
        if cell >= GAP_CELL:
            self._paint_gaps(painter, palette, cell)
        if cell >= OUTLINE_CELL:
            self._paint_outlines(painter, palette, cell)
        self._canvas.paint_ghost(painter)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        self._paint_line(painter, palette)
        self._paint_mark(painter, self._canvas.hovered, palette.muted, 1.5)
        self._paint_mark(painter, self._canvas.selected, palette.ink, 2.5)

    def _paint_gaps(self, painter: QPainter, palette: theme.Palette, cell: float) -> None:
        """In pixels: hundreds of strokes."""
        cells, visible = painter.worldTransform(), self._canvas.visible_cells
        thick, pixel = 1 if cell < 16 else 2 if cell < 48 else 4, 1 / self._canvas.devicePixelRatioF()

        def paint(picture: QPainter) -> None:
            picture.setPen(Qt.PenStyle.NoPen)
            picture.setBrush(QColor(palette.window))
            picture.drawRects(_gaps(visible, cells, thick, pixel))

        painter.save()
        painter.resetTransform()
        self._gaps.draw(painter, (visible, cells, palette.window), paint)
        painter.restore()

    def _paint_fill(self, painter: QPainter, palette: theme.Palette) -> None:
        """What is empty of a partly filled block looks empty: tokens fill a cell from the left."""
        tier, blocks = self._canvas.image.tier, self.visible_blocks()
        fill = tier.fill[blocks]
        partial = (tier.state[blocks] >= _HOLDS) & (fill < tier.block_size)
        blocks, share = blocks[partial], fill[partial] / max(tier.block_size, 1)
        if not len(blocks):
            return
        veil = QColor(palette.window)
        veil.setAlphaF(0.72)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(veil)
        painter.drawRects(
            [
                QRectF(x + full, y, 1 - full, 1)
                for (x, y), full in zip(self._corners(blocks), share.tolist(), strict=True)
            ]
        )

    def _paint_slots(self, painter: QPainter) -> None:
        """In pixels, not in cells: text keeps its proportions."""
        tier, blocks = self._canvas.image.tier, self.visible_blocks()
        held = blocks[(tier.state[blocks] >= _HOLDS) & (tier.fill[blocks] > 0)]
        cells = painter.worldTransform()
        painter.save()
        painter.resetTransform()
        slots = SlotPainter(painter, tier.block_size, cells.mapRect(QRectF(0, 0, 1, 1)), len(held))
        for block, (x, y) in zip(held.tolist(), self._corners(held), strict=True):
            cell = cells.mapRect(QRectF(x, y, 1, 1))
            fill = min(int(tier.fill[block]), tier.block_size)
            slots.paint(cell, self._canvas.colour_of(block), fill, self._canvas.texts_of(block))
        painter.restore()

    def _paint_outlines(self, painter: QPainter, palette: theme.Palette, cell: float) -> None:
        image = self._canvas.image
        visible = self.visible_blocks()
        blocks = visible[np.isin(visible, image.traced)] if len(image.traced) else visible[:0]
        if not len(blocks):
            return
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(_pen(palette.ink, 1 if cell < 16 else 2))
        painter.drawRects([QRectF(x, y, 1, 1) for x, y in self._corners(blocks)])

    def _paint_line(self, painter: QPainter, palette: theme.Palette) -> None:
        if not self._line.size():
            return
        painter.setBrush(Qt.BrushStyle.NoBrush)
        width, height = self._canvas.cell_size
        small = min(width, height) < HALO_CELL  # a halo would hide the cells that the line goes through
        for colour, thick in ((palette.ink, 1.0),) if small else ((palette.window, 3.5), (palette.ink, 1.5)):
            painter.setPen(_pen(colour, thick))
            painter.drawPolyline(self._line)
        painter.setBrush(QColor(palette.ink))
        painter.setPen(_pen(palette.window, 1.5))
        painter.drawEllipse(self._line.at(0), 3.5 / width, 3.5 / height)

    def _paint_mark(self, painter: QPainter, block: int | None, colour: str, width: float) -> None:
        """A frame around a cell, never smaller than nine pixels."""
        if block is None or block >= self._canvas.image.tier.num_blocks:
            return
        row, column = self._canvas.image.grid.place_one(block)
        wide, high = (max(0.0, 4.5 / side - 0.5) for side in self._canvas.cell_size)
        rect = QRectF(column, row, 1, 1).adjusted(-wide, -high, wide, high)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(_pen(colour, width))
        painter.drawRect(rect)

    def visible_blocks(self) -> np.ndarray:
        image = self._canvas.image
        asked = self._canvas.visible_cells, image.grid, image.tier.num_blocks
        if asked != self._visible_asked:
            self._visible_asked = asked
            left, right, top, bottom = asked[0]
            blocks = image.grid.blocks_at(np.arange(top, bottom)[:, None], np.arange(left, right)).ravel()
            self._visible = blocks[blocks < image.tier.num_blocks]
        return self._visible

    def _corners(self, blocks: np.ndarray) -> list[tuple[int, int]]:
        """Column and row of each block."""
        rows, columns = self._canvas.image.grid.place(blocks)
        return list(zip(columns.tolist(), rows.tolist(), strict=True))

    def _trace_line(self) -> QPolygonF:
        """The traced table as a line through cell centres; neighbours in a row are one stroke."""
        blocks = self._canvas.image.traced
        if not self.ordered or len(blocks) < 2:
            return QPolygonF()
        rows, columns = self._canvas.image.grid.place(blocks)
        joined = (np.diff(rows) == 0) & (np.diff(columns) == 1)
        turn = np.concatenate([[True], ~(joined[:-1] & joined[1:]), [True]])
        if np.count_nonzero(turn) > TRACE_TURNS:
            return QPolygonF()
        return QPolygonF([QPointF(x + 0.5, y + 0.5) for x, y in self._corners(blocks[turn])])


def _gaps(visible: tuple[int, int, int, int], cells: QTransform, thick: int, pixel: float) -> list[QRectF]:
    """The gaps between cells, ``thick`` device pixels, each of so much of a ``pixel``."""
    left, right, top, bottom = visible
    place = cells.mapRect(QRectF(left, top, right - left, bottom - top))
    before, wide = thick // 2 * pixel, thick * pixel
    lefts = [place.left() + n * cells.m11() - before for n in range(right - left + 1)]
    tops = [place.top() + n * cells.m22() - before for n in range(bottom - top + 1)]
    across = [QRectF(x, place.top(), wide, place.height()) for x in lefts]
    down = [QRectF(place.left(), y, place.width(), wide) for y in tops]
    return across + down


def _pen(colour: str, width: float) -> QPen:
    pen = QPen(QColor(colour), width)
    pen.setCosmetic(True)
    pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
    return pen
