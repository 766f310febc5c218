"""Live requests: sort, filter, group, cancel, change class, copy as code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from PySide6.QtCore import (
    QItemSelection,
    QItemSelectionModel,
    QItemSelectionRange,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRect,
    QSignalBlocker,
    Qt,
    QTimer,
)
from PySide6.QtGui import (
    QAction,
    QColor,
    QFontMetrics,
    QGuiApplication,
    QIcon,
    QKeySequence,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from ...ipc.protocol import DescribeRequest, EngineMessage, RequestDetail, SetPriority
from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import PRIORITIES, RequestState
from .. import theme, words
from ..choice import Choice
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..plain_cells import PlainCells
from ..selection import Selection
from .as_code import as_code
from .model import COLUMNS, NUMBER, STATE, Grouping, RequestModel

#: The table follows at most so often; the eye reads no faster.
REFRESH_MS = 250

#: Of many requests, so many are cancelled before the window does anything else.
AT_ONCE = 500

#: Narrower tables leave to the menu of a row what is seldom needed.
ROOMY = 88 * theme.GRID

#: So long the button says that something was copied.
COPIED_MS = 2_000

_Index = QModelIndex | QPersistentModelIndex

_LIVE = frozenset(state.value for state in RequestState if not state.ended)
_ENDED = frozenset(state.value for state in RequestState if state.ended)


class StateDelegate(QStyledItemDelegate):
    """Draws a request's state as a dot of its hue before the word."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: _Index) -> None:
        super().initStyleOption(option, index)
        option.features &= ~QStyleOptionViewItem.ViewItemFeature.HasDecoration
        option.icon = QIcon()  # else the style makes a highlighted copy of it, at size 0, for a selected row

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        shifted = QStyleOptionViewItem(option)
        style = option.widget.style()
        style.drawPrimitive(QStyle.PrimitiveElement.PE_PanelItemViewItem, option, painter, option.widget)
        dot = theme.GRID
        shifted.rect = option.rect.adjusted(2 * dot, 0, 0, 0)
        super().paint(painter, shifted, index)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(index.data(Qt.ItemDataRole.DecorationRole)))
        painter.drawEllipse(QRect(option.rect.left() + dot, option.rect.center().y() - dot // 2 + 1, dot, dot))
        painter.restore()


class SpreadTable(QTableView):
    """Its columns share its width, each in proportion to its widest usual text, until somebody drags one."""

    def __init__(self, widest: Sequence[str]) -> None:
        super().__init__()
        self._widest = widest
        self._spreading = False
        self._own = False
        self.note = ""  # in the place of rows, where there are none
        self.horizontalHeader().sectionResized.connect(self._dragged)

    def spread(self) -> None:
        metrics = QFontMetrics(self.font())
        needed = [metrics.horizontalAdvance(text) + 3 * theme.GRID for text in self._widest]
        more = max(1.0, self.viewport().width() / sum(needed))
        self._spreading = True
        for place, width in enumerate(needed):
            self.setColumnWidth(place, math.floor(more * width))
        self._spreading = self._own = False

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.model().rowCount():
            painter = QPainter(self.viewport())
            painter.setPen(QColor(theme.current().palette.muted))
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(self.viewport().rect(), flags, self.note)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if not self._own and self.model() is not None:
            self.spread()

    def _dragged(self) -> None:
        self._own = self._own or not self._spreading


class RequestTable(Translated, QWidget):
    """The table with its filter, its groups and its verbs. What is selected here is selected everywhere."""

    def __init__(self, link: EngineLink, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._selection = selection
        self.model = RequestModel(link.view.requests, lambda: link.now())
        self._spanned: list[int] = []  # rows of headings
        self._put_by: list[int] = []  # selected requests, while the rows move

        self.filter = QLineEdit(clearButtonEnabled=True)
        self.filter.setMinimumWidth(16 * theme.GRID)
        self.filter.setMaximumWidth(48 * theme.GRID)
        self.which = Choice()
        for states in (None, _LIVE, _ENDED):
            self.which.addItem("", states)
        self.grouping = Choice()
        for grouping in Grouping:
            self.grouping.addItem("", grouping)
        self.count = QLabel()
        self.count.setProperty("role", "muted")
        self.cancel_button = QPushButton()
        self.class_button = QPushButton()
        self.copy_button = QPushButton()
        self._copied = QTimer(self, interval=COPIED_MS, singleShot=True)
        self._copied.timeout.connect(self._name_copy)
        self._class_menu = QMenu(self)
        self._class_actions = [QAction(self) for _ in PRIORITIES]
        for action, name in zip(self._class_actions, PRIORITIES, strict=True):
            action.setData(name)
            action.triggered.connect(lambda _=False, name=name: self.set_class(name))
            self._class_menu.addAction(action)
        self.class_button.setMenu(self._class_menu)
        self.cancel_action = QAction(self)
        self.cancel_action.setShortcut(QKeySequence.StandardKey.Delete)
        self.cancel_action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.addAction(self.cancel_action)

        self.view = SpreadTable([column.width for column in COLUMNS])
        self.view.setModel(self.model)
        self._prepare_view()
        self.empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self.empty.setProperty("role", "muted")

        bar = QHBoxLayout()
        bar.addWidget(self.filter, 1000)
        bar.addWidget(self.which)
        bar.addWidget(self.grouping)
        bar.addWidget(self.count)
        bar.addStretch(1)
        bar.addWidget(self.copy_button)
        bar.addWidget(self.class_button)
        bar.addWidget(self.cancel_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addLayout(bar)
        layout.addWidget(self.view, 1)
        layout.addWidget(self.empty, 1)

        self._timer = QTimer(self, interval=REFRESH_MS, singleShot=True)
        self._timer.timeout.connect(self.refresh)
        link.requestsChanged.connect(self._soon)
        link.statsChanged.connect(self._soon)
        selection.changed.connect(self._follow_selection)
        self.filter.textChanged.connect(self._filter_changed)
        self.which.currentIndexChanged.connect(self._filter_changed)
        self.grouping.currentIndexChanged.connect(self._group)
        self.view.clicked.connect(lambda index: self._fold(index.row()))
        self.view.activated.connect(lambda index: self._fold(index.row()))
        self.copy_button.clicked.connect(self.copy_as_code)
        self.cancel_button.clicked.connect(self.cancel)
        self.cancel_action.triggered.connect(self.cancel)
        self.view.selectionModel().selectionChanged.connect(self._rows_selected)
        self.model.orderAboutToChange.connect(self._put_selection_by)
        self.model.orderChanged.connect(self._select_again)
        self.retranslate()
        self.refresh()

    # --- verbs --------------------------------------------------------------------------------------------------

    def chosen(self) -> list[RequestRow]:
        """The live requests among the selected rows: those that can still be acted on. Another user's have no id."""
        return [*self._chosen()]

    def _chosen(self) -> Iterator[RequestRow]:
        rows = (self.model.request_at(row) for row in self._selected())
        return (row for row in rows if row is not None and row.id and row.state in _LIVE)

    def _selected(self) -> Iterator[int]:
        """Rows. Qt's own list of them asks the model of every cell, which takes seconds for ten thousand."""
        parts: Any = self.view.selectionModel().selection()  # a list, which its types do not tell
        for part in parts:
            yield from range(part.top(), part.bottom() + 1)

    def cancel(self) -> None:
        self._each([row.id for row in self._chosen()], self._link.cancel)

    def set_class(self, name: str) -> None:
        def ask(id: str) -> None:
            self._link.request(SetPriority(request=id, priority=name), lambda reply: None)

        self._each([row.id for row in self._chosen()], ask)

    def _each(self, ids: list[str], act: Callable[[str], None]) -> None:
        """The window has its turn in between where there are many."""
        for id in ids[:AT_ONCE]:
            act(id)
        if later := ids[AT_ONCE:]:
            QTimer.singleShot(0, self, lambda: self._each(later, act))

    def copy_as_code(self) -> None:
        """Put a program on the clipboard that asks the same of the engine as the selected request."""
        row = self._current()
        if row is not None:
            self._link.request(DescribeRequest(request=row.id), self._copy)

    def _copy(self, reply: EngineMessage) -> None:
        if isinstance(reply, RequestDetail) and reply.row is not None:
            name = self._link.connection.name if self._link.connection is not None else ""
            QGuiApplication.clipboard().setText(as_code(reply, name))
            self.copy_button.setText(self.tr("Copied"))
        else:
            self.copy_button.setText(self.tr("Not known any more"))
        self._copied.start()

    def _current(self) -> RequestRow | None:
        """The first selected request that the engine tells of, whatever became of it."""
        rows = map(self.model.request_at, self._selected())
        return next((row for row in rows if row is not None and row.id), None)

    def refresh(self) -> None:
        """Show the requests as they are known now."""
        self.model.show(self._link.view.requests, self._visible())
        self._span_headings()
        self._follow_selection()
        self._tell()

    # --- inner --------------------------------------------------------------------------------------------------

    def _prepare_view(self) -> None:
        view = self.view
        view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        view.setSortingEnabled(True)
        view.sortByColumn(NUMBER, Qt.SortOrder.DescendingOrder)
        view.setShowGrid(False)
        view.setWordWrap(False)
        view.setTabKeyNavigation(False)
        view.setFont(theme.number_font(view.font()))
        view.setItemDelegate(PlainCells(self.model.cell, view))
        view.setItemDelegateForColumn(STATE, PlainCells(self.model.cell, view, StateDelegate(view)))
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.customContextMenuRequested.connect(self._context_menu)
        rows = view.verticalHeader()
        rows.hide()
        rows.setDefaultSectionSize(3 * theme.GRID + 2)
        columns = view.horizontalHeader()
        columns.setHighlightSections(False)
        # With the table's own it asks, at each painting, every selected cell whether its whole column is selected.
        columns.setSelectionModel(QItemSelectionModel(self.model, columns))
        view.spread()

    def _visible(self) -> range:
        first = self.view.rowAt(0)
        last = self.view.rowAt(self.view.viewport().height() - 1)
        end = last + 1 if last >= 0 else self.model.rowCount()
        return range(max(0, first), end)

    def _soon(self) -> None:
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.copy_button.setVisible(self.width() >= ROOMY)

    def _filter_changed(self) -> None:
        self.model.set_filter(self.filter.text(), self.which.currentData())
        self._span_headings()
        self._tell()

    def _group(self) -> None:
        self.model.set_grouping(Grouping(self.grouping.currentData()))
        self._span_headings()

    def _fold(self, row: int) -> None:
        self.model.fold(row)
        self._span_headings()

    def _span_headings(self) -> None:
        """A group's heading takes the whole width."""
        rows = self.model.heading_rows()
        if rows != self._spanned:
            self.view.clearSpans()
            for row in rows:
                self.view.setSpan(row, 0, 1, len(COLUMNS))
            self._spanned = rows

    def _tell(self) -> None:
        shown, known = self.model.shown, len(self._link.view.requests)
        self.count.setText(fill_in(self.tr("%1 of %2"), str(shown), str(known)))
        self.view.setVisible(bool(known))
        self.empty.setVisible(not known)
        can = any(True for _ in self._chosen()) and not self._link.replaying
        self.cancel_button.setEnabled(can)
        self.cancel_action.setEnabled(can)
        self.class_button.setEnabled(can)
        self.copy_button.setEnabled(self._current() is not None and not self._link.replaying)

    def _rows_selected(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        rows = [*itertools.islice(self._selected(), 2)]
        if len(rows) == 1 and self.model.number_at(rows[0]) != self._selection.request:
            self._selection.select_request(self.model.number_at(rows[0]))
        self._tell()

    def _put_selection_by(self) -> None:
        """Qt would follow each selected cell with each row that comes, goes or moves."""
        self._put_by = [self.model.number_at(row) for row in self._selected()]
        if self._put_by:
            with QSignalBlocker(self.view.selectionModel()):
                self.view.selectionModel().clearSelection()

    def _select_again(self) -> None:
        if not self._put_by:
            return
        rows = sorted(row for row in map(self.model.row_of, self._put_by) if row is not None)
        selection, last = QItemSelection(), len(COLUMNS) - 1
        for _, run in itertools.groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
            (_, first), *rest = run
            selection.append(QItemSelectionRange(self.model.index(first, 0), self.model.index(first + len(rest), last)))
        with QSignalBlocker(self.view.selectionModel()):
            self.view.selectionModel().select(selection, QItemSelectionModel.SelectionFlag.Select)
        self.view.viewport().update()

    def _follow_selection(self) -> None:
        row = self.model.row_of(self._selection.request)
        if row is None or row in self._selected():
            return
        flags = QItemSelectionModel.SelectionFlag
        self.view.selectionModel().setCurrentIndex(
            self.model.index(row, NUMBER), flags.ClearAndSelect | flags.Rows | flags.Current
        )

    def _context_menu(self, at: QPoint) -> None:
        menu = QMenu(self)
        menu.addAction(self.cancel_action)
        menu.addAction(self.tr("Copy as code"), self.copy_as_code).setEnabled(self.copy_button.isEnabled())
        submenu = menu.addMenu(self.class_button.text())
        submenu.addActions(self._class_actions)
        submenu.setEnabled(self.class_button.isEnabled())
        menu.exec(self.view.viewport().mapToGlobal(at))

    def retranslate(self) -> None:
        self.filter.setPlaceholderText(self.tr("Filter by number, id, state, class"))
        self.filter.setAccessibleName(self.tr("Filter requests"))
        for place, text in enumerate((self.tr("All"), self.tr("Live"), self.tr("Ended"))):
            self.which.setItemText(place, text)
        self.which.setAccessibleName(self.tr("Which requests"))
        groupings = (self.tr("No groups"), self.tr("By state"), self.tr("By class"), self.tr("By client"))
        for place, text in enumerate(groupings):
            self.grouping.setItemText(place, text)
        self.grouping.setAccessibleName(self.tr("Groups"))
        self._name_copy()
        self.copy_button.setToolTip(self.tr("Copy a Python program that makes the selected request again"))
        self.cancel_button.setText(self.tr("Cancel"))
        self.cancel_button.setToolTip(self.tr("End the selected requests and free their blocks"))
        self.cancel_action.setText(self.tr("Cancel"))
        self.class_button.setText(self.tr("Class"))
        self.class_button.setToolTip(self.tr("Change how urgent the selected requests are"))
        _name(self._class_actions)
        self.view.setAccessibleName(self.tr("Requests"))
        self.view.note = self.tr("No request matches: clear the filter, or show all.")
        self.empty.setText(self.tr("Requests appear here when they arrive: from the playground, or from any client."))
        self.model.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)
        self._tell()

    def _name_copy(self) -> None:
        self.copy_button.setText(self.tr("Copy as code"))


def _name(actions: Iterable[QAction]) -> None:
    for action in actions:
        action.setText(words.class_name(action.data()))
