"""The list of engines as a table: one row an engine, in the order in which they were found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QFont

from .. import quantities, theme, words
from ..i18n import QT_TRANSLATE_NOOP, fill_in
from .engine_list import EngineList, ListedEngine

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


def short_model(model: str) -> str:
    """A model's name without the folders or the organisation before it."""
    return model.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Column:
    title: str
    text: Callable[[ListedEngine], str]
    width: str  # a text as wide as the column's widest usual content


def _requests(engine: ListedEngine) -> str:
    stats = engine.stats
    return f"{quantities.count(stats.running)} / {quantities.count(stats.waiting)}" if stats is not None else "–"


def _rate(engine: ListedEngine) -> str:
    stats = engine.stats
    return quantities.number(stats.output_tokens_per_s) if stats is not None else "–"


COLUMNS = (
    Column(QT_TRANSLATE_NOOP("EngineModel", "Name"), lambda e: e.name, "pagedeck-00"),
    Column(QT_TRANSLATE_NOOP("EngineModel", "State"), lambda e: words.connection(e.state), "not answering ."),
    Column(QT_TRANSLATE_NOOP("EngineModel", "Model"), lambda e: short_model(e.model) or "–", "SmolLM2-135M-Instruct"),
    Column(QT_TRANSLATE_NOOP("EngineModel", "Running / waiting"), _requests, "Running / waiting"),
    Column(QT_TRANSLATE_NOOP("EngineModel", "tok/s"), _rate, "0,000"),
    Column(QT_TRANSLATE_NOOP("EngineModel", "Address"), lambda e: e.connection.control, "tcp://127.0.0.1:00000"),
    Column(QT_TRANSLATE_NOOP("EngineModel", "Process"), lambda e: str(e.connection.pid), "0000000"),
)
STATE = 1


class EngineModel(QAbstractTableModel):
    def __init__(self, engines: EngineList) -> None:
        super().__init__()
        self._engines = engines
        self._rows = [*engines]
        engines.changed.connect(self._changed)

    def engine_at(self, row: int) -> ListedEngine:
        return self._rows[row]

    def row_of(self, engine: ListedEngine | None) -> int | None:
        return self._rows.index(engine) if engine in self._rows else None

    def _changed(self) -> None:
        rows = [*self._engines]
        for row in reversed(range(len(self._rows))):
            if self._rows[row] not in rows:
                self.beginRemoveRows(_ROOT, row, row)
                del self._rows[row]
                self.endRemoveRows()
        if len(rows) > len(self._rows):
            self.beginInsertRows(_ROOT, len(self._rows), len(rows) - 1)
            self._rows = rows
            self.endInsertRows()
        if rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(COLUMNS) - 1))

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return self.tr(COLUMNS[section].title)
        if orientation == Qt.Orientation.Horizontal and role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        engine = self._rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[index.column()].text(engine)
        if role == Qt.ItemDataRole.DecorationRole and index.column() == STATE:
            return theme.state_colour(engine.state)
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._story(engine)
        if role == Qt.ItemDataRole.FontRole and engine.shown:
            font = QFont()
            font.setBold(True)
            return font
        return None

    def _story(self, engine: ListedEngine) -> str:
        """What the columns have no room for."""
        status = engine.status
        facts = [engine.model, status.device if status else "", status.dtype if status else ""]
        lines = [" · ".join(filter(None, facts)), fill_in(self.tr("Connection file: %1"), engine.file)]
        if engine.shown:
            lines.append(self.tr("This window shows it."))
        if engine.owned:
            lines.append(self.tr("This window started it."))
        return "\n".join(filter(None, [*lines, engine.last_words]))
