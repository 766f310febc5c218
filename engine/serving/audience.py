"""Who hears what of telemetry: operators everything, and others of anybody else's requests what they do, but not what
they are called, nor the engine's log.

Where a key says who comes (TCP), a subscriber of a topic with names in it is given messages of his user alone: they
carry the user behind the topic, and the socket is told of each subscription which messages it stands for.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import zmq

from ...ipc.telemetry import (
    TOPIC_EVENT,
    TOPIC_STATS,
    TOPICS,
    Event,
    RequestRow,
    Stats,
    TelemetryMessage,
    encode_frames,
    topic_for,
)
from .doorkeeper import OWNER, Doorkeeper

#: Topics whose messages name requests and clients.
_NAMING = (TOPIC_STATS, TOPIC_EVENT)

_BECAME = {
    "submitted": "is queued",
    "started": "runs for the first time",
    "preempted": "gave its blocks up",
    "resumed": "runs again",
    "finished": "finished",
    "failed": "failed",
    "cancelled": "was cancelled",
}


def user_of(client: str) -> str:
    """The user that a client came as; the owner is nobody by name."""
    return client.rpartition(":")[0]


class Audience:
    """The subscribers of an XPUB ``socket``. :meth:`note` belongs to the thread that owns it; of the other methods, one
    may run at a time."""

    def __init__(self, socket: zmq.Socket[bytes], doorkeeper: Doorkeeper) -> None:
        self._socket = socket
        self._doorkeeper = doorkeeper
        self._apart = doorkeeper.gate is not None
        if self._apart:
            socket.set(zmq.XPUB_MANUAL, 1)
        self._prefixes: Counter[bytes] = Counter()  # of topics, as subscribed
        self._subscribed: frozenset[bytes] = frozenset()
        self._users: frozenset[str] = frozenset()  # no operators, that ever subscribed
        self._sequences: dict[bytes, int] = {}  # the last one, by what messages begin with

    def wanted(self, topic: bytes) -> bool:
        """Whether anybody subscribes to ``topic``."""
        return any(topic.startswith(prefix) for prefix in self._subscribed)

    def sequences(self, user: str = OWNER) -> dict[str, int]:
        """The last sequence number of each topic, as ``user`` hears it; OWNER stands for all operators."""
        return {topic.decode(): self._sequences.get(self._heard_as(topic, user), 0) for topic in TOPICS}

    def frames(self, topic: bytes, message: TelemetryMessage, clients: Sequence[str]) -> Iterator[list[bytes]]:
        """What to send so that everybody hears what he may. ``clients``: whose each of the message's rows is."""
        yield self._numbered(topic, message)
        for user in self._users if topic in _NAMING else ():
            told = self._told(user, message, clients)
            if told is not None:
                yield self._numbered(topic, told, user)

    def _numbered(self, topic: bytes, message: TelemetryMessage, user: str = OWNER) -> list[bytes]:
        heard_as = self._heard_as(topic, user)
        self._sequences[heard_as] = self._sequences.get(heard_as, 0) + 1
        return encode_frames(heard_as, self._sequences[heard_as], message)

    def _heard_as(self, topic: bytes, user: str) -> bytes:
        return topic_for(topic, user) if self._apart and topic in _NAMING else topic

    def _told(self, user: str, message: TelemetryMessage, clients: Sequence[str]) -> TelemetryMessage | None:
        """The message as a user who is no operator may hear it; None for one that is not for him at all."""
        if isinstance(message, Stats):
            pairs = zip(message.requests, clients, strict=True)
            rows = [row if user_of(client) == user else without_names(row) for row, client in pairs]
            return msgspec.structs.replace(message, requests=rows, sequences=self.sequences(user))
        assert isinstance(message, Event)
        if message.kind == "log":
            return None
        if message.row is None or user_of(clients[0]) == user:
            return message
        text = f"Request {message.row.number} {_BECAME[message.kind]}."
        return msgspec.structs.replace(message, row=without_names(message.row), text=text)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def note(self) -> None:
        """Take in who began or ceased to listen."""
        with contextlib.suppress(zmq.Again):
            while True:
                frame, user = self._receive()
                if frame[:1] in (b"\0", b"\1"):
                    self._subscribe(user, frame[1:], begins=frame[:1] == b"\1")
        self._subscribed = frozenset(self._prefixes)

    def _receive(self) -> tuple[bytes, str | None]:
        """What came, and whose it is; of one whose connection broke that is not told (None)."""
        if not self._apart:
            return self._socket.recv(zmq.NOBLOCK), OWNER
        frame = self._socket.recv(zmq.NOBLOCK, copy=False)
        try:
            return frame.bytes, str(frame.get("User-Id"))
        except zmq.ZMQError:
            return frame.bytes, None

    def _subscribe(self, user: str | None, prefix: bytes, *, begins: bool) -> None:
        self._prefixes[prefix] += 1 if begins else -1
        if self._prefixes[prefix] <= 0:
            del self._prefixes[prefix]
        if not self._apart or user is None or not self._doorkeeper.knows(user):
            return
        if self._doorkeeper.is_operator(user):
            user = OWNER
        elif begins:
            self._users |= {user}
        option = zmq.SUBSCRIBE if begins else zmq.UNSUBSCRIBE
        for topic in TOPICS:
            if topic.startswith(prefix):
                self._socket.set(option, self._heard_as(topic, user))


def without_names(row: RequestRow) -> RequestRow:
    """What a request does, and nothing that tells what it is about or whose it is."""
    return msgspec.structs.replace(row, id="", client="", error="", prefix=[])
