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
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio

from .answer import Answer
from .course import LOOK_S, SERVING, TAKEOVER, Asked
from .endpoint import Connection, connect, find, find_successor
from .line import EngineError, EngineGone, Line, default_name, open_control
from .protocol import (
    Accepted,
    Bye,
    ChatMessage,
    ClientMessage,
    EngineMessage,
    Failed,
    Finished,
    GetStatus,
    Message,
    Shutdown,
    StatusReply,
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
        return await self.wait()

    async def wait(self, timeout: float | None = None) -> Finished:
        """Wait until the request ends. Raises :class:`EngineError` where it failed, or where it did not end within
        ``timeout`` seconds (code ``timeout``); then it goes on."""
        try:
            async with asyncio.timeout(timeout):
                while not self.ended:
                    await self._change()
        except TimeoutError:
            raise self._not_ended(timeout) from None
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
        connect(self._socket, connection.telemetry, connection)

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
        self,
        connection: Connection | str | None = None,
        *,
        timeout: float = 10.0,
        name: str | None = None,
        patience: float = 0.0,
    ) -> None:
        self.connection = connection if isinstance(connection, Connection) else find(connection)
        self.timeout = timeout
        self.patience = patience
        self._name = name or default_name()
        self._line = Line(self.connection, self._name, self._restarted)
        self._numbers = itertools.count(1)
        self._asked = Asked(patient=patience > 0)
        self._taking_over = False  # as in the blocking client
        self._refused: EngineError | None = None
        self._gone: EngineError | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Self:
        self._context = zmq.asyncio.Context()
        self._connect()
        self._life = asyncio.create_task(self._live())
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
        if self._context.closed:
            return
        if self._gone is None:
            self._send(Bye())
        self._end(EngineError("This client was closed.", code="closed"))
        self._life.cancel()
        await asyncio.gather(self._life, return_exceptions=True)
        await self._hang_up(linger=200)
        self._context.term()

    @property
    def gone(self) -> EngineError | None:
        """Why the connection is over; None while it lasts, and while an engine that takes over is waited for."""
        return self._gone

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
        error = self._gone or self._asked.add(submit, stream._take)
        if error is not None:
            stream._take(error)
        elif not self._taking_over:
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
        refusal = self._asked.add(message, lambda reply: None if answer.done() else answer.set_result(reply))
        if refusal is not None:
            raise refusal
        if isinstance(message, Shutdown):
            self._asked.patient = False
        seconds = self.timeout if timeout is None else timeout
        try:
            self._send(message)
            reply = await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            text = f"{self.connection} did not answer within {seconds:g} s."
            raise EngineError(text, code="timeout") from None
        finally:
            self._asked.remove(message.id)
        if isinstance(reply, EngineError):
            raise reply
        return reply

    async def _carry_out(self, call: Call[R]) -> R:
        return call.read(await self.request(call.message))

    def _send(self, message: Message) -> None:
        try:
            self._put(self._line.write(message))
        except EngineError as error:
            self._asked.answer(error.failed(message.id))

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

    def _connect(self) -> None:
        self._control, self._monitor = open_control(self._context, self.connection)
        self._tasks = [asyncio.create_task(work()) for work in (self._listen, self._watch_connection)]

    async def _hang_up(self, linger: int) -> None:
        if self._control.closed:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._control.disable_monitor()
        self._monitor.close(linger=0)
        self._control.close(linger=linger)

    async def _live(self) -> None:
        reason = await self._beat()
        while await self._outlives(reason):
            reason = await self._beat()
        self._end(reason)

    async def _listen(self) -> None:
        while True:
            message = self._line.read(await self._control.recv())
            self._put_due()
            if message is not None and message.id == TAKEOVER:
                self._take_over(message)
            elif message is not None:
                self._asked.answer(message)

    async def _beat(self) -> EngineError:
        """Keep the conversation alive until it is over; returns why it is."""
        while True:
            await asyncio.sleep(self._line.next_ping(time.monotonic()))
            now = time.monotonic()
            ping = self._line.ping(now)
            if ping is None:
                continue
            if self._refused is not None:
                return self._refused
            self._put(ping)
            if self._taking_over:
                self._send(GetStatus(id=TAKEOVER))
            gone = self._line.verdict(now)
            if gone is not None:
                await asyncio.sleep(0)  # its last words may have come meanwhile
                self._send(Bye())  # should it only stand still, it need not wait for us
                return gone

    async def _watch_connection(self) -> None:
        while True:
            self._line.monitored(await self._monitor.recv_multipart())
            self._put_due()

    # --- engines that follow one another --------------------------------------------------------------------------

    async def _outlives(self, reason: EngineError) -> bool:
        """Whether another engine took this one's name, which is waited for."""
        if reason.code != "gone" or not self._asked.patient:
            return False
        self._taking_over = True
        self._asked.fail(reason)
        end = time.monotonic() + self.patience
        while self._asked.patient and time.monotonic() < end:
            successor = find_successor(self.connection)
            if successor is not None:
                await self._hang_up(linger=0)
                self.connection = successor
                self._line = Line(successor, self._name, self._restarted)
                self._connect()
                self._send(self._line.hello(TAKEOVER))
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def _take_over(self, message: EngineMessage) -> None:
        """As in the blocking client."""
        if isinstance(message, Failed):
            self._refused = EngineError.of(message)
        elif isinstance(message, Welcome | StatusReply) and message.status.state in SERVING and self._taking_over:
            self.hello = message.status
            self._ask_again()

    def _restarted(self, reason: EngineError) -> None:
        """The engine gave this client up, which begins anew."""
        self._asked.fail(reason)
        if not self._taking_over:
            self._ask_again()

    def _ask_again(self) -> None:
        self._taking_over = False
        self._put_due()  # the hello, if there is one
        for submit in self._asked.again():
            self._send(submit)

    def _end(self, error: EngineError) -> None:
        self._gone = self._gone or error
        self._asked.patient = False
        self._asked.fail(error)


__all__ = ["AsyncClient", "AsyncStream", "AsyncSubscription", "EngineError", "EngineGone"]
