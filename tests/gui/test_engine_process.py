"""The engine as a child process and the session around it: starting, stopping, dying, insisting, letting go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pagedeck.gui.engines.process import EngineProcess
from pagedeck.gui.session import EngineSession
from pagedeck.gui.settings.restart import Restart
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.endpoint import Connection, process_started, write_connection
from pagedeck.ipc.protocol import Done, Failed, Release, Shutdown
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink

OBEDIENT = "import sys; print('hello', flush=True); sys.stdin.read()"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
)
BROKEN = "raise RuntimeError('the disk is on fire')"


@pytest.fixture
def start(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    started: list[EngineProcess] = []

    def run(program: str) -> EngineProcess:
        process = EngineProcess("test", [], tmp_path / "log" / "out")
        monkeypatch.setattr(EngineProcess, "command", property(lambda self: [sys.executable, "-c", program]))
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.stop_now(lambda: None, patience_s=0.1)


def said(process: EngineProcess, text: str) -> bool:
    return text in process.last_words()


def test_the_command_names_the_engine_and_passes_settings_on(qapp: QObject, tmp_path: Path) -> None:
    command = EngineProcess("mine", ["--block-size", "64"], tmp_path / "out").command
    assert command[:3] == [sys.executable, "-m", "pagedeck"]
    assert command[3:] == ["serve", "--name", "mine", "--exit-with-parent", "--block-size", "64"]


def test_it_stops_when_asked(start: object, qtbot: QtBot) -> None:
    process = start(OBEDIENT)  # type: ignore[operator]
    qtbot.waitUntil(lambda: said(process, "hello"))
    asked: list[bool] = []
    with qtbot.waitSignal(process.stopped):
        process.stop(lambda: asked.append(True))
    assert asked == [True]
    assert not process.running


def test_a_deaf_one_is_terminated_then_killed(start: object, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedeck.gui.engines.process.KILL_AFTER_MS", 50)
    process = start(STUBBORN)  # type: ignore[operator]
    qtbot.waitUntil(lambda: said(process, "deaf"))
    with qtbot.waitSignal(process.stopped, timeout=10_000):
        process.stop(lambda: None, patience_s=0.05)
    assert not process.running


def test_stop_now_returns_when_it_has_ended(start: object, qtbot: QtBot) -> None:
    process = start(STUBBORN)  # type: ignore[operator]
    qtbot.waitUntil(lambda: said(process, "deaf"))
    pid = process.pid
    assert pid is not None
    process.stop_now(lambda: None, patience_s=0.05)
    assert not psutil.pid_exists(pid)


def test_its_death_is_told_with_its_last_words(start: object, qtbot: QtBot) -> None:
    process = start(BROKEN)  # type: ignore[operator]
    with qtbot.waitSignal(process.died) as died:
        pass
    assert "the disk is on fire" in died.args[0]
    assert "exit code 1" in died.args[0]


def test_a_kill_is_told_as_a_death(start: object, qtbot: QtBot) -> None:
    process = start(OBEDIENT)  # type: ignore[operator]
    qtbot.waitUntil(lambda: said(process, "hello"))
    with qtbot.waitSignal(process.died) as died:
        os.kill(process.pid, signal.SIGKILL)
    assert died.args[1] == 9


def test_a_program_that_cannot_start_is_a_death_too(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineProcess, "command", property(lambda self: [str(tmp_path / "nothing")]))
    process = EngineProcess("test", [], tmp_path / "out")
    with qtbot.waitSignal(process.died) as died:
        process.start()
    assert "nothing" in died.args[0]


def test_no_orphan_when_the_app_is_killed(tmp_path: Path) -> None:
    """The child's standard input closes with its parent, however the parent ends."""
    program = f"""
import sys, time
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from pagedeck.gui.engines.process import EngineProcess
app = QCoreApplication([])
EngineProcess.command = property(lambda self: [sys.executable, "-c", {OBEDIENT!r}])
process = EngineProcess("test", [], Path({str(tmp_path / "out")!r}))
process.start()
print(process.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running()


# --- the session ----------------------------------------------------------------------------------------------------


@pytest.fixture
def session(link: ScriptedLink, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineSession:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(EngineProcess, "command", property(lambda self: [sys.executable, "-c", OBEDIENT]))
    monkeypatch.setattr(link, "attach", lambda connection: link.say_connection(ConnectionState.CONNECTING))
    link.say_connection(ConnectionState.DISCONNECTED)
    made = EngineSession(link)
    yield made
    made.close()


def announce(name: str, pid: int) -> Connection:
    made = Connection(name, pid, "e" * 8, 1, "ipc:///none.ctl", "ipc:///none.tel", started=process_started(pid))
    return write_connection(made)


def test_it_starts_an_engine_when_none_runs_and_attaches_when_it_can(session: EngineSession, qtbot: QtBot) -> None:
    session.open()
    assert (session.state, session.starting, session.owned) == (ConnectionState.LOADING, True, True)
    announce("pagedeck", os.getpid())
    qtbot.waitUntil(lambda: not session.starting)
    assert session.state == ConnectionState.CONNECTING


def test_it_attaches_to_a_running_engine_and_does_not_own_it(session: EngineSession) -> None:
    announce("other", os.getpid())
    session.open()
    assert (session.name, session.owned, session.state) == ("other", False, ConnectionState.CONNECTING)


def test_settings_for_an_engine_that_runs_already_are_said_to_change_nothing(
    session: EngineSession, link: ScriptedLink, qtbot: QtBot
) -> None:
    announce("other", os.getpid())
    told = EngineSession(link, ["--block-size", "64"])
    with qtbot.waitSignal(told.failed) as said:
        told.open()
    assert said.args[0]().startswith("other runs already, so --block-size 64 changes nothing.")
    with qtbot.assertNotEmitted(session.failed):
        session.open()
    told.close()


def test_an_engine_that_is_found_ending_is_followed_by_a_new_one(session: EngineSession, link: ScriptedLink) -> None:
    found = announce("pagedeck", os.getpid())
    session.open()
    link.say_connection(ConnectionState.DRAINING)
    assert not session.owned
    Path(found.path).unlink()
    link.say_connection(ConnectionState.STOPPED)
    assert session.owned and session.starting


def test_an_engine_that_ends_later_stays_ended(session: EngineSession, link: ScriptedLink) -> None:
    found = announce("pagedeck", os.getpid())
    session.open()
    link.say_connection(ConnectionState.READY)
    Path(found.path).unlink()
    link.say_connection(ConnectionState.STOPPED)
    assert session.state == ConnectionState.STOPPED and not session.owned


def test_an_engine_that_dies_while_starting_is_shown_as_died(
    session: EngineSession, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EngineProcess, "command", property(lambda self: [sys.executable, "-c", BROKEN]))
    session.open()
    qtbot.waitUntil(lambda: session.state == ConnectionState.DIED)
    assert "on fire" in session.last_words
    assert not session.owned


def test_restart_waits_for_the_end_and_starts_anew(session: EngineSession, link: ScriptedLink, qtbot: QtBot) -> None:
    session.open()
    first = session._processes["pagedeck"].pid
    session.restart_with(session.arguments, patient=False)
    qtbot.waitUntil(lambda: session.owned and session._processes["pagedeck"].pid not in (None, first))
    assert link.count(Shutdown) == 1
    assert session.starting


def test_an_engine_that_is_left_while_it_restarts_starts_again_unseen(
    session: EngineSession, link: ScriptedLink, qtbot: QtBot
) -> None:
    restart, outcomes = Restart(session), []
    restart.ended.connect(outcomes.append)
    session.open()
    first = session._processes["pagedeck"]
    announce("pagedeck", os.getpid())
    qtbot.waitUntil(lambda: not session.starting)
    link.say_connection(ConnectionState.READY)
    restart.begin({}, patient=True)
    session.attach(announce("other", os.getpid()))
    link.say_connection(ConnectionState.READY)
    assert not restart.under_way and not outcomes, "the other engine did not restart"
    pid = first.pid
    first.stop(lambda: None)  # its requests have finished
    qtbot.waitUntil(lambda: session.owns("pagedeck") and session._processes["pagedeck"].pid not in (None, pid))
    assert session.name == "other"


def test_stop_ends_as_stopped(session: EngineSession, qtbot: QtBot) -> None:
    session.open()
    session.stop()
    qtbot.waitUntil(lambda: session.state == ConnectionState.STOPPED)
    session.start()
    assert session.state == ConnectionState.LOADING


def test_a_start_while_it_still_ends_is_kept(session: EngineSession, link: ScriptedLink, qtbot: QtBot) -> None:
    session.open()
    first = session._processes["pagedeck"].pid
    announce("pagedeck", os.getpid())
    qtbot.waitUntil(lambda: not session.starting)
    link.say_connection(ConnectionState.STOPPED)  # the engine says so a moment before its process ends
    session.start()
    session._processes["pagedeck"].stop(lambda: None)
    Path(os.environ["PAGEDECK_RUNTIME"], "pagedeck.json").unlink()
    qtbot.waitUntil(lambda: session.owned and session._processes["pagedeck"].pid not in (None, first))


def test_closing_leaves_no_process(session: EngineSession) -> None:
    session.open()
    pid = session._processes["pagedeck"].pid
    assert pid is not None
    session.close()
    assert not psutil.pid_exists(pid)


def test_keep_serving_lets_the_engine_go(session: EngineSession, link: ScriptedLink, qtbot: QtBot) -> None:
    session.open()
    process = session._processes["pagedeck"]
    child = psutil.Process(process.pid)
    session.keep_serving = True
    request = link.request

    def confirm(message: object, on_reply: object) -> None:
        request(message, on_reply)  # type: ignore[arg-type]
        if isinstance(message, Release):
            link.answer(Release, Done())

    link.request = confirm  # type: ignore[method-assign, assignment]
    session.close()
    assert child.is_running()
    assert link.count(Shutdown) == 0
    process._released = False
    process.stop_now(lambda: None)


def test_an_engine_that_ends_while_the_window_closes_is_not_started_again(
    session: EngineSession, link: ScriptedLink
) -> None:
    session.open()
    process = session._processes["pagedeck"]
    session.restart_with([], patient=False)
    session.keep_serving = True
    request = link.request

    def end(message: object, on_reply: object) -> None:
        request(message, on_reply)  # type: ignore[arg-type]
        if isinstance(message, Release):
            process.stop_now(lambda: None)
            process.stopped.emit()
            link.answer(Release, Failed(code="gone"))

    link.request = end  # type: ignore[method-assign, assignment]
    session.close()
    assert not session._processes and not session.starting


def test_anothers_engine_is_asked_to_finish_first_and_when_asked_again_to_hurry(
    session: EngineSession, link: ScriptedLink
) -> None:
    announce("other", os.getpid())
    session.open()
    session.stop()
    link.say_connection(ConnectionState.DRAINING)
    session.stop()
    assert [message.drain for message, _ in link.sent if isinstance(message, Shutdown)] == [True, False]
