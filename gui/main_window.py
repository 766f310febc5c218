"""The window: toolbar, rail, pages, inspector, status bar. It arranges; what a part does is in the part's own file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QMimeData, QSettings, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAction,
    QCloseEvent,
    QColor,
    QDragEnterEvent,
    QDropEvent,
    QKeyEvent,
    QKeySequence,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QDockWidget,
    QHBoxLayout,
    QLabel,
    QMainWindow,
    QSplitter,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from ..ipc.telemetry import Event
from . import theme, tray, words
from .advice.advisor import Advisor
from .advice.page import AdvicePage
from .banner import Banner
from .batch.view import BatchView
from .card import Still
from .engines.engine_list import EngineList
from .engines.page import EnginesPage
from .file_menu import FileMenu
from .i18n import Languages, Said, Translated, fill_in
from .icons import app_icon, icon
from .latency.view import LatencyView
from .leave_dialog import LeaveDialog
from .log_view import LogView
from .map.block_map import BlockMap
from .measure.page import SUFFIX as RESULTS_SUFFIX
from .measure.page import MeasurePage
from .models.page import ModelsPage
from .paced import Paced
from .playground.page import Playground
from .rail import PAGES, Rail
from .recording.file import SUFFIX
from .recording.player import Player
from .recording.recorder import Recorder
from .recording.replay import Replay
from .recording.replay_bar import ReplayBar
from .requests.inspector import WIDTH as INSPECTOR_WIDTH
from .requests.inspector import Inspector
from .requests.table import RequestTable
from .selection import Selection
from .session import EngineSession
from .settings.panel import SettingsPanel
from .settings.restart import Outcome, Restart
from .shortcuts import Shortcuts
from .state import ConnectionState
from .toolbar import Toolbar
from .welcome import Welcome

#: The newest sentence stays in the status bar at least so long before an event's may replace it.
HOLD_MS = 6000

#: Between two events in the status bar; of more, the last is said.
EVENTS_MS = 250

#: How far the left and right keys go in a recording.
SKIP_MS = 5000

_WIDEST_INSPECTOR = 52 * theme.GRID

_SAID_IN_STATUS = frozenset({"state", "preempted", "finished", "cancelled", "failed"})


_KEEP_SERVING = "engine/keep_serving"
_WELCOMED = "window/welcomed"


class MainWindow(Translated, QMainWindow):
    """``left``: the window has closed for good."""

    left = Signal()

    def __init__(self, session: EngineSession, languages: Languages, settings: QSettings) -> None:
        """``settings`` keeps the layout between starts."""
        super().__init__()
        self.session = session
        self._languages = languages
        self._settings = settings
        self._state = session.state
        link = session.link
        self.selection = Selection(self)
        self.setWindowIcon(app_icon())
        self.setMinimumSize(900, 560)

        self.map, self.batch = BlockMap(link, self.selection, settings=settings), BatchView(link, self.selection)
        self.requests = RequestTable(link, self.selection)
        self.latency = LatencyView(link)
        self.playground = Playground(link, languages)
        self.restart = Restart(session, self)
        self.settings_panel = SettingsPanel(link, self.restart)
        self.models = ModelsPage(session)
        self.advisor = Advisor(link, self, settings)
        self.advice_page = AdvicePage(self.advisor, link)
        self.measure = MeasurePage(session)
        self.engines = EngineList(session, settings, self)
        self.engines_page = EnginesPage(self.engines, session, settings)
        self.log = LogView(link)
        self.recorder, self.player = Recorder(link, self), Player(link, self)
        self.files = FileMenu(session, self.recorder, self.player, self.map, self)
        self.toolbar = Toolbar(session, self.engines, languages, self.recorder, self.files)
        self.replay_bar = ReplayBar(self.player)
        self.rail = Rail()
        self.rail.file_button.setMenu(self.files)
        self.banner = Banner(session, self.restart)
        self.tray = tray.Tray(session, self)
        self._quitting = False
        self._replayed: Replay | None = None  # the recording that is shown
        self._epoch = link.view.epoch  # of the engine, or of the life in a recording, that is shown
        self._arrange()
        self._make_dock(Inspector(link, self.selection))
        self._make_status()

        self.rail.chosen.connect(self._turn_to)
        self.playground.shown.connect(self.show_on_map)
        self.playground.said.connect(self.say)
        self.settings_panel.said.connect(self.say)
        self.models.said.connect(self.say)
        self.models.used.connect(self.use_model)
        self.restart.ended.connect(self._restarted)
        self.toolbar.restartAsked.connect(self.restart.again)
        self.engines.restartAsked.connect(self.restart.again)
        self.settings_panel.applied.connect(self.advisor.note)
        self.advisor.previewRequested.connect(self._preview)
        self.advisor.undoRequested.connect(self.settings_panel.change)
        self.advisor.changed.connect(lambda: self.rail.button("advice").set_badge(len(self.advisor.advice)))
        self.measure.said.connect(self.say)
        self.measure.previewed.connect(self._preview)
        self.files.resultsChosen.connect(self.open_results)
        self.engines_page.said.connect(self.say)
        self.toolbar.keepServingChosen.connect(self._keep_serving)
        self.toolbar.keep_serving.setChecked(bool(settings.value(_KEEP_SERVING, False, bool)))
        self.tray.menu.showAsked.connect(self.come_back)
        self.tray.menu.quitAsked.connect(self._quit_from_tray)
        self.toolbar.allEnginesAsked.connect(lambda: self.rail.choose("engines"))
        self.map.sampleRequested.connect(self.send_sample)
        self.map.blockOpened.connect(self.dock.show)
        session.changed.connect(self._session_changed)
        session.failed.connect(lambda said: self.say(said, "error"))
        link.connectionChanged.connect(self._watch_life)
        link.eventReceived.connect(self._event)
        self.files.said.connect(self.say)
        self.files.quitAsked.connect(self.quit)
        self.files.shortcutsAsked.connect(self.show_shortcuts)
        self.files.welcomeAsked.connect(self.welcome)
        self.player.changed.connect(self._show_recording)
        self.toolbar.inspectorToggled.connect(self.dock.setVisible)
        self.dock.visibilityChanged.connect(self.toolbar.show_inspector)
        self.addActions(self.files.actions())  # for their keys
        self.setAcceptDrops(True)
        clear = QAction(self)
        clear.setShortcut(QKeySequence("Ctrl+Shift+A"))
        clear.triggered.connect(self.selection.clear)
        self.addAction(clear)
        self.retranslate()
        self._restore()

    # --- layout -------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        self.addToolBar(Qt.ToolBarArea.TopToolBarArea, self.toolbar)
        self.splitter = QSplitter(Qt.Orientation.Vertical, childrenCollapsible=False)
        self.splitter.addWidget(self.map)
        self.splitter.addWidget(self.batch)
        self.splitter.setStretchFactor(0, 3)
        self.splitter.setStretchFactor(1, 1)
        self.splitter.setSizes([500, 180])
        self.pages = QStackedWidget()
        self.page_of: dict[str, QWidget] = {
            "map": self.splitter,
            "requests": self.requests,
            "latency": self.latency,
            "playground": self.playground,
            "settings": self.settings_panel,
            "advice": self.advice_page,
            "measure": self.measure,
            "models": self.models,
            "engines": self.engines_page,
            "log": self.log,
        }
        for page in PAGES:
            self.pages.addWidget(self.page_of[page.key])
        right = QVBoxLayout()
        right.setContentsMargins(0, 0, 0, 0)
        right.setSpacing(0)
        right.addWidget(self.banner)
        right.addWidget(self.replay_bar)
        right.addWidget(self.pages, 1)
        centre = QWidget()
        row = QHBoxLayout(centre)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.rail)
        row.addLayout(right, 1)
        self.setCentralWidget(centre)

    def _make_dock(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.dock = QDockWidget()
        self.dock.setObjectName("inspector")
        self.dock.setAllowedAreas(Qt.DockWidgetArea.RightDockWidgetArea | Qt.DockWidgetArea.LeftDockWidgetArea)
        self.dock.setWidget(inspector)
        self.dock.setTitleBarWidget(self._make_dock_title())
        inspector.setMinimumWidth(30 * theme.GRID)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.dock)

    def _make_dock_title(self) -> QWidget:
        """The dock's title, in our own type and language; dragging it moves the dock."""
        self._dock_title = QLabel()
        self._dock_title.setProperty("role", "muted")
        self._dock_close = QToolButton()
        self._dock_close.setProperty("role", "flat")
        self._dock_close.setIconSize(QSize(14, 14))
        self._dock_close.clicked.connect(self.dock.hide)
        bar = QWidget()
        row = QHBoxLayout(bar)
        row.setContentsMargins(2 * theme.GRID, theme.GRID // 2, theme.GRID, 0)
        row.addWidget(self._dock_title, 1)
        row.addWidget(self._dock_close)
        theme.current().changed.connect(self._draw)
        self._draw()
        return bar

    def _draw(self) -> None:
        self._dock_close.setIcon(icon("cancel", QColor(theme.current().palette.muted)))

    def _make_status(self) -> None:
        self.said = QLabel()
        self.said.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._said: Said = lambda: ""  # worded again when the language changes
        self._say_event = Paced(self._show_said, EVENTS_MS, self)
        self.statusBar().addWidget(Still(self.said), 1)
        self.statusBar().setSizeGripEnabled(False)
        self.statusBar().setContentsMargins(2 * theme.GRID, 0, 2 * theme.GRID, 0)
        self._hold = QTimer(self, interval=HOLD_MS, singleShot=True)

    def _restore(self) -> None:
        if not self.restoreGeometry(self._kept("window/geometry")):
            self.resize(1280, 800)
        self.restoreState(self._kept("window/state"))
        self.splitter.restoreState(self._kept("window/splitter"))
        self.rail.choose(str(self._settings.value("window/page", PAGES[0].key)))
        self.rail.button(self.rail.current).setFocus()

    def _kept(self, key: str) -> QByteArray:
        """A part of the layout; empty where there is none, or where something else stands in its place."""
        value = self._settings.value(key)
        return value if isinstance(value, QByteArray) else QByteArray()

    def _keep(self) -> None:
        self._settings.setValue("window/geometry", self.saveGeometry())
        self._settings.setValue("window/state", self.saveState())
        self._settings.setValue("window/splitter", self.splitter.saveState())
        self._settings.setValue("window/page", self.rail.current)
        self._settings.sync()

    # --- verbs --------------------------------------------------------------------------------------------------

    def say(self, said: Said, level: str = "info") -> None:
        """Say in the status bar what just happened, and keep it in the log."""
        self._said = said
        self._show_said()
        self._hold.start()
        self.log.add(said, level)

    def _preview(self, changes: dict[str, Any]) -> None:
        """Show on the settings page what they would do."""
        self.rail.choose("settings")
        self.settings_panel.stage(changes)

    def show_on_map(self, number: int) -> None:
        """Select a request and turn to the map."""
        self.selection.select_request(number)
        self.rail.choose("map")

    def use_model(self, model: str) -> None:
        """Restart the engine with another model: at once where nobody waits for it, else from the settings, which say
        what that means."""
        if self.restart.possible and not self.restart.affected().any:
            self.restart.begin({"model": model}, patient=True)
            self.say(lambda: fill_in(self.tr("The engine restarts with %1"), model))
        else:
            self.settings_panel.stage({"model": model})
            self.rail.choose("settings")

    def send_sample(self) -> None:
        """The empty map's invitation: fill the server, so that there is something to see."""
        if self.player.replay is None:
            self.playground.fill()

    def welcome(self) -> None:
        """Say what Pagedeck is, and let language and model be chosen. The engine starts meanwhile, or runs on."""
        dialog = Welcome(self._languages, self.session.link, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.languageChosen.connect(self.toolbar.languageChosen)
        dialog.hubChosen.connect(self.models.get)
        dialog.hubChosen.connect(lambda _: self.rail.choose("models"))
        dialog.localChosen.connect(self.use_model)
        dialog.finished.connect(lambda _: self._settings.setValue(_WELCOMED, True))
        dialog.open()

    def welcome_newcomer(self) -> None:
        """Welcome who opens the window for the first time."""
        if self._settings.value(_WELCOMED) is None and self._settings.value("window/geometry") is None:
            self.welcome()

    def show_shortcuts(self) -> None:
        overview = Shortcuts(self)
        overview.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        overview.open()

    def open_results(self, path: Path) -> None:
        """Show what was measured."""
        self.rail.choose("measure")
        self.measure.open(path)

    def open_recording(self, path: Path) -> None:
        self.files.open(path)

    # --- what happens -------------------------------------------------------------------------------------------

    def _turn_to(self, key: str) -> None:
        self.pages.setCurrentWidget(self.page_of[key])

    def _watch_life(self) -> None:
        """In another life of an engine, and in another engine, the numbers of requests and blocks mean others."""
        epoch = self.session.link.view.epoch
        if epoch != self._epoch:
            self._epoch = epoch
            self.selection.clear()

    def _show_recording(self) -> None:
        """Of a recording everything is seen, and nothing can be changed."""
        replaying = self.player.replay is not None
        if self.player.replay is not self._replayed:
            self._replayed = self.player.replay
            self.selection.clear()  # its numbers mean others now
        for page in (self.playground, self.settings_panel, self.models, self.engines_page):
            page.setEnabled(not replaying)

    def _restarted(self, outcome: Outcome) -> None:
        self.say(lambda: self.settings_panel.restart_box.told(outcome), "info" if outcome.ready else "error")

    def _session_changed(self) -> None:
        state = self.session.state
        if state == self._state:
            return
        self._state = state
        name, last_words = self.session.name, self.session.last_words

        def sentence() -> str:
            return fill_in(self.tr("Engine %1: %2"), name, words.connection(state))

        if state in (ConnectionState.READY, ConnectionState.STOPPED):
            self.say(sentence)
        elif state in (ConnectionState.DIED, ConnectionState.NOT_ANSWERING):
            self.say(sentence, "error")
            if last_words:
                self.log.add(lambda: last_words, "error")

    def _event(self, event: Event) -> None:
        if self.session.link.replaying:
            return
        important = event.level in ("warning", "error")
        if (event.kind in _SAID_IN_STATUS or important) and (important or not self._hold.isActive()):
            self._said = partial(words.event, event)
            self._show_said() if important else self._say_event()

    def _show_said(self) -> None:
        text = self._said()
        self.said.setText(text.replace("\n", " · "))
        self.said.setToolTip(text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Keys that no part of the window wanted steer a recording."""
        keys: dict[int, Callable[[], None]] = {
            Qt.Key.Key_Space: self.player.toggle,
            Qt.Key.Key_Left: lambda: self.player.skip(-SKIP_MS),
            Qt.Key.Key_Right: lambda: self.player.skip(SKIP_MS),
            Qt.Key.Key_Escape: self.player.close,
        }
        if self.player.replay is not None and event.key() in keys:
            keys[event.key()]()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The inspector keeps its share of the window, unless it was dragged to another width."""
        super().resizeEvent(event)
        if abs(self.dock.width() - _inspector_width(event.oldSize().width())) <= 1:
            self.resizeDocks([self.dock], [_inspector_width(event.size().width())], Qt.Orientation.Horizontal)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _dropped(event.mimeData()) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped(event.mimeData())
        if path is not None:
            event.acceptProposedAction()
            self.open_recording(path) if path.suffix == SUFFIX else self.open_results(path)

    # --- coming and going -----------------------------------------------------------------------------------------

    def quit(self) -> None:
        """Close for good, without a question: the engine goes on only where that was chosen."""
        self._quitting = True
        self.close()

    def come_back(self) -> None:
        """From the tray."""
        self.tray.hide()
        self.showNormal() if self.isMinimized() else self.show()
        self.raise_()
        self.activateWindow()

    def _keep_serving(self, on: bool) -> None:
        self.session.keep_serving = on
        self._settings.setValue(_KEEP_SERVING, on)

    def _quit_from_tray(self, serve: bool) -> None:
        self.session.keep_serving = serve
        self.quit()

    def _ask_before_leaving(self) -> None:
        dialog = LeaveDialog(self)
        dialog.chosen.connect(self.toolbar.keep_serving.setChecked)
        dialog.chosen.connect(self._keep_serving)  # also where the answer is what was set already
        dialog.chosen.connect(lambda _: self.close())
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _stays(self) -> bool:
        """Whether the window is not to close for good: it goes to the tray, or asks first."""
        if self._quitting or not (self.session.owned and self.session.alive and tray.available()):
            return False
        if not self._settings.contains(_KEEP_SERVING):
            self._ask_before_leaving()
            return True
        if self.session.keep_serving:
            self._keep()
            self.hide()
            self.tray.show()
        return self.session.keep_serving

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._stays():
            event.ignore()
            return
        self._keep()
        self.hide()
        self.tray.hide()
        self.files.stop_recording()
        self.files.close_attached()
        self.player.close()
        self.measure.close_run()
        self.session.close()
        self.engines.close()
        super().closeEvent(event)
        self.left.emit()

    def retranslate(self) -> None:
        self.setWindowTitle("Pagedeck")
        self.dock.setWindowTitle(self.tr("Inspector"))
        self._dock_title.setText(self.tr("Inspector"))
        self._dock_close.setToolTip(self.tr("Hide the inspector"))
        self._dock_close.setAccessibleName(self.tr("Hide the inspector"))
        self._show_said()
        self.said.setAccessibleName(self.tr("What just happened"))


def _inspector_width(window: int) -> int:
    """Where nobody dragged it: a sixth of the window, as far as that is neither cramped nor a waste."""
    return min(max(window // 6, INSPECTOR_WIDTH), _WIDEST_INSPECTOR)


def _dropped(data: QMimeData) -> Path | None:
    """The recording or the file of results among what is dragged, if there is one."""
    files = (Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile())
    return next((file for file in files if file.suffix in (SUFFIX, RESULTS_SUFFIX)), None)
