"""Connections that break while much is under way: nothing is lost, nothing comes twice, or it is said."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.engine.serving import switchboard
from pagedeck.engine.serving.peers import Peer
from pagedeck.engine.serving.switchboard import ClientGone, Received
from pagedeck.ipc import ledger, line
from pagedeck.ipc.aio import AsyncClient
from pagedeck.ipc.client import Client, EngineError, EngineGone
from pagedeck.ipc.ledger import Ledger
from pagedeck.ipc.protocol import (
    Done,
    Failed,
    Finished,
    Hello,
    Ping,
    SetPriority,
    Tokens,
    Welcome,
    decode_client,
    decode_engine,
    encode,
)

from .cable import Cable

HANDSHAKE = line._MONITOR_EVENT.pack(zmq.EVENT_HANDSHAKE_SUCCEEDED, 0)


@pytest.fixture
def cable(board: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[[Any], Cable]]:
    cables: list[Cable] = []

    def lay(made: Any) -> Cable:
        cables.append(Cable(tmp_path / f"cable{len(cables)}", made.connection))
        return cables[-1]

    yield lay
    for laid in cables:
        laid.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (line, switchboard):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.03)
        monkeypatch.setattr(module, "GONE_AFTER_S", 2.0)


def next_submit(made: Any) -> str:
    """The client of the next message in the core's inbox."""
    received = made.inbox.get(timeout=60)
    assert isinstance(received, Received)
    return received.client


@pytest.mark.parametrize("swallows", [False, True])
def test_a_stream_goes_on_over_a_new_connection(
    board: Callable[..., Any], cable: Callable[[Any], Cable], swallows: bool
) -> None:
    made = board()
    wire = cable(made)
    numbers = itertools.count()
    with Client(wire.connection) as client:
        stream = client.submit("x")
        to = next_submit(made)
        tokens = iter(stream)

        def say(count: int) -> None:
            for _, n in zip(range(count), numbers, strict=False):
                made.switchboard.send(to, Tokens(id=stream.id, token_ids=[n], text=f"{n} "))

        for _ in range(3):
            say(50)
            next(tokens)
            wire.swallows = swallows  # what both sides take for sent never arrives
            say(500)
            wire.cut()
            say(500)
            wire.mend()
            assert wire.connected.acquire(timeout=60)
            say(50)
        made.switchboard.send(to, Finished(id=stream.id))
        assert stream.token_ids() == list(range(3300))
        assert stream.text() == "".join(f"{n} " for n in range(3300))
        assert made.inbox.empty()


def test_what_is_asked_without_a_connection_arrives_once_and_in_order(
    board: Callable[..., Any], cable: Callable[[Any], Cable]
) -> None:
    made = board()
    wire = cable(made)
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    heard: list[str] = []

    def answer(_client: str, message: Any) -> list[Any]:
        heard.append(message.request)
        return [Done(id=message.id)]

    made.answer(answer)
    with Client(wire.connection) as client:
        asked = [str(n) for n in range(300)]
        for n, request in enumerate(asked):
            if n % 100 == 30:
                wire.swallows = True
            elif n % 100 == 60:
                wire.cut()
            elif n % 100 == 90:
                wire.mend()
            client.post(SetPriority(request=request, priority=1), answers.put)
        assert [type(answers.get(timeout=60)) for _ in asked] == [Done] * len(asked)
        assert client.status().detail == "all well"
    assert heard == asked


def test_the_asynchronous_client_goes_on_too(board: Callable[..., Any], cable: Callable[[Any], Cable]) -> None:
    made = board()
    wire = cable(made)

    async def work() -> None:
        async with AsyncClient(wire.connection) as client:
            stream = client.submit("x")
            to = await asyncio.to_thread(next_submit, made)
            for n in range(100):
                made.switchboard.send(to, Tokens(id=stream.id, token_ids=[n]))
                if n == 30:
                    await anext(aiter(stream))
                    wire.swallows = True
                elif n == 60:
                    wire.cut()
                elif n == 90:
                    wire.mend()
            made.switchboard.send(to, Finished(id=stream.id))
            assert await stream.token_ids() == list(range(100))
            assert (await client.status()).detail == "all well"

    asyncio.run(asyncio.wait_for(work(), 120))


