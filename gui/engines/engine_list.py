"""The engines that the window knows: those of the runtime folder as they come and go, and those whose connection files
somebody opened. What ends stays in the list, and says how, until it is forgotten."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QSettings, QTimer, Signal

from ...ipc.endpoint import Connection, read_connection
from ...ipc.folders import runtime_folder
from ...ipc.protocol import EngineStatus, Shutdown
from ...ipc.telemetry import TOPIC_EVENT, TOPIC_STATS, Stats
from ...ipc.vocabulary import Refused
from ..link import EngineLink
from ..session import EngineSession
from ..state import ConnectionState

#: Changes of the folder that came together are looked at together.
LOOK_MS = 50

_FILES = "engines/files"  # opened connection files, as the settings keep them
_ENDED = (ConnectionState.STOPPED, ConnectionState.DIED)


class ListedEngine(QObject):
    """One engine, by its connection file. ``line`` is how it is known while the window shows another one."""

    changed = Signal()

    def __init__(self, connection: Connection, session: EngineSession, parent: QObject) -> None:
        super().__init__(parent)
        self.connection = connection
        self.last_words = ""
        self.line: EngineLink | None = None
        self._session = session
        self._before = ConnectionState.CONNECTING  # how it was when its line was closed
        self._status: EngineStatus | None = None

    @property
    def name(self) -> str:
        return self.connection.name

    @property
    def file(self) -> str:
        return self.connection.path

    @property
    def shown(self) -> bool:
        return self._session.file == self.file

    @property
    def elsewhere(self) -> bool:
        return Path(self.file).parent != runtime_folder()

    @property
    def owned(self) -> bool:
        """Whether it is a process that this app started."""
        return not self.elsewhere and self._session.owns(self.name)

    @property
    def state(self) -> ConnectionState:
        if self.shown:
            return self._session.state
        return self.line.live.connection if self.line is not None else self._before

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def status(self) -> EngineStatus | None:
        """What it last said of itself."""
        link = self._session.link if self.shown else self.line
        return (link.live.status if link is not None else None) or self._status

    @property
    def stats(self) -> Stats | None:
        """Its figures, while it runs."""
        link = self._session.link if self.shown else self.line
        return link.live.stats if link is not None and not self.ended else None

    @property
    def model(self) -> str:
        return self.status.model if self.status is not None else self.connection.model

    def follow(self) -> None:
        """Listen to it on a line of its own, unless the window shows it or it has ended."""
        if self.shown:
            self.hang_up()
        elif self.line is None and not self.ended:
            self.line = EngineLink(self, topics=(TOPIC_STATS, TOPIC_EVENT))
            self.line.connectionChanged.connect(self.changed)
            self.line.statsChanged.connect(self.changed)
            self.line.attach(self.connection)

    def come_back(self, connection: Connection) -> None:
        """Another life of it has begun."""
        self.hang_up()
        self.connection, self.last_words = connection, ""
        self._before, self._status = ConnectionState.CONNECTING, None
        self.follow()

    def keep(self, state: ConnectionState, last_words: str = "") -> None:
        """It has ended so, or the window that shows another engine now left it so."""
        self.hang_up()
        self._before, self.last_words = state, last_words

    def hang_up(self) -> None:
        if self.line is not None:
            self._status = self.status
            self.line.detach()
            self.line.deleteLater()
            self.line = None


class EngineList(QObject):
    """``changed``: an engine came, went, or is another way than it was. ``restartAsked``: of the one that is shown."""

    changed = Signal()
    restartAsked = Signal()

    def __init__(self, session: EngineSession, settings: QSettings, parent: QObject | None = None) -> None:
        """``settings`` keeps the opened connection files between starts."""
        super().__init__(parent)
        self._session, self._settings = session, settings
        self._engines: dict[str, ListedEngine] = {}  # by connection file
        self._shown = (session.file, session.state)
        self._soon = QTimer(self, interval=LOOK_MS, singleShot=True)
        self._soon.timeout.connect(self.look)
        self._watcher = QFileSystemWatcher(parent=self)
        self._watcher.directoryChanged.connect(lambda _: self._soon.start())
        with contextlib.suppress(Refused):
            self._watcher.addPath(str(runtime_folder()))
        session.line_to = self._line_to
        session.changed.connect(self._session_changed)
        session.ended.connect(self._ended)
        self.look()

    def __iter__(self) -> Iterator[ListedEngine]:
        return iter(self._engines.values())

    def __len__(self) -> int:
        return len(self._engines)

    def find(self, file: str) -> ListedEngine | None:
        return self._engines.get(file)

    def look(self) -> None:
        """Read the connection files that there are now."""
        for connection in self._connections():
            known = self._engines.get(connection.path)
            if known is None:
                if connection.local and not connection.process_alive():
                    continue  # left behind by an engine that nobody here has seen alive
                known = self._engines[connection.path] = ListedEngine(connection, self._session, self)
                known.changed.connect(self.changed)
            elif known.connection.epoch != connection.epoch:
                known.come_back(connection)
            known.follow()
        self.changed.emit()

    # --- what can be done ---------------------------------------------------------------------------------------

    def open(self, file: str) -> None:
        """Show the engine of a connection file, and remember the file. Raises :class:`Refused` where it is none."""
        path = str(Path(file).absolute())
        try:
            connection = read_connection(path)
        except FileNotFoundError:
            raise Refused(f"There is no connection file {file}.", field="name") from None
        if path not in self._files() and Path(path).parent != runtime_folder():
            self._settings.setValue(_FILES, [*self._files(), path])
        self._session.attach(connection)
        self.look()

    def show(self, engine: ListedEngine) -> None:
        """The window shows this one; one that has ended is started again."""
        if engine.ended and not engine.elsewhere:
            self._session.turn_to(engine.name)
        else:
            self._session.attach(engine.connection)

    def showable(self, engine: ListedEngine) -> bool:
        return not engine.shown and (not engine.ended or engine.elsewhere or self._session.knows(engine.name))

    def stoppable(self, engine: ListedEngine) -> bool:
        return self._session.alive if engine.shown else not engine.ended

    def stop(self, engine: ListedEngine) -> None:
        """Stop it: ours at once, another's when it has finished what it has, unless it is asked again."""
        if engine.shown:
            self._session.stop()
        elif engine.owned:
            self._session.stop_other(engine.name)
        elif engine.line is not None:
            patient = engine.state != ConnectionState.DRAINING
            engine.line.request(Shutdown(drain=patient), lambda reply: None)

    def restart(self, engine: ListedEngine) -> None:
        if engine.shown:
            self.restartAsked.emit()
        else:
            self._session.restart_other(engine.name)

    def restartable(self, engine: ListedEngine) -> bool:
        """Whether it can be started anew from here: one that somebody else runs has settings that we do not know."""
        if engine.shown:
            return self._session.restartable
        return engine.owned or (engine.ended and not engine.elsewhere and self._session.knows(engine.name))

    def forgettable(self, engine: ListedEngine) -> bool:
        return not engine.shown and (engine.ended or engine.elsewhere)

    def forget(self, engine: ListedEngine) -> None:
        """Strike it off the list. It is not stopped, and comes back when its file is opened, or it starts again."""
        engine.hang_up()
        del self._engines[engine.file]
        self._settings.setValue(_FILES, [file for file in self._files() if file != engine.file])
        engine.deleteLater()
        self.changed.emit()

    def close(self) -> None:
        """The window closes: let go of all."""
        self._watcher.blockSignals(True)
        for engine in self:
            engine.hang_up()

    # --- what happens -------------------------------------------------------------------------------------------

    def _connections(self) -> Iterator[Connection]:
        files = [*map(Path, self._files())]
        with contextlib.suppress(Refused):
            files += sorted(runtime_folder().glob("*.json"))
        for file in files:
            with contextlib.suppress(Refused, FileNotFoundError):
                yield read_connection(file)

    def _files(self) -> list[str]:
        stored = self._settings.value(_FILES) or []
        return [stored] if isinstance(stored, str) else list(stored)  # an INI file forgets that one was a list

    def _line_to(self, name: str) -> EngineLink | None:
        return next((engine.line for engine in self if engine.name == name and not engine.elsewhere), None)

    def _session_changed(self) -> None:
        file, state = self._shown
        self._shown = (self._session.file, self._session.state)
        left = self._engines.get(file)
        if left is not None and not left.shown and state in _ENDED:
            left.keep(state, left.last_words)
        shown = self._engines.get(self._session.file)
        if shown is not None and shown.ended:
            shown.last_words = self._session.last_words
        for engine in self:
            engine.follow()
        self.changed.emit()

    def _ended(self, name: str, state: ConnectionState, last_words: str) -> None:
        for engine in self:
            if engine.name == name and not engine.elsewhere and not engine.shown:
                engine.keep(state, last_words)
        self.changed.emit()
