"""The engine behind its sockets: real core, real wire, a device of plain numbers whose every output is known."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
from pagedeck.engine import core
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.core import Engine
from pagedeck.engine.rules import Rules
from pagedeck.engine.serving import switchboard
from pagedeck.engine.serving.publisher import Publisher
from pagedeck.engine.serving.service import Service
from pagedeck.ipc import line
from pagedeck.ipc.client import Client, EngineError, EngineGone, Stream
from pagedeck.ipc.endpoint import Connection, bind, list_connections
from pagedeck.ipc.protocol import (
    MAX_MESSAGE_BYTES,
    Cancel,
    Done,
    EngineMessage,
    GetSnapshot,
    SetPriority,
    Shutdown,
    SnapshotReply,
    Submit,
)
from pagedeck.ipc.subscriber import Subscription, follow_blocks
from pagedeck.ipc.telemetry import (
    TOPIC_BLOCKS,
    TOPIC_EVENT,
    TOPIC_STATS,
    TOPIC_STEP,
    BlocksUpdate,
    Event,
    Stats,
    Steps,
    TierBlocks,
)
from pagedeck.ipc.vocabulary import BlockState, Refused, SamplingParams

from .harness import VOCABULARY, make_engine
from .token_memory import Launch, TokenMemory, generate

GREEDY = {"temperature": 0.0}


class GatedMemory(TokenMemory):
    """Computes a step only when it is let: ``gate`` open lets all pass, and ``at_gate`` tells that one waits."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes, vocabulary=VOCABULARY)
        self.gate = threading.Event()
        self.at_gate = threading.Semaphore(0)

    def run(self, launch: Launch) -> None:
        if launch.plan.work and not self.gate.is_set():
            self.at_gate.release()
            self.gate.wait()
        super().run(launch)

    def wait_for_step(self) -> None:
        assert self.at_gate.acquire(timeout=60)


class GatedTokenizer:
    """Reads a text as its bytes, when it is let."""

    chat_template = None

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.reading = threading.Semaphore(0)

    def __call__(self, text: str, **_options: Any) -> dict[str, list[int]]:
        self.reading.release()
        self.gate.wait()
        return {"input_ids": list(text.encode())}

    def get_vocab(self) -> dict[str, int]:
        return {"x": 0}

    def decode(self, token_ids: list[int], **_options: Any) -> str:
        return bytes(token % 256 for token in token_ids).decode(errors="replace")


class Running:
    """A service on a thread of its own. ``load`` is what makes its engine."""

    def __init__(self, load: Callable[[Any, Any], Engine], tokenizer: GatedTokenizer | None, name: str = "e") -> None:
        self.engine: Engine | None = None
        self.tokenizer = tokenizer
        self._load = load
        endpoint = bind(zmq.Context.instance(), name=name, listen=None, model="numbers", log="")
        self.connection: Connection = endpoint.connection
        self.service = Service(EngineConfig(), endpoint, self._assemble)
        self.exit_code: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assemble(self, config: EngineConfig, report: Any) -> Any:
        self.engine = self._load(config, report)
        model = SimpleNamespace(name="numbers", tokenizer=self.tokenizer, parameters=7)
        made = SimpleNamespace(device="cpu", dtype="none", model="numbers")
        return SimpleNamespace(engine=self.engine, model=model, config=made)

    def _run(self) -> None:
        self.exit_code = self.service.run()

    def wait(self) -> int:
        self._thread.join(120)
        assert self.exit_code is not None, "the engine did not end"
        return self.exit_code


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Starts services that end with the test: ``serve(**arguments of make_engine)`` or ``serve(load=function)``."""
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    started: list[Running] = []

    def start(
        load: Callable[[Any, Any], Engine] | None = None, tokenizer: GatedTokenizer | None = None, **settings: Any
    ) -> Running:
        running = Running(load or (lambda _config, _report: make_engine(**settings)), tokenizer)
        started.append(running)
        if load is None:
            with Client(running.connection) as client:
                client.wait_ready(120)
        return running

    yield start
    for running in started:
        if running.engine is not None and isinstance(running.engine.runner, GatedMemory):
            running.engine.runner.gate.set()
        if running.tokenizer is not None:
            running.tokenizer.gate.set()
        running.service.stop("The test is over.")
        running.wait()


@pytest.fixture
def client(serve: Callable[..., Running]) -> Iterator[Client]:
    with Client(serve().connection) as client:
        yield client


def prompt(seed: int, length: int = 20) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).tolist()


def ask(client: Client, seed: int, max_tokens: int = 30, length: int = 20, **more: Any) -> Stream:
    return client.submit(token_ids=prompt(seed, length), max_tokens=max_tokens, **{**GREEDY, **more})


def expected(seed: int, max_tokens: int = 30, length: int = 20, index: int = 0) -> list[int]:
    return generate(prompt(seed, length), max_tokens, VOCABULARY, index)


ARRAYS = {"state": "<u1", "ref": "<u2", "fill": "<u2", "owner": "<u4", "last_used": "<u4", "depth": "<u2"}


class Tier:
    """What a viewer knows of a tier."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def apply(self, blocks: TierBlocks, full: bool) -> None:
        ids = np.frombuffer(blocks.ids, "<u4")
        for name, kind in ARRAYS.items():
            values = np.frombuffer(getattr(blocks, name), kind)
            if full:
                assert not len(ids) and len(values) == blocks.num_blocks
                self.arrays[name] = values.copy()
            else:
                assert len(values) == len(ids)
                self.arrays[name][ids] = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tier) and all(np.array_equal(self.arrays[n], other.arrays[n]) for n in ARRAYS)


