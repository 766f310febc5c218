"""The ground of what starts a measurement: a title, what it is about, fields in rows, and one button."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QAbstractSpinBox, QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from .. import theme
from ..i18n import Translated
from ..scroll import Column

_WIDTH = 92 * theme.GRID
_NUMBER_WIDTH = 16 * theme.GRID
_LABEL_WIDTH = 16 * theme.GRID  # fields begin at one place in all forms


class MeasureForm(Translated, Column):
    """``started`` when the button is pressed: :meth:`arguments` are the command's then."""

    started = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.title, self.about = QLabel(), QLabel(wordWrap=True)
        self.title.setProperty("role", "title")
        self.about.setProperty("role", "muted")
        self.about.setContentsMargins(0, 0, 12 * theme.GRID, 0)  # longer lines are hard to read
        self.refusal = QLabel(wordWrap=True)
        self.refusal.setProperty("role", "error")
        self.refusal.hide()
        self.start_button = QPushButton()
        self.start_button.setProperty("role", "primary")
        self.start_button.clicked.connect(self.started)
        self.rows = QGridLayout()
        self.rows.setHorizontalSpacing(2 * theme.GRID)
        self.rows.setVerticalSpacing(theme.GRID)
        self.rows.setColumnMinimumWidth(0, _LABEL_WIDTH)
        self.rows.setColumnStretch(1, 1)
        self.setMaximumWidth(_WIDTH)
        column = self._column = QVBoxLayout(self)
        column.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        column.setSpacing(2 * theme.GRID)
        for part in (self.title, self.about):
            column.addWidget(part)
        column.addLayout(self.rows)
        column.addWidget(self.refusal)
        column.addWidget(self.start_button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)

    def add_row(self, field: QWidget, *, tall: bool = False) -> QLabel:
        """A row with a field; returns the label before it, which stands at the top of a ``tall`` one."""
        label, row = QLabel(), self.rows.rowCount()
        label.setBuddy(field)
        self.rows.addWidget(label, row, 0, Qt.AlignmentFlag.AlignTop if tall else Qt.AlignmentFlag.AlignVCenter)
        if isinstance(field, QAbstractSpinBox):
            theme.pad(field)
            field.setFixedWidth(_NUMBER_WIDTH)
            self.rows.addWidget(field, row, 1, Qt.AlignmentFlag.AlignLeft)  # else the column is no wider than a number
        else:
            self.rows.addWidget(field, row, 1)
        return label

    def add_below(self, *parts: QWidget) -> None:
        """What stands under the button."""
        for part in parts:
            self._column.insertWidget(self._column.count() - 1, part)

    def refuse(self, why: str) -> None:
        """Say why it did not begin; an empty text takes that back."""
        self.refusal.setText(why)
        self.refusal.setVisible(bool(why))
