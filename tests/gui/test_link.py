"""The app's line to a real engine: states are honest, answers arrive, and it recovers by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pagedeck.gui import link as link_module
from pagedeck.gui.link import FRAME_MS, EngineLink
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.line import EngineError
from pagedeck.ipc.protocol import (
    Accepted,
    Cancel,
    DescribeRequest,
    Done,
    Failed,
    Finished,
    GetStatus,
    Reconfigure,
    Reconfigured,
    RequestDetail,
    Shutdown,
    StatusReply,
    Submit,
    Tokens,
)
from pagedeck.ipc.vocabulary import BlockState, SamplingParams
from pytestqt.qtbot import QtBot

from ..ipc.cable import Cable
from .scripted_link import Clock

WAIT_MS = 30_000


@pytest.fixture
def app_link(qtbot: QtBot) -> Iterator[EngineLink]:
    made = EngineLink()
    yield made
    made.detach()


def reach(qtbot: QtBot, link: EngineLink, *states: ConnectionState) -> None:
    qtbot.waitUntil(lambda: link.view.connection in states, timeout=WAIT_MS)


def prompt(tokens: int = 40, output: int = 20, **sampling: Any) -> Submit:
    chosen = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True, **sampling)
    return Submit(token_ids=[1 + n % 300 for n in range(tokens)], sampling=chosen)


def run(qtbot: QtBot, link: EngineLink, message: Submit) -> list[Any]:
    """Submit and wait for the end; all that came."""
    got: list[Any] = []
    link.submit(message, got.append)
    qtbot.waitUntil(lambda: bool(got) and isinstance(got[-1], Finished | Failed), timeout=WAIT_MS)
    return got


def ask(qtbot: QtBot, link: EngineLink, message: Any) -> Any:
    got: list[Any] = []
    link.request(message, got.append)
    qtbot.waitUntil(lambda: bool(got), timeout=WAIT_MS)
    return got[0]


def test_a_request_is_seen_from_start_to_end(qtbot: QtBot, app_link: EngineLink, shared_engine: Any) -> None:
    link = app_link
    link.attach(shared_engine.connection)
    reach(qtbot, link, ConnectionState.READY)
    qtbot.waitUntil(lambda: link.view.known and bool(link.view.settings), timeout=WAIT_MS)
    assert link.view.device.num_blocks == 256
    assert link.view.status is not None and link.view.status.vocabulary == 320
    got = run(qtbot, link, prompt())
    assert isinstance(got[0], Accepted)
    assert sum(len(m.token_ids) for m in got if isinstance(m, Tokens)) == 20
    number = got[0].number
    qtbot.waitUntil(lambda: link.view.requests[number].state == "finished", timeout=WAIT_MS)
    qtbot.waitUntil(lambda: link.view.device.counts[BlockState.CACHED] > 0, timeout=WAIT_MS)
    assert sum(link.view.device.counts) == 256
    qtbot.waitUntil(lambda: len(link.view.steps) >= 20, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: len(link.view.latency) > 0, timeout=WAIT_MS)
    assert not link.view.feed.wants_snapshot()


def test_what_arrives_after_a_rest_is_delivered_at_once(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(link_module, "time", clock)
    link = EngineLink()
    link._deliver()
    for later, rest in ((0.010, FRAME_MS - 10), (0.020, FRAME_MS - 30), (5.0, 0)):
        clock.now += later
        link._schedule()
        assert link._frame.interval() == rest
        link._frame.stop()


def test_after_a_long_delivery_the_user_has_the_window_for_a_moment(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(link_module, "time", clock)
    link = EngineLink()
    monkeypatch.setattr(link, "_hand_out", lambda: setattr(clock, "now", clock.now + 1.0))
    link._deliver()
    link._schedule()
    assert link._frame.interval() == link_module.REST_MS


def test_what_arrives_wakes_the_window_once_a_delivery(qtbot: QtBot, app_link: EngineLink, shared_engine: Any) -> None:
    link = app_link
    link.attach(shared_engine.connection)
    reach(qtbot, link, ConnectionState.READY)
    wakes: list[None] = []
    deliveries: list[None] = []
    link._arrived.connect(lambda: wakes.append(None))
    link._frame.timeout.connect(lambda: deliveries.append(None))
    run(qtbot, link, prompt(output=200))
    assert len(wakes) <= len(deliveries) + 2


def test_refusals_are_replies_like_others(qtbot: QtBot, app_link: EngineLink, shared_engine: Any) -> None:
    app_link.attach(shared_engine.connection)
    reach(qtbot, app_link, ConnectionState.READY)
    got = run(qtbot, app_link, prompt(output=5, n=100))
    assert [type(m) for m in got] == [Failed]
    assert got[0].field
    reply = ask(qtbot, app_link, Reconfigure(changes={"block_size": 33}))
    assert isinstance(reply, Failed) and "33" in reply.message


def test_a_running_request_can_be_described_and_cancelled(
    qtbot: QtBot, app_link: EngineLink, shared_engine: Any
) -> None:
    link = app_link
    link.attach(shared_engine.connection)
    reach(qtbot, link, ConnectionState.READY)
    got: list[Any] = []
    id = link.submit(prompt(output=2_000), got.append)
    qtbot.waitUntil(lambda: any(isinstance(m, Tokens) for m in got), timeout=WAIT_MS)
    detail = ask(qtbot, link, DescribeRequest(request=id))
    assert isinstance(detail, RequestDetail) and len(detail.block_tables[0]) >= 3
    link.cancel(id)
    qtbot.waitUntil(lambda: isinstance(got[-1], Finished), timeout=WAIT_MS)
    assert got[-1].samples[0].finish_reason == "cancelled"


def test_a_live_change_refreshes_settings_and_pool_and_a_stopped_engine_stopped(
    qtbot: QtBot, app_link: EngineLink, engine_process: Any
) -> None:
    link = app_link
    with engine_process() as engine:
        link.attach(engine.connection)
        reach(qtbot, link, ConnectionState.READY)
        qtbot.waitUntil(lambda: link.view.known and bool(link.view.settings), timeout=WAIT_MS)
        reply = ask(qtbot, link, Reconfigure(changes={"block_size": 32}))
        assert isinstance(reply, Reconfigured), reply
        qtbot.waitUntil(lambda: link.view.device.block_size == 32, timeout=WAIT_MS)
        assert link.view.device.num_blocks == 128
        qtbot.waitUntil(
            lambda: any(s.name == "block_size" and s.value == 32 for s in link.view.settings), timeout=WAIT_MS
        )
        assert isinstance(ask(qtbot, link, Shutdown()), Done)
        reach(qtbot, link, ConnectionState.STOPPED)


def test_a_killed_engine_died_and_its_successor_is_found(
    qtbot: QtBot, app_link: EngineLink, engine_process: Any
) -> None:
    link = app_link
    with engine_process(name="one") as engine:
        link.attach(engine.connection)
        reach(qtbot, link, ConnectionState.READY)
        first = link.view.epoch
        got: list[Any] = []
        link.submit(prompt(output=4_000), got.append)
        qtbot.waitUntil(lambda: any(isinstance(m, Tokens) for m in got), timeout=WAIT_MS)
        engine.process.kill()
        reach(qtbot, link, ConnectionState.DIED)
        assert isinstance(got[-1], Failed) and got[-1].code == "gone"
    assert isinstance(ask(qtbot, link, GetStatus()), Failed)
    with engine_process(name="one"):
        reach(qtbot, link, ConnectionState.READY)
        assert link.view.epoch != first
        assert isinstance(ask(qtbot, link, GetStatus()), StatusReply)


def test_loading_is_seen_and_a_frozen_engine_does_not_answer_until_it_does(
    qtbot: QtBot, app_link: EngineLink, engine_process: Any
) -> None:
    seen: list[tuple[ConnectionState, str]] = []
    app_link.connectionChanged.connect(lambda: seen.append((app_link.view.connection, app_link.view.detail)))
    with engine_process(ready=False) as engine:
        app_link.attach(engine.connection)
        reach(qtbot, app_link, ConnectionState.READY)
        assert seen[0][0] == ConnectionState.CONNECTING
        assert any(state == ConnectionState.LOADING and detail for state, detail in seen)
        os.kill(engine.process.pid, signal.SIGSTOP)
        reach(qtbot, app_link, ConnectionState.NOT_ANSWERING)
        os.kill(engine.process.pid, signal.SIGCONT)
        reach(qtbot, app_link, ConnectionState.READY)
        assert isinstance(run(qtbot, app_link, prompt())[-1], Finished)


def test_a_broken_connection_loses_and_doubles_nothing(
    qtbot: QtBot, app_link: EngineLink, shared_engine: Any, tmp_path: Path
) -> None:
    cable = Cable(tmp_path / "cable", shared_engine.connection)
    app_link.attach(cable.connection)
    reach(qtbot, app_link, ConnectionState.READY)
    whole = [token for m in run(qtbot, app_link, prompt(output=600)) if isinstance(m, Tokens) for token in m.token_ids]
    got: list[Any] = []
    app_link.submit(prompt(output=600), got.append)
    for most in (10, 100):
        qtbot.waitUntil(lambda most=most: len(got) > most, timeout=WAIT_MS)
        cable.swallows = True
        answers: list[Any] = []
        app_link.request(GetStatus(), answers.append)  # is on its way when the connection breaks
        cable.cut()
        cable.mend()
        qtbot.waitUntil(lambda answers=answers: bool(answers), timeout=WAIT_MS)
        assert isinstance(answers[0], StatusReply)
    qtbot.waitUntil(lambda: isinstance(got[-1], Finished | Failed), timeout=WAIT_MS)
    assert isinstance(got[-1], Finished)
    assert [token for m in got if isinstance(m, Tokens) for token in m.token_ids] == whole
    cable.close()


def test_a_client_that_was_given_up_tells_whoever_waits(qtbot: QtBot, app_link: EngineLink, shared_engine: Any) -> None:
    app_link.attach(shared_engine.connection)
    reach(qtbot, app_link, ConnectionState.READY)
    got: list[Any] = []
    id = app_link.submit(prompt(output=3_000), got.append)
    qtbot.waitUntil(lambda: any(isinstance(m, Tokens) for m in got), timeout=WAIT_MS)
    assert app_link._wire is not None
    app_link._wire._put(EngineError("The client was silent for 40 s.", code="slow_client"))
    qtbot.waitUntil(lambda: isinstance(got[-1], Failed), timeout=WAIT_MS)
    assert (got[-1].code, got[-1].id) == ("slow_client", id)
    assert isinstance(ask(qtbot, app_link, Cancel(request=id)), Done)


def test_without_an_engine_every_question_is_answered(qtbot: QtBot, app_link: EngineLink) -> None:
    reply = ask(qtbot, app_link, GetStatus())
    assert isinstance(reply, Failed) and reply.code == "gone"
    assert isinstance(run(qtbot, app_link, prompt())[-1], Failed)


def test_detaching_tells_whoever_waits(qtbot: QtBot, app_link: EngineLink, shared_engine: Any) -> None:
    app_link.attach(shared_engine.connection)
    reach(qtbot, app_link, ConnectionState.READY)
    got: list[Any] = []
    app_link.submit(prompt(output=3_000), got.append)
    qtbot.waitUntil(lambda: any(isinstance(m, Tokens) for m in got), timeout=WAIT_MS)
    app_link.detach()
    assert isinstance(got[-1], Failed)
    assert app_link.view.connection == ConnectionState.DISCONNECTED


def test_changes_are_bundled(qtbot: QtBot, app_link: EngineLink, shared_engine: Any) -> None:
    """However many steps the engine runs, the window is told at most once in a frame."""
    link = app_link
    link.attach(shared_engine.connection)
    reach(qtbot, link, ConnectionState.READY)
    told: list[int] = []
    link.stepsChanged.connect(lambda: told.append(link.view.steps.total))
    run(qtbot, link, prompt(output=300))
    qtbot.waitUntil(lambda: link.view.steps.total >= 300, timeout=WAIT_MS)
    assert len(told) < link.view.steps.total
