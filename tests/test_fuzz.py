"""Whatever comes from outside is understood or refused as its reader says it refuses: no other error, and no harm."""

from __future__ import annotations

import queue
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pagedeck.engine.serving.switchboard import Switchboard, undecodable
from pagedeck.gui.recording.file import Header, Keyframe, Recording, StatusTold, Writer
from pagedeck.ipc import kv_events, protocol, telemetry
from pagedeck.ipc.client import Client
from pagedeck.ipc.endpoint import Connection, bind, read_connection
from pagedeck.ipc.keys import add_key, engine_keys, keys_folder, read_keys
from pagedeck.ipc.ledger import Ledger
from pagedeck.ipc.line import Line
from pagedeck.ipc.protocol import (
    EngineStatus,
    Failed,
    Finished,
    Hello,
    Pong,
    SampleResult,
    SnapshotReply,
    Submit,
    Tokens,
    Welcome,
)
from pagedeck.ipc.telemetry import TOPICS, BlocksUpdate, Event, RequestRow, TierBlocks
from pagedeck.ipc.vocabulary import Refused

STATUS = EngineStatus("b", "ready", "m", "e", 1, "0")
BLOCKS = BlocksUpdate("e", 7, True, TierBlocks(1, 16, 8, state=b"\x01"), TierBlocks(0, 16, 8))
SNAPSHOT = SnapshotReply(
    id="s", epoch="e", sequences={"blocks": 3}, blocks=BLOCKS, requests=[RequestRow(1, "a", "", 1)]
)

TO_ENGINE = [
    Hello(id="h", client="é", numbered=True, serial=1, seen=2),
    Submit(id="s", prompt="hello", priority=-3, serial=2),
    Submit(id="s", token_ids=[0, 2**31]),
    protocol.Reconfigure(id="r", changes={"block_size": 16, "x": [{}]}),
]
TO_CLIENT = [
    Welcome(id="again-0", status=STATUS, serial=1, seen=1),
    Tokens(id="t", index=3, token_ids=[1, 2], text="ü", serial=2),
    Finished(id="t", samples=[SampleResult(0, "stop", 2)], serial=3),
    Failed(id="t", code="lost", message="No."),
    Pong(time=3.0, serial=4),
    SNAPSHOT,
]
EVENTS = kv_events.EventBatch(
    3.5, (kv_events.BlockStored((1, b"2"), None, (4, 5), 2), kv_events.BlockRemoved((1,)), kv_events.AllBlocksCleared())
)

#: What MessagePack and JSON can say, nested as deep as readers bear, or deeper.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
DEEP = [b"\x91" * 3000, b"\x81\xa1a" * 3000, b"[" * 3000, b'{"a":' * 3000]
EDITS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 255), st.sampled_from(["set", "insert", "delete", "cut"])), max_size=6
)

fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def edited(data: bytes, edits: list[tuple[int, int, str]]) -> bytes:
    made = bytearray(data)
    for place, value, what in edits:
        place %= len(made) or 1
        if what == "insert":
            made.insert(place, value)
        elif what == "cut":
            del made[place + value :]
        elif made and what == "set":
            made[place] = value
        elif made:
            del made[place]
    return bytes(made)


def frames(messages: list[Any]) -> st.SearchStrategy[bytes]:
    """Such messages with some damage, any values, and any bytes."""
    encoded = [protocol.encode(message) for message in messages]
    names = st.sampled_from([type(message).__name__.lower() for message in messages])
    maps = st.builds(lambda name, rest: {**rest, "type": name}, names, st.dictionaries(_keys(messages), VALUES))
    return (
        st.builds(edited, st.sampled_from(encoded), EDITS)
        | st.one_of(maps, VALUES).map(msgspec.msgpack.encode)
        | st.binary(max_size=60)
        | st.sampled_from(DEEP)
    )


def _keys(messages: list[Any]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted({name for message in messages for name in message.__struct_fields__}))


# --- the wire -----------------------------------------------------------------------------------------------------


@pytest.mark.random
@fuzz
@given(frames(TO_ENGINE))
def test_what_clients_send(frame: bytes) -> None:
    envelope = protocol.decode_envelope(frame)
    try:
        message = protocol.decode_client(frame)
    except msgspec.DecodeError as error:
        assert protocol.encode(undecodable(envelope.id, error))
    else:
        assert protocol.decode_client(protocol.encode(message)) is not None


@pytest.mark.random
@fuzz
@given(st.lists(frames(TO_CLIENT), max_size=6))
def test_what_an_engine_sends(received: list[bytes]) -> None:
    """It is a message of that engine, or of nobody; what is sent meanwhile stays in order."""
    restarts: list[Any] = []
    line = Line(Connection("b", 1, "e", 1, "ipc:///x", "ipc:///y"), "c", restarts.append)
    line.write(line.hello("h"))
    for frame in received:
        message = line.read(frame)
        assert message is None or isinstance(message, protocol.EngineMessage)
        line.write(Submit(id="x"))
        for due in line.due():
            protocol.decode_client(due)


@pytest.mark.random
@fuzz
@given(st.lists(st.tuples(st.integers(), st.integers(), st.booleans()), max_size=20))
def test_numbers_of_messages(numbers: list[tuple[int, int, bool]]) -> None:
    """Nobody is taken for having said what he did not, nor are messages kept that were seen."""
    ledger, taken = Ledger(), 0
    for serial, seen, say in numbers:
        if say:
            ledger.sent(ledger.write(Submit(id="x")))
        if ledger.takes(protocol.Envelope("x", serial, seen)) and serial:
            taken += 1
            assert serial == taken == ledger.heard
        missing = ledger.unseen(seen)
        assert missing is None or len(missing) == ledger.said - seen


