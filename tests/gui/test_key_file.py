"""The window with the file that a key's owner was given: it attaches, shows what it may, and says when it may not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pagedeck.commands import keys
from pagedeck.gui import link as link_module
from pagedeck.gui.link import EngineLink
from pagedeck.gui.session import EngineSession
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.client import Client
from pagedeck.ipc.protocol import Failed, Finished, GetStatus, Reconfigure, Submit
from pagedeck.ipc.vocabulary import SamplingParams
from pytestqt.qtbot import QtBot

from ..ipc.conftest import Board

WAIT_MS = 60_000


@pytest.fixture
def session(qtbot: QtBot) -> Iterator[EngineSession]:
    made = EngineSession(EngineLink(), [])
    yield made
    made.close()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    made = Board(listen="tcp://127.0.0.1:0")
    made.answer(lambda _client, message: [Failed(id=message.id, code="forbidden", message="No.")])
    yield made
    made.close()


def test_the_window_attaches_with_a_keys_file_until_it_is_revoked(
    qtbot: QtBot, session: EngineSession, engine: Board, tmp_path: Path
) -> None:
    file = tmp_path / "alice.json"
    assert keys.add("alice", operator=False, engine="b", address=None, output=str(file)) == 0
    link = session.link
    session.open(str(file))
    qtbot.waitUntil(lambda: link.view.connection == ConnectionState.READY, timeout=WAIT_MS)
    refused: list[Any] = []
    link.request(Reconfigure(changes={"block_size": 32}), refused.append)
    qtbot.waitUntil(lambda: bool(refused), timeout=WAIT_MS)
    assert refused[0].code == "forbidden"
    assert keys.revoke("alice") == 0
    qtbot.waitUntil(lambda: link.view.connection == ConnectionState.DISCONNECTED, timeout=WAIT_MS)
    assert "key" in link.view.detail
    with Client(engine.connection) as owner:
        assert owner.status().state == "ready"


def test_what_is_asked_ends_when_nobody_answers_any_more(
    qtbot: QtBot, session: EngineSession, engine: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no process whose end could be seen; but an engine that goes on is known again."""
    monkeypatch.setattr(link_module, "NOT_ANSWERING_S", 1.2)
    monkeypatch.setattr(link_module, "GONE_AFTER_S", 1.5)
    file = tmp_path / "alice.json"
    assert keys.add("alice", operator=False, engine="b", address=None, output=str(file)) == 0
    link = session.link
    session.open(str(file))
    qtbot.waitUntil(lambda: link.view.connection == ConnectionState.READY, timeout=WAIT_MS)
    goes_on, told = threading.Event(), []
    monkeypatch.setattr(engine.switchboard, "_status", lambda: (goes_on.wait(60), engine.status)[1])
    try:
        link.request(GetStatus(), lambda _reply: None)
        link.request(Reconfigure(changes={"block_size": 32}), told.append)
        qtbot.waitUntil(lambda: bool(told), timeout=WAIT_MS)
        assert told[0].code == "gone" and "has not answered for" in told[0].message
    finally:
        goes_on.set()
    qtbot.waitUntil(lambda: link.view.connection == ConnectionState.READY, timeout=WAIT_MS)


def test_with_a_keys_file_a_real_engine_answers_what_it_may(
    qtbot: QtBot, session: EngineSession, engine_process: Any, tmp_path: Path
) -> None:
    with engine_process(listen="tcp://127.0.0.1:0") as engine:

        def wait(until: Callable[[], bool]) -> None:
            """Over TCP the window cannot see that an engine died: it is this test that says so."""
            qtbot.waitUntil(lambda: until() or engine.process.poll() is not None, timeout=2 * WAIT_MS)
            assert engine.process.poll() is None, "the engine ended:\n" + "\n".join(engine.log)

        file = tmp_path / "alice.json"
        assert keys.add("alice", operator=False, engine="test", address=None, output=str(file)) == 0
        link = session.link
        session.open(str(file))
        wait(lambda: link.view.connection == ConnectionState.READY)
        told: list[Any] = []
        sampling = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
        link.submit(Submit(token_ids=[5] * 20, sampling=sampling), told.append)
        wait(lambda: bool(told) and isinstance(told[-1], Finished | Failed))
        assert isinstance(told[-1], Finished) and told[-1].output_tokens == 5
        refused: list[Any] = []
        link.request(Reconfigure(changes={"block_size": 32}), refused.append)
        wait(lambda: bool(refused))
        assert refused[0].code == "forbidden"


def test_a_file_that_others_may_read_is_refused_with_what_to_do(
    qtbot: QtBot, session: EngineSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    file = tmp_path / "alice.json"
    address = "tcp://gpu.example:5555"
    assert keys.add("alice", operator=False, engine=None, address=address, output=str(file)) == 0
    file.chmod(0o644)
    with qtbot.waitSignal(session.failed, timeout=WAIT_MS) as failed:
        session.open(str(file))
    assert "chmod 600" in failed.args[0]()