def test_who_is_away_too_long_hears_that_all_was_cancelled_and_begins_anew(
    board: Callable[..., Any], cable: Callable[[Any], Cable], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(line, "GONE_AFTER_S", 60.0)
    made = board()
    wire = cable(made)
    with Client(wire.connection) as client:
        stream = client.submit("x")
        to = next_submit(made)
        made.switchboard.send(to, Tokens(id=stream.id, token_ids=[1]))
        next(iter(stream))
        wire.cut()
        gone = made.inbox.get(timeout=60)
        assert isinstance(gone, ClientGone) and gone.client == to and "silent" in gone.reason
        monkeypatch.setattr(switchboard, "GONE_AFTER_S", 60.0)
        made.switchboard.send(to, Finished(id=stream.id))
        wire.mend()
        with pytest.raises(EngineError, match="silent for") as error:
            stream.text()
        assert error.value.code == "slow_client"
        made.answer(lambda _client, message: [Finished(id=message.id)])
        assert client.submit("y").finished  # it is a client again


def test_a_patient_clients_request_is_asked_again_once_it_was_given_up(
    board: Callable[..., Any], cable: Callable[[Any], Cable], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(line, "GONE_AFTER_S", 60.0)
    made = board()
    wire = cable(made)
    with Client(wire.connection, patience=60) as client:
        stream = client.submit("x", temperature=0.0)
        made.switchboard.send(next_submit(made), Tokens(id=stream.id, token_ids=[1], text="a"))
        assert next(iter(stream)).text == "a"
        wire.cut()
        assert isinstance(made.inbox.get(timeout=60), ClientGone)
        monkeypatch.setattr(switchboard, "GONE_AFTER_S", 60.0)
        wire.mend()
        again = made.inbox.get(timeout=60)
        assert again.message.id == stream.id and again.message.prompt == "x"
        made.switchboard.send(again.client, Tokens(id=stream.id, token_ids=[1, 2], text="ab"))
        made.switchboard.send(again.client, Finished(id=stream.id))
        assert stream.token_ids() == [1, 2] and stream.text() == "ab"


def test_late_answers_to_a_conversation_that_is_over_end_the_new_one_no_more(board: Callable[..., Any]) -> None:
    reasons: list[str] = []
    made = board()
    talk = line.Line(made.connection, "someone", lambda error: reasons.append(error.code))
    talk.write(talk.hello("x"))
    talk.monitored([HANDSHAKE])
    assert talk.read(encode(Welcome(id="x", status=made.status)))
    for _ in range(2):
        talk.monitored([HANDSHAKE])
    first, second = (decode_client(frame) for frame in talk.due())
    assert isinstance(first, Hello) and isinstance(second, Hello) and first.resumes and second.resumes
    talk.read(encode(Failed(id=first.id, code="slow_client")))
    talk.read(encode(Failed(id=second.id, code="lost")))
    assert reasons == ["slow_client"]
    [hello] = (decode_client(frame) for frame in talk.due())
    assert not hello.resumes
    talk.read(encode(Welcome(id=hello.id, status=made.status)))
    talk.read(encode(Failed(id="y", code="lost")))
    assert reasons == ["slow_client", "lost"]


def test_a_hello_that_vanished_is_said_again_with_all_that_followed_it(board: Callable[..., Any]) -> None:
    reasons: list[str] = []
    status = board().status
    talk = line.Line(board(name="other").connection, "someone", lambda error: reasons.append(error.code))
    talk.write(talk.hello("first"))
    asked = talk.write(SetPriority(id="x"))
    for _ in range(3):
        talk.monitored([HANDSHAKE])
    hello, again = talk.due()
    greeting = decode_client(hello)
    assert isinstance(greeting, Hello) and not greeting.resumes and again == asked
    # What overtook the hello is not known to anybody, and what an earlier hello led to is over.
    for early in (Failed(id="x", code="lost"), Failed(id="x", code="protocol"), Welcome(id="first", status=status)):
        assert talk.read(encode(early)) is None
    assert talk.read(encode(Done(id="x", serial=1))) is None
    welcome = talk.read(encode(Welcome(id=greeting.id, status=status)))
    assert isinstance(welcome, Welcome) and welcome.id == "first"  # who waits for an answer gets one
    assert talk.read(encode(Done(id="x", serial=1))) is not None and not reasons


def test_who_is_turned_away_tries_again_with_what_is_asked_next(board: Callable[..., Any]) -> None:
    reasons: list[str] = []
    made = board()
    talk = line.Line(made.connection, "someone", lambda error: reasons.append(error.code))
    talk.write(talk.hello("first"))
    refused = talk.read(encode(Failed(id="first", code="too_many_clients")))
    assert isinstance(refused, Failed) and not talk.due()
    for times in (1, 2):
        asked = talk.write(Ping())
        [hello] = talk.due()
        assert reasons == ["too_many_clients"] * times and not decode_client(hello).resumes
        talk.read(encode(Failed(id=decode_client(hello).id, code="too_many_clients")))
    assert asked


@pytest.mark.parametrize("vanishes", [b"\0never", b"again-", b"again-1"])
def test_what_overtakes_its_hello_at_an_engine_that_does_not_know_the_client(
    board: Callable[..., Any], cable: Callable[[Any], Cable], vanishes: bytes
) -> None:
    """Another engine listens where the first one did, and perhaps a hello to it is lost, too. A request is repeated
    where that was wished, and else ends with the reason."""
    first, second = board(), board(name="second")
    wires = [cable(first), cable(first)]
    with Client(wires[0].connection) as client, Client(wires[1].connection, patience=60) as patient:
        streams = [one.submit("x", temperature=0.0) for one in (client, patient)]
        for _ in streams:
            next_submit(first)
        for wire in wires:
            wire.poison = vanishes
            wire.cut()
            wire.lead_to(second.connection)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client.post(SetPriority(request="x", priority=1), answers.put)  # waits in the socket, before any hello
        streams.append(patient.submit("y", temperature=0.0))
        for wire in wires:
            wire.mend()
        if b"again" in vanishes:
            for wire in wires:
                assert wire.swallowed.acquire(timeout=60)
                wire.poison = b"\0never"
                wire.cut()
                wire.mend()
        second.answer(lambda _client, message: [Finished(id=message.id)])
        assert answers.get(timeout=60).code == "lost"
        with pytest.raises(EngineError) as error:
            streams[0].text()
        assert error.value.code == "lost"
        assert [stream.text() for stream in streams[1:]] == ["", ""]
        assert client.submit("z").text() == "" and client.status().name == "b"


def test_what_cannot_be_repeated_is_said(
    board: Callable[..., Any], cable: Callable[[Any], Cable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MAX_KEPT_BYTES", 1000)
    made = board()
    wire = cable(made)
    with Client(wire.connection) as client:
        stream = client.submit("x")
        to = next_submit(made)
        made.switchboard.send(to, Tokens(id=stream.id, token_ids=[1]))
        next(iter(stream))
        wire.swallows = True
        for n in range(100):
            made.switchboard.send(to, Tokens(id=stream.id, token_ids=[n], text="word " * 10))
        with Client(made.connection) as other:
            other.status()  # all of it has left by now
        wire.cut()
        wire.mend()
        with pytest.raises(EngineError, match="lost") as error:
            stream.text()
        assert error.value.code == "lost"
        gone = [made.inbox.get(timeout=60) for _ in range(2)]
        assert to in {item.client for item in gone if isinstance(item, ClientGone)}
        made.answer(lambda _client, message: [Finished(id=message.id)])
        assert client.submit("y").finished


def test_a_client_whose_process_ended_is_not_waited_for(board: Callable[..., Any]) -> None:
    made = board()
    peer = Peer(b"c", "c", 0.0, Ledger(), pid=os.getpid())
    assert not peer.lost()
    peer.pid = 2**22 + 1  # above any process's number
    assert peer.lost()
    assert not Peer(b"c", "c", 0.0, Ledger()).lost()  # of a process elsewhere nothing is known
    assert made.inbox.empty()


def test_a_client_that_gave_the_engine_up_lets_it_know(
    board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine stands still for longer than its client waits, and goes on."""
    monkeypatch.setattr(line, "HEARTBEAT_S", 0.03)
    monkeypatch.setattr(line, "GONE_AFTER_S", 0.2)
    made = board()
    goes_on = threading.Event()
    with Client(made.connection) as client:
        stream = client.submit("x")
        to = next_submit(made)
        made.switchboard._status = lambda: (goes_on.wait(30), made.status)[1]
        with pytest.raises(EngineGone, match="has not answered"):
            client.status()
        with pytest.raises(EngineGone):
            stream.text()
        goes_on.set()
        gone = made.inbox.get(timeout=switchboard.GONE_AFTER_S / 2)
        assert isinstance(gone, ClientGone) and gone.client == to


def test_a_client_that_leaves_is_forgotten_at_once(board: Callable[..., Any]) -> None:
    made = board()
    with Client(made.connection) as client:
        client.submit("x")
        to = next_submit(made)
    gone = made.inbox.get(timeout=switchboard.GONE_AFTER_S / 2)
    assert isinstance(gone, ClientGone) and gone.client == to


# --- accounts -----------------------------------------------------------------------------------------------------


def say(ledger: Ledger, message: Any) -> bytes:
    frame = ledger.write(message)
    ledger.sent(frame)
    return frame


def test_a_ledger_takes_each_message_once_and_none_after_a_gap() -> None:
    ours = Ledger()
    assert [ours.takes(Done(serial=n)) for n in (1, 2, 2, 4, 3, 4, 1)] == [True, True, False, False, True, True, False]
    assert ours.heard == 4
    assert ours.takes(Ping()) and ours.heard == 4


def test_a_ledger_keeps_what_was_not_seen() -> None:
    ours = Ledger()
    frames = [say(ours, Done(id=str(n))) for n in range(5)]
    say(ours, Hello())  # part of no account
    assert ours.unseen(2) == frames[2:]
    assert ours.unseen(5) == []
    ours.takes(Ping(seen=3))
    assert ours.unseen(3) == frames[3:]
    assert ours.unseen(2) is None  # forgotten once seen


def test_a_message_that_did_not_leave_is_not_accounted_for() -> None:
    ours = Ledger()
    ours.write(Done(id="a"))  # the socket did not take it
    frame = say(ours, Done(id="b"))
    assert ours.unseen(0) == [frame]


@given(st.lists(st.tuples(st.sampled_from(["say", "deliver", "break", "resume"]), st.integers(0, 1)), max_size=80))
def test_two_ledgers_agree_over_any_connections(moves: list[tuple[str, int]]) -> None:
    ours, theirs = Ledger(), Ledger()
    sides = (ours, theirs)
    pipes: tuple[deque[bytes], deque[bytes]] = (deque(), deque())
    said: tuple[list[str], list[str]] = ([], [])
    got: tuple[list[str], list[str]] = ([], [])
    whole = True

    def deliver(to: int) -> None:
        message = decode_engine(pipes[to].popleft())
        if sides[to].takes(message):
            got[to].append(message.id)

    def resume() -> None:
        for side, other in ((0, 1), (1, 0)):
            missing = sides[side].unseen(sides[other].heard)
            assert missing is not None
            pipes[other].extend(missing)

    for move, side in [*moves, ("break", 0)]:
        if move == "say":  # also over a new connection before it resumes: there it comes too early
            said[side].append(str(len(said[side])))
            pipes[1 - side].append(say(sides[side], Done(id=said[side][-1])))
        elif move == "deliver" and pipes[side]:
            deliver(side)
        elif move == "break":
            for pipe in pipes:
                pipe.clear()
            whole = False
        elif move == "resume" and not whole:
            resume()
            whole = True
    resume()
    for to in (0, 1):
        while pipes[to]:
            deliver(to)
    assert (got[1], got[0]) == said
