"""One window a user: whoever starts the app again gets the window that is there, also from the tray."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from ..ipc.folders import runtime_folder

#: A window that does not answer within this time hangs, and is not waited for.
ANSWER_MS = 2_000

_SHOW, _SHOWN = b"show\n", b"shown\n"


def _address() -> str:
    """No engine can have this name."""
    return "pagedeck-window" if sys.platform == "win32" else str(runtime_folder() / ".window")


def show_running() -> bool:
    """Ask the window that runs already to show itself; whether there is one, and it did."""
    socket = QLocalSocket()
    socket.connectToServer(_address())
    if not socket.waitForConnected(ANSWER_MS):
        return False
    socket.write(_SHOW)
    return socket.waitForReadyRead(ANSWER_MS) and socket.readAll().data() == _SHOWN


class Presence(QObject):
    """Answers later starts. ``called``: somebody wants to see the window."""

    called = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._welcome)

    def begin(self) -> bool:
        """Whether this window is the one that is shown from now on: no other is. A dead one's address is taken over."""
        probe = QLocalSocket()
        probe.connectToServer(_address())
        if probe.waitForConnected(ANSWER_MS):
            return False
        QLocalServer.removeServer(_address())
        return self._server.listen(_address())

    def end(self) -> None:
        self._server.close()

    def _welcome(self) -> None:
        while self._server.hasPendingConnections():
            socket = self._server.nextPendingConnection()
            socket.disconnected.connect(socket.deleteLater)
            socket.readyRead.connect(lambda socket=socket: self._answer(socket))

    def _answer(self, socket: QLocalSocket) -> None:
        if socket.readAll().data() == _SHOW:
            self.called.emit()
            socket.write(_SHOWN)
            socket.flush()
