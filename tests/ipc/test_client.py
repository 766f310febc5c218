"""The blocking client against the engine's real socket thread: calls, streams, refusals, and engines that go."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import zmq
from pagedeck.engine.serving import peers, switchboard
from pagedeck.ipc import line, protocol
from pagedeck.ipc.client import Client, EngineError, EngineGone
from pagedeck.ipc.endpoint import Connection, bind, process_started
from pagedeck.ipc.protocol import (
    Accepted,
    Done,
    EngineMessage,
    Failed,
    Finished,
    GetSnapshot,
    GetStatus,
    Hello,
    Ping,
    Pong,
    SampleResult,
    StatusReply,
    Submit,
    Tokens,
    Welcome,
)
from pagedeck.ipc.vocabulary import Refused


def echo(_client: str, message: Any) -> list[EngineMessage]:
    """An engine that says the prompt's words back, one at a time."""
    if not isinstance(message, Submit):
        return [Done(id=message.id)]
    words = (message.prompt or "").split()
    replies: list[EngineMessage] = [Accepted(id=message.id, number=1, prompt_tokens=len(words))]
    for n in range(message.sampling.n):
        replies += [Tokens(id=message.id, index=n, token_ids=[i], text=w) for i, w in enumerate(words)]
    samples = [SampleResult(n, "stop", len(words)) for n in range(message.sampling.n)]
    return [*replies, Finished(id=message.id, samples=samples)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hearts that beat thirty times as fast."""
    for module in (line, switchboard):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.03)
        monkeypatch.setattr(module, "GONE_AFTER_S", 1.0)


def raw_client(connection: Connection) -> Any:
    """A socket without a client's manners: it never pings."""
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVTIMEO, 60_000)
    socket.connect(connection.control)
    return socket


def ask(socket: Any, message: protocol.Message) -> EngineMessage:
    socket.send(protocol.encode(message))
    return protocol.decode_engine(socket.recv())


# --- calls and streams --------------------------------------------------------------------------------------------


def test_hello_brings_the_status(board: Callable[..., Any]) -> None:
    with Client(board().connection) as client:
        assert client.hello.detail == "all well"
        assert client.status() == client.hello


def test_a_client_finds_its_engine_by_name(board: Callable[..., Any]) -> None:
    import pagedeck

    made = board(name="findme")
    with pagedeck.connect("findme") as client:
        assert client.connection == made.connection
    with pytest.raises(Refused, match="nobody"):
        pagedeck.connect("nobody")


def test_a_stream_yields_tokens_and_ends(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)
    with Client(made.connection) as client:
        stream = client.submit("a b c")
        assert [t.text for t in stream] == ["a", "b", "c"]
        assert stream.finished.samples[0].finish_reason == "stop"
        assert stream.accepted.prompt_tokens == 3
        assert list(stream) == [] and stream.text() == "abc" and stream.token_ids() == [0, 1, 2]


def test_a_stream_can_be_waited_for_no_longer_than_that(board: Callable[..., Any]) -> None:
    made = board()
    with Client(made.connection) as client:
        stream = client.submit("a")
        with pytest.raises(EngineError, match=r"did not end within 0\.05 s") as error:
            stream.wait(0.05)
        assert error.value.code == "timeout" and not stream.ended
        made.answer(echo)
        assert client.submit("b").wait(60).samples[0].finish_reason == "stop"
        assert stream.wait(60) is stream.finished


def test_samples_of_one_stream_are_told_apart(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)
    with Client(made.connection) as client:
        stream = client.submit("a b", n=3)
        assert [stream.text(i) for i in range(3)] == ["ab"] * 3


def test_many_streams_from_many_threads(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)
    texts: dict[int, str] = {}
    with Client(made.connection) as client:

        def run(n: int) -> None:
            texts[n] = "".join(client.submit(f"{n} {n}").text() for _ in range(5))

        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert texts == {n: f"{n}{n}" * 5 for n in range(8)}


def test_what_is_submitted_arrives_as_it_was_meant(board: Callable[..., Any]) -> None:
    made = board()
    with Client(made.connection) as client:
        client.submit(messages=[{"role": "user", "content": "hi"}], priority="batch", max_tokens=3, stop=["x"])
        message = made.inbox.get(timeout=60).message
    assert message.messages[0].content == "hi" and message.prompt is None
    assert message.priority == "batch" and message.sampling.max_tokens == 3 and message.sampling.stop == ("x",)