def tiers(reply: SnapshotReply) -> tuple[Tier, Tier]:
    assert reply.blocks is not None
    device, host = Tier(), Tier()
    device.apply(reply.blocks.device, full=True)
    host.apply(reply.blocks.host, full=True)
    return device, host


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_stream_brings_the_tokens_one_by_one_and_ends(client: Client) -> None:
    stream = ask(client, 1)
    tokens = list(stream)
    assert [t.token_ids[0] for t in tokens] == expected(1)
    assert "".join(t.text for t in tokens) == "".join(f"{token} " for token in expected(1))
    finished = stream.finished
    assert finished.samples[0].finish_reason == "length" and finished.output_tokens == 30
    assert 0 <= finished.queue_s <= finished.ttft_s <= finished.e2e_s
    assert stream.accepted.prompt_tokens == finished.prompt_tokens == 20


def test_samples_of_one_prompt_come_apart(client: Client) -> None:
    stream = ask(client, 2, n=3)
    assert [stream.token_ids(i) for i in range(3)] == [expected(2, index=i) for i in range(3)]
    assert [s.index for s in stream.finished.samples] == [0, 1, 2]


def test_many_at_once_do_not_disturb_each_other(client: Client) -> None:
    streams = {seed: ask(client, seed, max_tokens=10 + seed % 7) for seed in range(40)}
    for seed, stream in streams.items():
        assert stream.token_ids() == expected(seed, 10 + seed % 7)


def test_a_prompt_seen_before_is_found_in_the_cache(client: Client) -> None:
    assert ask(client, 3, length=33).finished.cached_tokens == 0
    assert ask(client, 3, length=33).finished.cached_tokens == 32
    assert ask(client, 3, length=33, cache_salt="other").finished.cached_tokens == 0


def test_any_client_can_cancel_and_what_came_so_far_stays(serve: Callable[..., Running]) -> None:
    running = serve(runner=GatedMemory(512))
    runner = running.engine.runner
    with Client(running.connection) as one, Client(running.connection) as other:
        stream = ask(one, 4, max_tokens=400)
        runner.wait_for_step()
        done: queue.SimpleQueue[EngineMessage | EngineError] = queue.SimpleQueue()
        other.post(Cancel(request=stream.id), done.put)
        other.status()  # all that was sent before it waits for the core by now
        runner.gate.set()
        assert isinstance(done.get(timeout=60), Done)
        assert stream.finished.samples[0].finish_reason == "cancelled"
        assert stream.token_ids() == expected(4, 400)[: len(stream.token_ids())] != []
        with pytest.raises(EngineError, match=stream.id) as error:
            other.cancel(stream.id)
        assert error.value.code == "unknown_request"
        held = tiers(one.snapshot())[0].arrays["ref"]
        assert held.sum() == 0


def test_a_waiting_request_can_be_moved_ahead_and_cancelled(serve: Callable[..., Running]) -> None:
    running = serve(runner=GatedMemory(512), max_batch_size=1)
    runner = running.engine.runner
    with Client(running.connection) as client:
        streams = [ask(client, n, max_tokens=3, priority="batch") for n in range(4)]
        running.engine.runner.wait_for_step()
        answers: list[EngineMessage | EngineError] = []
        client.post(SetPriority(request=streams[3].id, priority=0), answers.append)
        client.post(Cancel(request=streams[1].id), answers.append)
        client.status()  # all that was sent before it waits for the core by now
        runner.gate.set()
        assert streams[1].finished.samples[0].finish_reason == "cancelled" and not streams[1].token_ids()
        assert streams[3].finished.e2e_s < streams[2].finished.e2e_s
        assert streams[2].token_ids() == expected(2, 3)
        assert [type(a) for a in answers] == [Done, Done]


