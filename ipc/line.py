"""A client's line to an engine: what the blocking client, the asynchronous one and the app have in common.

It owns no socket: it says what to send and takes what came.
"""

from __future__ import annotations

import os
import struct
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from . import protocol
from .endpoint import Connection, connect
from .ledger import Ledger
from .protocol import (
    GONE_AFTER_S,
    HEARTBEAT_S,
    EngineMessage,
    Failed,
    Hello,
    Message,
    Ping,
    Welcome,
)

_MONITOR_EVENT = struct.Struct("=hi")  # event, value

#: How the ids of hellos over new connections begin; ids of calls look otherwise.
_AGAIN = "again-"

#: Handshakes in a row after which a failure is the key's. One can also be cut off by a door that shuts just then.
_TELLING = 4

#: What an engine answers a client whose conversation is over.
_OVER = ("slow_client", "lost")


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

    def failed(self, id: str) -> Failed:
        """The answer that says the same."""
        return Failed(id=id, code=self.code, message=self.message, field=self.field)


class EngineGone(EngineError):
    """The engine died, stopped, or did not answer for ``GONE_AFTER_S`` (code ``gone``), or took no key (``key``)."""

    def __init__(self, message: str, *, code: str = "gone") -> None:
        super().__init__(message, code=code)


#: What a reply's receiver is called with: each message of the answer, or once the error that ended the wait for it.
Receiver = Callable[["EngineMessage | EngineError"], None]


def default_name() -> str:
    """How a client introduces itself unless told otherwise: its program and process."""
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"  # noqa: PTH119
    return f"{program}:{os.getpid()}"


def open_control(context: zmq.Context[Any], connection: Connection) -> tuple[Any, Any]:
    """A connected DEALER and its monitor, which tells of connections and handshakes; of the context's socket class."""
    control = context.socket(zmq.DEALER)
    monitor = control.get_monitor_socket(
        zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
        | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    )  # fmt: skip
    control.set(zmq.SNDHWM, 0)  # the engine reads whatever comes; what it refuses it says
    control.set(zmq.RCVHWM, 0)
    control.set(zmq.ROUTING_ID, f"client-{uuid.uuid4().hex}".encode())  # the same over every connection
    connect(control, connection.control, connection)
    return control, monitor


