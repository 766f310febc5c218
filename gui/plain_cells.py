"""Table cells that are only text, painted without the style, which takes ten times as long for the same picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPixmap, QStaticText
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from . import theme

#: Between a cell's edge and its text, as the style and its sheet have it.
MARGIN = 8
DOT = theme.GRID  # across
#: Texts that are kept laid out; most of those on the screen are there again the next time.
TEXTS_KEPT = 4_096

_MARKED = QStyle.StateFlag.State_Selected | QStyle.StateFlag.State_HasFocus

_Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows. ``dot`` is the colour of a dot before the text, if there is one."""

    text: str
    colour: str
    right: bool = False
    dot: str = ""


class PlainCells(QStyledItemDelegate):
    """Paints what ``cell_of(row, column)`` says. What is selected, has the keyboard, or is no plain cell (None), is
    left to ``other``, by default the style."""

    def __init__(
        self, cell_of: Callable[[int, int], Cell | None], view: QTableView, other: QStyledItemDelegate | None = None
    ) -> None:
        super().__init__(view)
        self._cell_of = cell_of
        self._other = other or QStyledItemDelegate(view)
        self._font = view.font()
        self._texts: dict[tuple[str, int], tuple[QStaticText, QSizeF]] = {}
        self._dots: dict[tuple[str, float], QPixmap] = {}

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        cell = None if option.state & _MARKED else self._cell_of(index.row(), index.column())
        if cell is None:
            self._other.paint(painter, option, index)
            return
        rect = option.rect
        left, room = rect.left() + MARGIN, rect.width() - 2 * MARGIN
        if cell.dot:
            dot = self._dot(cell.dot, painter.device().devicePixelRatio())
            painter.drawPixmap(QPointF(rect.left() + DOT, rect.center().y() - DOT // 2 + 1), dot)
            left, room = left + 2 * DOT, room - 2 * DOT
        text, size = self._laid_out(cell.text, room)
        painter.setPen(QColor(cell.colour))
        top = rect.top() + (rect.height() - math.ceil(size.height())) // 2
        painter.drawStaticText(QPointF(left + (room - size.width() if cell.right else 0), top), text)

    def _laid_out(self, text: str, room: int) -> tuple[QStaticText, QSizeF]:
        """A text as far as there is room for it, and how large that is."""
        known = self._texts.get((text, room))
        if known is None:
            if len(self._texts) >= TEXTS_KEPT:
                self._texts.clear()
            made = QStaticText(QFontMetrics(self._font).elidedText(text, Qt.TextElideMode.ElideRight, room))
            made.setTextFormat(Qt.TextFormat.PlainText)
            made.prepare(font=self._font)
            known = self._texts[text, room] = made, made.size()
        return known

    def _dot(self, colour: str, ratio: float) -> QPixmap:
        known = self._dots.get((colour, ratio))
        if known is None:
            side = round((DOT + 1) * ratio)
            known = self._dots[colour, ratio] = QPixmap(side, side)
            known.setDevicePixelRatio(ratio)
            known.fill(Qt.GlobalColor.transparent)
            painter = QPainter(known)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(colour))
            painter.drawEllipse(QRectF(0, 0, DOT, DOT))
            painter.end()
        return known
