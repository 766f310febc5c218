"""Engines that end and are started again: what clients asked goes on at the next one, or they are told why not."""

from __future__ import annotations

import asyncio
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest
from pagedeck.engine.serving.switchboard import Received
from pagedeck.ipc import line
from pagedeck.ipc.aio import AsyncClient
from pagedeck.ipc.client import Client, EngineError, EngineGone
from pagedeck.ipc.course import Course
from pagedeck.ipc.endpoint import process_started
from pagedeck.ipc.protocol import Accepted, Done, Failed, Finished, GetSnapshot, GetStatus, Submit, Tokens
from pagedeck.ipc.vocabulary import SamplingParams

GREEDY = {"temperature": 0.0}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients look often whether their engine's process is alive."""
    monkeypatch.setattr(line, "HEARTBEAT_S", 0.03)


class Mortal:
    """An engine in this process that seems to be in another one, which can end."""

    def __init__(self, made: Any) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.made = made
        pid = self._process.pid
        self.connection = replace(made.connection, pid=pid, started=process_started(pid))

    def end(self) -> None:
        self.made.close()
        if self._process.returncode is None:
            self._process.communicate(b"\n")


def next_submit(made: Any) -> Received:
    while True:
        item = made.inbox.get(timeout=60)
        if isinstance(item, Received) and isinstance(item.message, Submit):
            return item


def tokens(id: str, *words: str, first: int = 0) -> list[Tokens]:
    return [Tokens(id=id, token_ids=[n], text=word) for n, word in enumerate(words, first)]


def say(made: Any, received: Received, *messages: Any) -> None:
    for message in messages:
        made.switchboard.send(received.client, message)


@pytest.fixture
def mortal(board: Callable[..., Any]) -> Iterator[Callable[[], Mortal]]:
    made: list[Mortal] = []

    def make() -> Mortal:
        made.append(Mortal(board()))
        return made[-1]

    yield make
    for each in made:
        each.end()


def test_a_stream_goes_on_at_the_next_engine_without_a_token_twice(board: Any, mortal: Any) -> None:
    first = mortal()
    with Client(first.connection, patience=60) as client:
        stream = client.submit("x", **GREEDY)
        asked = next_submit(first.made)
        say(first.made, asked, Accepted(id=stream.id, number=1), *tokens(stream.id, "a ", "b "))
        words = iter(stream)
        assert [next(words).text, next(words).text] == ["a ", "b "]
        first.end()
        second = board()
        again = next_submit(second)
        assert again.message.id == stream.id and again.message.prompt == "x"
        whole = Tokens(id=stream.id, token_ids=[0, 1, 2], text="a b c ")
        say(second, again, Accepted(id=stream.id, number=1), whole, *tokens(stream.id, "d", first=3))
        say(second, again, Finished(id=stream.id, output_tokens=4))
        assert [t.text for t in words] == ["c ", "d"]
        assert stream.token_ids() == [0, 1, 2, 3] and stream.finished.output_tokens == 4
        assert client.connection.epoch == second.connection.epoch and client.status().epoch == second.connection.epoch


def test_a_draw_without_a_seed_is_repeated_only_while_nothing_of_it_came(board: Any, mortal: Any) -> None:
    first = mortal()
    with Client(first.connection, patience=60) as client:
        begun, waiting, seeded = client.submit("x"), client.submit("y"), client.submit("z", seed=1)
        asked = [next_submit(first.made) for _ in range(3)]
        for received, stream in ((asked[0], begun), (asked[2], seeded)):
            say(first.made, received, *tokens(stream.id, "a"))
            assert next(iter(stream)).text == "a"
        first.end()
        second = board()
        with pytest.raises(EngineGone):
            begun.text()
        again = [next_submit(second) for _ in range(2)]
        assert [r.message.id for r in again] == [waiting.id, seeded.id]
        for received in again:
            say(second, received, *tokens(received.message.id, "a"), Finished(id=received.message.id))
        assert waiting.text() == seeded.text() == "a"


def test_another_output_is_not_joined_to_what_was_given(board: Any, mortal: Any) -> None:
    first = mortal()
    with Client(first.connection, patience=60) as client:
        stream = client.submit("x", **GREEDY)
        say(first.made, next_submit(first.made), *tokens(stream.id, "a"))
        assert next(iter(stream)).text == "a"
        first.end()
        second = board()
        say(second, next_submit(second), *tokens(stream.id, "b"))
        with pytest.raises(EngineError, match="another output") as error:
            stream.text()
        assert error.value.code == "lost"


