"""A client of an engine: one I/O thread, any number of calling threads.

    with Client() as engine:
        for tokens in engine.submit(prompt="Once upon a time", max_tokens=50):
            print(tokens.text, end="")

Every error that an engine states raises :class:`EngineError`; an engine that died, stopped or does not answer ends
every waiting call and stream with :class:`EngineGone`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import queue
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq

from .answer import Answer
from .course import LOOK_S, SERVING, TAKEOVER, Asked
from .endpoint import Connection, find, find_successor
from .line import EngineError, EngineGone, Line, Receiver, default_name, open_control
from .protocol import (
    Accepted,
    Bye,
    ChatMessage,
    ClientMessage,
    EngineMessage,
    EngineStatus,
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
from .subscriber import Subscription
from .telemetry import TOPIC_EVENT, Event
from .verbs import Blocking, Call, R, expect, submission
from .vocabulary import EngineState

__all__ = ["Client", "EngineError", "EngineGone", "Stream"]


# --- streams ----------------------------------------------------------------------------------------------------


class Stream(Answer):
    """The answer to one :class:`Submit`: iterate over its :class:`Tokens` as they come.

    Iteration ends with the request (also when it was cancelled) and raises :class:`EngineError` where it failed.
    """

    def __init__(self, client: Client, submit: Submit) -> None:
        super().__init__(submit.id)
        self._client = client
        self._answers: queue.SimpleQueue[EngineMessage | EngineError] = queue.SimpleQueue()
        self._tokens: deque[Tokens] = deque()  # arrived while something else was waited for

    def __iter__(self) -> Iterator[Tokens]:
        while self._tokens or not self.ended:
            if not self._tokens:
                self._take()
                continue
            yield self._tokens.popleft()
        if self._error:
            raise self._error

    @property
    def accepted(self) -> Accepted:
        """Waits until the request is queued. Raises :class:`EngineError` where it was refused."""
        while self._accepted is None and not self.ended:
            self._take()
        return self._known_accepted()

    @property
    def finished(self) -> Finished:
        """Waits until the request ends. Raises :class:`EngineError` where it failed."""
        return self.wait()

    def wait(self, timeout: float | None = None) -> Finished:
        """Wait until the request ends. Raises :class:`EngineError` where it failed, or where it did not end within
        ``timeout`` seconds (code ``timeout``); then it goes on."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.ended:
            try:
                self._take(None if end is None else max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise self._not_ended(timeout) from None
        return self._known_finished()

    def text(self, index: int = 0) -> str:
        """The whole text of one sample; waits until the request ends."""
        _ = self.finished
        return self._known_text(index)

    def token_ids(self, index: int = 0) -> list[int]:
        """All tokens of one sample; waits until the request ends."""
        _ = self.finished
        return self._known_tokens(index)

    def logprobs(self, index: int = 0) -> list[TokenLogprob]:
        """One entry for each token of one sample, where ``logprobs`` asked for them; waits until the request ends."""
        _ = self.finished
        return self._known_logprobs(index)

    def cancel(self) -> None:
        """End the request; what it produced until then can still be read."""
        if not self.ended:
            self._client.cancel(self.id)

    def _take(self, timeout: float | None = None) -> None:
        answer = self._answers.get(timeout=timeout)
        if isinstance(answer, Tokens):
            self._tokens.append(answer)
        self._note(answer)


# --- the client -------------------------------------------------------------------------------------------------


class Client(Blocking):
    """A connection to one engine. Every method may be called from any thread.

    Args:
        connection: an engine's connection, its name, the path of its file, or None for the only one that runs.
        timeout: seconds to wait for the answer to a call (streams wait as long as the engine lives).
        name: how the client introduces itself; shown beside its requests.
        patience: seconds to wait for another engine of the same name when this one ends. Requests then go on there,
            if nothing of their output came yet or it would be the same again (greedy, or with a seed); all else that
            is not answered raises :class:`EngineGone`.

    Raises:
        Refused: there is no such engine.
        EngineGone: it does not answer, or does not accept the key.
        EngineError: it speaks another version of the protocol (code ``protocol``).
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
        self._lock = threading.Lock()
        self._asked = Asked(patient=patience > 0)
        self._refused: EngineError | None = None  # by an engine that took over
        self._taking_over = False  # another engine is looked for, or not ready yet: requests wait for it
        self._outgoing: deque[Message] = deque()
        self._gone: EngineError | None = None
        self._closing = False
        self._context: zmq.Context[Any] = zmq.Context()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="pagedeck-client", daemon=True)
        self._thread.start()
        try:
            self.hello = expect(self.request(self._line.hello(self._next_id())), Welcome).status
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye, which cancels what still runs for this client, and close the connection."""
        if self._closing:
            return
        with self._lock:
            self._closing = True
            self._outgoing.append(Bye())
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._wake_in.close()

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
    ) -> Stream:
        """Run a prompt; returns at once. ``sampling`` are the fields of :class:`SamplingParams`."""
        submit = submission(prompt, messages, token_ids, priority, cache_salt, sampling)
        stream = Stream(self, submit)
        self.post(submit, stream._answers.put)
        return stream

    def subscribe(self, topics: Sequence[bytes] | None = None) -> Subscription:
        """Telemetry of this engine; all topics unless some are named. It belongs to the calling thread."""
        return Subscription(self.connection) if topics is None else Subscription(self.connection, topics)

    def wait_ready(self, timeout: float | None = None) -> EngineStatus:
        """Wait until the model is loaded.

        Raises:
            EngineError: it could not be loaded (code ``model``), or not within ``timeout`` seconds (``timeout``).
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self.subscribe([TOPIC_EVENT]) as events:
            while True:
                status = self.status()
                if status.state == EngineState.FAILED:
                    raise EngineError(status.detail, code="model")
                if status.state != EngineState.LOADING:
                    return status
                if end is not None and time.monotonic() > end:
                    raise EngineError(f"The engine was not ready within {timeout:g} s: {status.detail}", code="timeout")
                received = events.receive(timeout=1.0)
                while received is not None and not (isinstance(received[2], Event) and received[2].kind == "state"):
                    received = events.receive(timeout=1.0)

    # --- calls ----------------------------------------------------------------------------------------------------

    def request(self, message: ClientMessage, timeout: float | None = None) -> EngineMessage:
        """Send a message that has a single reply and wait for it; :class:`Failed` is returned like any other.

        Raises:
            EngineError: no reply within ``timeout`` seconds (code ``timeout``), or as :class:`EngineGone`.
        """
        answers: queue.SimpleQueue[EngineMessage | EngineError] = queue.SimpleQueue()
        seconds = self.timeout if timeout is None else timeout
        id = self.post(message, answers.put)
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            self._asked.remove(id)
            text = f"{self.connection} did not answer within {seconds:g} s."
            raise EngineError(text, code="timeout") from None
        if isinstance(answer, EngineError):
            raise answer
        return answer

    def post(self, message: ClientMessage, receive: Receiver) -> str:
        """Send a message and return its id at once. ``receive`` is called on the I/O thread and must not block."""
        if not message.id:
            message = msgspec.structs.replace(message, id=self._next_id())
        with self._lock:
            error = self._gone or (EngineError("This client is closed.", code="closed") if self._closing else None)
            error = error or self._asked.add(message, receive)
            if error is None and not (self._taking_over and isinstance(message, Submit)):
                self._outgoing.append(message)
            if isinstance(message, Shutdown):
                self._asked.patient = False
        if error is not None:
            receive(error)
        else:
            self._wake()
        return message.id

    def _carry_out(self, call: Call[R]) -> R:
        return call.read(self.request(call.message))

    def _next_id(self) -> str:
        return f"call-{next(self._numbers)}"

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended
            self._wake_in.send(b"\0")

    # --- the I/O thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            reason = self._converse()
            while self._outlives(reason):
                reason = self._converse()
            self._end(reason)
        except Exception as error:
            self._end(EngineGone(f"The connection to {self.connection.name!r} broke: {error}"))
            raise
        finally:
            self._context.term()
            self._wake_out.close()

    def _converse(self) -> EngineError:
        """Talk to the engine until that is over; returns why."""
        try:
            control, monitor = open_control(self._context, self.connection)
        except zmq.ZMQError as error:
            return EngineGone(f"{self.connection.control} cannot be connected to: {error}.")
        poller = zmq.Poller()
        for source in (control, monitor, self._wake_out.fileno()):
            poller.register(source, zmq.POLLIN)
        try:
            if self._taking_over:
                self._put(control, self._line.write(self._line.hello(TAKEOVER)))
            while not self._closing:
                poller.poll(math.ceil(1000 * self._line.next_ping(time.monotonic())))
                while monitor.poll(0):
                    self._line.monitored(monitor.recv_multipart())
                self._receive(control)
                self._send(control)
                over = self._refused or self._beat(control)
                if over is not None:
                    return over
            self._send(control)
            return EngineError("This client was closed.", code="closed")
        finally:
            control.disable_monitor()
            monitor.close(linger=0)
            control.close(linger=200)

    def _beat(self, control: zmq.Socket[bytes]) -> EngineError | None:
        """Ping when it is time; returns why the engine counts as gone, if it does."""
        line, now = self._line, time.monotonic()
        ping = line.ping(now)
        if ping is None:
            return None
        self._put(control, ping)
        if self._taking_over:
            self._put(control, line.write(GetStatus(id=TAKEOVER)))
        gone = line.verdict(now)
        if gone is not None:
            self._receive(control)  # its last words may have come meanwhile
            self._put(control, line.write(Bye()))  # should it only stand still, it need not wait for us
        return gone

    def _send(self, control: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(4096)
        for frame in self._line.due():
            self._put(control, frame)
        while self._outgoing:
            message = self._outgoing.popleft()
            try:
                self._put(control, self._line.write(message))
            except EngineError as error:
                self._asked.answer(error.failed(message.id))

    def _put(self, control: zmq.Socket[bytes], frame: bytes) -> None:
        with contextlib.suppress(zmq.Again):  # the socket has given up on the engine: the line will say so
            control.send(frame, zmq.NOBLOCK)

    def _receive(self, control: zmq.Socket[bytes]) -> None:
        while True:
            try:
                frame = control.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            message = self._line.read(frame)
            if message is not None and message.id == TAKEOVER:
                self._take_over(message)
            elif message is not None:
                self._asked.answer(message)

    # --- engines that follow one another --------------------------------------------------------------------------

    def _outlives(self, reason: EngineError) -> bool:
        """Whether another engine took this one's name, which is waited for."""
        if reason.code != "gone" or not self._asked.patient or self._closing:
            return False
        with self._lock:
            self._taking_over = True
            self._outgoing.clear()
        self._asked.fail(reason)
        end = time.monotonic() + self.patience
        while not self._closing and self._asked.patient and time.monotonic() < end:
            successor = find_successor(self.connection)
            if successor is not None:
                self.connection = successor
                self._line = Line(successor, self._name, self._restarted)
                return True
            select.select([self._wake_out], [], [], LOOK_S)
            with contextlib.suppress(BlockingIOError):
                self._wake_out.recv(4096)
        return False

    def _take_over(self, message: EngineMessage) -> None:
        """The engine that took over says how it is: ask it what the last one did not answer, once it can be asked."""
        if isinstance(message, Failed):
            self._refused = EngineError.of(message)
        elif isinstance(message, Welcome | StatusReply) and message.status.state in SERVING and self._taking_over:
            self.hello = message.status
            self._ask_again()

    def _restarted(self, reason: EngineError) -> None:
        """The engine gave this client up, which begins anew."""
        with self._lock:
            self._outgoing.clear()
            waits_already, self._taking_over = self._taking_over, True
        self._asked.fail(reason)
        if not waits_already:
            self._ask_again()

    def _ask_again(self) -> None:
        with self._lock:
            self._taking_over = False
            self._outgoing.extend(self._asked.again())

    def _end(self, error: EngineError) -> None:
        with self._lock:
            self._gone = error
            self._asked.patient = False
            self._outgoing.clear()
        self._asked.fail(error)
