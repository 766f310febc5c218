"""The request table's model: rows in a numpy permutation, so that sorting and filtering 10,000 rows stay quick.

:meth:`RequestModel.refresh` compares the new order with the old one and tells the view the least that is true: cells
changed, rows moved, rows gone, rows new. Selection, scroll position and keyboard focus survive all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QColor, QFont

from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import PRIORITIES, BlockState, RequestState, priority_name
from .. import quantities, theme, words
from ..i18n import QT_TRANSLATE_NOOP, fill_in
from ..plain_cells import Cell

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()
_UNKNOWN = float("-inf")
_STATE_ORDER = {state.value: place for place, state in enumerate(RequestState)}


def age(row: RequestRow, now: float) -> float:
    """Seconds since arrival; of an ended request, how long it took."""
    if row.e2e_s is not None:
        return row.e2e_s
    return max(0.0, now - row.arrival)


def shared(row: RequestRow) -> float:
    """Share of its device blocks that it shares with others, 0 to 1."""
    return row.shared_blocks / row.blocks if row.blocks else 0.0


def _optional(value: float | None) -> float:
    return _UNKNOWN if value is None else value


def _blocks(row: RequestRow) -> str:
    on_host = f" + {quantities.count(row.host_blocks)}" if row.host_blocks else ""
    return quantities.count(row.blocks) + on_host


@dataclass(frozen=True)
class Column:
    """One column: its title, what it shows, and the number that it sorts by."""

    title: str
    hint: str
    text: Callable[[RequestRow, float], str]
    key: Callable[[RequestRow, float], float]
    width: str  # a text as wide as the column's widest usual content


def _nothing_or(text: Callable[[float], str], value: float | None) -> str:
    return "–" if value is None else text(value)


COLUMNS = (
    Column("#", QT_TRANSLATE_NOOP("RequestModel", "Number, by arrival"),
           lambda r, _: str(r.number), lambda r, _: r.number, "00000"),
    Column(QT_TRANSLATE_NOOP("RequestModel", "State"), "",
           lambda r, _: words.request_state(r.state), lambda r, _: _STATE_ORDER.get(r.state, 99), "swapped out ."),
    Column(QT_TRANSLATE_NOOP("RequestModel", "Class"), QT_TRANSLATE_NOOP("RequestModel", "Lower numbers run first"),
           lambda r, _: words.priority(r.priority), lambda r, _: r.priority, "interactive."),
    Column(QT_TRANSLATE_NOOP("RequestModel", "Prompt"),
           QT_TRANSLATE_NOOP("RequestModel", "Prompt tokens, and how many were found in the cache"),
           lambda r, _: quantities.count(r.prompt_tokens), lambda r, _: r.prompt_tokens, "Prompt."),
    Column(QT_TRANSLATE_NOOP("RequestModel", "Output"),
           QT_TRANSLATE_NOOP("RequestModel", "Output tokens of all samples, of the most that may come"),
           lambda r, _: f"{quantities.count(r.output_tokens)} / {quantities.count(r.max_tokens * r.samples)}",
           lambda r, _: r.output_tokens, "000 / 0,000"),
    Column(QT_TRANSLATE_NOOP("RequestModel", "Blocks"),
           QT_TRANSLATE_NOOP("RequestModel", "Blocks on the device, plus blocks on the host"),
           lambda r, _: _blocks(r), lambda r, _: r.blocks + r.host_blocks, "0,000 + 0"),
    Column(QT_TRANSLATE_NOOP("RequestModel", "Shared"),
           QT_TRANSLATE_NOOP("RequestModel", "Share of its blocks that other sequences use too"),
           lambda r, _: quantities.percent(shared(r)) if r.blocks else "–", lambda r, _: shared(r), "Shared."),
    Column(QT_TRANSLATE_NOOP("RequestModel", "TTFT"), QT_TRANSLATE_NOOP("RequestModel", "Time to first token"),
           lambda r, _: _nothing_or(quantities.duration, r.ttft_s), lambda r, _: _optional(r.ttft_s), "0 min 00 s"),
    Column(QT_TRANSLATE_NOOP("RequestModel", "tok/s"), QT_TRANSLATE_NOOP("RequestModel", "Output tokens per second"),
           lambda r, _: _nothing_or(quantities.number, r.tokens_per_s), lambda r, _: _optional(r.tokens_per_s),
           "0,000"),
    Column(QT_TRANSLATE_NOOP("RequestModel", "Age"),
           QT_TRANSLATE_NOOP("RequestModel", "Time since arrival; when ended, how long it took"),
           lambda r, now: quantities.duration(age(r, now)), age, "00 min 00 s"),
)  # fmt: skip
NUMBER, STATE, CLASS = 0, 1, 2
_LEFT = (STATE, CLASS)  # columns of words


class Grouping(StrEnum):
    NONE = "none"
    STATE = "state"
    CLASS = "class"
    CLIENT = "client"


#: What a row's group is called by programs, and where it stands among the others.
_GROUPS: dict[Grouping, tuple[Callable[[RequestRow], str], Callable[[str], Any]]] = {
    Grouping.STATE: (lambda row: row.state, lambda name: _STATE_ORDER.get(name, 99)),
    Grouping.CLASS: (lambda row: priority_name(row.priority), lambda name: PRIORITIES[name]),
    Grouping.CLIENT: (lambda row: row.client, lambda name: name),
}


@dataclass
class Group:
    """A group's heading: what it has in all."""

    name: str
    requests: int = 0
    blocks: int = 0
    tokens_per_s: float = 0.0


