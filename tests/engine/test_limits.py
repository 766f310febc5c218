"""Who may do what, and how much of it: operators and clients of one engine over TCP, and the bounds of each."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zmq
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.core import Engine
from pagedeck.engine.serving import service
from pagedeck.engine.serving.service import Service
from pagedeck.engine.serving.text import Text
from pagedeck.ipc.client import Client, EngineError
from pagedeck.ipc.endpoint import Connection, bind
from pagedeck.ipc.keys import add_key
from pagedeck.ipc.subscriber import Subscription
from pagedeck.ipc.telemetry import TOPIC_EVENT, TOPICS, Event, Stats
from pagedeck.ipc.vocabulary import Refused

from .harness import make_engine
from .token_memory import Launch, TokenMemory

LONG = {"max_tokens": 400, "temperature": 0.0}


class Gated(TokenMemory):
    """Computes a step when it is let, or when the engine was asked something, which it does between two steps."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots, vocabulary=1000)
        self.gate = threading.Event()
        self.asked: Callable[[], bool] = lambda: False

    def run(self, launch: Launch) -> None:
        while not self.gate.wait(0.005) and not self.asked():
            pass
        super().run(launch)


class Bytes:
    """Reads a text as its bytes."""

    chat_template = None
    all_special_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.read: list[str] = []

    def get_vocab(self) -> dict[str, int]:
        return {"a": 0, "longest": 1}

    def __call__(self, text: str, **_options: Any) -> dict[str, list[int]]:
        self.read.append(text)
        return {"input_ids": list(text.encode())}

    def decode(self, token_ids: list[int], **_options: Any) -> str:
        return bytes(token % 256 for token in token_ids).decode(errors="replace")

    def convert_ids_to_tokens(self, token: int) -> str:
        return chr(token % 256)


class Served:
    """An engine over TCP, in this process."""

    def __init__(self, engine: Engine, tokenizer: Bytes) -> None:
        self.context: Any = zmq.Context()
        self.engine = engine
        endpoint = bind(self.context, name="e", listen="tcp://127.0.0.1:0", model="numbers", log="")
        self.connection = endpoint.connection
        model = SimpleNamespace(name="numbers", tokenizer=tokenizer, parameters=7)
        made = SimpleNamespace(
            engine=engine, model=model, config=SimpleNamespace(device="cpu", dtype="none", model="numbers")
        )
        self.service = Service(EngineConfig(), endpoint, lambda _config, _report: made)  # type: ignore[arg-type]
        engine.runner.asked = lambda: not self.service._inbox.empty()
        self._thread = threading.Thread(target=self.service.run, daemon=True)
        self._thread.start()

    def come_as(self, name: str, *, operator: bool = False) -> Connection:
        pair = add_key(name, operator=operator)
        return replace(self.connection, public_key=pair.public, secret_key=pair.secret)

    def wait(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self.engine.runner.gate.set()
        self.service.stop("The test is over.")
        self.wait()
        self.context.destroy(linger=0)


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Served]]:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    started: list[Served] = []

    def start(num_blocks: int = 64, **settings: Any) -> Served:
        engine = make_engine(num_blocks=num_blocks, runner=Gated(num_blocks * 8), **settings)
        started.append(Served(engine, Bytes()))
        with Client(started[-1].connection) as client:
            client.wait_ready(120)
        return started[-1]

    yield start
    for served in started:
        served.stop()


def refusal(call: Callable[[], Any]) -> EngineError:
    with pytest.raises(EngineError) as error:
        call()
    return error.value


# --- operators and clients ----------------------------------------------------------------------------------------


def test_a_client_has_its_own_requests_and_no_others(serve: Callable[..., Served]) -> None:
    served = serve()
    alice_key, bob_key = served.come_as("alice"), served.come_as("bob")
    with Client(alice_key) as alice, Client(bob_key) as bob, Client(alice_key) as alice_again:
        stream = alice.submit("the secret of alice", **LONG)
        assert stream.accepted
        assert refusal(lambda: bob.cancel(stream.id)).code == "unknown_request"
        assert refusal(lambda: bob.set_priority(stream.id, 0)).code == "unknown_request"
        told = refusal(lambda: bob.describe_request(stream.id))
        assert (told.code, told.message) == ("unknown_request", refusal(lambda: bob.describe_request("nothing")).message
                                             .replace("nothing", stream.id))  # fmt: skip
        assert alice.describe_request(stream.id).prompt_text == "the secret of alice"
        alice_again.set_priority(stream.id, "batch")  # the same key over another connection
        alice_again.cancel(stream.id)
        assert stream.finished.samples[0].finish_reason == "cancelled"
        assert refusal(lambda: bob.describe_request(stream.id)).code == "unknown_request"
        assert alice.describe_request(stream.id).prompt_text == "the secret of alice"


