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
import os
import queue
import socket
import struct
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import zmq

from . import protocol
from .endpoint import Connection, connect, find
from .protocol import (
    GONE_AFTER_S,
    HEARTBEAT_S,
    Accepted,
    BlockDetail,
    Cancel,
    ChatMessage,
    ClientMessage,
    ConfigReply,
    DescribeBlock,
    DescribeRequest,
    Done,
    EngineMessage,
    EngineStatus,
    Failed,
    Finished,
    GetConfig,
    GetSnapshot,
    GetStatus,
    Hello,
    Message,
    Ping,
    Reconfigure,
    Reconfigured,
    ReconfigureReport,
    Release,
    RequestDetail,
    SetPriority,
    SettingInfo,
    Shutdown,
    SnapshotReply,
    StatusReply,
    Submit,
    Tokens,
    Welcome,
)
from .subscriber import Subscription
from .telemetry import TOPIC_EVENT, Event
from .vocabulary import EngineState, SamplingParams

_MONITOR_EVENT = struct.Struct("=hi")  # event, value

M = TypeVar("M", bound=Message)


class EngineError(Exception):
    """What an engine answered instead; ``code`` as in :class:`~.protocol.Failed`, or ``timeout``."""

    def __init__(self, message: str, *, code: str = "internal", field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field

    @classmethod
    def of(cls, failed: Failed) -> EngineError:
        return cls(failed.message, code=failed.code, field=failed.field)


class EngineGone(EngineError):
    """The engine died, stopped, or did not answer for ``GONE_AFTER_S`` (code ``gone``), or took no key (``key``)."""

    def __init__(self, message: str, *, code: str = "gone") -> None:
        super().__init__(message, code=code)


#: What a reply's receiver is called with: each message of the answer, or once the error that ended the wait for it.
Receiver = Callable[["EngineMessage | EngineError"], None]


# --- what the blocking and the asynchronous client share ----------------------------------------------------------


def submission(
    prompt: str | Submit | None,
    messages: Sequence[ChatMessage | dict[str, str]] | None,
    token_ids: Sequence[int] | None,
    priority: str | int,
    cache_salt: str,
    sampling: dict[str, Any],
) -> Submit:
    """A :class:`Submit` with an id, from one or from its parts."""
    if isinstance(prompt, Submit):
        return prompt if prompt.id else msgspec.structs.replace(prompt, id=uuid.uuid4().hex)
    return Submit(
        id=uuid.uuid4().hex,
        prompt=prompt,
        messages=None if messages is None else [msgspec.convert(m, ChatMessage) for m in messages],
        token_ids=None if token_ids is None else list(token_ids),
        sampling=SamplingParams(**{**sampling, "stop": tuple(sampling.get("stop", ()))}),
        priority=priority,
        cache_salt=cache_salt,
    )


def default_name() -> str:
    """How a client introduces itself unless told otherwise: its program and process."""
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"  # noqa: PTH119
    return f"{program}:{os.getpid()}"


def expect(answer: EngineMessage | EngineError, kind: type[M]) -> M:
    """The answer, which must be of ``kind``; raises what it states otherwise."""
    if isinstance(answer, EngineError):
        raise answer
    if isinstance(answer, Failed):
        raise EngineError.of(answer)
    if not isinstance(answer, kind):
        raise EngineError(
            f"The engine answered {type(answer).__name__} where {kind.__name__} belongs.", code="protocol"
        )
    return answer


def open_control(context: zmq.Context[Any], connection: Connection) -> tuple[Any, Any]:
    """A connected DEALER and its monitor, which tells of failed handshakes; of the context's own socket class."""
    control = context.socket(zmq.DEALER)
    monitor = control.get_monitor_socket(
        zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    )  # fmt: skip
    control.set(zmq.SNDHWM, 0)  # the engine reads whatever comes; what it refuses it says
    control.set(zmq.RCVHWM, 0)
    connect(control, connection.control, connection.server_key)
    return control, monitor


class Watch:
    """Whether an engine is still there: fed with what is heard, asked at every beat."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked: float | None = None  # the first ping since the engine was last heard
        self._pinged = time.monotonic()  # hello comes before any ping
        self._failed_handshakes = 0
        self._shaking = False

    def heard(self) -> None:
        self._asked = None

    def next_ping(self, now: float) -> float:
        """Seconds until the next ping is due."""
        return max(0.0, self._pinged + HEARTBEAT_S - now)

    def ping_due(self, now: float) -> bool:
        if self.next_ping(now) > 0:
            return False
        self._pinged = now
        if self._asked is None:
            self._asked = now
        return True

    def monitored(self, frames: list[bytes]) -> None:
        """Take in one event of the socket's monitor."""
        # zmq.utils.monitor would do this, and import asyncio for it.
        kind, _ = _MONITOR_EVENT.unpack(frames[0])
        if kind == zmq.EVENT_CONNECTED:
            self._shaking = True
        elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._shaking = False
            self._failed_handshakes = 0
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:  # not tried again by the socket
            self._failed_handshakes = 2
        elif kind != zmq.EVENT_DISCONNECTED or self._shaking:  # told off, or cut off before the handshake was done
            self._shaking = False
            self._failed_handshakes += 1

    def verdict(self, now: float) -> EngineGone | None:
        """Why the engine counts as gone, if it does."""
        c = self._connection
        if c.local and not c.process_alive():
            return EngineGone(f"The engine {c.name!r} ended (process {c.pid}).")
        if self._failed_handshakes >= 2:
            key = "the key in use is not the engine's" if c.server_key else "the engine wants a key"
            return EngineGone(f"Whoever listens at {c.control} does not accept this connection: {key}.", code="key")
        if self._asked is not None and now - self._asked > GONE_AFTER_S:
            return EngineGone(
                f"The engine {c.name!r} (process {c.pid}) has not answered for {now - self._asked:.0f} s."
            )
        return None


# --- streams ----------------------------------------------------------------------------------------------------


class Stream:
    """The answer to one :class:`Submit`: iterate over its :class:`Tokens` as they come.

    Iteration ends with the request (also when it was cancelled) and raises :class:`EngineError` where it failed.
    """

    def __init__(self, client: Client, submit: Submit) -> None:
        self.id = submit.id
        self._client = client
        self._answers: queue.SimpleQueue[EngineMessage | EngineError] = queue.SimpleQueue()
        self._tokens: deque[Tokens] = deque()  # arrived while something else was waited for
        self._received: list[Tokens] = []
        self._accepted: Accepted | None = None
        self._finished: Finished | None = None
        self._error: EngineError | None = None

    def __iter__(self) -> Iterator[Tokens]:
        while self._tokens or not self.ended:
            if not self._tokens:
                self._take()
                continue
            yield self._tokens.popleft()
        if self._error:
            raise self._error

    @property
    def ended(self) -> bool:
        return self._finished is not None or self._error is not None

    @property
    def accepted(self) -> Accepted:
        """Waits until the request is queued. Raises :class:`EngineError` where it was refused."""
        while self._accepted is None and not self.ended:
            self._take()
        if self._accepted is None and self._error:
            raise self._error
        assert self._accepted is not None
        return self._accepted

    @property
    def finished(self) -> Finished:
        """Waits until the request ends. Raises :class:`EngineError` where it failed."""
        while not self.ended:
            self._take()
        if self._error:
            raise self._error
        assert self._finished is not None
        return self._finished

    def text(self, index: int = 0) -> str:
        """The whole text of one sample; waits until the request ends."""
        _ = self.finished
        return "".join(t.text for t in self._received if t.index == index)

    def token_ids(self, index: int = 0) -> list[int]:
        """All tokens of one sample; waits until the request ends."""
        _ = self.finished
        return [token for t in self._received if t.index == index for token in t.token_ids]

    def cancel(self) -> None:
        """End the request; what it produced until then can still be read."""
        if not self.ended:
            self._client.cancel(self.id)

    def _take(self, timeout: float | None = None) -> None:
        answer = self._answers.get(timeout=timeout)
        if isinstance(answer, Tokens):
            self._tokens.append(answer)
            self._received.append(answer)
        elif isinstance(answer, Accepted):
            self._accepted = answer
        elif isinstance(answer, Finished):
            self._finished = answer
        elif isinstance(answer, EngineError):
            self._error = answer
        elif isinstance(answer, Failed):
            self._error = EngineError.of(answer)


# --- the client -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Wait:
    receive: Receiver
    stream: bool  # ends with Finished or Failed, not with the first answer


class Client:
    """A connection to one engine. Every method may be called from any thread.

    Args:
        connection: an engine's connection, its name, the path of its file, or None for the only one that runs.
        timeout: seconds to wait for the answer to a call (streams wait as long as the engine lives).
        name: how the client introduces itself; shown beside its requests.

    Raises:
        Refused: there is no such engine.
        EngineGone: it does not answer, or does not accept the key.
        EngineError: it speaks another version of the protocol (code ``protocol``).
    """

    def __init__(
        self, connection: Connection | str | None = None, *, timeout: float = 10.0, name: str | None = None
    ) -> None:
        self.connection = connection if isinstance(connection, Connection) else find(connection)
        self.timeout = timeout
        self._name = name or default_name()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}
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
            self.hello = self._ask(Hello(client=self._name), Welcome).status
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
        """Cancel what still runs for this client and close the connection."""
        if self._closing:
            return
        with self._lock:
            self._closing = True
            streams = [id for id, wait in self._waits.items() if wait.stream]
            self._outgoing.extend(Cancel(id=self._next_id(), request=id) for id in streams)
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

    def cancel(self, id: str) -> None:
        self._ask(Cancel(request=id), Done)

    def set_priority(self, id: str, priority: str | int) -> None:
        self._ask(SetPriority(request=id, priority=priority), Done)

    def status(self) -> EngineStatus:
        return self._ask(GetStatus(), StatusReply).status

    def config(self) -> list[SettingInfo]:
        return self._ask(GetConfig(), ConfigReply).settings

    def reconfigure(self, changes: dict[str, Any], *, dry_run: bool = False) -> ReconfigureReport:
        return self._ask(Reconfigure(changes=changes, dry_run=dry_run), Reconfigured).report

    def snapshot(self) -> SnapshotReply:
        return self._ask(GetSnapshot(), SnapshotReply)

    def describe_block(self, block: int, tier: str = "device", group: str = "") -> BlockDetail:
        return self._ask(DescribeBlock(tier=tier, block=block, group=group), BlockDetail)

    def describe_request(self, id: str, group: str = "") -> RequestDetail:
        return self._ask(DescribeRequest(request=id, group=group), RequestDetail)

    def release(self) -> None:
        """Let the engine live on when the process that started it ends."""
        self._ask(Release(), Done)

    def shutdown(self, drain: bool = False) -> None:
        """Stop the engine: after finishing what it has (``drain``), or at once."""
        self._ask(Shutdown(drain=drain), Done)

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
            with self._lock:
                self._waits.pop(id, None)
            c = self.connection
            text = f"The engine {c.name!r} (process {c.pid}) did not answer within {seconds:g} s."
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
            if error is None and message.id in self._waits:
                error = EngineError(f"The id {message.id!r} is in use by this client.", code="duplicate", field="id")
            if error is None:
                self._waits[message.id] = _Wait(receive, isinstance(message, Submit))
                self._outgoing.append(message)
        if error is not None:
            receive(error)
        else:
            self._wake()
        return message.id

    def _ask(self, message: ClientMessage, kind: type[M]) -> M:
        return expect(self.request(message), kind)

    def _next_id(self) -> str:
        return f"call-{next(self._numbers)}"

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended
            self._wake_in.send(b"\0")

    # --- the I/O thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            control, monitor = open_control(self._context, self.connection)
        except zmq.ZMQError as error:
            self._end(EngineGone(f"{self.connection.control} cannot be connected to: {error}."))
            return
        watch = Watch(self.connection)
        poller = zmq.Poller()
        for source in (control, monitor, self._wake_out.fileno()):
            poller.register(source, zmq.POLLIN)
        try:
            while not self._closing:
                poller.poll(math.ceil(1000 * watch.next_ping(time.monotonic())))
                self._send(control)
                self._receive(control, watch)
                while monitor.poll(0):
                    watch.monitored(monitor.recv_multipart())
                now = time.monotonic()
                if watch.ping_due(now):
                    self._outgoing.append(Ping(id="ping"))
                    self._send(control)
                    gone = watch.verdict(now)
                    if gone is not None:
                        self._receive(control, watch)  # its last words may have come meanwhile
                        self._end(gone)
                        return
            self._send(control)
            self._end(EngineError("This client was closed.", code="closed"))
        except Exception as error:
            self._end(EngineGone(f"The connection to {self.connection.name!r} broke: {error}"))
            raise
        finally:
            control.disable_monitor()
            monitor.close(linger=0)
            control.close(linger=200)
            self._context.term()
            self._wake_out.close()

    def _send(self, control: zmq.Socket[bytes]) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(4096)
        with contextlib.suppress(zmq.Again):  # the socket has given up on the engine: the watch will say so
            while self._outgoing:
                control.send(protocol.encode(self._outgoing[0]), zmq.NOBLOCK)
                self._outgoing.popleft()

    def _receive(self, control: zmq.Socket[bytes], watch: Watch) -> None:
        while True:
            try:
                frame = control.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            watch.heard()
            try:
                message = protocol.decode_engine(frame)
            except msgspec.DecodeError as error:
                message = Failed(id=protocol.decode_id(frame), code="protocol", message=f"Not understood: {error}.")
            self._dispatch(message)

    def _dispatch(self, message: EngineMessage) -> None:
        with self._lock:
            wait = self._waits.get(message.id)
            if wait is not None and (not wait.stream or isinstance(message, Finished | Failed)):
                del self._waits[message.id]
        if wait is not None:
            wait.receive(message)

    def _end(self, error: EngineError) -> None:
        with self._lock:
            self._gone = error
            waits, self._waits = list(self._waits.values()), {}
        for wait in waits:
            wait.receive(error)
