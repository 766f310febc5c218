"""The client for asyncio: the verbs of :class:`.client.Client`, awaited.

async with AsyncClient() as engine:
    async for tokens in engine.submit(prompt="Once upon a time", max_tokens=50):
        print(tokens.text, end="")
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

from .answer import Answer
from .endpoint import Connection, connect, find
from .line import EngineError, EngineGone, Line, default_name, open_control
from .protocol import (
    Accepted,
    Bye,
    ChatMessage,
    ClientMessage,
    EngineMessage,
    Failed,
    Finished,
    Message,
    Submit,
    TokenLogprob,
    Tokens,
    Welcome,
)
from .subscriber import QUEUE, Sequences
from .telemetry import TOPICS, TelemetryMessage, decode_frames
from .verbs import Awaiting, Call, R, expect, submission


class AsyncStream(Answer):
    """The answer to one :class:`Submit`: iterate over its :class:`Tokens` as they come.

    Iteration ends with the request (also when it was cancelled) and raises :class:`EngineError` where it failed.
    """

    def __init__(self, client: AsyncClient, submit: Submit) -> None:
        super().__init__(submit.id)
        self._client = client
        self._changed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Tokens]:
        given = 0
        while given < len(self._received) or not self.ended:
            if given == len(self._received):
                await self._change()
                continue
            given += 1
            yield self._received[given - 1]
        if self._error:
            raise self._error

    async def accepted(self) -> Accepted:
        """Wait until the request is queued. Raises :class:`EngineError` where it was refused."""
        while self._accepted is None and not self.ended:
            await self._change()
        return self._known_accepted()

    async def finished(self) -> Finished:
        """Wait until the request ends. Raises :class:`EngineError` where it failed."""
        while not self.ended:
            await self._change()
        return self._known_finished()

    async def text(self, index: int = 0) -> str:
        """The whole text of one sample; waits until the request ends."""
        await self.finished()
        return self._known_text(index)

    async def token_ids(self, index: int = 0) -> list[int]:
        """All tokens of one sample; waits until the request ends."""
        await self.finished()
        return self._known_tokens(index)

    async def logprobs(self, index: int = 0) -> list[TokenLogprob]:
        """One entry for each token of one sample, where ``logprobs`` asked for them; waits until the request ends."""
        await self.finished()
        return self._known_logprobs(index)

    async def cancel(self) -> None:
        """End the request; what it produced until then can still be read."""
        if not self.ended:
            await self._client.cancel(self.id)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _take(self, answer: EngineMessage | EngineError) -> None:
        self._note(answer)
        self._changed.set()


class AsyncSubscription:
    """An asynchronous iterator over ``(topic, sequence, message)``; ``lost`` counts what was missed of each topic."""

    def __init__(self, connection: Connection, topics: Sequence[bytes] = TOPICS, *, queue: int = QUEUE) -> None:
        self._sequences = Sequences()
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set(zmq.RCVHWM, queue)
        for topic in topics:
            self._socket.set(zmq.SUBSCRIBE, topic)
        connect(self._socket, connection.telemetry, connection.server_key)

    @property
    def lost(self) -> dict[str, int]:
        return self._sequences.lost

    async def __aiter__(self) -> AsyncIterator[tuple[bytes, int, TelemetryMessage]]:
        while True:
            frames = await self._socket.recv_multipart()
            with contextlib.suppress(ValueError):
                topic, sequence, message = decode_frames(frames)
                self._sequences.take(topic, sequence, message)
                yield topic, sequence, message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


class AsyncClient(Awaiting):
    """A connection to one engine, for one event loop. Arguments as :class:`.client.Client`; ``async with`` opens it.

    Entering raises :class:`EngineGone` where the engine does not answer or does not accept the key, and
    :class:`EngineError` where it speaks another version of the protocol.
    """

    def __init__(
        self, connection: Connection | str | None = None, *, timeout: float = 10.0, name: str | None = None
    ) -> None:
        self.connection = connection if isinstance(connection, Connection) else find(connection)
        self.timeout = timeout
        self._line = Line(self.connection, name or default_name(), self._fail_all)
        self._numbers = itertools.count(1)
        self._waits: dict[str, Callable[[EngineMessage | EngineError], None]] = {}
        self._streams: dict[str, AsyncStream] = {}
        self._gone: EngineError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Self:
        self._context = zmq.asyncio.Context()
        self._control, self._monitor = open_control(self._context, self.connection)
        self._tasks = [asyncio.create_task(work()) for work in (self._listen, self._beat, self._watch_connection)]
        try:
            self.hello = expect(await self.request(self._line.hello(self._next_id())), Welcome).status
        except BaseException:
            await self.close()
            raise
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Say goodbye, which cancels what still runs for this client, and close the connection."""
        if self._control.closed:
            return
        if self._gone is None:
            self._send(Bye())
        self._end(EngineError("This client was closed.", code="closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._control.disable_monitor()
        self._monitor.close(linger=0)
        self._control.close(linger=200)
        self._context.term()

    # --- verbs ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        prompt: str | Submit | None = None,
        *,
        messages: Sequence[ChatMessage | dict[str, str]] | None = None,
        token_ids: Sequence[int] | None = None,
        priority: str | int = "normal",
        cache_salt: str = "",
        **sampling: Any,
    ) -> AsyncStream:
        """Run a prompt; returns at once. ``sampling`` are the fields of :class:`SamplingParams`."""
        submit = submission(prompt, messages, token_ids, priority, cache_salt, sampling)
        stream = AsyncStream(self, submit)
        error = self._gone
        if submit.id in self._streams:
            error = EngineError(f"The id {submit.id!r} is in use by this client.", code="duplicate", field="id")
        if error is not None:
            stream._take(error)
        else:
            self._streams[submit.id] = stream
            self._send(submit)
        return stream

    def subscribe(self, topics: Sequence[bytes] = TOPICS) -> AsyncSubscription:
        """Telemetry of this engine; all topics unless some are named."""
        return AsyncSubscription(self.connection, topics)

    # --- calls ----------------------------------------------------------------------------------------------------

    async def request(self, message: ClientMessage, timeout: float | None = None) -> EngineMessage:
        """Send a message that has a single reply and wait for it; :class:`Failed` is returned like any other.

        Raises:
            EngineError: no reply within ``timeout`` seconds (code ``timeout``), or as :class:`EngineGone`.
        """
        if self._gone is not None:
            raise self._gone
        if not message.id:
            message = msgspec.structs.replace(message, id=self._next_id())
        answer: asyncio.Future[EngineMessage | EngineError] = asyncio.get_running_loop().create_future()
        self._waits[message.id] = lambda reply: None if answer.done() else answer.set_result(reply)
        seconds = self.timeout if timeout is None else timeout
        try:
            self._send(message)
            reply = await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            c = self.connection
            text = f"The engine {c.name!r} (process {c.pid}) did not answer within {seconds:g} s."
            raise EngineError(text, code="timeout") from None
        finally:
            self._waits.pop(message.id, None)
        if isinstance(reply, EngineError):
            raise reply
        return reply

    async def _carry_out(self, call: Call[R]) -> R:
        return call.read(await self.request(call.message))

    def _send(self, message: Message) -> None:
        self._put(self._line.write(message))

    def _put(self, frame: bytes) -> None:
        # The socket's queue has no bound, so a message is taken at once; or the socket has given up on the engine, and
        # the line will say so.
        sent = self._control.send(frame, zmq.NOBLOCK)
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())

    def _put_due(self) -> None:
        for frame in self._line.due():
            self._put(frame)

    def _next_id(self) -> str:
        return f"call-{next(self._numbers)}"

    # --- tasks ----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            message = self._line.read(await self._control.recv())
            self._put_due()
            if message is not None:
                self._dispatch(message)

    def _dispatch(self, message: EngineMessage) -> None:
        if message.id in self._streams:
            ended = isinstance(message, Finished | Failed)
            stream = self._streams.pop(message.id) if ended else self._streams[message.id]
            stream._take(message)
        elif message.id in self._waits:
            self._waits.pop(message.id)(message)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._line.next_ping(time.monotonic()))
            now = time.monotonic()
            ping = self._line.ping(now)
            if ping is None:
                continue
            self._put(ping)
            gone = self._line.verdict(now)
            if gone is not None:
                await asyncio.sleep(0)  # its last words may have come meanwhile
                self._send(Bye())  # should it only stand still, it need not wait for us
                self._end(gone)
                return

    async def _watch_connection(self) -> None:
        while True:
            self._line.monitored(await self._monitor.recv_multipart())
            self._put_due()

    def _end(self, error: EngineError) -> None:
        self._gone = self._gone or error
        self._fail_all(error)

    def _fail_all(self, error: EngineError) -> None:
        waits, self._waits = list(self._waits.values()), {}
        streams, self._streams = list(self._streams.values()), {}
        for receive in waits:
            receive(error)
        for stream in streams:
            stream._take(error)


__all__ = ["AsyncClient", "AsyncStream", "AsyncSubscription", "EngineError", "EngineGone"]