@pytest.mark.parametrize(
    ("fields", "code", "field", "words"),
    [
        ({}, "invalid", "prompt", "exactly one of prompt, messages and token_ids"),
        ({"prompt": "x", "token_ids": [1]}, "invalid", "token_ids", "given: prompt and token_ids"),
        ({"prompt": "x"}, "invalid", "prompt", "no tokenizer"),
        ({"messages": [{"role": "user", "content": "x"}]}, "invalid", "messages", "no tokenizer"),
        ({"token_ids": []}, "invalid", "prompt", "at least one"),
        ({"token_ids": [0, VOCABULARY]}, "invalid", "prompt", "1000"),
        ({"token_ids": [-1]}, "invalid", "prompt", "-1"),
        ({"token_ids": [1] * 5000}, "too_long", None, "4,096"),
        ({"token_ids": [1], "max_tokens": 0}, "invalid", "max_tokens", "from 1"),
        ({"token_ids": [1], "max_tokens": 20_000_000}, "invalid", "max_tokens", "to 10,000,000"),
        ({"token_ids": [1], "temperature": -1.0}, "invalid", "temperature", "-1"),
        ({"token_ids": [1], "priority": "asap"}, "invalid", "priority", "interactive"),
        ({"token_ids": [1], "n": 65}, "invalid", "n", "1 to 64"),
    ],
)
def test_bad_requests_are_refused_by_field(
    client: Client, fields: dict[str, Any], code: str, field: str | None, words: str
) -> None:
    with pytest.raises(EngineError) as error:
        client.submit(**fields).text()
    assert error.value.code == code and words in error.value.message
    assert field is None or error.value.field == field
    assert ask(client, 1, max_tokens=2).token_ids() == expected(1, 2)


def test_a_request_submitted_again_goes_to_who_asked_last_and_is_not_run_again(serve: Callable[..., Running]) -> None:
    running = serve(runner=GatedMemory(512))
    message = Submit(id="mine", token_ids=prompt(1), sampling=SamplingParams(max_tokens=30, temperature=0.0))
    with Client(running.connection) as one, Client(running.connection) as other:
        first = one.submit(message)
        running.engine.runner.wait_for_step()
        second = other.submit(message)
        other.status()  # it waits for the core by now
        running.engine.runner.gate.set()
        assert first.accepted.number == second.accepted.number == 1
        with pytest.raises(EngineError, match="another connection") as error:
            first.text()
        assert error.value.code == "duplicate" and first._known_tokens(0) == expected(1, 1)
        assert second.token_ids() == expected(1) and len(list(second)) == 30
    with Client(running.connection) as late:
        again = late.submit(message)
        assert again.token_ids() == expected(1) and again.text() == second.text()
        assert again.accepted.number == 1 and again.finished.output_tokens == 30
        for other_one in (Submit(id="mine", token_ids=[5]), msgspec.structs.replace(message, cache_salt="x")):
            with pytest.raises(EngineError, match="asked something else") as error:
                late.submit(other_one).text()
            assert (error.value.code, error.value.field) == ("duplicate", "id")
        assert ask(late, 2).accepted.number == 2


def test_what_ended_with_its_client_or_is_forgotten_runs_again(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "ENDED_KEPT", 1)
    running = serve(runner=GatedMemory(512))
    message = Submit(id="mine", token_ids=prompt(1), sampling=SamplingParams(max_tokens=3, temperature=0.0))
    with Client(running.connection) as one:
        assert one.submit(message).accepted.number == 1
        running.engine.runner.wait_for_step()
    with Client(running.connection) as other:
        while running.service._inbox.empty():  # where the goodbye waits for the core
            other.status()
        running.engine.runner.gate.set()
        again = other.submit(message)
        assert again.token_ids() == expected(1, 3) and again.accepted.number == 2
        assert other.submit(message).accepted.number == 2
        assert ask(other, 2, 3).token_ids() == expected(2, 3)  # the only one whose output is kept from here on
        assert other.submit(message).accepted.number == 4


# --- prompts that take long to read -----------------------------------------------------------------------------


def test_a_long_prompt_is_read_beside_the_others(serve: Callable[..., Running]) -> None:
    running = serve(tokenizer=GatedTokenizer())
    with Client(running.connection) as client:
        long = client.submit("hello", max_tokens=5, **GREEDY)
        assert running.tokenizer.reading.acquire(timeout=60)
        assert ask(client, 1).token_ids() == expected(1)
        assert not long.ended
        client.set_priority(long.id, 7)
        running.tokenizer.gate.set()
        assert long.accepted
        assert client.describe_request(long.id).row.priority == 7
        assert long.token_ids() == generate(list(b"hello"), 5, VOCABULARY)


