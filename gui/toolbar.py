"""The toolbar: which engine and how it is, its verbs, the one-glance figures, theme and language."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QColor
from PySide6.QtWidgets import QMenu, QSizePolicy, QToolBar, QToolButton, QWidget

from . import quantities, theme, words
from .engines.engine_list import EngineList, ListedEngine
from .engines.model import short_model
from .file_menu import FileMenu
from .glance import Glance
from .i18n import Language, Languages, Translated, fill_in
from .icons import icon
from .recording.recorder import Recorder
from .recording.replay_bar import played
from .session import EngineSession

WIDE = 1200  # from this width on, there is room for how long it records
TICK_MS = 500  # between two looks at how long the recording has become


class Toolbar(Translated, QToolBar):
    inspectorToggled = Signal(bool)
    themeChosen = Signal(str)
    languageChosen = Signal(str)
    keepServingChosen = Signal(bool)
    allEnginesAsked = Signal()
    restartAsked = Signal()

    def __init__(
        self,
        session: EngineSession,
        engines: EngineList,
        languages: Languages,
        recorder: Recorder,
        files: FileMenu,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._session, self._known, self._recorder, self._files = session, engines, recorder, files
        self._languages = languages
        self.setObjectName("toolbar")
        self.setMovable(False)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self.setIconSize(QSize(20, 20))
        self.setStyleSheet("QToolBar { spacing: 4px; } QToolButton { padding: 4px; }")

        self.engine_button = self._button()
        self.engine_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.engine_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._engines = QMenu(self)
        self._engines.aboutToShow.connect(self.list_engines)
        self.engine_button.setMenu(self._engines)
        self.engine_button.setStyleSheet(
            "QToolButton { padding-right: 20px; }"
            "QToolButton::menu-indicator { subcontrol-origin: padding; subcontrol-position: right center; right: 6px; }"
        )
        self.keep_serving = QAction(self, checkable=True)
        self.keep_serving.toggled.connect(self.keepServingChosen)
        self.all_engines = QAction(self)
        self.all_engines.triggered.connect(self.allEnginesAsked)
        self.start_button, self.stop_button, self.restart_button = (self._button() for _ in range(3))
        self.start_button.clicked.connect(session.start)
        self.stop_button.clicked.connect(session.stop)
        self.restart_button.clicked.connect(self.restartAsked)
        self._space()
        self.glance = Glance(session.link)
        self.addWidget(self.glance)
        self._space()
        self.record_button = self._button()
        self.record_button.setCheckable(True)
        self.record_button.clicked.connect(files.record.trigger)
        self._tick = QTimer(self, interval=TICK_MS)
        self._tick.timeout.connect(self._show_recording)
        files.record.changed.connect(self._show_recording)
        self.theme_button, self.language_button, self.inspector_button = (self._button() for _ in range(3))
        self.theme_button.clicked.connect(self._next_theme)
        self.language_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextOnly)
        self.language_button.clicked.connect(self._other_language)
        self.inspector_button.setCheckable(True)
        self.inspector_button.toggled.connect(self.inspectorToggled)

        session.changed.connect(self.show_state)
        theme.current().changed.connect(self._draw)
        self.retranslate()
        self._draw()

    def _button(self) -> QToolButton:
        button = QToolButton()
        button.setProperty("role", "flat")
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.addWidget(button)
        return button

    def _space(self) -> None:
        space = QWidget()
        space.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.addWidget(space)

    # --- the engine ---------------------------------------------------------------------------------------------

    def show_state(self) -> None:
        session = self._session
        state = session.state
        status = session.link.view.status
        model = short_model(status.model if status is not None else "")
        name = model or session.name
        replaying = session.link.replaying
        how = self.tr("replay") if replaying else words.connection(state)
        self.engine_button.setText(f"{_elided(name)} · {how}")
        colour = QColor(theme.current().palette.muted) if replaying else theme.state_colour(state)
        self.engine_button.setIcon(icon("dot", colour))
        self.engine_button.setToolTip(self._story())
        self.engine_button.setAccessibleName(self.engine_button.text())
        self.engine_button.setEnabled(not replaying)
        self.start_button.setEnabled(not session.alive and not replaying)
        self.stop_button.setEnabled(session.alive and not replaying)
        self.restart_button.setEnabled(session.restartable and not replaying)
        self.keep_serving.setEnabled(session.owned)

    def _story(self) -> str:
        status = self._session.link.view.status
        if status is None:
            return self._session.name
        facts = [status.model, status.device, status.dtype, fill_in(self.tr("process %1"), str(status.pid))]
        return f"{self._session.name}\n{' · '.join(filter(None, facts))}"

    def list_engines(self) -> None:
        """Fill the menu with the engines that are known now."""
        menu = self._engines
        menu.clear()
        for engine in self._known:
            facts = (engine.name, _elided(short_model(engine.model)), words.connection(engine.state))
            action = menu.addAction(" · ".join(filter(None, facts)))
            action.setCheckable(True)
            action.setChecked(engine.shown)
            action.setEnabled(engine.shown or self._known.showable(engine))
            action.triggered.connect(lambda _=False, engine=engine: self._show(engine))
        if not len(self._known):
            menu.addAction(self.tr("No engine runs")).setEnabled(False)
        menu.addSeparator()
        menu.addAction(self.all_engines)
        menu.addSeparator()
        menu.addAction(self.keep_serving)

    def _show(self, engine: ListedEngine) -> None:
        if not engine.shown:
            self._known.show(engine)

    def _show_recording(self) -> None:
        """Red while it records, with how long already."""
        recording = self._recorder.recording
        palette = theme.current().palette
        self.record_button.setEnabled(self._files.record.isEnabled())
        self.record_button.setChecked(recording)
        self.record_button.setIcon(icon("record", QColor(palette.error if recording else palette.ink)))
        told = recording and self.width() >= WIDE
        style = Qt.ToolButtonStyle
        self.record_button.setToolButtonStyle(style.ToolButtonTextBesideIcon if told else style.ToolButtonIconOnly)
        lasted = played(self._recorder.elapsed_ms) if recording else ""
        self.record_button.setText(lasted if told else "")
        text = self.tr("Stop recording (Ctrl+R)") if recording else self.tr("Record what the engine does (Ctrl+R)")
        size = f" · {lasted} · {quantities.size(self._recorder.size)}" if recording else ""
        self.record_button.setToolTip(text + size)
        self.record_button.setAccessibleName(text)
        if recording != self._tick.isActive():
            self._tick.start() if recording else self._tick.stop()

    # --- appearance ---------------------------------------------------------------------------------------------

    def show_inspector(self, shown: bool) -> None:
        self.inspector_button.blockSignals(True)
        self.inspector_button.setChecked(shown)
        self.inspector_button.blockSignals(False)

    def _next_theme(self) -> None:
        mode = theme.MODES[(theme.MODES.index(theme.current().mode) + 1) % len(theme.MODES)]
        theme.current().set_mode(mode)
        self._draw()
        self.retranslate()
        self.themeChosen.emit(mode)

    def _other_language(self) -> None:
        english = self._languages.current == Language.ENGLISH
        language = Language.CHINESE if english else Language.ENGLISH
        self._languages.switch(language)
        self.languageChosen.emit(str(language))

    def _draw(self) -> None:
        ink = QColor(theme.current().palette.ink)
        for button, name in (
            (self.start_button, "start"),
            (self.stop_button, "stop"),
            (self.restart_button, "restart"),
            (self.theme_button, f"theme-{theme.current().mode}"),
            (self.inspector_button, "inspector"),
        ):
            button.setIcon(icon(name, ink))
        self._show_recording()
        self.show_state()

    def retranslate(self) -> None:
        modes = {"system": self.tr("follows the system"), "light": self.tr("light"), "dark": self.tr("dark")}
        texts = (
            (self.start_button, self.tr("Start the engine")),
            (self.stop_button, self.tr("Stop the engine")),
            (
                self.restart_button,
                self.tr("Restart the engine: what has begun finishes first, and what waits is asked again"),
            ),
            (self.theme_button, fill_in(self.tr("Theme: %1"), modes[theme.current().mode])),
            (self.inspector_button, self.tr("Show or hide the inspector")),
        )
        for button, text in texts:
            button.setToolTip(text)
            button.setAccessibleName(text)
        english = self._languages.current == Language.ENGLISH
        self.language_button.setText("中" if english else "EN")
        other = Language.CHINESE if english else Language.ENGLISH
        self.language_button.setToolTip(other.own_name)
        self.language_button.setAccessibleName(other.own_name)
        self.keep_serving.setText(self.tr("Keep serving when the window closes"))
        self.all_engines.setText(self.tr("All engines …"))
        self.setWindowTitle(self.tr("Toolbar"))
        self._show_recording()
        self.show_state()


def _elided(name: str, longest: int = 24) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
