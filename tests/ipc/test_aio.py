"""The asyncio client: the same verbs, the same ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import zmq
from pagedeck.engine.serving.switchboard import ClientGone
from pagedeck.ipc import protocol
from pagedeck.ipc.aio import AsyncClient
from pagedeck.ipc.client import EngineError, EngineGone
from pagedeck.ipc.endpoint import process_started
from pagedeck.ipc.protocol import (
    Accepted,
    Done,
    EngineMessage,
    Failed,
    Finished,
    GetSnapshot,
    SampleResult,
    Submit,
    Tokens,
)
from pagedeck.ipc.telemetry import TOPIC_EVENT, Event


def echo(_client: str, message: Any) -> list[EngineMessage]:
    if not isinstance(message, Submit):
        return [Done(id=message.id)]
    words = (message.prompt or "").split()
    if not words:
        return [Failed(id=message.id, code="invalid", message="prompt is empty.", field="prompt")]
    tokens = [Tokens(id=message.id, token_ids=[i], text=w) for i, w in enumerate(words)]
    ending = Finished(id=message.id, samples=[SampleResult(0, "stop", len(words))])
    return [Accepted(id=message.id, prompt_tokens=len(words)), *tokens, ending]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 120))


def test_streams_run_side_by_side(board: Callable[..., Any]) -> None:
    made = board()
    made.answer(echo)

    async def work() -> None:
        async with AsyncClient("b") as client:
            assert client.hello.detail == (await client.status()).detail == "all well"
            stream = client.submit("a b c")
            assert [t.text async for t in stream] == ["a", "b", "c"]
            assert (await stream.accepted()).prompt_tokens == 3
            texts = await asyncio.gather(*(client.submit(f"{n} x").text() for n in range(50)))
            assert texts == [f"{n}x" for n in range(50)]

    run(work())


def test_a_stream_can_be_waited_for_no_longer_than_that(board: Callable[..., Any]) -> None:
    made = board()

    async def work() -> None:
        async with AsyncClient("b") as client:
            stream = client.submit("a")
            with pytest.raises(EngineError, match=r"did not end within 0\.05 s"):
                await stream.wait(0.05)
            made.answer(echo)
            assert (await stream.wait(25)).samples[0].finish_reason == "stop"

    run(work())


def test_refusals_and_timeouts_raise(board: Callable[..., Any]) -> None:
    made = board()

    async def work() -> None:
        async with AsyncClient(made.connection) as client:
            with pytest.raises(EngineError) as error:
                await client.request(GetSnapshot(), timeout=0.05)
            assert error.value.code == "timeout"
            made.answer(echo)
            with pytest.raises(EngineError, match="prompt is empty") as error:
                await client.submit("").text()
            assert error.value.field == "prompt"

    run(work())


def test_a_message_too_large_is_refused_here(board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = board()
    made.answer(echo)

    async def work() -> None:
        async with AsyncClient(made.connection) as client:
            monkeypatch.setattr(protocol, "MAX_MESSAGE_BYTES", 10_000)
            with pytest.raises(EngineError, match="10,000") as error:
                await client.submit("x" * 10_000).text()
            assert error.value.code == "too_large"
            assert await client.submit("a b").text() == "ab"

    run(work())


def test_leaving_cancels_what_runs(board: Callable[..., Any]) -> None:
    made = board()
    streams = []

    async def work() -> None:
        async with AsyncClient(made.connection) as client:
            streams.append(client.submit("x"))
            await asyncio.to_thread(made.inbox.get, timeout=60)
        with pytest.raises(EngineError, match="closed"):
            await streams[0].text()
        with pytest.raises(EngineError, match="closed"):
            await client.status()

    run(work())
    assert isinstance(made.inbox.get(timeout=60), ClientGone)  # its core cancels what the client asked


def test_an_engine_whose_process_ended_ends_streams(board: Callable[..., Any]) -> None:
    made = board()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    claimed = replace(made.connection, pid=child.pid, started=process_started(child.pid))

    async def work() -> None:
        async with AsyncClient(claimed) as client:
            stream = client.submit("x")
            child.kill()
            child.wait()
            with pytest.raises(EngineGone, match="ended"):
                await stream.text()

    run(work())


def test_a_wrong_key_is_said(board: Callable[..., Any]) -> None:
    made = board(listen="tcp://127.0.0.1:0")
    wrong = replace(made.connection, server_key=zmq.curve_keypair()[0].decode())

    async def work() -> None:
        with pytest.raises(EngineGone) as error:
            await AsyncClient(wrong).open()
        assert error.value.code == "key"

    run(work())


def test_tcp_with_the_key_and_telemetry(board: Callable[..., Any]) -> None:
    made = board(listen="tcp://127.0.0.1:0")
    made.answer(echo)

    async def work() -> None:
        async with AsyncClient(made.connection) as client, client.subscribe([TOPIC_EVENT]) as events:
            assert await client.submit("a b").text() == "ab"
            reading = asyncio.ensure_future(anext(aiter(events)))
            while not made.switchboard.audience.wanted(TOPIC_EVENT):
                await client.status()
            made.switchboard.publish(TOPIC_EVENT, Event("e", 0.0, "log", "hi"))
            topic, sequence, message = await reading
            assert (topic, sequence, message.text) == (TOPIC_EVENT, 1, "hi")

    run(work())
