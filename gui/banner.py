"""A strip above the pages: what the engine is going through, and what to do about it. Hidden when all is well."""

from __future__ import annotations

import signal
import time

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from . import engine_texts, quantities, theme
from .i18n import Translated, fill_in
from .session import EngineSession
from .settings.restart import Restart
from .state import ConnectionState

#: A wait of unknown length shows its age, so that nobody looks at a spinner and wonders.
TICK_MS = 1000

#: Of what a dead engine printed last, so many lines are shown; the log has more.
LAST_LINES = 5

#: Signals by which a system ends a process: by force (SIGKILL, where there is one), or for a fault of its own.
KILLED = 9
_FAULTS = ("SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV")
CRASHES = [int(getattr(signal, name)) for name in _FAULTS if hasattr(signal, name)]


class Banner(Translated, QFrame):
    """What the engine is going through: loading and how far, not answering since when, died with its last words."""

    def __init__(self, session: EngineSession, restart: Restart, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session, self._restart = session, restart
        self.setProperty("role", "banner")
        self.title = QLabel(wordWrap=True)
        self.title.setProperty("role", "title")
        self.detail = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.detail.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.progress = QProgressBar(textVisible=False)
        self.action = QPushButton()
        self.action.setProperty("role", "primary")
        self.action.clicked.connect(self._act)

        text = QVBoxLayout()
        text.setSpacing(theme.GRID // 2)
        text.addWidget(self.title)
        text.addWidget(self.detail)
        text.addWidget(self.progress)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(2 * theme.GRID)
        layout.addLayout(text, 1)
        layout.addWidget(self.action, 0, Qt.AlignmentFlag.AlignTop)
        self._tick = QTimer(self, interval=TICK_MS)
        self._tick.timeout.connect(self.show_state)
        session.changed.connect(self.show_state)
        restart.changed.connect(self.show_state)
        self.show_state()

    def show_state(self) -> None:
        state = self._session.state
        title, detail, action = self._texts(state)
        if state == ConnectionState.DISCONNECTED and self._session.link.replaying:
            title = ""  # a recording needs no engine
        self.title.setText(title)
        self.detail.setText(detail)
        self.detail.setVisible(bool(detail))
        printed = state == ConnectionState.DIED and self._session.killed_by != KILLED
        self.detail.setFont(theme.mono_font(-1) if printed else self.font())
        self.action.setText(action)
        self.action.setVisible(bool(action))
        waiting = state in (ConnectionState.CONNECTING, ConnectionState.LOADING)
        share = self._session.link.live.progress
        known = share is not None and not self._session.starting
        self.progress.setVisible(waiting)
        self.progress.setRange(0, 1000 if known else 0)
        if share is not None and known:
            self.progress.setValue(round(1000 * share))
        self.progress.setAccessibleName(title)
        self.setVisible(bool(title))
        moving = waiting or state == ConnectionState.NOT_ANSWERING or self._restart.under_way
        if moving != self._tick.isActive():
            self._tick.start() if moving else self._tick.stop()

    def _texts(self, state: ConnectionState) -> tuple[str, str, str]:
        """Title, detail, button."""
        view = self._session.link.live
        name = self._session.name
        seconds = round(time.monotonic() - self._session.since)
        waited = quantities.duration(max(1, seconds))
        if state == ConnectionState.LOADING and self._session.starting:
            return self.tr("Starting the engine …"), fill_in(self.tr("for %1"), waited), ""
        if state == ConnectionState.CONNECTING:
            return fill_in(self.tr("Connecting to %1 …"), name), fill_in(self.tr("for %1"), waited), ""
        if state == ConnectionState.LOADING:
            return self.tr("Loading the model …"), self._loading(view.detail, view.progress, waited), ""
        if state == ConnectionState.DRAINING and self._restart.under_way:
            begun = self._restart.affected().begun
            finishing = self.tr("It restarts when %Ln request(s) that have begun are finished.", "", begun)
            return self.tr("The engine restarts."), finishing if begun else "", self.tr("Restart now")
        if state == ConnectionState.DRAINING:
            return self.tr("The engine finishes what it has and takes nothing new."), "", ""
        if state == ConnectionState.NOT_ANSWERING:
            title = fill_in(self.tr("The engine has not answered for %1."), waited)
            if self._session.elsewhere:
                return title, self.tr("It may be busy, or the network is down. The window goes on listening."), ""
            return title, self.tr("Its process still runs. It may be busy, or stuck."), self.tr("Restart")
        if state == ConnectionState.DIED:
            title, detail = self._death(self._session.killed_by)
            return title, detail or engine_texts.say(view.detail), self._again(self.tr("Restart"))
        if state == ConnectionState.STOPPED:
            return self.tr("The engine is stopped."), "", self._again(self.tr("Start"))
        if state == ConnectionState.DISCONNECTED:
            return self.tr("No engine is connected."), view.detail, self._again(self.tr("Start"))
        return "", "", ""

    def _again(self, start: str) -> str:
        """The button's text: what runs elsewhere cannot be started, only be connected to."""
        return self.tr("Connect") if self._session.elsewhere else start

    def _death(self, killed_by: int) -> tuple[str, str]:
        """What ended it, and what to do about it or what it said last."""
        said = brief(self._session.last_words)
        if killed_by == KILLED:
            return self.tr("The engine was killed."), self.tr(
                "Most often the system does this when memory runs out. Restart it with fewer blocks (Settings, "
                "Device blocks) or a smaller model, or close other programs first."
            )
        if killed_by in CRASHES:
            title = fill_in(self.tr("The engine crashed (signal %1)."), str(killed_by))
            return title, said or self.tr("Restart it. Should it crash again, its log says what it was doing.")
        if killed_by:
            return fill_in(self.tr("Another program ended the engine (signal %1)."), str(killed_by)), said
        return self.tr("The engine died."), said

    def _loading(self, detail: str, progress: float | None, waited: str) -> str:
        parts = [engine_texts.say(detail)]
        if progress is not None:
            parts.append(quantities.percent(progress))
        parts.append(fill_in(self.tr("for %1"), waited))
        return " · ".join(filter(None, parts))

    def retranslate(self) -> None:
        self.show_state()

    def _act(self) -> None:
        self._restart.again()


def brief(last_words: str) -> str:
    """The sentence by which the engine explained its end, or the last lines that it printed."""
    lines = last_words.splitlines()
    explained = [line.removeprefix("pagedeck: ") for line in lines if line.startswith("pagedeck: ")]
    return engine_texts.say(explained[-1]) if explained else "\n".join(lines[-LAST_LINES:])
