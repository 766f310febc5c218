"""What happened, line by line: the engine's events and log, and what the app did. Levels, search, follow."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, QTimer
from PySide6.QtGui import QColor, QFontMetrics, QGuiApplication, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QLineEdit,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from ..ipc.telemetry import Event
from . import theme, words
from .choice import Choice
from .i18n import Said, Translated, fill_in
from .link import EngineLink
from .plain_cells import Cell, PlainCells
from .state import EVENTS_KEPT

KEPT = EVENTS_KEPT  # lines: of events that are known anyhow
LEVELS = ("debug", "info", "warning", "error")
TIME, LEVEL, TEXT = range(3)

#: Lines that came together are shown together.
SHOW_MS = 100

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


@dataclass(frozen=True)
class Line:
    time: float  # Unix seconds
    level: str
    said: Event | Said  # worded when it is shown, in the language of that moment

    def worded(self) -> str:
        return words.event(self.said) if isinstance(self.said, Event) else self.said()


class LogModel(QAbstractTableModel):
    """The newest lines that pass the filter, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[Line] = deque(maxlen=KEPT)
        self._recorded: list[Line] | None = None  # of a recording, which is shown in place of the others
        self._shown: list[Line] = []
        self._least = LEVELS.index("info")
        self._text = ""

    def add(self, lines: list[Line]) -> None:
        self._lines.extend(lines)
        if self._recorded is None:
            self._append(lines)

    def replay(self, lines: list[Line] | None) -> None:
        """Show these lines of a recording; None shows what was added again."""
        before, self._recorded = self._recorded or [], lines
        goes_on = bool(before) and lines is not None and lines[: len(before)] == before
        if lines is not None and goes_on:
            self._append(lines[len(before) :])
        else:
            self.reword()

    def _append(self, lines: list[Line]) -> None:
        passing = [line for line in lines if self._passes(line)][-KEPT:]
        surplus = min(len(self._shown), len(self._shown) + len(passing) - KEPT)
        if surplus > 0:
            self.beginRemoveRows(_ROOT, 0, surplus - 1)
            del self._shown[:surplus]
            self.endRemoveRows()
        if passing:
            self.beginInsertRows(_ROOT, len(self._shown), len(self._shown) + len(passing) - 1)
            self._shown += passing
            self.endInsertRows()

    def set_filter(self, least: str, text: str) -> None:
        """Show lines of at least a level whose text holds ``text``."""
        self._least, self._text = LEVELS.index(least), text.strip().casefold()
        self.reword()

    def reword(self) -> None:
        """Filter and word all lines again: after a filter's or the language's change."""
        self.beginResetModel()
        lines = self._lines if self._recorded is None else self._recorded
        self._shown = [line for line in lines if self._passes(line)]
        self.endResetModel()

    def _passes(self, line: Line) -> bool:
        if LEVELS.index(line.level) < self._least:
            return False
        return not self._text or self._text in line.worded().casefold()

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._shown)

    def columnCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else 3

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return (self.tr("Time"), self.tr("Level"), self.tr("What happened"))[section]
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self._shown):
            return None
        line = self._shown[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            if index.column() == TIME:
                return clock(line.time)
            return level_name(line.level) if index.column() == LEVEL else line.worded()
        if role == Qt.ItemDataRole.ToolTipRole and index.column() == TEXT:
            return line.worded()
        if role == Qt.ItemDataRole.ForegroundRole:
            palette = theme.current().palette
            colours = {"error": palette.error, "warning": palette.warning, "debug": palette.muted}
            if index.column() == TIME:
                return QColor(palette.muted)
            return QColor(colours[line.level]) if line.level in colours else None
        return None

    def cell(self, row: int, column: int) -> Cell:
        """What :meth:`data` tells, at once."""
        line, palette = self._shown[row], theme.current().palette
        if column == TIME:
            return Cell(clock(line.time), palette.muted)
        colours = {"error": palette.error, "warning": palette.warning, "debug": palette.muted}
        text = level_name(line.level) if column == LEVEL else line.worded()
        return Cell(text, colours.get(line.level, palette.ink))

    def text_of(self, row: int) -> str:
        line = self._shown[row]
        return f"{clock(line.time)}  {line.level:<7}  {line.worded()}"


def clock(when: float) -> str:
    return f"{time.strftime('%H:%M:%S', time.localtime(when))}.{int(when % 1 * 1000):03}"


def level_name(level: str) -> str:
    return words.level(level)


class LogView(Translated, QWidget):
    def __init__(self, link: EngineLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self.model = LogModel()
        self._replayed = False  # whether a recording's lines are shown
        self._pending: list[Line] = [self._line(event) for event in link.view.events]
        self.level = Choice()
        for level in LEVELS:
            self.level.addItem("", level)
        self.level.setCurrentIndex(LEVELS.index("info"))
        self.search = QLineEdit(clearButtonEnabled=True)
        self.follow = QCheckBox()
        self.follow.setChecked(True)
        self.copy_button = QPushButton()
        self.empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self.empty.setProperty("role", "muted")
        self.view = QTableView()
        self._prepare_view()

        bar = QHBoxLayout()
        bar.addWidget(self.search, 1)
        bar.addWidget(self.level)
        bar.addWidget(self.follow)
        bar.addWidget(self.copy_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addLayout(bar)
        layout.addWidget(self.view, 1)
        layout.addWidget(self.empty, 1)

        self._timer = QTimer(self, interval=SHOW_MS, singleShot=True)
        self._timer.timeout.connect(self.show_pending)
        link.eventReceived.connect(lambda event: self._put(self._line(event)))
        link.eventsChanged.connect(self._soon)
        self.level.currentIndexChanged.connect(self._filter)
        self.search.textChanged.connect(self._filter)
        self.follow.toggled.connect(self._to_end)
        self.copy_button.clicked.connect(self.copy)
        QShortcut(QKeySequence.StandardKey.Copy, self.view, self.copy, context=Qt.ShortcutContext.WidgetShortcut)
        find = QShortcut(QKeySequence.StandardKey.Find, self, lambda: self.search.setFocus())
        find.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.retranslate()
        self.show_pending()

    def add(self, said: Said, level: str = "info") -> None:
        """A line of the app's own."""
        self._put(Line(time.time(), level, said))

    def copy(self) -> None:
        """Copy the selected lines, or all that are shown."""
        rows = sorted(index.row() for index in self.view.selectionModel().selectedRows())
        rows = rows or [*range(self.model.rowCount())]
        QGuiApplication.clipboard().setText("\n".join(self.model.text_of(row) for row in rows))

    def show_pending(self) -> None:
        lines, self._pending = self._pending, []
        self.model.add(lines)
        replaying = self._link.replaying
        if replaying or self._replayed:
            self.model.replay([self._line(event) for event in self._link.view.events] if replaying else None)
        self._replayed = replaying
        self._show_empty()
        self._to_end()

    @staticmethod
    def _line(event: Event) -> Line:
        return Line(event.time, event.level if event.level in LEVELS else "info", event)

    def _put(self, line: Line) -> None:
        self._pending.append(line)
        self._soon()

    def _soon(self) -> None:
        if (self._pending or self.isVisible()) and not self._timer.isActive():
            self._timer.start()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.show_pending()

    def _prepare_view(self) -> None:
        view = self.view
        view.setModel(self.model)
        view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        view.setShowGrid(False)
        view.setWordWrap(False)
        view.setTabKeyNavigation(False)
        view.setFont(theme.number_font(view.font()))
        view.setItemDelegate(PlainCells(self.model.cell, view))
        view.verticalHeader().hide()
        view.verticalHeader().setDefaultSectionSize(3 * theme.GRID)
        header = view.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(TEXT, QHeaderView.ResizeMode.Stretch)
        metrics = QFontMetrics(view.font())
        view.setColumnWidth(TIME, metrics.horizontalAdvance("00:00:00.000") + 3 * theme.GRID)
        view.setColumnWidth(LEVEL, metrics.horizontalAdvance("warning") + 3 * theme.GRID)

    def _filter(self) -> None:
        self.model.set_filter(self.level.currentData(), self.search.text())
        self._show_empty()
        self._to_end()

    def _show_empty(self) -> None:
        empty = self.model.rowCount() == 0
        self.view.setVisible(not empty)
        self.empty.setVisible(empty)

    def _to_end(self) -> None:
        if self.follow.isChecked():
            self.view.scrollToBottom()

    def retranslate(self) -> None:
        for place, level in enumerate(LEVELS):
            self.level.setItemText(place, fill_in(self.tr("%1 and above"), level_name(level)))
        self.level.setAccessibleName(self.tr("Least level"))
        self.search.setPlaceholderText(self.tr("Search"))
        self.search.setAccessibleName(self.tr("Search the log"))
        self.follow.setText(self.tr("Follow"))
        self.follow.setToolTip(self.tr("Keep the newest line in sight"))
        self.copy_button.setText(self.tr("Copy"))
        self.copy_button.setToolTip(self.tr("Copy the selected lines, or all that are shown"))
        self.view.setAccessibleName(self.tr("Log"))
        self.empty.setText(self.tr("What the engine and the app do appears here."))
        self.model.reword()
        self._to_end()
