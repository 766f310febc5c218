"""Engines as processes of their own, with a real if tiny model: how they start, serve, die and are found again."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from pagedeck.ipc.aio import AsyncClient
from pagedeck.ipc.client import Client, EngineError, EngineGone
from pagedeck.ipc.endpoint import find, list_connections
from pagedeck.ipc.telemetry import TOPIC_EVENT, Event
from pagedeck.ipc.vocabulary import Refused

GREEDY = {"temperature": 0.0, "ignore_eos": True}


@pytest.fixture
def client(shared_engine: Any) -> Any:
    with Client(shared_engine.connection) as client:
        yield client


# --- one engine for all of these ----------------------------------------------------------------------------------


def test_text_goes_in_and_comes_out(client: Client) -> None:
    stream = client.submit("the quick brown fox", max_tokens=12, **GREEDY)
    pieces = [t.text for t in stream]
    assert stream.finished.output_tokens == 12 == len(stream.token_ids())
    assert "".join(pieces) == stream.text() == client.describe_request(stream.id).text[0]
    assert client.describe_request(stream.id).prompt_text == "the quick brown fox"


def test_a_chat_goes_through_the_models_template(client: Client) -> None:
    assert client.status().chat_template
    stream = client.submit(messages=[{"role": "user", "content": "hello"}], max_tokens=3, **GREEDY)
    assert stream.finished
    assert client.describe_request(stream.id).prompt_text == "<|user|>hello\n<|assistant|>"
    with pytest.raises(EngineError) as error:
        client.submit(messages=[]).text()
    assert error.value.field == "messages"


def test_greedy_samples_agree_and_seeded_ones_repeat(client: Client) -> None:
    greedy = client.submit("the sun", n=3, max_tokens=10, **GREEDY)
    assert greedy.token_ids(0) == greedy.token_ids(1) == greedy.token_ids(2)
    seeded = [client.submit("the sun", n=2, max_tokens=10, seed=5, ignore_eos=True) for _ in range(2)]
    assert seeded[0].token_ids(0) == seeded[1].token_ids(0) != greedy.token_ids(0)
    assert seeded[0].token_ids(1) == seeded[1].token_ids(1) != seeded[0].token_ids(0)


def test_a_stop_string_ends_a_stream_before_it(client: Client) -> None:
    whole = client.submit("the lazy dog", max_tokens=20, **GREEDY)
    stop = whole.text()[6:9]
    stopped = client.submit("the lazy dog", max_tokens=20, stop=[stop], **GREEDY)
    assert stopped.text() == whole.text()[: whole.text().index(stop)]
    assert stopped.finished.samples[0].finish_reason == "stop"


def test_the_asyncio_client_gets_the_same(client: Client, shared_engine: Any) -> None:
    alone = [client.submit(f"number {n}", max_tokens=8, **GREEDY).token_ids() for n in range(6)]

    async def together() -> list[list[int]]:
        async with AsyncClient(shared_engine.connection) as other:
            streams = [other.submit(f"number {n}", max_tokens=8, **GREEDY) for n in range(6)]
            assert (await streams[0].accepted()).number
            assert (await other.describe_request(streams[0].id)).row is not None
            return [await stream.token_ids() for stream in streams]

    assert asyncio.run(together()) == alone


def test_the_block_size_changes_while_a_model_streams(client: Client) -> None:
    before = client.submit("the quick brown fox", max_tokens=150, **GREEDY).token_ids()
    stream = client.submit("the quick brown fox", max_tokens=150, cache_salt="again", **GREEDY)
    next(iter(stream))
    sizes = (64, 8, 128, 16)
    for size in sizes:
        assert client.reconfigure({"block_size": size}).changes["block_size"][1] == size
    assert stream.token_ids() == before


def test_status_says_what_runs(client: Client, tiny_model_folder: Path) -> None:
    status = client.status()
    assert (status.state, status.device, status.dtype) == ("ready", "cpu", "float32")
    assert (status.context_length, status.vocabulary, status.name) == (4096, 320, "shared")
    assert status.model == tiny_model_folder.name
    assert Path(status.log).read_text().count("Ready") == 1


# --- ends ---------------------------------------------------------------------------------------------------------


def test_a_killed_engine_ends_streams_and_leaves_its_name(engine_process: Any) -> None:
    with engine_process(name="mortal") as engine, Client(engine.connection) as client:
        stream = client.submit("the fox", max_tokens=4000, **GREEDY)
        next(iter(stream))
        path = Path(engine.connection.path)
        engine.process.kill()
        with pytest.raises(EngineGone, match="ended"):
            stream.text()
        assert path.exists()  # it had no time to clean up
        with pytest.raises(Refused, match="No engine named 'mortal'"):
            find("mortal")
        assert list(path.parent.glob("*.*")) == []
        with engine_process(name="mortal", ready=False) as heir:
            assert find("mortal").pid == heir.process.pid


def test_a_terminated_engine_finishes_first(engine_process: Any) -> None:
    with engine_process(ready=False, owned=False) as engine, Client(engine.connection) as client:
        engine.process.stdin.close()  # nobody's: it does not mind
        client.wait_ready(60)
        stream = client.submit("the fox", max_tokens=300, **GREEDY)
        assert stream.accepted
        engine.process.send_signal(signal.SIGTERM)
        assert stream.finished.output_tokens == 300
        assert engine.wait_exit() == 0
        assert list_connections() == []
        assert "SIGTERM" in engine.log[-1]


def test_loading_says_what_takes_long_from_the_start(engine_process: Any) -> None:
    with engine_process(ready=False) as engine, Client(engine.connection) as client:
        said: set[str] = set()
        with client.subscribe([TOPIC_EVENT]) as events:
            while (status := client.status()).state == "loading" and "Importing transformers" not in said:
                said.add(status.detail)  # an event before the subscription reached the engine is not told
                _, _, event = events.receive(timeout=60) or (None, 0, None)
                said |= {event.text} if isinstance(event, Event) else set()
        assert "Importing transformers" in said


def test_a_second_signal_ends_at_once(engine_process: Any) -> None:
    with engine_process() as engine, Client(engine.connection) as client:
        stream = client.submit("the fox", max_tokens=4000, **GREEDY)
        assert stream.accepted
        engine.process.send_signal(signal.SIGINT)
        while client.status().state != "draining":
            pass
        engine.process.send_signal(signal.SIGINT)
        assert engine.wait_exit() == 128 + signal.SIGINT
        assert list(Path(client.connection.path).parent.glob("*.*")) == []
        with pytest.raises(EngineGone):
            stream.text()


def test_an_owned_engine_ends_with_its_parent_even_while_loading(engine_process: Any) -> None:
    with engine_process(ready=False) as engine:
        engine.process.stdin.close()
        assert engine.wait_exit() == 0
        assert list_connections() == []


def test_a_released_engine_outlives_its_parent(engine_process: Any) -> None:
    with engine_process(ready=False) as engine, Client(engine.connection) as client:
        client.release()
        engine.process.stdin.close()
        engine.wait_for("released, the engine goes on")
        assert client.status().state == "loading"
        client.shutdown()
        assert engine.wait_exit() == 0


# --- beginnings ---------------------------------------------------------------------------------------------------


def test_a_taken_name_is_refused_in_one_sentence(engine_process: Any) -> None:
    with engine_process(name="one", ready=False) as first:
        sentence = f"pagedeck: An engine named 'one'.*{first.process.pid}"
        with pytest.raises(pytest.fail.Exception, match=sentence), engine_process(name="one", ready=False):
            pass
        assert find("one").pid == first.process.pid


def test_a_model_that_is_not_there_is_one_sentence(engine_process: Any, tmp_path: Path) -> None:
    missing = str(tmp_path / "nothing-here")
    with engine_process(model=missing, ready=False) as engine:
        assert engine.wait_exit() == 1
        last = engine.log[-1]
        assert last.startswith("pagedeck: ") and "nothing-here" in last
        assert not any("Traceback" in line for line in engine.log)
        assert list_connections() == []


def test_over_tcp_the_engines_key_is_needed(engine_process: Any) -> None:
    with engine_process(listen="tcp://127.0.0.1:0", ready=False) as engine:
        connection = engine.connection
        assert {c.laddr.ip for c in psutil.Process(engine.process.pid).net_connections("tcp")} == {"127.0.0.1"}
        with Client(connection) as client:
            assert client.status().name == "test"
        with pytest.raises(EngineGone) as error:
            Client(replace(connection, server_key=zmq.curve_keypair()[0].decode()))
        assert error.value.code == "key"