def test_of_others_a_client_sees_what_they_do_and_not_what_they_say(serve: Callable[..., Served]) -> None:
    served = serve()
    with Client(served.come_as("alice"), name="diary") as alice, Client(served.come_as("bob")) as bob:
        stream = alice.submit("the secret of alice", **LONG)
        number = stream.accepted.number
        with Client(served.connection) as owner:
            while owner.describe_request(stream.id).row.output_tokens == 0:  # each question lets it go on by a step
                pass
            rows = {who: next(r for r in client.snapshot().requests if r.number == number)
                    for who, client in (("alice", alice), ("bob", bob), ("owner", owner))}  # fmt: skip
            assert rows["alice"].id == rows["owner"].id == stream.id and rows["owner"].client == "alice/diary"
            assert (rows["bob"].id, rows["bob"].client) == ("", "") and rows["bob"].prompt_tokens == 19
            block = owner.describe_request(stream.id).block_tables[0][0]
            full, mine, theirs = (client.describe_block(block) for client in (owner, alice, bob))
        assert full.text == mine.text == "the secr" and full.prefix_hash == mine.prefix_hash != ""
        assert full.token_texts == ["t", "h", "e", " ", "s", "e", "c", "r"]
        assert (theirs.text, theirs.token_ids, theirs.token_texts, theirs.prefix_hash) == ("", [], [], "")
        assert all(block.prefix_hash == "" for block in [*theirs.ancestors, *theirs.children])
        assert theirs.owners == full.owners and theirs.fill == full.fill


def test_telemetry_tells_each_key_its_own_requests_and_operators_all(serve: Callable[..., Served]) -> None:
    served = serve()
    names = ("alice", "alice2", "op")  # of which one begins with the other
    alice_key, bob_key, operator_key = (served.come_as(name, operator=name == "op") for name in names)
    audience = served.service._switchboard.audience
    with contextlib.ExitStack() as stack:
        alice = stack.enter_context(Client(alice_key, name="alice-program"))
        bob = stack.enter_context(Client(bob_key, name="bob-program"))
        ears = {
            name: stack.enter_context(Subscription(key, prefixes))
            for name, key, prefixes in (
                ("owner", served.connection, TOPICS),
                ("op", operator_key, TOPICS),
                ("alice", alice_key, TOPICS),
                ("bob", bob_key, [b""]),
                ("thief", bob_key, [b"event\0", b"event\0alice\0", b"stats\0\0", b"event\0\0"]),
            )
        }
        came = dict.fromkeys(TOPICS, 3) | {b"": 1, b"event\0\0": 1}
        while any(audience._prefixes[prefix] != times for prefix, times in came.items()):
            alice.status()
        served.engine.runner.gate.set()
        secret = {"max_tokens": 5, "temperature": 0.0, "cache_salt": "swordfish"}
        asked = {
            "alice": [alice.submit(f"swordfish {n}", **secret) for n in range(3)],
            "bob": [bob.submit(f"swordfish {n}", **secret) for n in range(3)],
        }
        own = {name: {stream.finished and stream.id for stream in streams} for name, streams in asked.items()}
        numbers = {stream.accepted.number for streams in asked.values() for stream in streams}
        everybodys = own["alice"] | own["bob"]
        may = {"owner": everybodys, "op": everybodys, "alice": own["alice"], "bob": own["bob"]}
        programs = {"alice": {"alice/alice-program"}, "bob": {"alice2/bob-program"}}
        programs |= dict.fromkeys(("owner", "op"), programs["alice"] | programs["bob"])
        for who, ids in may.items():
            told = Told(ears[who], numbers)
            assert told.ids == ids and told.clients == programs[who] and not ears[who].lost
            assert b"swordfish" not in told.payload
            for id in everybodys - ids:
                assert id.encode() not in told.payload  # in no event's text either
            assert told.orphans == (set() if len(ids) > 3 else {5})
        assert ears["thief"].receive(timeout=0) is None
        assert {row.id for row in bob.snapshot().requests} == own["bob"] | {""}
        assert bob.status().stats is not None and not bob.status().stats.requests


class Told:
    """What telemetry said until it had told, in events and in stats, that all these requests had finished.

    ``orphans``: numbers of output tokens of those that had no name."""

    def __init__(self, telemetry: Subscription, numbers: set[int]) -> None:
        self.ids: set[str] = set()
        self.clients: set[str] = set()
        self.orphans: set[int] = set()
        self.payload = b""
        open_ones = {Event: set(numbers), Stats: set(numbers)}
        topics = set()
        while any(open_ones.values()) or topics != set(TOPICS):
            received = telemetry.receive(timeout=60)
            assert received is not None
            topic, _, message = received
            topics.add(topic)
            self.payload += msgspec.msgpack.encode(message)
            for row in [*getattr(message, "requests", []), getattr(message, "row", None)]:
                if row is None:
                    continue
                self.ids |= {row.id} - {""}
                self.clients |= {row.client} - {""}
                if row.state == "finished":
                    open_ones[type(message)].discard(row.number)
                    if not row.id:
                        assert not row.prefix and not row.client
                        self.orphans.add(row.output_tokens)