class RequestModel(QAbstractTableModel):
    """Shows some of a mapping of requests, by number, in the order of one column, perhaps in groups. A group's
    heading is a row whose number is negative.

    ``orderAboutToChange`` and ``orderChanged`` are told around rows that come, go and move.
    """

    orderAboutToChange = Signal()
    orderChanged = Signal()

    def __init__(self, requests: dict[int, RequestRow], clock: Callable[[], float] = time.time) -> None:
        """``clock`` tells the time that ages are counted to, in Unix seconds."""
        super().__init__()
        self._requests = requests
        self._clock = clock
        self._order = np.zeros(0, np.int64)  # request numbers as shown
        self._place: dict[int, int] = {}
        self._text = ""
        self._states: frozenset[str] | None = None
        self._column = NUMBER
        self._descending = True
        self._grouping = Grouping.NONE
        self._groups: dict[int, Group] = {}  # by the number of its heading
        self._headings: dict[str, int] = {}  # numbers that groups have had, so that they keep them
        self._folded: set[str] = set()
        self.shown = 0  # requests, those of folded groups included
        self._now = clock()

    # --- what is shown ------------------------------------------------------------------------------------------

    def number_at(self, row: int) -> int:
        return int(self._order[row])

    def row_of(self, number: int | None) -> int | None:
        """Where a request is shown, or none."""
        return self._place.get(number) if number is not None else None

    def request_at(self, row: int) -> RequestRow | None:
        return self._requests.get(self.number_at(row))

    def heading_rows(self) -> list[int]:
        return np.flatnonzero(self._order < 0).tolist()

    def set_grouping(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._headings.clear()
        self._folded.clear()
        self.refresh()

    def fold(self, row: int) -> None:
        """Hide a group's requests, or show them again; ``row`` is its heading's, else nothing happens."""
        group = self._groups.get(self.number_at(row))
        if group is not None:
            self._folded ^= {group.name}
            self.refresh()

    def show(self, requests: dict[int, RequestRow], visible: range | None = None) -> None:
        """Look at another mapping (a recording's), or the same as it is now (see :meth:`refresh`)."""
        self._requests = requests
        self.refresh(visible)

    def set_filter(self, text: str, states: frozenset[str] | None) -> None:
        """Show requests whose number, id, client, state or class holds ``text``, in one of ``states``."""
        self._text, self._states = text.strip().casefold(), states
        self.refresh()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._column, self._descending = column, order == Qt.SortOrder.DescendingOrder
        self.refresh()

    def refresh(self, visible: range | None = None) -> None:
        """Take the requests as they are now. Only ``visible`` rows are told as changed, when the order is the same."""
        self._now = self._clock()
        order = self._sorted()
        if len(order) != len(self._order) or not np.array_equal(order, self._order):
            self._reorder(order)
        if not len(order):
            return
        first, last = (visible.start, visible.stop - 1) if visible else (0, len(order) - 1)
        last = min(last, len(order) - 1)
        if first <= last:
            self.dataChanged.emit(self.index(first, 0), self.index(last, len(COLUMNS) - 1))

    def _sorted(self) -> np.ndarray:
        every = self._states is None and not self._text
        rows = [row for row in self._requests.values() if every or self._shown(row)]
        numbers = np.fromiter((row.number for row in rows), np.int64, len(rows))
        key, now = COLUMNS[self._column].key, self._now
        keys = np.fromiter((key(row, now) for row in rows), np.float64, len(rows))
        self.shown = len(rows)
        order = np.lexsort((-numbers, -keys if self._descending else keys))
        if self._grouping is Grouping.NONE:
            self._groups = {}
            return numbers[order]
        return self._grouped(rows, numbers, order)

    def _grouped(self, rows: list[RequestRow], numbers: np.ndarray, order: np.ndarray) -> np.ndarray:
        """The numbers in ``order`` under the headings of their groups."""
        name_of, place_of = _GROUPS[self._grouping]
        groups: dict[str, Group] = {}
        headings = np.zeros(len(rows), np.int64)
        for at, row in enumerate(rows):
            name = name_of(row)
            group = groups.get(name)
            if group is None:
                group = groups[name] = Group(name)
                self._headings.setdefault(name, -1 - len(self._headings))
            group.requests += 1
            group.blocks += row.blocks + row.host_blocks
            if row.tokens_per_s and row.state == "running":
                group.tokens_per_s += row.tokens_per_s
            headings[at] = self._headings[name]
        headings = headings[order]
        self._groups = {self._headings[name]: groups[name] for name in sorted(groups, key=place_of)}
        parts = [np.zeros(0, np.int64)]
        for heading, group in self._groups.items():
            parts.append(np.array([heading]))
            if group.name not in self._folded:
                parts.append(numbers[order][headings == heading])
        return np.concatenate(parts)

    def _shown(self, row: RequestRow) -> bool:
        if self._states is not None and row.state not in self._states:
            return False
        if not self._text:
            return True
        class_name = priority_name(row.priority)
        parts = (f"#{row.number}", row.id, row.client, row.state, words.request_state(row.state), class_name)
        return self._text in " ".join((*parts, words.class_name(class_name))).casefold()

    def _reorder(self, order: np.ndarray) -> None:
        """Take the rows away that are gone, add the new ones at the end, then move all to their places."""
        self.orderAboutToChange.emit()
        staying = np.isin(self._order, order, assume_unique=True)
        gone = np.flatnonzero(~staying)
        for run in reversed(np.split(gone, np.flatnonzero(np.diff(gone) > 1) + 1)) if len(gone) else ():
            self.beginRemoveRows(_ROOT, int(run[0]), int(run[-1]))
            self._order = np.delete(self._order, run)
            self.endRemoveRows()
        new = order[~np.isin(order, self._order, assume_unique=True)]
        if len(new):
            self.beginInsertRows(_ROOT, len(self._order), len(self._order) + len(new) - 1)
            self._order = np.concatenate((self._order, new))
            self.endInsertRows()
        if not np.array_equal(order, self._order):
            self.layoutAboutToBeChanged.emit()
            place = {int(number): at for at, number in enumerate(order)}
            before = self.persistentIndexList()
            after = [self.index(place[self.number_at(i.row())], i.column()) for i in before]
            self._order = order
            self.changePersistentIndexList(before, after)
            self.layoutChanged.emit()
        self._place = {int(number): at for at, number in enumerate(self._order)}
        self.orderChanged.emit()

    # --- QAbstractTableModel ------------------------------------------------------------------------------------

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._order)

    def columnCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(COLUMNS):
            return None
        column = COLUMNS[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return self.tr(column.title)
        if role == Qt.ItemDataRole.ToolTipRole:
            return self.tr(column.hint) if column.hint else None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(section)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self._order):
            return None
        group = self._groups.get(self.number_at(index.row()))
        if group is not None:
            return self._heading(group, role) if index.column() == NUMBER else None
        row = self.request_at(index.row())
        if row is None:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[index.column()].text(row, self._now)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(index.column())
        if role == Qt.ItemDataRole.DecorationRole and index.column() == STATE:
            return state_colour(row.state)
        if role == Qt.ItemDataRole.ForegroundRole and RequestState(row.state).ended:
            return QColor(theme.current().palette.muted)
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._story(row)
        return None

    def cell(self, row: int, column: int) -> Cell | None:
        """What :meth:`data` tells of a request, at once; None for a group's heading."""
        request = self.request_at(row)
        if request is None:
            return None
        palette = theme.current().palette
        return Cell(
            COLUMNS[column].text(request, self._now),
            palette.muted if RequestState(request.state).ended else palette.ink,
            right=column not in _LEFT,
            dot=state_colour(request.state).name() if column == STATE else "",
        )

    def flags(self, index: _Index) -> Qt.ItemFlag:
        if index.isValid() and index.row() < len(self._order) and self.number_at(index.row()) < 0:
            return Qt.ItemFlag.ItemIsEnabled
        return super().flags(index)

    def _heading(self, group: Group, role: int) -> Any:
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.FontRole:
            font = QFont()
            font.setBold(True)
            return font
        if role == Qt.ItemDataRole.ToolTipRole:
            return self.tr("Click to fold or unfold")
        if role != Qt.ItemDataRole.DisplayRole:
            return None
        parts = [
            f"{'▸' if group.name in self._folded else '▾'} {self._group_name(group.name)}",
            self.tr("%Ln request(s)", "", group.requests),
        ]
        if group.blocks:
            parts.append(words.counted.blocks(group.blocks))
        if group.tokens_per_s:
            parts.append(f"{quantities.number(group.tokens_per_s)}{quantities.NBSP}{self.tr('tok/s')}")
        return " · ".join(parts)

    def _group_name(self, name: str) -> str:
        if self._grouping is Grouping.STATE:
            return words.request_state(name)
        if self._grouping is Grouping.CLASS:
            return words.class_name(name)
        return name or self.tr("unknown client")

    def _story(self, row: RequestRow) -> str:
        lines = [row.id]
        if row.client:
            lines.append(fill_in(self.tr("from %1"), row.client))
        if row.cached_tokens:
            lines.append(self.tr("%Ln prompt token(s) found in the cache", "", row.cached_tokens))
        if row.preemptions:
            lines.append(self.tr("preempted %Ln time(s)", "", row.preemptions))
        if row.error:
            lines.append(row.error)
        return "\n".join(lines)


def _alignment(column: int) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignLeft if column in _LEFT else Qt.AlignmentFlag.AlignRight
    return side | Qt.AlignmentFlag.AlignVCenter


def state_colour(state: str) -> QColor:
    """A request's state in the hue of the blocks that it then holds; ended ones by how they ended."""
    palette = theme.current().palette
    return QColor(
        {
            RequestState.RUNNING: palette.states[BlockState.ACTIVE],
            RequestState.SWAPPED: palette.states[BlockState.SWAPPED],
            RequestState.PREEMPTED: palette.warning,
            RequestState.FINISHED: palette.good,
            RequestState.FAILED: palette.error,
        }.get(RequestState(state), palette.muted)
    )