def test_a_prompt_that_is_being_read_can_be_cancelled(serve: Callable[..., Running]) -> None:
    running = serve(tokenizer=GatedTokenizer())
    with Client(running.connection) as client:
        stream = client.submit(Submit(id="mine", prompt="hello"))
        assert running.tokenizer.reading.acquire(timeout=60)
        with Client(running.connection) as other, pytest.raises(EngineError) as error:
            other.submit(Submit(id="mine", prompt="again")).text()
        assert error.value.code == "duplicate"
        with pytest.raises(EngineError, match="still being read"):
            client.describe_request("mine")
        client.set_priority("mine", "batch")
        stream.cancel()
        assert stream.finished.samples[0].finish_reason == "cancelled" and stream.text() == ""
        again = client.submit(Submit(id="mine", prompt="goodbye", sampling=SamplingParams(max_tokens=2, **GREEDY)))
        running.tokenizer.gate.set()
        assert again.token_ids() == generate(list(b"goodbye"), 2, VOCABULARY)
        assert client.status().state == "ready" and running.engine.metrics.counters.finished == 1


def test_a_schema_that_takes_long_holds_no_other_prompt_up(serve: Callable[..., Running]) -> None:
    compiling, compiled = threading.Semaphore(0), threading.Event()

    def rules(sampling: SamplingParams) -> Rules:
        if sampling.json_schema:
            compiling.release()
            compiled.wait(60)
        return Rules()

    def load(_config: Any, _report: Any) -> Engine:
        engine = make_engine()
        engine.rules = rules
        return engine

    tokenizer = GatedTokenizer()
    tokenizer.gate.set()
    with Client(serve(load, tokenizer).connection) as client:
        client.wait_ready(120)
        slow = client.submit("slow", max_tokens=3, json_schema="{}", **GREEDY)
        assert compiling.acquire(timeout=60)
        assert client.submit("hi", max_tokens=3, **GREEDY).token_ids() == generate(list(b"hi"), 3, VOCABULARY)
        assert not slow.ended
        compiled.set()
        assert slow.token_ids() == generate(list(b"slow"), 3, VOCABULARY)


def test_draining_and_shutting_down_count_prompts_that_are_being_read(serve: Callable[..., Running]) -> None:
    running = serve(tokenizer=GatedTokenizer())
    with Client(running.connection) as client:
        stream = client.submit("hello", max_tokens=2, **GREEDY)
        assert running.tokenizer.reading.acquire(timeout=60)
        client.shutdown(drain=True)
        assert client.status().state == "draining"
        client.shutdown()
        with pytest.raises(EngineError) as error:
            stream.text()
        assert error.value.code == "shutdown"
    assert running.wait() == 0


# --- settings -----------------------------------------------------------------------------------------------------


def test_the_block_size_changes_under_a_stream(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=64, block_size=8)
    with Client(running.connection) as client:
        streams = [ask(client, seed, max_tokens=200) for seed in range(2)]
        next(iter(streams[0]))
        dry = client.reconfigure({"block_size": 32}, dry_run=True)
        assert dry.dry_run and dry.changes == {"block_size": (8, 32)}
        assert _setting(client, "block_size") == 8
        for size in (32, 16, 64, 8, 32):
            report = client.reconfigure({"block_size": size})
            assert report.changes["block_size"][1] == size and not report.dry_run
            assert _setting(client, "block_size") == size
        for seed, stream in enumerate(streams):
            assert stream.token_ids() == expected(seed, 200)


def _setting(client: Client, name: str) -> Any:
    return next(s.value for s in client.config() if s.name == name)


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"blok_size": 8}, "blok_size"), ({"block_size": 9}, "block_size"), ({"model": "x"}, "model")],
)
def test_bad_settings_are_refused_by_name(client: Client, changes: dict[str, Any], field: str) -> None:
    for dry_run in (True, False):
        with pytest.raises(EngineError) as error:
            client.reconfigure(changes, dry_run=dry_run)
        assert error.value.field == field
    assert _setting(client, "block_size") == 8


# --- looking ------------------------------------------------------------------------------------------------------


def test_a_block_and_a_request_tell_their_story(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=512, block_size=8, runner=GatedMemory(4096))
    with Client(running.connection, name="teller") as client:
        stream = ask(client, 5, max_tokens=4000)  # more than it can make meanwhile
        running.engine.runner.wait_for_step()
        running.engine.runner.gate.set()
        next(iter(stream))
        detail = client.describe_request(stream.id)
        assert detail.row is not None and detail.row.client == "teller" and detail.row.state == "running"
        assert detail.row.number == stream.accepted.number
        (table,) = detail.block_tables
        block = client.describe_block(table[0])
        assert block.state == BlockState.ACTIVE and block.fill == 8 and block.token_ids == prompt(5)[:8]
        assert [(o.request, o.sample, o.position) for o in block.owners] == [(detail.row.number, 0, 0)]
        stream.cancel()
        assert stream.finished
        ended = client.describe_request(stream.id)
        assert ended.row is not None and ended.row.state == "cancelled" and ended.block_tables == []
        assert ended.text == [stream.text()]
        assert client.describe_block(table[0]).state == BlockState.CACHED


