"""How a ghost is drawn over the map: hatched cells where they are large enough, else a tint of the pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QImage, QPainter, QPen, QTransform

from .. import theme
from .block_image import Grid
from .ghosts import BEYOND, EMPTY, HELD, NOTHING, ODD, Ghost

#: Cells from this size on (device pixels) are hatched; smaller ones are tinted.
HATCH_CELL = 12.0


def hue(palette: theme.Palette, kind: int) -> QColor:
    return QColor(palette.error if kind == BEYOND else palette.ink)


def paint_hatched(painter: QPainter, palette: theme.Palette, kind: int, rects: list[QRectF]) -> None:
    """Rectangles of one kind: what holds tokens is shaded, what holds none only hatched."""
    colour = hue(palette, kind)
    veil = QColor(colour)
    veil.setAlphaF(0.34 if kind == HELD else 0.1)
    hatch = QColor(colour)
    hatch.setAlphaF(0.6)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(veil)
    painter.drawRects(rects)
    painter.setBrush(QBrush(hatch, Qt.BrushStyle.Dense6Pattern if kind == HELD else Qt.BrushStyle.BDiagPattern))
    painter.setPen(QPen(colour, 1))
    painter.drawRects(rects)


class GhostLayer:
    """A ghost's cells on the pool's own grid, going on below its last row."""

    def __init__(self) -> None:
        self._ghost: Ghost | None = None
        self._cells = np.zeros((0, 0), np.uint8)
        self._tinted_for: tuple[object, ...] = ()
        self._tint = QImage()

    @property
    def rows(self) -> int:
        return len(self._cells)

    def show(self, ghost: Ghost | None, grid: Grid) -> None:
        self._ghost, self._tinted_for = ghost, ()
        if ghost is None:
            self._cells = np.zeros((0, 0), np.uint8)
            return
        across = grid.columns * grid.tile
        rows = -(-len(ghost.cells) // across) * grid.tile
        cells = np.zeros(rows * grid.columns, np.uint8)
        cells[: len(ghost.cells)] = ghost.cells
        self._cells = replace(grid, rows=rows).spread(cells)

    def rearrange(self, grid: Grid) -> None:
        self.show(self._ghost, grid)

    def paint(self, painter: QPainter, view: QRectF, cell: float) -> None:
        """Draw what ``view`` (in cells) shows of it, ``cell`` device pixels being the shorter side of a cell."""
        left, top = max(0, int(view.left())), max(0, int(view.top()))
        part = self._cells[top : int(view.bottom()) + 1, left : int(view.right()) + 1]
        if not part.any():
            return
        if cell >= HATCH_CELL:
            self._paint_cells(painter, part, left, top)
        else:
            self._paint_pixels(painter, part, left, top, max(1, int(1 / max(cell, 1e-9))))

    def _paint_cells(self, painter: QPainter, part: np.ndarray, left: int, top: int) -> None:
        """Neighbours of one piece in a row are one rectangle, in device coordinates: a hatch is not to be stretched."""
        palette, transform = theme.current().palette, painter.worldTransform()
        painter.save()
        painter.setWorldTransform(QTransform())
        padded = np.pad(part, ((0, 0), (1, 1)), constant_values=255)
        rows, edges = np.nonzero(padded[:, 1:] != padded[:, :-1])
        same = rows[1:] == rows[:-1]
        rows, starts, stops = rows[:-1][same], edges[:-1][same], edges[1:][same]
        kinds = part[rows, starts] % ODD
        for kind in (HELD, EMPTY, BEYOND):
            chosen = np.flatnonzero(kinds == kind)
            places = zip(rows[chosen].tolist(), starts[chosen].tolist(), stops[chosen].tolist(), strict=True)
            rects = [
                transform.mapRect(QRectF(left + start, top + row, stop - start, 1)).adjusted(1.5, 1.5, -1.5, -1.5)
                for row, start, stop in places
            ]
            if rects:
                paint_hatched(painter, palette, kind, rects)
        painter.restore()

    def _paint_pixels(self, painter: QPainter, part: np.ndarray, left: int, top: int, stride: int) -> None:
        """Made once for a ghost and a view of it, in the size in which it is seen: a pool is painted far more often
        than its ghost changes."""
        palette, ratio = theme.current().palette, painter.device().devicePixelRatioF()
        columns, rows = -(-part.shape[1] // stride) * stride, -(-part.shape[0] // stride) * stride
        place = painter.worldTransform().mapRect(QRectF(left, top, columns, rows))
        size = (place.size() * ratio).toSize()
        key = (left, top, part.shape, stride, palette.name, size)
        if key != self._tinted_for:
            self._tinted_for = key
            self._tint = _image(_tinted(part[::stride, ::stride], palette)).scaled(size).copy()
            self._tint.setDevicePixelRatio(ratio)
        painter.save()
        painter.setWorldTransform(QTransform())
        painter.drawImage(place.topLeft(), self._tint)
        painter.restore()


def _image(pixels: np.ndarray) -> QImage:
    """An image that borrows premultiplied ``pixels``."""
    rows, columns = pixels.shape
    return QImage(pixels.data, columns, rows, 4 * columns, QImage.Format.Format_ARGB32_Premultiplied)


def _tinted(codes: np.ndarray, palette: theme.Palette) -> np.ndarray:
    """Premultiplied pixels. Every other one of what holds nothing stays free, which tells it from what holds tokens."""
    pixels = _tints(palette).take(codes)
    odd = (np.arange(len(codes))[:, None] + np.arange(codes.shape[1])) % 2 == 1
    pixels[odd & (codes % ODD != HELD)] = 0
    return pixels


def _tints(palette: theme.Palette) -> np.ndarray:
    """uint32 ``[256]``: the premultiplied tint of each code; neighbouring pieces differ in strength."""
    table = np.zeros(256, np.uint32)
    for kind in (HELD, EMPTY, BEYOND):
        for odd, alpha in ((0, 0.6), (ODD, 0.42)):
            colour = hue(palette, kind)
            red, green, blue = (round(part * alpha) for part in (colour.red(), colour.green(), colour.blue()))
            table[kind + odd] = round(255 * alpha) << 24 | red << 16 | green << 8 | blue
    table[NOTHING] = 0
    return table
