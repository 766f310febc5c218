"""One tier's pool on screen: what of its image is visible, zoom and pan, and what is pointed at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QWidget

from ...ipc.vocabulary import BlockState
from .. import theme
from ..card import paint_focus
from ..motion import FADE_S, Flashes, Motion, blend
from .block_image import NO_ROWS, BlockImage, arrange, largest_cell, rows_around
from .cells import Cells
from .ghost_layer import GhostLayer
from .ghosts import Ghost
from .slot_layer import SLOT_CELL, legible_cell

#: Zoomed in, a cell grows no further than this.
CLOSEST_CELL = 560.0
#: How near the key goes that shows the slots of the selected block.
NEAR_CELL = 320.0
#: While a ghost is shown, a fitted pool leaves the rest of the view's height to what is beyond its end.
GHOSTED_SHARE = 0.75
#: Between two frames of fading flashes, where the pool itself is not drawn anew more often.
FADE_MS = 33
#: How strong a pool that was made anew flashes as a whole.
REMADE_STRENGTH = 0.5


class PoolCanvas(pg.GraphicsView):
    """Draws a :class:`BlockImage`: one image of what is visible, at the level where one entry is about one pixel; gaps,
    fill and outlines over it, only where cells are large enough to show them.

    Codes are looked up here and drawn as RGB32: Qt scales that several times faster than an indexed image.
    """

    blockHovered = Signal(object)  # block id or None
    blockClicked = Signal(object)  # block id or None for the background
    blockOpened = Signal(int)  # block id: it is to be seen in full
    slotsSeen = Signal(object)  # ids of the blocks in view, while they are large enough for their slots to be seen

    def __init__(self, image: BlockImage, parent: QWidget | None = None) -> None:
        super().__init__(parent, background=None)
        self.image = image
        self.texts_of: Callable[[int], list[str]] = lambda _: []  # of a block's tokens, for its slots
        self.hovered: int | None = None
        self.selected: int | None = None
        self._ratio = 0.0  # of device pixels to the window's
        self.cell_size = (0.0, 0.0)  # width and height of a cell in device pixels
        self.visible_cells = (0, 0, 0, 0)  # first and last (exclusive) visible column and row
        self._fitted = True
        self._near = False  # so that slots are seen
        self._tracing = False
        self._ghost = GhostLayer()
        self._ghosted = False
        self._moving = False
        self._flashes = Flashes()
        self._flashing = NO_ROWS  # of cells that show flashes
        self._flash_colours = np.zeros(len(Motion), np.uint32)
        self._remade = -math.inf  # monotonic seconds at which the pool was made anew
        self._fade = QTimer(self)
        self._fade.timeout.connect(self._go_on_fading)
        self._box = pg.ViewBox(lockAspect=True, invertY=True, enableMenu=False, defaultPadding=0.0)
        self._colours = np.zeros(256, np.uint32)
        self._cells = Cells(self)
        self._box.addItem(self._cells, ignoreBounds=True)
        self.setCentralItem(self._box)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._box.sigRangeChanged.connect(self._look)
        self._box.sigRangeChangedManually.connect(self._moved)
        self.scene().sigMouseClicked.connect(self._clicked)
        self.restyle()

    # --- what it shows ------------------------------------------------------------------------------------------

    def refresh(self, step: int) -> None:
        """Draw what changed since the last time."""
        n = self.image.tier.num_blocks
        if n != self._cells.num_blocks:
            self._cells.set_pool(n)
            self.fit()
        moved = self._take_motion()
        rows = self.image.refresh(step)
        if rows or moved:
            self._upload(rows)

    def set_moving(self, on: bool) -> None:
        """Whether what moves flashes."""
        if on == self._moving:
            return
        self._moving = on
        self.image.tier.moves.clear()
        if not on:
            self._flashes.clear()
            self._remade = -math.inf
            self._upload()

    def _take_motion(self) -> bool:
        """Take what moved since the last time; whether there is something to show."""
        tier, now = self.image.tier, time.monotonic()
        if not self._moving:
            return False
        while tier.moves:
            self._flashes.add(*tier.moves.popleft(), now)
        if tier.remade:
            tier.remade = False
            self._flashes.clear()
            self._remade = now
        moving = bool(self._flashes) or self._remade > -math.inf
        if moving:
            self._fade.start(2 * FADE_MS)  # only if nothing else draws the pool anew by then
        return moving

    def _go_on_fading(self) -> None:
        self._fade.start(FADE_MS)
        self._upload(NO_ROWS)

    def fit(self) -> None:
        """The whole pool, with cells as large as the view allows."""
        ratio = self.devicePixelRatioF()
        width, height = self.viewport().width() * ratio, self.viewport().height() * ratio
        room = height * GHOSTED_SHARE if self._ghosted else height
        grid = arrange(self.image.tier.num_blocks, int(width), int(room))
        self._fitted = True
        self.image.set_grid(grid)
        self._ghost.rearrange(grid)
        self._cells.rearrange()
        self.image.refresh(self.image.step)
        # A full pool starts at the corner, a small one stands in the middle; in whole pixels, for equally large cells.
        left, top = 0.0, 0.0
        if grid.width == largest_cell(int(width), int(room)):
            left, top = (width - grid.columns * grid.width) // 2, max(0, (room - grid.rows * grid.height) // 2)
        self._box.setAspectLocked(True, grid.width / grid.height)
        self._box.setLimits(
            minXRange=width / CLOSEST_CELL, maxXRange=2 * width / grid.width, maxYRange=2 * height / grid.height
        )
        self._box.setRange(
            QRectF(-left / grid.width, -top / grid.height, width / grid.width, height / grid.height), padding=0
        )
        self._look()

    def show_block(self, block: int) -> None:
        """Bring a block into view without changing the zoom."""
        row, column = self.image.grid.place_one(block)
        x, y = column + 0.5, row + 0.5
        visible = self._box.viewRect()
        if not visible.contains(QPointF(x, y)):
            self._fitted = False
            self._box.translateBy(x=x - visible.center().x(), y=y - visible.center().y())

    def look_at(self, block: int) -> None:
        """Zoom in on a block until its slots can be read."""
        row, column = self.image.grid.place_one(block)
        ratio, view = self.devicePixelRatioF(), self._box.viewRect()
        width, steep = self.viewport().width(), max(view.height(), 1e-9) / max(view.width(), 1e-9)
        # The whole block, also in a flat view, unless its text were too small: then its beginning.
        legible = legible_cell(max(1, self.image.tier.block_size))
        wide = min(max(width * ratio / NEAR_CELL, 1 / steep), width / legible)
        high = wide * steep
        self._fitted = False
        top = row + 0.5 - high / 2 if high >= 1 else row
        self._box.setRange(QRectF(column + 0.5 - wide / 2, top, wide, high), padding=0)

    def trace(self, blocks: np.ndarray, ordered: bool) -> None:
        """Make a request's blocks stand out; when ``ordered``, a line follows its block table."""
        if not len(blocks) and not self._tracing:
            return
        changed = self.image.trace(blocks)
        if changed or ordered != self._cells.ordered:
            self._cells.set_trace(ordered)
        if (len(blocks) > 0) != self._tracing:
            self._tracing = len(blocks) > 0
            self.restyle()
        if changed:
            self.refresh(self.image.step)

    def show_ghost(self, ghost: Ghost | None) -> None:
        """Lay a ghost over the pool. It has a place of its own below the pool's end, for what is beyond."""
        if ghost is None and not self._ghosted:
            return
        self._ghost.show(ghost, self.image.grid)
        if (ghost is not None) != self._ghosted:
            self._ghosted = ghost is not None
            self.fit()
        self._cells.prepareGeometryChange()
        self._cells.update()

    def paint_ghost(self, painter: QPainter) -> None:
        if self._ghosted:
            self._ghost.paint(painter, self._box.viewRect(), min(self.cell_size))

    @property
    def ghost_rows(self) -> int:
        return self._ghost.rows

    def redraw(self) -> None:
        """What is drawn over the blocks has changed."""
        self._cells.update()

    def mark(self, selected: int | None) -> None:
        if selected != self.selected:
            self.selected = selected
            self._cells.update()

    def restyle(self) -> None:
        """Take the theme's colours."""
        palette = theme.current().palette
        self.setBackground(palette.window)
        self._colours = theme.lookup_table(palette, tracing=self._tracing)
        self._flash_colours[:] = [QColor(colour).rgb() for colour in _flash_colours(palette)]
        self._upload()

    def _measure(self) -> None:
        """Note what is in view, which every frame asks for many times."""
        self._ratio = ratio = self.devicePixelRatioF()
        view, grid = self._box.viewRect(), self.image.grid
        self.cell_size = (
            self.viewport().width() * ratio / max(view.width(), 1e-9),
            self.viewport().height() * ratio / max(view.height(), 1e-9),
        )
        self.visible_cells = (
            max(0, math.floor(view.left())),
            min(grid.columns, math.ceil(view.right())),
            max(0, math.floor(view.top())),
            min(grid.rows, math.ceil(view.bottom())),
        )

    def cell_rect(self, block: int) -> QRectF:
        """A cell's place in the widget."""
        row, column = self.image.grid.place_one(block)
        corners = self._box.mapViewToScene(QPointF(column, row)), self._box.mapViewToScene(QPointF(column + 1, row + 1))
        return QRectF(*corners)

    # --- events -------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        super().resizeEvent(event)
        if event is not None:
            self.fit() if self._fitted else self._look()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        paint_focus(self, self.viewport())

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_F and not event.modifiers():
            self.fit()
        elif event.key() == Qt.Key.Key_Z and self.selected is not None:
            self.look_at(self.selected)
        elif event.key() in (Qt.Key.Key_Plus, Qt.Key.Key_Equal, Qt.Key.Key_Minus):
            closer = event.key() != Qt.Key.Key_Minus
            self._fitted = False
            self._box.scaleBy((0.8, 0.8) if closer else (1.25, 1.25))
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.selected is not None:
            self.blockOpened.emit(self.selected)
        elif event.key() in _STEPS:
            self._step_selection(_STEPS[Qt.Key(event.key())])
        else:
            event.ignore()

    def mouseMoveEvent(self, event: QEvent) -> None:
        super().mouseMoveEvent(event)
        self._hover(event.position())  # type: ignore[attr-defined]

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._set_hovered(None)

    def _hover(self, position: QPointF) -> None:
        self._set_hovered(self._block_at(position))

    def _block_at(self, position: QPointF) -> int | None:
        point = self._box.mapSceneToView(self.mapToScene(position.toPoint()))
        return self.image.block_at(point.x(), point.y())

    def _set_hovered(self, block: int | None) -> None:
        if block != self.hovered:
            self.hovered = block
            self._cells.update()
            self.blockHovered.emit(block)

    def _clicked(self, event: object) -> None:
        if event.button() != Qt.MouseButton.LeftButton:  # type: ignore[attr-defined]
            return
        point = self._box.mapSceneToView(event.scenePos())  # type: ignore[attr-defined]
        self.blockClicked.emit(self.image.block_at(point.x(), point.y()))

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Open a block, or beside the pool fit it. The click before has selected what is there."""
        if event.button() == Qt.MouseButton.LeftButton:
            block = self._block_at(event.position())
            if block is None:
                self.fit()
            else:
                self.blockOpened.emit(block)

    def _step_selection(self, direction: tuple[int, int]) -> None:
        """Arrow keys move the selection to the neighbouring cell."""
        row, column = self.image.grid.place_one(self.selected or 0)
        across, down = direction if self.selected is not None else (0, 0)
        block = self.image.block_at(column + across, row + down)
        if block is not None:
            self.show_block(block)
            self.blockClicked.emit(block)

    def _moved(self) -> None:
        self._fitted = False

    def _look(self) -> None:
        """The view or its size changed."""
        self._measure()
        self._upload()

    def _upload(self, rows: range | None = None) -> None:
        """Take the visible part of the image, at the level where an entry is at least a pixel. Where only these
        ``rows`` of cells changed, nothing but them and the flashes is painted anew."""
        if self.devicePixelRatioF() != self._ratio:
            self._measure()
        left, right, top, bottom = self.visible_cells
        level = max(0, math.ceil(-math.log2(max(min(self.cell_size), 1e-9)) - 1e-6))
        left, top = left >> level, top >> level
        right, bottom = -(-right >> level), -(-bottom >> level)
        part = self.image.level(level)[top:bottom, left:right]
        place = QRectF(left << level, top << level, part.shape[1] << level, part.shape[0] << level)
        pixels = np.ascontiguousarray(self._colours.take(part))
        if self._remade > -math.inf:
            rows = None
        if self._fade.isActive():
            before, self._flashing = self._flashing, self._flash(pixels, level, left, top)
            rows = None if rows is None else rows_around(rows, before, self._flashing)
        self._cells.set_image(pixels, place)
        self._cells.show_rows(rows, 1 << level)
        near = min(self.cell_size) >= SLOT_CELL
        if near or self._near:
            self._near = near
            self.slotsSeen.emit(self._cells.visible_blocks().tolist() if near else [])

    def colour_of(self, block: int) -> str:
        """In which a block's cell is drawn."""
        return QColor(int(self._colours[self.image.level(0)[self.image.grid.place_one(block)]])).name()

    def _flash(self, pixels: np.ndarray, level: int, left: int, top: int) -> range:
        """Lay the flashes over pixels that begin at ``left`` and ``top`` of a level; the rows of cells that have
        some."""
        now = time.monotonic()
        ids, kinds, strength = self._flashes.seen(now)
        rows, columns = self.image.grid.place(ids)
        rows, columns = (rows >> level) - top, (columns >> level) - left
        inside = (rows >= 0) & (columns >= 0) & (rows < pixels.shape[0]) & (columns < pixels.shape[1])
        rows, columns = rows[inside], columns[inside]
        colours = self._flash_colours[kinds[inside]]
        pixels[rows, columns] = blend(pixels[rows, columns], colours, strength[inside])
        if now - self._remade >= FADE_S:
            self._remade = -math.inf
        if not self._flashes and self._remade == -math.inf:
            self._fade.stop()
        return self.image.grid.rows_of(ids)

    @property
    def remade_strength(self) -> float:
        """How strong the whole pool flashes, 0 to 1."""
        left = 1 - (time.monotonic() - self._remade) / FADE_S
        return REMADE_STRENGTH * max(0.0, left) ** 2


_STEPS = {
    Qt.Key.Key_Left: (-1, 0),
    Qt.Key.Key_Right: (1, 0),
    Qt.Key.Key_Up: (0, -1),
    Qt.Key.Key_Down: (0, 1),
}


def _flash_colours(palette: theme.Palette) -> tuple[str, ...]:
    """One for each :class:`Motion`. What is freed fades out of the colour that it had."""
    states = palette.states
    return palette.window, palette.ink, states[BlockState.ACTIVE], palette.accent, states[BlockState.SWAPPED]