def test_groups_of_layers_are_told_apart(serve: Callable[..., Running]) -> None:
    """Full layers and layers with a window: other pools, other block tables, other stories."""
    memory = GatedMemory(512)
    memory.groups, memory.slot_bytes = (memory, TokenMemory(384)), (8, 16)
    running = serve(runner=memory, windows=(0, 20))
    device, host = Tier(), Tier()
    with Client(running.connection) as client:
        stream = ask(client, 5, max_tokens=150)
        memory.wait_for_step()
        memory.gate.set()
        for update in follow_blocks(client, timeout=60):
            (window,) = update.groups
            assert (update.name, window.name) == ("full", "window 20")
            device.apply(window.device, update.full)
            host.apply(window.host, update.full)
            assert len(stream.token_ids()) == 150
            reply = client.snapshot()
            assert reply.blocks is not None
            (last,) = reply.blocks.groups
            told = SnapshotReply(blocks=BlocksUpdate("", 0, True, last.device, last.host))
            if (device, host) == tiers(told):
                break
        assert (reply.blocks.device.num_blocks, last.device.num_blocks) == (64, 48)
        assert (reply.blocks.device.block_bytes, last.device.block_bytes) == (64, 128)
        cached = np.flatnonzero(device.arrays["state"] == BlockState.CACHED)
        assert len(cached) == (20 + 150 - 1) // 8
        block = client.describe_block(int(cached[0]), group="window 20")
        assert (block.group, block.state, block.fill) == ("window 20", BlockState.CACHED, 8)
        with pytest.raises(EngineError, match="full, window 20"):
            client.describe_block(0, group="window 21")


def test_a_block_and_a_request_tell_who_shares_and_what_continues(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=2048, block_size=8)
    with Client(running.connection) as client:
        streams = [ask(client, 3, max_tokens=4000, length=20) for _ in range(2)]
        for stream in streams:
            next(iter(stream))
        first, second = (client.describe_request(stream.id) for stream in streams)
        root, follower = first.block_tables[0][:2]
        block = client.describe_block(root)
        (parent,) = client.describe_block(follower).ancestors
        for stream in streams:
            client.cancel(stream.id)
    assert first.row is not None and second.row is not None
    assert second.block_tables[0][:2] == [root, follower]
    assert [s.request for s in first.shared_with] == [second.row.number]
    assert 2 <= first.shared_with[0].blocks <= len(second.block_tables[0])
    assert (block.depth, block.ancestor_count, block.copy) == (1, 0, -1)
    assert [(child.block, child.depth, child.ref_count) for child in block.children] == [(follower, 2, 2)]
    assert (parent.tier, parent.block, parent.prefix_hash) == ("device", root, block.prefix_hash)


def test_what_is_not_there_cannot_be_described(client: Client) -> None:
    for call, field in (
        (lambda: client.describe_block(64), "block"),
        (lambda: client.describe_block(-1), "block"),
        (lambda: client.describe_block(0, tier="host"), "block"),
        (lambda: client.describe_block(0, tier="moon"), "tier"),
        (lambda: client.describe_request("nobody"), "request"),
        (lambda: client.set_priority("nobody", 0), "request"),
    ):
        with pytest.raises(EngineError) as error:
            call()
        assert error.value.field == field


# --- telemetry ----------------------------------------------------------------------------------------------------


def test_a_snapshot_and_all_later_changes_give_the_next_snapshot(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=48, block_size=8, host_blocks=16, preemption="swap")
    device, host = Tier(), Tier()
    with Client(running.connection) as client:
        streams = [ask(client, seed, max_tokens=60, length=10 + seed) for seed in range(6)]
        updates = follow_blocks(client, timeout=60)
        deltas = fulls = 0
        reconfigured = False
        for update in updates:
            device.apply(update.device, update.full)
            host.apply(update.host, update.full)
            deltas += not update.full
            fulls += update.full
            if deltas == 2 and not reconfigured:
                reconfigured = True
                client.reconfigure({"block_size": 16})
            if reconfigured and all(s.ended or s.finished for s in streams):
                reply = client.snapshot()
                if (device, host) == tiers(reply):
                    break
        assert (device, host) == tiers(reply)
        assert fulls >= 2 and deltas >= 2  # the snapshot, the change of size
        assert (device.arrays["state"] == BlockState.CACHED).any()
        assert not device.arrays["ref"].any() and not device.arrays["owner"].any()