@pytest.mark.random
@fuzz
@given(
    st.lists(st.sampled_from(TOPICS) | st.binary(max_size=10), max_size=4),
    frames([BLOCKS, Event("e", 1.0, "log", "x", row=RequestRow(1, "a", "running", 10))]),
    st.booleans(),
)
def test_telemetry(parts: list[bytes], payload: bytes, proper: bool) -> None:
    if proper and parts:
        parts = [parts[0], (3).to_bytes(8, "little"), payload]
    try:
        topic, sequence, message = telemetry.decode_frames(parts)
    except ValueError:
        return
    assert topic in TOPICS and sequence >= 0 and message.epoch is not None


@pytest.mark.random
@fuzz
@given(
    st.builds(edited, st.just(kv_events.encode(EVENTS)), EDITS)
    | VALUES.map(msgspec.msgpack.encode)
    | st.lists(st.sampled_from(["BlockStored", "BlockRemoved", "x"]) | VALUES, max_size=7).map(
        lambda event: msgspec.msgpack.encode([1.0, [event], None])
    )
    | st.binary(max_size=40)
    | st.sampled_from(DEEP)
)
def test_cache_events(payload: bytes) -> None:
    try:
        batch = kv_events.decode(payload)
    except ValueError:
        return
    assert isinstance(batch, kv_events.EventBatch)


# --- files --------------------------------------------------------------------------------------------------------

FILES = (
    st.builds(
        edited,
        st.sampled_from([
            msgspec.json.encode(Connection("a", 1, "e", 1, "ipc:///x", "ipc:///y")),
            msgspec.json.encode({"name": "bad", "public": "x", "operator": True, "created": 1.5}),
            msgspec.json.encode({"public": "x", "secret": "y"}),
        ]),
        EDITS,
    )
    | st.binary(max_size=60)
    | st.sampled_from(DEEP)
)  # fmt: skip


@pytest.mark.random
@fuzz
@given(FILES)
def test_connection_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(data)
    try:
        connection = read_connection(path)
    except Refused as refused:
        assert str(path) in str(refused)
    else:
        assert connection.local in (True, False) and connection.process_alive() in (True, False)


@pytest.mark.random
@fuzz
@given(data=FILES)
def test_key_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path))
    if not (keys_folder() / "clients").exists():
        add_key("good")
    for path in (keys_folder() / "clients" / "bad.json", keys_folder() / "engine.json"):
        path.write_bytes(data)
        path.chmod(0o600)
    keys, complaints = read_keys()
    assert "good" in [key.name for key in keys] and len(keys) + len(complaints) == 2
    try:
        engine_keys()
    except Refused as refused:
        assert "engine.json" in str(refused)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("recording") / "x.pagedeck"
    writer = Writer(path, Header("e", 1.0))
    for at in (0, 10):
        writer.add(Keyframe(at, True, "ready", "", None, STATUS, None, [], SNAPSHOT))
        writer.add(StatusTold(at + 1, STATUS))
        writer.flush()
    writer.close()
    return path.read_bytes()


@pytest.mark.random
@fuzz
@given(edits=EDITS, rest=st.binary(max_size=60))
def test_recordings(tmp_path: Path, recording: bytes, edits: list[tuple[int, int, str]], rest: bytes) -> None:
    path = tmp_path / "x.pagedeck"
    path.write_bytes(edited(recording, edits) + rest)
    try:
        opened = Recording(path)
    except Refused:
        return
    for section in range(len(opened)):
        for record in opened.records(section):
            assert record.at >= 0 or record.at < 0
    opened.close()


# --- all of it, at a real socket ------------------------------------------------------------------------------------


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    context: Any = zmq.Context()
    endpoint = bind(context, name="b", listen=None, model="m", log="")
    made = Switchboard(endpoint, queue.SimpleQueue(), lambda: STATUS, list)
    made.start()
    yield made
    made.close()
    context.destroy(linger=0)


def test_an_engine_that_is_sent_anything_answers_others_and_keeps_none_of_it(board: Any) -> None:
    """A thousand frames of a dozen strangers and clients, and the memory that they took is given back."""
    connection = board._endpoint.connection
    sent: list[bytes] = []

    @settings(max_examples=80, deadline=None, database=None, derandomize=True)
    @given(frames(TO_ENGINE))
    def collect(frame: bytes) -> None:
        sent.append(frame)

    collect()
    context: Any = zmq.Context()
    with Client(connection, name="witness") as witness:
        flood(context, connection, sent, witness.status)  # what is made once for all is made now
        tracemalloc.start()
        try:
            for _ in range(3):
                flood(context, connection, sent, witness.status)
                board._given_up.clear()
            while not board._inbox.empty():
                board._inbox.get()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        while any(not peer.away and peer.name != "witness" for peer in list(board._peers.values())):
            for client in list(board._peers):
                board.send(client, Pong())  # shows that its connection is closed
            assert witness.status().name == "b"
    context.term()
    assert kept < 4_000_000, kept


def flood(context: Any, connection: Connection, sent: list[bytes], alive: Callable[[], Any]) -> None:
    for number in range(4):
        stranger = context.socket(zmq.DEALER)
        stranger.set(zmq.LINGER, 5000)
        stranger.connect(connection.control)
        if number % 2:
            stranger.send(protocol.encode(Hello(id="h", numbered=number == 3)))
        for frame in sent:
            stranger.send(frame)
        stranger.send_multipart([b"", b"x", b""])
        assert stranger.poll(30_000)  # somebody answers
        stranger.close()
        assert alive().name == "b"
