"""The icon in the system's tray while the window is closed and the engine goes on: how it is, and the way back."""

from __future__ import annotations

from PySide6.QtCore import QObject, QRectF, Qt, Signal
from PySide6.QtGui import QAction, QColor, QIcon, QPainter
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from . import theme, words
from .engines.model import short_model
from .i18n import Translated, fill_in
from .icons import app_icon
from .session import EngineSession
from .state import ConnectionState

_SIZES = (16, 24, 32, 48)


def available() -> bool:
    """Whether the desktop has a tray."""
    return QSystemTrayIcon.isSystemTrayAvailable()


def icon_for(state: ConnectionState) -> QIcon:
    """The app's icon with a dot of the state's hue."""
    made = QIcon()
    for size in _SIZES:
        pixmap = app_icon().pixmap(size, size)
        dot = QRectF(0.56 * size, 0.56 * size, 0.42 * size, 0.42 * size)
        painter = QPainter(pixmap)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(theme.current().palette.window))
        painter.drawEllipse(dot.adjusted(-1, -1, 1, 1))
        painter.setBrush(theme.state_colour(state))
        painter.drawEllipse(dot)
        painter.end()
        made.addPixmap(pixmap)
    return made


class TrayMenu(Translated, QMenu):
    """How the engine is, show, start or stop, quit. ``quitAsked`` tells whether the engine shall go on."""

    showAsked = Signal()
    quitAsked = Signal(bool)

    def __init__(self, session: EngineSession) -> None:
        super().__init__()
        self._session = session
        self.state = QAction(self)
        self.state.setEnabled(False)
        self.show_window, self.start, self.stop, self.leave, self.quit = (QAction(self) for _ in range(5))
        self.show_window.triggered.connect(self.showAsked)
        self.start.triggered.connect(session.start)
        self.stop.triggered.connect(session.stop)
        self.leave.triggered.connect(lambda: self.quitAsked.emit(True))
        self.quit.triggered.connect(lambda: self.quitAsked.emit(False))
        self.addActions([self.state, self.show_window])
        self.addSeparator()
        self.addActions([self.start, self.stop])
        self.addSeparator()
        self.addActions([self.leave, self.quit])
        session.changed.connect(self.show_state)
        self.retranslate()

    @property
    def story(self) -> str:
        """The engine and how it is, in a line."""
        status = self._session.link.live.status
        name = short_model(status.model) if status is not None else self._session.name
        return f"{name} · {words.connection(self._session.state)}"

    def show_state(self) -> None:
        owned, alive = self._session.owned, self._session.alive
        self.state.setText(self.story)
        self.start.setVisible(not alive)
        self.stop.setVisible(alive)
        self.leave.setVisible(owned and alive)
        self.quit.setText(self.tr("Stop the engine and quit") if owned and alive else self.tr("Quit"))

    def retranslate(self) -> None:
        self.show_window.setText(self.tr("Show Pagedeck"))
        self.start.setText(self.tr("Start the engine"))
        self.stop.setText(self.tr("Stop the engine"))
        self.leave.setText(self.tr("Quit, and let the engine go on"))
        self.show_state()


class Tray(QObject):
    def __init__(self, session: EngineSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.menu = TrayMenu(session)
        self.icon = QSystemTrayIcon(self)
        self.icon.setContextMenu(self.menu)
        self.icon.activated.connect(self._activated)
        session.changed.connect(self._session_changed)
        theme.current().changed.connect(self._draw)
        self._state = session.state
        self._draw()

    def show(self) -> None:
        self._draw()
        self.icon.show()

    def hide(self) -> None:
        self.icon.hide()

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason != QSystemTrayIcon.ActivationReason.Context:
            self.menu.showAsked.emit()

    def _session_changed(self) -> None:
        state = self._session.state
        if state == self._state:
            return
        self._state = state
        self._draw()
        if state in (ConnectionState.DIED, ConnectionState.NOT_ANSWERING) and self.icon.isVisible():
            text = fill_in(self.tr("Engine %1: %2"), self._session.name, words.connection(state))
            self.icon.showMessage("Pagedeck", text, QSystemTrayIcon.MessageIcon.Warning)

    def _draw(self) -> None:
        self.icon.setIcon(icon_for(self._state))
        self.icon.setToolTip(f"Pagedeck · {self.menu.story}")
