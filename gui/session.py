"""The engine that the window shows: find one that runs, or start one; stop, restart, switch, let go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEventLoop, QObject, QTimer, Signal

from ..ipc.endpoint import Connection, check_free, find, list_connections
from ..ipc.folders import runtime_folder, state_folder
from ..ipc.protocol import Done, EngineMessage, Release, Shutdown
from ..ipc.vocabulary import Refused
from . import engine_texts
from .engines.process import EngineProcess
from .i18n import fill_in
from .link import EngineLink
from .state import ConnectionState

DEFAULT_NAME = "pagedeck"
_SEARCH_MS = 150
_ENDING = (ConnectionState.DRAINING, ConnectionState.STOPPED, ConnectionState.DIED)


class EngineSession(QObject):
    """One engine at a time, ours or another's. ``changed`` tells a new state, ``failed`` a refusal in words, ``ended``
    how one of ours ended that is not shown: its name, the state, its last words."""

    changed = Signal()
    failed = Signal(object)  # Said
    ended = Signal(str, object, str)

    def __init__(self, link: EngineLink, arguments: Sequence[str] = (), parent: QObject | None = None) -> None:
        """``arguments`` are settings for an engine that is started here, as options of ``pagedeck serve``."""
        super().__init__(parent)
        self.link = link
        self.keep_serving = False
        self.stop_when_left = False  # whether an engine of ours ends when another one is shown
        self.name = DEFAULT_NAME
        self.file = ""  # the connection file of the engine that is shown, once there is one
        #: Finds the line to an engine of ours that is not shown, by its name.
        self.line_to: Callable[[str], EngineLink | None] = lambda name: None
        self.last_words = ""
        self.killed_by = 0  # the signal that ended our engine, when it died of one
        self._arguments = [*arguments]
        self._arguments_of: dict[str, list[str]] = {}  # by engine name, of those that were started here
        #: Ours by engine name; several when the user switched between them.
        self._processes: dict[str, EngineProcess] = {}
        self._restarting: set[str] = set()  # ours that are not shown, and start again when they have ended
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
        return self.name in self._processes and not self.elsewhere

    @property
    def elsewhere(self) -> bool:
        """Whether the engine was found by a connection file from somewhere else: nobody here can start it."""
        return bool(self.file) and Path(self.file).parent != runtime_folder()

    @property
    def restartable(self) -> bool:
        return (self.alive or self.state == ConnectionState.DIED) and not self.elsewhere

    def owns(self, name: str) -> bool:
        """Whether the engine of that name in the runtime folder is a process of ours."""
        return name in self._processes

    def knows(self, name: str) -> bool:
        """Whether the engine of that name was started here, so that its settings are known."""
        return name in self._arguments_of

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
            self.failed.emit(partial(engine_texts.say, str(refused)))
            return
        chosen = [c for c in running if name is None or is_file or c.name == name]
        if chosen:
            self._opening = not is_file
            self.attach(chosen[0])
            if self._arguments:
                given = " ".join(self._arguments)
                self.failed.emit(partial(self._already_running, self.name, given))
            return
        self.name = name or DEFAULT_NAME
        self.start()

    def _already_running(self, name: str, given: str) -> str:
        words = self.tr("%1 runs already, so %2 changes nothing. The Settings page changes what it runs with.")
        return fill_in(words, name, given)

    def attach(self, connection: Connection) -> None:
        """Show another running engine. One that this app started and does not show any more goes on until the end, or
        ends now (:attr:`stop_when_left`)."""
        if connection.path != self.file:
            self._leave()
        self._forget()
        self.name, self.file = connection.name, connection.path
        self.link.attach(connection)
        self.changed.emit()

    def launch(self, name: str, arguments: Sequence[str]) -> None:
        """Start another engine and show it; ``arguments`` are its settings as options of ``pagedeck serve``.

        Raises :class:`Refused` where the name is taken, or cannot be a name.
        """
        check_free(name)
        if name in self._processes:
            raise Refused(f"An engine named {name!r} is about to start or to end; choose another name.", field="name")
        self._arguments_of[name] = [*arguments]
        self.turn_to(name)

    def turn_to(self, name: str) -> None:
        """Show the engine of that name in the runtime folder, and start it when it does not run."""
        self._leave()
        self.name, self.file = name, ""
        self.start()

    def start(self) -> None:
        """Start an engine of our own under the session's name; one that is still ending is awaited first. One from
        elsewhere is connected to again."""
        if self.owned:
            self._start_again = not self.alive
            return
        if self.elsewhere:
            self.open(self.file)
            return
        self._forget()
        with contextlib.suppress(Refused):  # it was started elsewhere in the meantime
            self.attach(find(self.name))
            return
        process = self._make_process(self.name)
        if process is None:
            return
        self.file = str(runtime_folder() / f"{self.name}.json")
        self._launched = time.monotonic()
        self.link.detach()
        self._search.start()
        self.changed.emit()
        process.start()

    @property
    def arguments(self) -> list[str]:
        """The settings that the engine which is shown is started with here, as options of ``pagedeck serve``."""
        return [*self._arguments_of.get(self.name, self._arguments)]

    @property
    def followed(self) -> bool:
        """Whether an engine is started as soon as this one has ended."""
        return self._start_again

    def restart_with(self, arguments: Sequence[str], *, patient: bool) -> None:
        """Restart with other settings. Requests of this window go over to the new engine where they can be repeated;
        a ``patient`` restart lets those that have begun finish first, whoever asked them, and hands the others back to
        who asked them. One that cannot be talked to yet has none, and ends at once."""
        self._arguments_of[self.name] = [*arguments]
        if not self.alive:
            self.start()
            return
        if patient and not self.starting:
            self.link.request(Shutdown(drain=True, hand_back=True), lambda reply: None)
        else:
            self._end()
        self._start_again, self._opening = True, False
        self.link.carry()

    def stop(self) -> None:
        self.link.carry_no_more()
        self._start_again = self._opening = False
        self._end()

    def stop_other(self, name: str) -> None:
        """Stop an engine of ours that is not shown."""
        self._restarting.discard(name)
        self._processes[name].stop(lambda: None)  # it ends with the pipe that :class:`EngineProcess` closes

    def restart_other(self, name: str) -> None:
        """Stop an engine of ours that is not shown, and start it anew, unseen; what has ended is started at once."""
        if name in self._processes:
            self.stop_other(name)
            self._restarting.add(name)
        else:
            self._start_unseen(name)

    def close(self) -> None:
        """The app ends: let our engines go when they shall keep serving; stop those that do not, and wait for it."""
        self._search.stop()
        self._start_again = False
        self._restarting.clear()
        for name, process in [*self._processes.items()]:  # one may end while another is asked
            shown = self.owned and name == self.name
            line = self.link if shown else self.line_to(name)
            if self.keep_serving and line is not None and self._released(line):
                process.release()
            else:
                process.stop_now(self._ask_to_stop if shown else lambda: None)
        self._processes.clear()
        self.link.detach()

    # --- what happens -------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if self.owned:
            self._processes[self.name].stop(self._ask_to_stop)
        else:
            self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        """Ours ends at once. Another's finishes what it has first, unless it is asked again."""
        patient = not self.owned and self.state != ConnectionState.DRAINING
        self.link.request(Shutdown(drain=patient), lambda reply: None)

    @staticmethod
    def _released(line: EngineLink) -> bool:
        """Whether the engine confirmed, within two seconds, that it no longer ends with us."""
        answers: list[EngineMessage] = []
        loop = QEventLoop()

        def answered(reply: EngineMessage) -> None:
            answers.append(reply)
            loop.quit()

        line.request(Release(), answered)
        QTimer.singleShot(2000, loop, loop.quit)
        loop.exec()
        return any(isinstance(answer, Done) for answer in answers)

    def _make_process(self, name: str) -> EngineProcess | None:
        """A process for an engine of ours, not yet started; none where its output cannot be kept."""
        try:
            output = state_folder() / f"{name}.output"
        except Refused as refused:
            self.failed.emit(partial(engine_texts.say, str(refused)))
            return None
        process = EngineProcess(name, self._arguments_of.setdefault(name, self._arguments), output, self)
        process.stopped.connect(lambda: self._process_ended(process, ConnectionState.STOPPED))
        process.died.connect(lambda words, by: self._process_ended(process, ConnectionState.DIED, words, by))
        self._processes[name] = process
        return process

    def _start_unseen(self, name: str) -> None:
        process = self._make_process(name)
        if process is not None:
            process.start()

    def _leave(self) -> None:
        """Another engine is about to be shown. One of ours that is restarting starts again unseen."""
        self.link.carry_no_more()
        restarting, self._start_again = self._start_again, False
        if self.owned and self.stop_when_left:
            self.stop()
        elif self.owned and restarting:
            self._restarting.add(self.name)

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
        if process.name != self.name or self.elsewhere:
            self.ended.emit(process.name, state, words)
            if process.name in self._restarting:
                self._restarting.remove(process.name)
                self._start_unseen(process.name)
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
