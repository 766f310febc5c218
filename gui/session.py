"""The engine that the window shows: find one that runs, or start one; stop, restart, switch, let go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from PySide6.QtCore import QEventLoop, QObject, QTimer, Signal

from ..ipc.endpoint import Connection, find, list_connections
from ..ipc.folders import state_folder
from ..ipc.protocol import Done, EngineMessage, Release, Shutdown
from ..ipc.vocabulary import Refused
from .engine_process import EngineProcess
from .link import EngineLink
from .state import ConnectionState

DEFAULT_NAME = "pagedeck"
_SEARCH_MS = 150
_ENDING = (ConnectionState.DRAINING, ConnectionState.STOPPED, ConnectionState.DIED)


class EngineSession(QObject):
    """One engine at a time, ours or another's. ``changed`` tells a new state, ``failed`` a refusal in words."""

    changed = Signal()
    failed = Signal(str)

    def __init__(self, link: EngineLink, arguments: Sequence[str] = (), parent: QObject | None = None) -> None:
        """``arguments`` are settings for an engine that is started here, as options of ``pagedeck serve``."""
        super().__init__(parent)
        self.link = link
        self.keep_serving = False
        self.name = DEFAULT_NAME
        self.last_words = ""
        self.killed_by = 0  # the signal that ended our engine, when it died of one
        self._arguments = [*arguments]
        self._processes: dict[
            str, EngineProcess
        ] = {}  # ours by engine name; several when the user switched between them
        self._launched: float | None = None  # while a started engine has not written its connection file
        self._ended: ConnectionState | None = None  # what our own process told when it ended
        self._start_again = False
        self._opening = False  # nothing is known yet of the engine that the app found at its start
        self._search = QTimer(self, interval=_SEARCH_MS)
        self._search.timeout.connect(self._look_for_connection)
        link.connectionChanged.connect(self._link_changed)

    # --- what is so ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        if self._ended is not None:
            return self._ended
        return ConnectionState.LOADING if self._launched is not None else self.link.live.connection

    @property
    def starting(self) -> bool:
        """Whether the engine's process has started but cannot be talked to yet."""
        return self._launched is not None

    @property
    def since(self) -> float:
        """Unix seconds at which the state began."""
        return self._launched if self._launched is not None else self.link.live.since

    @property
    def owned(self) -> bool:
        """Whether the engine is a process that this app started and has not let go."""
        return self.name in self._processes

    @property
    def alive(self) -> bool:
        return self.state in (
            ConnectionState.CONNECTING,
            ConnectionState.LOADING,
            ConnectionState.READY,
            ConnectionState.DRAINING,
            ConnectionState.NOT_ANSWERING,
        )

    # --- what can be done ---------------------------------------------------------------------------------------

    def open(self, name: str | None = None) -> None:
        """Attach to the engine of that name or connection file, or to the oldest; start one when none runs.

        One that is found ending (the app was killed a moment ago, say) is followed by a new one.
        """
        is_file = name is not None and name.endswith(".json")
        try:
            running = [find(name)] if is_file else list_connections()
        except Refused as refused:
            self.failed.emit(str(refused))
            return
        chosen = [c for c in running if name is None or is_file or c.name == name]
        if chosen:
            self._opening = not is_file
            self.attach(chosen[0])
            return
        self.name = name or DEFAULT_NAME
        self.start()

    def attach(self, connection: Connection) -> None:
        """Show another running engine. One that this app started and does not show any more goes on until the end."""
        self._forget()
        self.name = connection.name
        self.link.attach(connection)
        self.changed.emit()

    def start(self) -> None:
        """Start an engine of our own under the session's name; one that is still ending is awaited first."""
        if self.owned:
            self._start_again = not self.alive
            return
        self._forget()
        with contextlib.suppress(Refused):  # it was started elsewhere in the meantime
            self.attach(find(self.name))
            return
        try:
            output = state_folder() / f"{self.name}.output"
        except Refused as refused:
            self.failed.emit(str(refused))
            return
        self.link.detach()
        process = EngineProcess(self.name, self._arguments, output, self)
        process.stopped.connect(lambda: self._process_ended(process, ConnectionState.STOPPED))
        process.died.connect(lambda words, by: self._process_ended(process, ConnectionState.DIED, words, by))
        self._processes[self.name] = process
        self._launched = time.time()
        self._search.start()
        self.changed.emit()
        process.start()

    def stop(self) -> None:
        self._start_again = self._opening = False
        process = self._processes.get(self.name)
        if process is not None:
            process.stop(self._ask_to_stop)
        else:
            self._ask_to_stop()

    def restart(self) -> None:
        """Stop, then start anew; what has died is started at once."""
        if not self.alive:
            self.start()
            return
        self.stop()
        self._start_again = True

    def close(self) -> None:
        """The app ends: let the shown engine go when it shall keep serving; stop our others and wait for their end."""
        self._search.stop()
        for name, process in self._processes.items():
            shown = name == self.name
            if shown and self.keep_serving and self._released():
                process.release()
            else:
                process.stop_now(self._ask_to_stop if shown else lambda: None)
        self._processes.clear()
        self.link.detach()

    # --- what happens -------------------------------------------------------------------------------------------

    def _ask_to_stop(self) -> None:
        """Ours ends at once. Another's finishes what it has first, unless it is asked again."""
        patient = not self.owned and self.state != ConnectionState.DRAINING
        self.link.request(Shutdown(drain=patient), lambda reply: None)

    def _released(self) -> bool:
        """Whether the engine confirmed, within two seconds, that it no longer ends with us."""
        answers: list[EngineMessage] = []
        loop = QEventLoop()

        def answered(reply: EngineMessage) -> None:
            answers.append(reply)
            loop.quit()

        self.link.request(Release(), answered)
        QTimer.singleShot(2000, loop, loop.quit)
        loop.exec()
        return any(isinstance(answer, Done) for answer in answers)

    def _forget(self) -> None:
        self._ended = None
        self._launched = None
        self.last_words = ""
        self.killed_by = 0
        self._search.stop()

    def _look_for_connection(self) -> None:
        for connection in list_connections():
            if connection.name == self.name:
                self._launched = None
                self._search.stop()
                self.link.attach(connection)
                self.changed.emit()
                return

    def _process_ended(
        self, process: EngineProcess, state: ConnectionState, words: str = "", killed_by: int = 0
    ) -> None:
        del self._processes[process.name]
        process.deleteLater()
        if process.name != self.name:
            return
        self._forget()
        self._ended = state
        self.last_words = words
        self.killed_by = killed_by
        self.link.detach()
        self.changed.emit()
        self._again()

    def _link_changed(self) -> None:
        if self._opening and self.state not in (ConnectionState.DISCONNECTED, ConnectionState.CONNECTING):
            self._opening = False
            self._start_again = self.state in _ENDING
        self.changed.emit()
        if not self.owned and self.state in (ConnectionState.STOPPED, ConnectionState.DIED):
            self._again()

    def _again(self) -> None:
        if self._start_again:
            self._start_again = False
            self.start()