def test_the_log_is_told_to_operators_alone(serve: Callable[..., Served]) -> None:
    served = serve()
    board = served.service._switchboard
    with (
        Subscription(served.come_as("alice"), [TOPIC_EVENT]) as alice,
        Subscription(served.connection, [TOPIC_EVENT]) as owner,
    ):
        with Client(served.connection) as client:
            while board.audience._prefixes[TOPIC_EVENT] != 2:
                client.status()
        for kind in ("log", "state"):
            board.publish(TOPIC_EVENT, Event("e", 0.0, kind, kind))
        told = [ear.receive(timeout=60) for ear in (alice, owner, owner)]
        assert [one and one[2].text for one in told] == ["state", "log", "state"]


def test_only_operators_change_settings_and_stop_the_engine(serve: Callable[..., Served]) -> None:
    served = serve()
    with Client(served.come_as("alice")) as alice, Client(served.come_as("bob", operator=True)) as bob:
        for call in (
            lambda: alice.reconfigure({"block_size": 16}),
            lambda: alice.reconfigure({"block_size": 16}, dry_run=True),
            alice.release,
            alice.shutdown,
        ):
            error = refusal(call)
            assert error.code == "forbidden" and "'alice'" in error.message and "--operator" in error.message
        stream = alice.submit("hello", **LONG)
        assert stream.accepted
        assert bob.describe_request(stream.id).prompt_text == "hello"
        assert bob.reconfigure({"block_size": 16}).changes["block_size"] == (8, 16)
        bob.cancel(stream.id)
        assert stream.finished.samples[0].finish_reason == "cancelled"
        bob.shutdown()


# --- limits -------------------------------------------------------------------------------------------------------


def test_one_client_more_than_there_may_be_is_told_so(serve: Callable[..., Served]) -> None:
    served = serve(max_clients=2)
    with Client(served.connection) as first:
        with Client(served.connection) as second:
            error = refusal(lambda: Client(served.connection))
            assert error.code == "too_many_clients" and "max_clients" in error.message
            assert second.status().name == "e"
        Client(served.connection).close()  # there is room again
        first.reconfigure({"max_clients": 1})
        assert refusal(lambda: Client(served.connection)).code == "too_many_clients"
        assert first.status().name == "e"


def test_one_request_more_than_a_client_may_have_open_is_told_so(serve: Callable[..., Served]) -> None:
    served = serve(max_client_requests=2)
    with Client(served.connection) as one, Client(served.connection) as other:
        open_ones = [one.submit(token_ids=[n] * 9, max_tokens=5, temperature=0.0) for n in range(2)]
        assert all(stream.accepted for stream in open_ones)
        error = refusal(lambda: one.submit(token_ids=[3]).accepted)
        assert error.code == "too_many_requests" and "max_client_requests" in error.message
        assert refusal(lambda: one.submit("text").accepted).code == "too_many_requests"
        theirs = other.submit(token_ids=[4] * 9, max_tokens=5, temperature=0.0)
        assert theirs.accepted
        served.engine.runner.gate.set()
        assert all(stream.finished.output_tokens == 5 for stream in [*open_ones, theirs])
        assert one.submit(token_ids=[3], max_tokens=1).finished


@pytest.mark.parametrize("field", ["id", "cache_salt"])
def test_a_name_that_is_too_long_is_told_so(serve: Callable[..., Served], field: str) -> None:
    from pagedeck.ipc.protocol import Submit

    with Client(serve().connection) as client:
        error = refusal(lambda: client.submit(Submit(token_ids=[1], **{field: "x" * 1001})).accepted)
        assert (error.code, error.field) == ("too_long", field)


def test_a_text_that_no_context_holds_is_refused_unread(serve: Callable[..., Served]) -> None:
    tokenizer = Bytes()
    text = Text(tokenizer, 16)
    with pytest.raises(Refused) as refused:
        text._encode("x" * (16 * 7 + 1), special=False)
    assert (refused.value.code, refused.value.field) == ("too_long", "prompt") and tokenizer.read == []
    assert len(text._encode("x" * (16 * 7), special=False)) == 112
    served = serve()
    with Client(served.connection) as client:
        error = refusal(lambda: client.submit("x" * 30_000).accepted)
        assert error.code == "too_long" and "30,000 characters" in error.message


def test_a_signal_lets_requests_go_on_for_a_while_and_no_longer(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "DRAIN_S", 0.2)
    served = serve(num_blocks=50_000, context_length=400_000)
    served.engine.runner.gate.set()
    with Client(served.connection) as client:
        short = client.submit(token_ids=[1] * 9, max_tokens=3, temperature=0.0)
        endless = client.submit(token_ids=[2] * 9, max_tokens=300_000, temperature=0.0)
        assert short.finished.output_tokens == 3 and next(iter(endless))
        served.service.signalled(signal.SIGTERM, None)
        error = refusal(lambda: endless.finished)
        assert error.code == "shutdown" and "SIGTERM" in error.message
        served.wait()