class Line:
    """Keeps a conversation whole over broken connections, and judges whether the engine is still there.

    Every frame that comes goes through :meth:`read`, every message to send through :meth:`write`, and what
    :meth:`due` returns is sent first. ``restarted`` is called with the reason when the engine gave the client up:
    nothing that was asked until then will be answered, and what is asked from then on is.
    """

    def __init__(self, connection: Connection, name: str, restarted: Callable[[EngineError], None]) -> None:
        self._connection = connection
        self._name = name
        self._restarted = restarted
        self._ledger = Ledger()
        self._conversation = 0
        self._due: list[bytes] = []
        self._asked: float | None = None  # the first ping since the engine was last heard
        self._pinged = time.monotonic()  # hello comes before any ping
        self._failed_handshakes = 0
        self._shaking = False
        self._known = False  # whether a handshake succeeded ever
        self._first = ""  # the id of the first hello, until it is answered
        self._hello = ""  # the id of the hello that this conversation began with
        self._greeted = False  # whether it was answered: until then, what comes belongs to an earlier conversation
        self._turned_away: Failed | None = None  # how the engine refused the hello

    # --- the conversation -----------------------------------------------------------------------------------------

    def hello(self, id: str) -> Hello:
        """What to say first."""
        self._first = self._hello = id
        return self._introduction(id)

    def _introduction(self, id: str) -> Hello:
        return Hello(id=id, client=self._name, numbered=True, pid=os.getpid() if self._connection.local else 0)

    def write(self, message: Message) -> bytes:
        """The frame of a message, which must be sent. Raises :class:`EngineError` for one that the engine's socket
        would break the connection over (``too_large``), and for one that no frame can say (``invalid``): a number
        beyond 64 bits, half a character."""
        if self._turned_away is not None:  # there may be room by now
            self._begin_anew(self._turned_away)
        try:
            frame = self._ledger.write(message)
        except (OverflowError, UnicodeEncodeError, TypeError) as error:
            raise EngineError(f"The message cannot be sent: {error}.", code="invalid") from error
        if len(frame) > protocol.MAX_MESSAGE_BYTES:
            text = f"The message has {len(frame):,} bytes; an engine takes up to {protocol.MAX_MESSAGE_BYTES:,}."
            raise EngineError(text, code="too_large")
        self._ledger.sent(frame)
        return frame

    def due(self) -> list[bytes]:
        """Frames to send before any other, because the connection is a new one."""
        frames, self._due = self._due, []
        return frames

    def read(self, frame: bytes) -> EngineMessage | None:
        """The message of a frame, unless it came before, or was about the conversation itself."""
        self._asked = None
        try:
            message = protocol.decode_engine(frame)
        except msgspec.DecodeError as error:
            envelope = protocol.decode_envelope(frame)
            message = Failed(
                id=envelope.id,
                code="protocol",
                message=f"Not understood: {error}.",
                serial=envelope.serial,
                seen=envelope.seen,
            )
        if not self._greeted:
            return self._take_greeting(message)
        if isinstance(message, Failed) and message.code in _OVER and not message.serial:
            if not self._of_an_earlier_hello(message):
                self._begin_anew(message)
            return None
        if not self._ledger.takes(message):
            return None
        if message.id == self._again and isinstance(message, Welcome):
            self._repeat(message.seen)
            return None
        return message

    def _take_greeting(self, message: EngineMessage) -> EngineMessage | None:
        """The answer to the hello, whichever it was that was answered first; all else is not meant for this
        conversation."""
        if message.id != self._hello:
            return None
        if isinstance(message, Welcome):
            self._greeted = True
            if message.id == self._again:
                self._repeat(message.seen)
        elif isinstance(message, Failed):
            self._turned_away = message
        first, self._first = self._first, ""
        return msgspec.structs.replace(message, id=first) if first else None

    @property
    def _again(self) -> str:
        return f"{_AGAIN}{self._conversation}"

    def _of_an_earlier_hello(self, message: Failed) -> bool:
        """Whether a hello is answered that tried to go on with what is known to be over: several may be under way."""
        return message.id.startswith(_AGAIN) and message.id != self._again

    def _begin_anew(self, reason: Failed) -> None:
        self._ledger = Ledger()
        self._say_hello_anew()
        self._restarted(EngineError.of(reason))

    def _say_hello_anew(self) -> None:
        """Begin a conversation, with what was said in this one so far."""
        self._conversation += 1
        self._hello, self._greeted, self._turned_away = self._again, False, None
        self._due = [self._ledger.write(self._introduction(self._hello))]

    def _over_a_new_connection(self) -> None:
        if self._greeted:
            resuming = msgspec.structs.replace(self._introduction(self._again), resumes=True)
            self._due.append(self._ledger.write(resuming))
        else:  # the engine may know nothing of this client, or of an earlier hello with whatever followed
            self._say_hello_anew()
            self._repeat(0)

    def _repeat(self, seen: int) -> None:
        """Say again what the engine has not seen."""
        missing = self._ledger.unseen(seen)
        if missing is None:
            self._begin_anew(Failed(code="lost", message="What was asked while the connection broke is lost."))
        else:
            self._due += missing

    # --- the engine's health --------------------------------------------------------------------------------------

    def next_ping(self, now: float) -> float:
        """Seconds until the next ping is due."""
        return max(0.0, self._pinged + HEARTBEAT_S - now)

    def ping(self, now: float) -> bytes | None:
        """A ping's frame, when one is due."""
        if self.next_ping(now) > 0:
            return None
        if now - self._pinged > 3 * HEARTBEAT_S:
            self._asked = None  # this side stood still: what was said to it meanwhile is still to be read
        self._pinged = now
        if self._asked is None:
            self._asked = now
        return self.write(Ping(id="ping"))

    def monitored(self, frames: list[bytes]) -> None:
        """Take in one event of the socket's monitor."""
        # zmq.utils.monitor would do this, and import asyncio for it.
        kind, _ = _MONITOR_EVENT.unpack(frames[0])
        if kind == zmq.EVENT_CONNECTED:
            self._shaking = True
        elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._shaking = False
            self._failed_handshakes = 0
            if self._known:
                self._over_a_new_connection()
            self._known = True
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:  # not tried again by the socket
            self._failed_handshakes = _TELLING
        elif self._known:  # the key is right; whatever broke is the connection
            self._shaking = False
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:  # not tried again by the socket
            self._failed_handshakes = _TELLING
        elif kind != zmq.EVENT_DISCONNECTED or self._shaking:  # told off, or cut off before the handshake was done
            self._shaking = False
            self._failed_handshakes += 1

    def refusal(self) -> EngineGone | None:
        """Why whoever listens does not accept this client's key, if so."""
        c = self._connection
        if self._failed_handshakes < _TELLING:
            return None
        key = "the engine knows another key, or this one no more" if c.server_key else "the engine wants a key"
        return EngineGone(f"Whoever listens at {c.control} does not accept this connection: {key}.", code="key")

    def verdict(self, now: float) -> EngineGone | None:
        """Why the engine counts as gone, if it does."""
        c = self._connection
        if c.local and not c.process_alive():
            return EngineGone(f"The engine {c.name!r} ended (process {c.pid}).")
        if self._asked is not None and now - self._asked > GONE_AFTER_S:
            return EngineGone(f"{c} has not answered for {now - self._asked:.0f} s.")
        return self.refusal()