def test_steps_are_told_completely_and_in_order(serve: Callable[..., Running]) -> None:
    running = serve()
    with Client(running.connection) as client, client.subscribe([TOPIC_STEP]) as steps:
        _wait_subscribed(running, TOPIC_STEP)
        streams = [ask(client, seed, max_tokens=20, length=50) for seed in range(3)]
        numbers = [s.accepted.number for s in streams]
        assert all(s.finished for s in streams)
        records = []
        prefilled = dict.fromkeys(numbers, 0)
        decoded = dict.fromkeys(numbers, 0)
        while sum(decoded.values()) < 3 * 19 or sum(prefilled.values()) < 3 * 50:
            _, _, message = steps.receive(timeout=60) or (None, 0, None)
            assert isinstance(message, Steps)
            for record in message.steps:
                records.append(record)
                assert record.prefill_tokens + record.decode_tokens <= record.budget == 32
                assert sum(e.tokens for e in record.entries) == record.prefill_tokens + record.decode_tokens
                for entry in record.entries:
                    (prefilled if entry.prefill else decoded)[entry.request] += entry.tokens
        assert prefilled == dict.fromkeys(numbers, 50) and decoded == dict.fromkeys(numbers, 19)
        assert [r.step for r in records] == list(range(records[0].step, records[0].step + len(records)))
        assert steps.lost == {}


def _wait_subscribed(running: Running, topic: bytes) -> None:
    probe = Subscription(running.connection, [b"probe"])
    while not running.service._switchboard.audience.wanted(topic):
        probe.receive(timeout=0.01)
    probe.close()


def test_events_tell_a_requests_life_and_warnings(serve: Callable[..., Running]) -> None:
    running = serve()
    with Client(running.connection, name="me") as client, client.subscribe([TOPIC_EVENT]) as events:
        _wait_subscribed(running, TOPIC_EVENT)
        assert ask(client, 1, max_tokens=2).finished
        client.reconfigure({"max_batch_size": 3})
        logging.getLogger("pagedeck.engine").warning("mind the %s", "gap")
        seen: list[Event] = []
        while not seen or seen[-1].kind != "log":
            _, _, message = events.receive(timeout=60) or (None, 0, None)
            assert isinstance(message, Event)
            seen.append(message)
    assert [e.kind for e in seen] == ["submitted", "started", "finished", "reconfigured", "log"]
    assert [e.row.state for e in seen[:3] if e.row] == ["waiting", "running", "finished"]
    assert seen[0].row is not None and seen[0].row.client == "me"
    assert "max_batch_size 16 → 3" in seen[3].text
    assert (seen[4].text, seen[4].level) == ("mind the gap", "warning")


def test_stats_tell_rates_rows_that_changed_and_last_sequences(serve: Callable[..., Running]) -> None:
    running = serve()
    with Client(running.connection) as client, client.subscribe([TOPIC_STATS, TOPIC_STEP]) as telemetry:
        _wait_subscribed(running, TOPIC_STATS)
        stream = ask(client, 1)
        assert stream.finished
        last_step = 0
        rows = []
        while not rows or rows[-1].state != "finished":  # a second may end while it runs
            topic, sequence, message = telemetry.receive(timeout=60) or (b"", 0, None)
            if topic == TOPIC_STEP:
                last_step = sequence
            elif isinstance(message, Stats):
                rows = message.requests
        assert isinstance(message, Stats)
        assert [(row.id, row.state, row.output_tokens) for row in rows] == [(stream.id, "finished", 30)]
        assert message.sequences["step"] == last_step and message.finished == 1
        assert message.latency["ttft"].count == 1 and message.memory_bytes > 0
        counted = {name: np.frombuffer(h["normal"].counts, "<u4").sum() for name, h in message.histograms.items()}
        assert counted == {"ttft": 1, "itl": 29, "queue": 1, "e2e": 1, "prefill": 1, "decode": 1}
        assert message.machine is not None and message.machine.memory_total > message.machine.memory_used > 0
        _, _, later = telemetry.receive(timeout=60) or (b"", 0, None)
        assert isinstance(later, Stats) and later.requests == []
        assert client.status().stats is not None


def test_more_may_end_between_two_stats_than_the_engine_remembers(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "ENDED_KEPT", 3)
    running = serve()
    with Client(running.connection) as client, client.subscribe([TOPIC_STATS]) as telemetry:
        _wait_subscribed(running, TOPIC_STATS)
        streams = [ask(client, seed, max_tokens=5) for seed in range(40)]
        assert all(stream.finished and stream.finished.samples[0].output_tokens == 5 for stream in streams)
        told: dict[str, int] = {}
        while len(told) < len(streams):
            _, _, message = telemetry.receive(timeout=60) or (b"", 0, None)
            assert isinstance(message, Stats)
            told |= {row.id: row.output_tokens for row in message.requests if row.state == "finished"}
        assert told == {stream.id: 5 for stream in streams}