def test_a_refused_request_raises_with_its_field(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(lambda _c, m: [Failed(id=m.id, code="invalid", message="top_p is 7.", field="sampling.top_p")])
    with Client(made.connection) as client:
        for use in (lambda s: s.finished, lambda s: s.accepted, list, lambda s: s.text()):
            with pytest.raises(EngineError, match=r"top_p is 7\.") as error:
                use(client.submit("x"))
            assert (error.value.code, error.value.field) == ("invalid", "sampling.top_p")


def test_a_call_that_is_not_answered_times_out_by_name(board: Callable[..., Any]) -> None:
    with Client(board().connection) as client:
        with pytest.raises(EngineError, match=r"did not answer within 0\.05 s") as error:
            client.request(GetSnapshot(), timeout=0.05)
        assert error.value.code == "timeout" and not isinstance(error.value, EngineGone)


def test_an_answer_of_the_wrong_kind_is_an_error(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)
    with Client(made.connection) as client, pytest.raises(EngineError, match="Done where SnapshotReply"):
        client.snapshot()


def test_closing_cancels_what_runs_and_ends_its_streams(board: Callable[..., Any]) -> None:
    made = board()
    client = Client(made.connection)
    stream = client.submit("x")
    assert isinstance(made.inbox.get(timeout=60).message, Submit)
    client.close()
    assert isinstance(made.inbox.get(timeout=60), switchboard.ClientGone)  # its core cancels what the client asked
    with pytest.raises(EngineError, match="closed"):
        stream.text()
    with pytest.raises(EngineError, match="closed"):
        client.status()


def test_what_cannot_be_decoded_is_refused_and_nothing_after_it(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)
    with Client(made.connection) as client:
        with pytest.raises(EngineError, match="prompt") as error:
            client.submit(Submit(prompt=7)).text()  # type: ignore[arg-type]
        assert (error.value.code, error.value.field) == ("invalid", "prompt")
        assert client.submit("a b").text() == "ab"
        assert client.status().detail == "all well"


def test_an_answer_that_is_not_understood_fails_its_call_alone(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(lambda _client, message: [StatusReply(id=message.id, status="well")])  # type: ignore[arg-type]
    with Client(made.connection) as client:
        with pytest.raises(EngineError, match="Not understood") as error:
            client.snapshot()
        assert error.value.code == "protocol"
        assert client.status().detail == "all well"


def test_an_id_in_use_is_refused_on_this_side(board: Callable[..., Any]) -> None:
    with Client(board().connection) as client:
        client.submit(Submit(id="mine", prompt="x"))
        with pytest.raises(EngineError) as error:
            client.submit(Submit(id="mine", prompt="y")).text()
        assert error.value.code == "duplicate"


# --- protocol -----------------------------------------------------------------------------------------------------


def test_another_version_is_refused_with_both_numbers(board: Callable[..., Any]) -> None:
    made = board()
    socket = raw_client(made.connection)
    reply = ask(socket, Hello(id="h", version=99))
    assert isinstance(reply, Failed) and reply.code == "protocol" and reply.field == "version" and reply.id == "h"
    assert "99" in reply.message and str(protocol.PROTOCOL_VERSION) in reply.message
    assert isinstance(ask(socket, Ping(id="p")), Failed)  # it is no client
    assert made.inbox.empty()


def test_a_client_of_another_version_says_so(board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = board()
    monkeypatch.setattr(switchboard, "PROTOCOL_VERSION", 2)
    with pytest.raises(EngineError, match="protocol version 2") as error:
        Client(made.connection)
    assert error.value.code == "protocol"


def test_who_did_not_say_hello_is_told_to(board: Callable[..., Any]) -> None:
    made = board()
    reply = ask(raw_client(made.connection), Submit(id="s", prompt="x"))
    assert isinstance(reply, Failed) and reply.code == "protocol" and reply.id == "s"
    assert made.inbox.empty()


@pytest.mark.parametrize(
    ("frame", "id", "field", "words"),
    [
        (b"", "", "", "truncated"),
        (b"\xc1", "", "", "malformed"),
        (msgspec.msgpack.encode([1, 2]), "", "", "Expected `object`"),
        (msgspec.msgpack.encode({"type": "dance", "id": "d"}), "d", "type", "dance"),
        (b"\x82\xa4type\xabreconfigure\xa7changes\x81\xa1a" + b"\x91" * 100_000, "", "", "nested too deeply"),
        (msgspec.msgpack.encode({"type": "submit", "id": "s", "prompt": 7}), "s", "prompt", "Expected `str | null`"),
        (
            msgspec.msgpack.encode({"type": "submit", "id": "s", "sampling": {"top_k": "many"}}),
            "s",
            "sampling.top_k",
            "got `str`",
        ),
    ],
)
def test_a_frame_that_is_no_message_is_answered(
    board: Callable[..., Any], frame: bytes, id: str, field: str, words: str
) -> None:
    made = board()
    socket = raw_client(made.connection)
    socket.send(frame)
    reply = protocol.decode_engine(socket.recv())
    assert isinstance(reply, Failed) and reply.code == "invalid"
    assert (reply.id, reply.field) == (id, field) and words in reply.message
    assert made.inbox.empty()


def test_several_frames_are_answered(board: Callable[..., Any]) -> None:
    socket = raw_client(board().connection)
    socket.send_multipart([b"", protocol.encode(Hello())])
    reply = protocol.decode_engine(socket.recv())
    assert isinstance(reply, Failed) and "2" in reply.message


def test_a_frame_too_large_ends_the_connection_and_nothing_else(board: Callable[..., Any]) -> None:
    made = board()
    rude = raw_client(made.connection)
    rude.send(bytes(protocol.MAX_MESSAGE_BYTES + 1))
    with Client(made.connection) as client:
        assert client.status().detail == "all well"
        assert made.inbox.empty()
    rude.close()


def test_a_message_too_large_is_refused_here_and_harms_nothing_else(
    board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = board()
    made.answer(echo)
    with Client(made.connection) as client:
        monkeypatch.setattr(protocol, "MAX_MESSAGE_BYTES", 10_000)
        stream, other = client.submit("x" * 10_000), client.submit("a b")
        with pytest.raises(EngineError, match=r"10,\d{3} bytes; an engine takes up to 10,000") as error:
            stream.text()
        assert error.value.code == "too_large" and other.text() == "ab"


def test_what_no_message_can_say_is_refused_here_and_harms_nothing_else(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)
    with Client(made.connection) as client:
        for ask in (lambda: client.reconfigure({"threads": 10**30}), lambda: client.submit("half a \ud83d").text()):
            with pytest.raises(EngineError, match="cannot be sent") as error:
                ask()
            assert error.value.code == "invalid" and client.submit("a b").text() == "ab"


def test_pings_are_answered_while_the_core_is_busy(board: Callable[..., Any]) -> None:
    made = board()  # nobody takes from its inbox
    socket = raw_client(made.connection)
    assert isinstance(ask(socket, Hello(id="h")), Welcome)
    socket.send(protocol.encode(GetSnapshot(id="never")))
    assert isinstance(ask(socket, Ping(id="p")), Pong)


# --- clients that go ----------------------------------------------------------------------------------------------


def test_a_silent_client_is_given_up_and_may_come_back(
    board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    made = board()
    socket = raw_client(made.connection)
    assert isinstance(ask(socket, Hello(id="h", client="sleeper")), Welcome)
    gone = made.inbox.get(timeout=60)
    assert isinstance(gone, switchboard.ClientGone) and "silent" in gone.reason
    monkeypatch.setattr(switchboard, "GONE_AFTER_S", 60.0)  # for all that follow
    made.switchboard.send(gone.client, Tokens(id="r", token_ids=[1], text="lost"))
    made.switchboard.send(gone.client, Finished(id="r", samples=[SampleResult(0, "cancelled", 1)]))
    with Client(made.connection) as other:
        stream = other.submit("x")
        made.switchboard.send(made.inbox.get(timeout=60).client, Finished(id=stream.id))
        assert stream.finished  # so both were dealt with
    socket.send(protocol.encode(Ping(id="p")))
    answers = (protocol.decode_engine(socket.recv()) for _ in itertools.count())
    replies = {m.id: m for m in itertools.islice((m for m in answers if isinstance(m, Finished | Failed)), 2)}
    assert isinstance(replies["r"], Failed) and replies["r"].code == "slow_client"  # it would not seem whole
    assert isinstance(replies["p"], Failed) and replies["p"].code == "slow_client"
    assert isinstance(ask(socket, Ping(id="q")), Pong)


def test_an_engine_that_was_stopped_itself_gives_nobody_up(board: Callable[..., Any], quick: None) -> None:
    made = board()
    socket, other = raw_client(made.connection), raw_client(made.connection)
    assert isinstance(ask(socket, Hello(id="h")), Welcome)
    assert isinstance(ask(other, Hello(id="h")), Welcome)
    stopped = threading.Event()
    made.switchboard._status = lambda: (stopped.wait(2 * switchboard.GONE_AFTER_S), made.status)[1]
    assert isinstance(ask(socket, GetStatus(id="s")), StatusReply)  # the thread did not run meanwhile
    for _ in range(2):  # it runs again, and looks at who was silent
        assert isinstance(ask(socket, Ping(id="p")), Pong)
    assert made.inbox.empty()
    assert isinstance(ask(other, Ping(id="p")), Pong)


def test_a_client_that_was_killed_is_noticed_without_waiting(board: Callable[..., Any]) -> None:
    made = board()
    code = (
        "import sys; from pagedeck.ipc.client import Client; c = Client(sys.argv[1]); c.submit('x');"
        "c.status(); print('on', flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, made.connection.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "on\n"
    received = made.inbox.get(timeout=60)
    child.kill()
    child.wait()
    gone = made.inbox.get(timeout=switchboard.GONE_AFTER_S / 2)
    assert isinstance(gone, switchboard.ClientGone) and gone.client == received.client


def test_tokens_for_a_client_that_does_not_read_melt_together(board: Callable[..., Any]) -> None:
    made = board()
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, 1)
    socket.set(zmq.RCVTIMEO, 60_000)
    socket.connect(made.connection.control)
    assert isinstance(ask(socket, Hello(id="h")), Welcome)
    socket.send(protocol.encode(Submit(id="r", prompt="x")))
    client = made.inbox.get(timeout=60).client
    count = 20_000
    for n in range(count):
        made.switchboard.send(client, Tokens(id="r", token_ids=[n], text="abc"))
    made.switchboard.send(client, Finished(id="r"))
    with Client(made.connection) as other:
        assert other.status().detail == "all well"  # nobody else waits
    tokens: list[int] = []
    messages = 0
    while not isinstance(message := protocol.decode_engine(socket.recv()), Finished):
        if isinstance(message, Tokens):
            messages += 1
            tokens += message.token_ids
            assert len(message.text) == 3 * len(message.token_ids)
    assert tokens == list(range(count))
    assert messages < count / 2


def test_a_client_too_far_behind_is_given_up(board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "MAX_BACKLOG_BYTES", 100_000)
    made = board()
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVHWM, 1)
    socket.connect(made.connection.control)
    assert isinstance(ask(socket, Hello(id="h")), Welcome)
    socket.send(protocol.encode(Submit(id="r", prompt="x")))
    client = made.inbox.get(timeout=60).client
    for n in range(20_000):
        made.switchboard.send(client, Tokens(id="r", token_ids=[n], text="x" * 100))
    gone = made.inbox.get(timeout=60)
    assert isinstance(gone, switchboard.ClientGone) and "unread" in gone.reason


# --- engines that go ----------------------------------------------------------------------------------------------


class Scripted:
    """An engine that welcomes and then falls silent."""

    def __init__(self, connection: Connection, socket: Any) -> None:
        self.connection = connection
        self._socket = socket
        self._thread = threading.Thread(target=self._welcome, daemon=True)
        self._thread.start()

    def _welcome(self) -> None:
        identity, frame = self._socket.recv_multipart()
        status = protocol.EngineStatus("s", "ready", "m", "e", 1, "0")
        hello = protocol.decode_client(frame)
        self._socket.send_multipart([identity, protocol.encode(Welcome(id=hello.id, status=status))])


def test_an_engine_that_falls_silent_ends_streams_and_calls(runtime: Any, quick: None) -> None:
    endpoint = bind(zmq.Context.instance(), name="s", listen=None, model="m", log="")
    scripted = Scripted(endpoint.connection, endpoint.control)
    client = Client(scripted.connection)
    with pytest.raises(EngineGone, match="has not answered for") as error:
        client.submit("x").text()
    assert error.value.code == "gone"
    with pytest.raises(EngineGone):
        client.status()
    client.close()
    endpoint.close()


def test_an_engine_whose_process_ended_is_gone_at_once(board: Callable[..., Any]) -> None:
    made = board()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    claimed = replace(made.connection, pid=child.pid, started=process_started(child.pid))
    with Client(claimed) as client:
        stream = client.submit("x")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        with pytest.raises(EngineGone, match=f"ended .process {child.pid}."):
            stream.text()


def test_a_connection_to_nobody_is_gone(runtime: Any) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(EngineGone, match="ended"):
        Client(Connection("x", child.pid, "e", 1, f"ipc://{runtime}/x.ctl", f"ipc://{runtime}/x.tel"))


# --- keys ---------------------------------------------------------------------------------------------------------


def test_tcp_works_with_the_engines_key(board: Callable[..., Any]) -> None:
    made = board(listen="tcp://127.0.0.1:0")
    made.answer(echo)
    with Client(made.connection) as client:
        assert client.submit("a b").text() == "ab"


def test_a_wrong_key_is_told_from_an_engine_that_is_away(board: Callable[..., Any]) -> None:
    made = board(listen="tcp://127.0.0.1:0")
    wrong = zmq.curve_keypair()[0].decode()
    with pytest.raises(EngineGone, match="key") as error:
        Client(replace(made.connection, server_key=wrong))
    assert error.value.code == "key"


def test_no_key_gets_no_answer(board: Callable[..., Any], quick: None) -> None:
    made = board(listen="tcp://127.0.0.1:0")
    with pytest.raises(EngineGone):
        Client(replace(made.connection, server_key=""))
    assert made.inbox.empty()