def test_what_is_asked_meanwhile_waits_until_the_next_engine_is_ready(board: Any, mortal: Any) -> None:
    first = mortal()
    with Client(first.connection, patience=60) as client:
        ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client.post(GetSnapshot(), ends.put)
        assert isinstance(first.made.inbox.get(timeout=60).message, GetSnapshot)
        first.end()
        second = board(state="loading")
        assert isinstance(ends.get(timeout=60), EngineGone)  # a call is not repeated: its caller is told
        stream = client.submit("later")
        client.request(GetStatus(), timeout=60)  # which answers while it is loading
        assert second.inbox.empty()
        second.status.state = "ready"
        say(second, received := next_submit(second), *tokens(received.message.id, "a"), Finished(id=stream.id))
        assert stream.text() == "a"


def test_without_patience_or_a_next_engine_the_end_is_said(mortal: Any) -> None:
    for patience in (0.0, 0.2):
        made = mortal()
        with Client(made.connection, patience=patience) as client:
            stream = client.submit("x", **GREEDY)
            next_submit(made.made)
            made.end()
            with pytest.raises(EngineGone):
                stream.text()


def test_requests_outlive_an_engine_that_says_goodbye_unless_their_client_ended_it(board: Any, mortal: Any) -> None:
    first = mortal()
    with Client(first.connection, patience=60) as client:
        stream = client.submit("x", **GREEDY)
        say(
            first.made,
            next_submit(first.made),
            Failed(id=stream.id, code="shutdown", message="The engine got SIGTERM."),
        )
        first.end()
        second = board()
        say(second, next_submit(second), *tokens(stream.id, "a"), Finished(id=stream.id))
        assert stream.text() == "a"
        stream = client.submit("y", **GREEDY)
        asked = next_submit(second)
        second.answer(lambda _client, message: [Done(id=message.id)])
        client.shutdown()
        say(second, asked, Failed(id=stream.id, code="shutdown", message="A client asked for it."))
        with pytest.raises(EngineError, match="A client asked"):
            stream.text()


def test_the_asynchronous_client_goes_on_too(board: Any, mortal: Any) -> None:
    first = mortal()

    async def run() -> None:
        async with AsyncClient(first.connection, patience=60) as client:
            stream = client.submit("x", **GREEDY)
            asked = await asyncio.to_thread(next_submit, first.made)
            say(first.made, asked, Accepted(id=stream.id, number=1), *tokens(stream.id, "a "))
            words = aiter(stream)
            assert (await anext(words)).text == "a "
            await asyncio.to_thread(first.end)
            second = board()
            again = await asyncio.to_thread(next_submit, second)
            say(second, again, *tokens(stream.id, "a ", "b"), Finished(id=stream.id))
            assert [t.text async for t in words] == ["b"]
            assert await stream.token_ids() == [0, 1]
            assert (await client.status()).epoch == second.connection.epoch
            second.answer(lambda _client, message: [Done(id=message.id)])
            await client.shutdown()

    asyncio.run(run())


def test_samples_and_their_texts_are_passed_over_one_by_one() -> None:
    course = Course(Submit(id="r", prompt="x", sampling=SamplingParams(n=2, seed=3)))
    given = [Tokens(id="r", index=1, token_ids=[7], text=""), Tokens(id="r", index=1, token_ids=[8], text="ab")]
    assert [course.take(message) for message in given] == given
    course.repeat()
    assert course.take(Tokens(id="r", index=0, token_ids=[1], text="x")) is not None
    assert course.take(Tokens(id="r", index=1, token_ids=[7], text="a")) is None
    rest = course.take(Tokens(id="r", index=1, token_ids=[8, 9], text="bc"))
    assert isinstance(rest, Tokens) and (rest.token_ids, rest.text) == ([9], "c")
    course.repeat()  # yet another engine, which ends sooner
    ended = course.take(Finished(id="r"))
    assert isinstance(ended, Failed) and ended.code == "lost"


def test_a_killed_engines_requests_go_on_when_it_is_started_again(
    engine_process: Callable[..., AbstractContextManager[Any]],
) -> None:
    tokens = list(range(1, 40))
    with engine_process() as first:
        client = Client(first.connection, patience=300)
        with client:
            whole = client.submit(token_ids=tokens, max_tokens=60, ignore_eos=True, **GREEDY).token_ids()
            stream = client.submit(token_ids=tokens, max_tokens=2000, ignore_eos=True, **GREEDY)
            begun = next(iter(stream)).token_ids
            first.process.kill()
            waiting = client.submit(token_ids=tokens, max_tokens=60, ignore_eos=True, **GREEDY)
            with engine_process() as second:
                assert waiting.token_ids() == whole
                stream.cancel()
                assert stream.finished.samples[0].finish_reason == "cancelled"
                assert stream.token_ids()[: len(begun)] == begun == whole[: len(begun)]
                assert client.connection.pid == second.process.pid
