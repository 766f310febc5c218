"""All engines: how each is, show another one, start, stop, restart, forget."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QItemSelectionModel, QSettings, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from ...ipc.vocabulary import Refused
from .. import engine_texts, theme
from ..i18n import Translated, fill_in
from ..requests.table import SpreadTable, StateDelegate
from ..session import EngineSession
from .engine_list import EngineList, ListedEngine
from .model import COLUMNS, STATE, EngineModel
from .start_dialog import StartDialog

_STOP_LEFT = "engines/stop_when_left"


class EnginesPage(Translated, QWidget):
    """``said`` tells a sentence for the status bar and its level."""

    said = Signal(object, str)  # Said

    def __init__(
        self, engines: EngineList, session: EngineSession, settings: QSettings, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._engines, self._session, self._settings = engines, session, settings
        self.model = EngineModel(engines)
        self.start_button, self.open_button = QPushButton(), QPushButton()
        self.start_button.setProperty("role", "primary")
        self.show_button, self.stop_button, self.restart_button, self.forget_button = (QPushButton() for _ in range(4))
        self.stop_left = QCheckBox()
        self.stop_left.setChecked(bool(settings.value(_STOP_LEFT, False, bool)))
        self._set_stop_left(self.stop_left.isChecked())
        self.view = SpreadTable([column.width for column in COLUMNS])
        self._prepare_view()
        self.empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self.empty.setProperty("role", "muted")
        self.last_words = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.last_words.setFont(theme.mono_font(-1))
        self.last_words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._lay_out()

        self.start_button.clicked.connect(self.start_another)
        self.open_button.clicked.connect(self.choose_file)
        for button, act in (
            (self.show_button, self.show_chosen),
            (self.stop_button, lambda: self._act(self._engines.stop)),
            (self.restart_button, lambda: self._act(self._engines.restart)),
            (self.forget_button, lambda: self._act(self._engines.forget)),
        ):
            button.clicked.connect(act)
        self.forget_action = QAction(self)
        self.forget_action.setShortcut(QKeySequence.StandardKey.Delete)
        self.forget_action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.forget_action.triggered.connect(self.forget_button.click)
        self.addAction(self.forget_action)
        self.view.activated.connect(lambda _: self.show_chosen())
        self.view.selectionModel().selectionChanged.connect(lambda *_: self._tell())
        self.stop_left.toggled.connect(self._set_stop_left)
        engines.changed.connect(self._tell)
        self.retranslate()

    # --- what can be done ---------------------------------------------------------------------------------------

    @property
    def chosen(self) -> ListedEngine | None:
        rows = self.view.selectionModel().selectedRows()
        return self.model.engine_at(rows[0].row()) if rows else None

    def choose(self, engine: ListedEngine) -> None:
        row = self.model.row_of(engine)
        if row is not None:
            flags = QItemSelectionModel.SelectionFlag
            self.view.selectionModel().setCurrentIndex(self.model.index(row, 0), flags.ClearAndSelect | flags.Rows)

    def show_chosen(self) -> None:
        engine = self.chosen
        if engine is not None and self._engines.showable(engine):
            self._engines.show(engine)

    def start_another(self) -> None:
        dialog = StartDialog(self._engines, self._session, self)
        dialog.open()

    def choose_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, self.tr("Open a connection file"), "", "*.json")
        if name:
            self.open(name)

    def open(self, file: str) -> None:
        """Show the engine of a connection file, or say why that cannot be."""
        try:
            self._engines.open(file)
        except Refused as refused:
            self.said.emit(partial(engine_texts.say, str(refused)), "error")

    # --- inner --------------------------------------------------------------------------------------------------

    def _act(self, act: Callable[[ListedEngine], None]) -> None:
        engine = self.chosen
        if engine is not None:
            act(engine)

    def _set_stop_left(self, on: bool) -> None:
        self._session.stop_when_left = on
        self._settings.setValue(_STOP_LEFT, on)

    def _prepare_view(self) -> None:
        view = self.view
        view.setModel(self.model)
        view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        view.setShowGrid(False)
        view.setWordWrap(False)
        view.setTabKeyNavigation(False)
        view.setItemDelegateForColumn(STATE, StateDelegate(view))
        view.setFont(theme.number_font(view.font()))
        view.verticalHeader().hide()
        view.verticalHeader().setDefaultSectionSize(3 * theme.GRID + 2)
        view.horizontalHeader().setHighlightSections(False)
        view.spread()

    def _lay_out(self) -> None:
        bar, below = QHBoxLayout(), QHBoxLayout()
        for part in (self.start_button, self.open_button):
            bar.addWidget(part)
        bar.addStretch(1)
        for part in (self.show_button, self.stop_button, self.restart_button, self.forget_button):
            bar.addWidget(part)
        below.addWidget(self.stop_left)
        below.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addLayout(bar)
        layout.addWidget(self.view, 1)
        layout.addWidget(self.empty, 1)
        layout.addWidget(self.last_words)
        layout.addLayout(below)

    def _tell(self) -> None:
        """What can be done with the chosen one."""
        engine = self.chosen
        known = bool(len(self._engines))
        self.view.setVisible(known)
        self.empty.setVisible(not known)
        self.show_button.setEnabled(engine is not None and self._engines.showable(engine))
        self.stop_button.setEnabled(engine is not None and self._engines.stoppable(engine))
        self.restart_button.setEnabled(engine is not None and self._engines.restartable(engine))
        forgettable = engine is not None and self._engines.forgettable(engine)
        self.forget_button.setEnabled(forgettable)
        self.forget_action.setEnabled(forgettable)
        again = engine is not None and engine.ended and not engine.shown and not engine.elsewhere
        self.show_button.setText(self.tr("Start and show") if again else self.tr("Show"))
        said = engine.last_words if engine is not None else ""
        self.last_words.setText(said)
        self.last_words.setVisible(bool(said))

    def retranslate(self) -> None:
        self.start_button.setText(self.tr("Start another …"))
        self.start_button.setToolTip(self.tr("Start another engine beside those that run, and show it"))
        self.open_button.setText(self.tr("Open connection file …"))
        self.open_button.setToolTip(
            self.tr("Show an engine of another machine or user, by the connection file that you were given")
        )
        self.show_button.setToolTip(self.tr("Show this engine in the window (Enter)"))
        self.stop_button.setText(self.tr("Stop"))
        self.stop_button.setToolTip(self.tr("Stop this engine"))
        self.restart_button.setText(self.tr("Restart"))
        self.restart_button.setToolTip(self.tr("Stop this engine and start it with the same settings"))
        self.forget_button.setText(self.tr("Forget"))
        self.forget_button.setToolTip(self.tr("Strike it off the list; it is not stopped (Delete)"))
        self.forget_action.setText(self.tr("Forget"))
        self.stop_left.setText(self.tr("When another engine is shown, stop the one that this window started"))
        self.view.setAccessibleName(self.tr("Engines"))
        self.last_words.setAccessibleName(self.tr("Last words"))
        self.empty.setText(
            fill_in(
                self.tr("Engines appear here when they start: from this window, or by %1 in a terminal."),
                "pagedeck serve",
            )
        )
        self.model.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, len(COLUMNS) - 1)
        self._tell()
