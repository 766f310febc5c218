"""A block table as chips: one small box a block, in order, in the hue of the block's state, shared ones marked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from ...ipc.vocabulary import BlockState
from .. import theme
from ..card import paint_focus

_GAP = 3


class BlockChips(QWidget):
    """Draws only what is to be seen, so that a table of 100,000 blocks costs as little as one of ten."""

    chosen = Signal(int)  # position in the table

    def __init__(self, describe: Callable[[int], str], parent: QWidget | None = None) -> None:
        """``describe`` gives a position's tooltip."""
        super().__init__(parent)
        self._describe = describe
        self._blocks = np.zeros(0, np.int64)
        self._states = np.zeros(0, np.uint8)
        self._marked: int | None = None  # block id
        self._cursor = 0
        self.setFont(theme.mono_font(-1))
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    @property
    def blocks(self) -> np.ndarray:
        """Block ids, in table order."""
        return self._blocks

    def show_table(self, blocks: np.ndarray, states: np.ndarray, marked: int | None) -> None:
        """Show block ids with their :class:`BlockState` codes; ``marked`` is the id of the selected one."""
        grown = len(blocks) != len(self._blocks)
        self._blocks, self._states, self._marked = blocks, states, marked
        self._cursor = min(self._cursor, max(0, len(blocks) - 1))
        if grown:
            self.updateGeometry()
        self.update()

    # --- geometry -----------------------------------------------------------------------------------------------

    def _chip(self) -> QSize:
        metrics = QFontMetrics(self.font())
        widest = str(int(self._blocks.max())) if len(self._blocks) else "0"
        return QSize(metrics.horizontalAdvance(max(widest, "000", key=len)) + theme.GRID, metrics.height() + 4)

    def _columns(self, width: int) -> int:
        return max(1, (width + _GAP) // (self._chip().width() + _GAP))

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        rows = -(-max(1, len(self._blocks)) // self._columns(width))
        return int(rows * (self._chip().height() + _GAP))

    def sizeHint(self) -> QSize:
        width = max(self.width(), 25 * theme.GRID)
        return QSize(width, self.heightForWidth(width))

    def minimumSizeHint(self) -> QSize:
        return QSize(10 * theme.GRID, self.heightForWidth(max(self.width(), 10 * theme.GRID)))

    def resizeEvent(self, event: QEvent) -> None:
        self.updateGeometry()

    def _rect(self, position: int) -> QRect:
        chip, columns = self._chip(), self._columns(self.width())
        row, column = divmod(position, columns)
        return QRect(column * (chip.width() + _GAP), row * (chip.height() + _GAP), chip.width(), chip.height())

    def position_at(self, point: QPoint) -> int | None:
        chip, columns = self._chip(), self._columns(self.width())
        column, row = point.x() // (chip.width() + _GAP), point.y() // (chip.height() + _GAP)
        position = row * columns + column
        return position if column < columns and 0 <= position < len(self._blocks) else None

    # --- painting -----------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = theme.current().palette
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(self.font())
        stride, columns = self._chip().height() + _GAP, self._columns(self.width())
        first = max(0, event.rect().top() // stride) * columns
        last = min(len(self._blocks), (event.rect().bottom() // stride + 1) * columns)
        for position in range(first, last):
            self._paint_chip(painter, palette, position)
        painter.end()
        paint_focus(self)

    def _paint_chip(self, painter: QPainter, palette: theme.Palette, position: int) -> None:
        rect = self._rect(position).toRectF().adjusted(0.5, 0.5, -0.5, -0.5)
        block, state = int(self._blocks[position]), BlockState(int(self._states[position]))
        hue = palette.states[state]
        fill = QColor(theme.mix(palette.surface, hue, 0.25))
        selected = block == self._marked
        focused = self.hasFocus() and position == self._cursor
        outline = palette.ink if selected else palette.accent if focused else hue
        painter.setPen(QPen(QColor(outline), 2 if selected or focused else 1))
        painter.setBrush(fill)
        painter.drawRoundedRect(rect, 3, 3)
        if state == BlockState.SHARED:  # a second channel beside the hue: a double edge
            painter.setPen(QPen(QColor(hue), 1))
            painter.drawLine(rect.topLeft() + QPoint(3, 2), rect.topRight() + QPoint(-3, 2))
        painter.setPen(QColor(palette.ink))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, str(block))

    # --- input --------------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        position = self.position_at(event.position().toPoint())
        if position is not None:
            self._cursor = position
            self.chosen.emit(position)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        columns = self._columns(self.width())
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Up: -columns, Qt.Key.Key_Down: columns}
        key = Qt.Key(event.key())
        if key in steps and len(self._blocks):
            self._cursor = min(max(0, self._cursor + steps[key]), len(self._blocks) - 1)
            self.update()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and len(self._blocks):
            self.chosen.emit(self._cursor)
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            position = self.position_at(event.pos())
            QToolTip.showText(event.globalPos(), self._describe(position) if position is not None else "", self)
            return True
        return super().event(event)