def test_an_idle_engine_wakes_once_a_second(serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[float] = []
    tick = Publisher.tick
    monkeypatch.setattr(Publisher, "tick", lambda self, now: ticks.append(now) or tick(self, now))
    running = serve()
    with Subscription(running.connection, [TOPIC_STATS, TOPIC_BLOCKS]) as telemetry:
        assert telemetry.receive(timeout=60) and telemetry.receive(timeout=60)
        before = len(ticks)
        assert telemetry.receive(timeout=60)
        assert len(ticks) - before <= 3


def test_nobody_subscribed_means_nothing_encoded(client: Client) -> None:
    before = client.snapshot().sequences
    assert ask(client, 1).finished
    assert client.snapshot().sequences == before


def test_a_subscriber_that_does_not_read_costs_the_engine_nothing(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=4096)
    with (
        Client(running.connection) as client,
        Subscription(running.connection, queue=1) as _asleep,
        Subscription(running.connection, [TOPIC_STATS]) as awake,
    ):
        _wait_subscribed(running, TOPIC_BLOCKS)
        streams = [ask(client, seed, max_tokens=100) for seed in range(10)]
        assert [s.token_ids() for s in streams] == [expected(seed, 100) for seed in range(10)]
        assert awake.receive(timeout=60)


def test_a_snapshot_larger_than_a_message_is_refused(serve: Callable[..., Running]) -> None:
    def load(_config: Any, _report: Any) -> Engine:
        blocks = MAX_MESSAGE_BYTES // 12
        return make_engine(num_blocks=blocks, block_size=8, runner=TokenMemory(8, vocabulary=VOCABULARY))

    running = serve(load=load)
    with Client(running.connection) as client:
        client.wait_ready(60)
        with pytest.raises(EngineError) as error:
            client.snapshot()
        assert error.value.code == "too_large"


# --- a step that takes long ---------------------------------------------------------------------------------------


def test_hearts_beat_during_a_long_step(serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (switchboard, line):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.05)
        monkeypatch.setattr(module, "GONE_AFTER_S", 2.0)
    running = serve(runner=GatedMemory(512))
    with Client(running.connection) as client, Client(running.connection) as other:
        stream = ask(client, 1, max_tokens=3)
        running.engine.runner.wait_for_step()
        assert other.status().state == "ready"
        with pytest.raises(EngineError) as error:  # longer than either side's patience
            other.request(GetSnapshot(), timeout=4.0)
        assert error.value.code == "timeout" and not isinstance(error.value, EngineGone)
        running.engine.runner.gate.set()
        assert stream.token_ids() == expected(1, 3)


def test_status_and_settings_are_answered_during_a_step(serve: Callable[..., Running]) -> None:
    running = serve(runner=GatedMemory(512))
    with Client(running.connection) as client:
        client.reconfigure({"max_batch_size": 3})
        stream = ask(client, 1, max_tokens=3)
        running.engine.runner.wait_for_step()
        assert client.status().state == "ready"
        assert _setting(client, "max_batch_size") == 3
        running.engine.runner.gate.set()
        assert stream.token_ids() == expected(1, 3)


# --- clients that go ----------------------------------------------------------------------------------------------


def test_a_killed_clients_requests_are_cancelled_and_nobody_elses(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=512, max_batch_size=4)
    code = (
        "import sys; from pagedeck.ipc.client import Client; c = Client(sys.argv[1]);"
        "s = [c.submit(token_ids=[n + 1] * 20, max_tokens=3000, temperature=0.0) for n in range(6)];"
        "next(iter(s[0])); print('on', flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, running.connection.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with Client(running.connection) as client, client.subscribe([TOPIC_EVENT]) as events:
        assert child.stdout is not None and child.stdout.readline() == "on\n"
        mine = ask(client, 1, max_tokens=40)
        child.kill()
        child.wait()
        cancelled = 0
        while cancelled < 6:
            _, _, message = events.receive(timeout=60) or (None, 0, None)
            assert isinstance(message, Event)
            cancelled += message.kind == "cancelled"
        assert mine.token_ids() == expected(1, 40)
        assert not tiers(client.snapshot())[0].arrays["ref"].any()


# --- beginning and end --------------------------------------------------------------------------------------------


def test_while_the_model_loads_the_engine_says_how_far_it_is(serve: Callable[..., Running]) -> None:
    go = threading.Event()

    def load(_config: Any, report: Any) -> Engine:
        report("Reading weights", 0.25)
        assert go.wait(30)
        return make_engine()

    running = serve(load=load)
    with Client(running.connection) as client, client.subscribe([TOPIC_EVENT]) as events:
        while (status := client.status()).progress is None:
            pass
        assert (status.state, status.detail, status.progress) == ("loading", "Reading weights", 0.25)
        with pytest.raises(EngineError, match="Reading weights") as error:
            client.submit(token_ids=[1]).text()
        assert error.value.code == "loading"
        assert _setting(client, "block_size") == 32
        _wait_subscribed(running, TOPIC_EVENT)
        go.set()
        _, _, message = events.receive(timeout=60) or (None, 0, None)
        assert isinstance(message, Event) and (message.kind, message.state) == ("state", "ready")
        status = client.status()
        assert (status.model, status.parameters, status.context_length, status.vocabulary) == ("numbers", 7, 4096, 1000)
        assert ask(client, 1, max_tokens=2).token_ids() == expected(1, 2)


@pytest.mark.parametrize(
    ("error", "words"),
    [(Refused("There is no model 'x'.", field="model"), "There is no model 'x'."), (KeyError("k"), "KeyError: 'k'")],
)
def test_a_model_that_cannot_be_loaded_ends_the_engine(
    serve: Callable[..., Running], error: Exception, words: str
) -> None:
    go = threading.Event()

    def load(_config: Any, _report: Any) -> Engine:
        assert go.wait(30)
        raise error

    running = serve(load=load)
    with Subscription(running.connection, [TOPIC_EVENT]) as events:
        _wait_subscribed(running, TOPIC_EVENT)
        go.set()
        seen = []
        while not seen or seen[-1].state != "failed":
            _, _, message = events.receive(timeout=60) or (None, 0, None)
            assert isinstance(message, Event)
            seen.append(message)
        assert words in seen[-1].text
    assert running.wait() == 1
    assert list_connections() == []


def test_what_has_not_begun_is_handed_back_while_the_rest_is_finished(serve: Callable[..., Running]) -> None:
    running = serve(runner=GatedMemory(512), max_batch_size=1)
    with Client(running.connection) as client:
        begun = ask(client, 1, max_tokens=20)
        running.engine.runner.wait_for_step()
        waiting = [ask(client, seed) for seed in (2, 3)]
        client.post(Shutdown(drain=True, hand_back=True), lambda _reply: None)
        client.status()  # all that was sent before it waits for the core by now
        running.engine.runner.gate.set()
        for stream in waiting:
            with pytest.raises(EngineError) as error:
                stream.text()
            assert error.value.code == "shutdown"
        assert begun.token_ids() == expected(1, 20)
    assert running.wait() == 0


def test_draining_finishes_what_there_is_and_takes_nothing_new(serve: Callable[..., Running]) -> None:
    running = serve(runner=GatedMemory(512))
    with Client(running.connection) as client:
        stream = ask(client, 1, max_tokens=20)
        running.engine.runner.wait_for_step()
        client.post(Shutdown(drain=True), lambda _reply: None)
        late = ask(client, 2)
        client.status()  # all that was sent before it waits for the core by now
        running.engine.runner.gate.set()
        with pytest.raises(EngineError) as error:
            late.text()
        assert error.value.code == "draining"
        assert stream.token_ids() == expected(1, 20)
    assert running.wait() == 0
    assert list_connections() == []


def test_shutting_down_tells_every_request(serve: Callable[..., Running]) -> None:
    running = serve(num_blocks=512)
    with Client(running.connection) as client, Client(running.connection) as other:
        streams = [ask(client, seed, max_tokens=3000) for seed in range(3)]
        assert all(s.accepted for s in streams)
        other.shutdown()
        for stream in streams:
            with pytest.raises(EngineError) as error:
                stream.text()
            assert error.value.code == "shutdown"
    assert running.wait() == 0


def test_an_engine_that_breaks_down_says_so_and_leaves_nothing(
    serve: Callable[..., Running], caplog: pytest.LogCaptureFixture
) -> None:
    running = serve()

    def broken(_step: int) -> None:
        raise RuntimeError("the plan is lost")

    running.engine.scheduler.plan = broken
    with Client(running.connection) as client, pytest.raises(EngineError, match="the plan is lost"):
        ask(client, 1).text()
    assert running.wait() == 1
    assert list_connections() == []
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert record.exc_info and "the plan is lost" in record.getMessage()


def test_updates_are_raw_little_endian_arrays(client: Client) -> None:
    assert ask(client, 1).finished
    blocks = client.snapshot().blocks
    assert isinstance(blocks, BlocksUpdate) and blocks.full
    assert blocks.device.block_bytes == 8 * 8 and len(blocks.device.owner) == 4 * blocks.device.num_blocks
