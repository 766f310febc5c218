"""A table to be read: as high as its rows, with texts that wrap, and figures to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QWidget

from .. import theme


@dataclass(frozen=True)
class Cell:
    """A text, its role in the style sheet, and whether it is a figure."""

    text: str
    role: str = ""
    figure: bool = False


class Table(QWidget):
    """Filled anew with :meth:`show_rows`. ``stretch``: how the columns share what is left of the width; ``lined``:
    with a hairline above each row."""

    def __init__(self, stretch: Sequence[int] = (), *, lined: bool = True) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._stretch, self._lined = stretch, lined
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(3 * theme.GRID)
        self._grid.setVerticalSpacing(theme.GRID // 2)

    def show_rows(self, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self.rows = [[cell.text for cell in row] for row in rows]
        for column, head in enumerate(heads):
            figure = any(column < len(row) and row[column].figure for row in rows)
            self._put(Cell(head, "muted", figure), 0, column)
        columns = max((len(row) for row in rows), default=1)
        for place, row in enumerate(rows):
            if self._lined:
                self._grid.addWidget(_hairline(), 2 * place + 1, 0, 1, columns)
            for column, cell in enumerate(row):
                self._put(cell, 2 * place + 2, column)
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, self._stretch[column] if column < len(self._stretch) else 0)

    def _put(self, cell: Cell, row: int, column: int) -> None:
        label = QLabel(cell.text, textFormat=Qt.TextFormat.PlainText)
        label.setProperty("role", cell.role)
        side = Qt.AlignmentFlag.AlignRight if cell.figure else Qt.AlignmentFlag.AlignLeft
        label.setAlignment(side | Qt.AlignmentFlag.AlignTop)
        if cell.figure:
            label.setFont(theme.number_font(label.font()))
        stretches = column < len(self._stretch) and self._stretch[column] > 0
        label.setWordWrap(stretches and not cell.figure)
        self._grid.addWidget(label, row, column)


def _hairline() -> QFrame:
    line = QFrame(frameShape=QFrame.Shape.HLine)
    line.setFixedHeight(1)
    line.setStyleSheet(f"background: {theme.current().palette.line}; border: none;")
    return line
