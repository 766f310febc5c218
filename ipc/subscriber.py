"""Telemetry from the subscriber's side: what was missed, and how to keep the blocks whole in spite of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import zmq

from .endpoint import Connection, connect
from .protocol import SnapshotReply
from .telemetry import TOPIC_BLOCKS, TOPIC_STATS, TOPICS, BlocksUpdate, Stats, TelemetryMessage, decode_frames

if TYPE_CHECKING:
    from .client import Client

#: Messages that may wait in a subscriber's socket; more are lost, and the loss is noticed.
QUEUE = 1000


class Sequences:
    """Notices what is missing in numbered topics, also at their tail, which ``stats`` tells."""

    def __init__(self) -> None:
        self.epoch = ""
        self.last: dict[str, int] = {}
        self.lost: dict[str, int] = {}

    def take(self, topic: bytes, sequence: int, message: TelemetryMessage) -> int:
        """Note a message; returns how many of its topic are missing before it (all of another epoch count as none)."""
        if message.epoch != self.epoch:
            self.epoch, self.last = message.epoch, {}
        name = topic.decode()
        missing = max(0, sequence - self.last[name] - 1) if name in self.last else 0
        self.last[name] = sequence
        if missing:
            self.lost[name] = self.lost.get(name, 0) + missing
        return missing


class Subscription:
    """An iterator over ``(topic, sequence, message)``. It belongs to the thread that uses it.

    ``lost`` counts the messages of each topic that this subscriber was too slow for. Iteration does not end by
    itself: a silent engine is the control connection's to notice.
    """

    def __init__(self, connection: Connection, topics: Sequence[bytes] = TOPICS, *, queue: int = QUEUE) -> None:
        self.connection = connection
        self._sequences = Sequences()
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set(zmq.RCVHWM, queue)
        for topic in topics:
            self._socket.set(zmq.SUBSCRIBE, topic)
        connect(self._socket, connection.telemetry, connection)

    @property
    def lost(self) -> dict[str, int]:
        return self._sequences.lost

    def receive(self, timeout: float | None = None) -> tuple[bytes, int, TelemetryMessage] | None:
        """The next message, or None when none came within ``timeout`` seconds. Malformed ones are passed over."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._socket.poll(None if end is None else max(0, round(1000 * (end - time.monotonic())))):
            with contextlib.suppress(ValueError):
                topic, sequence, message = decode_frames(self._socket.recv_multipart())
                self._sequences.take(topic, sequence, message)
                return topic, sequence, message
        return None

    def __iter__(self) -> Iterator[tuple[bytes, int, TelemetryMessage]]:
        while True:
            received = self.receive()
            if received is not None:
                yield received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close(linger=0)
        self._context.term()


class BlocksFeed:
    """Puts snapshots and ``blocks`` messages into the order in which they apply.

    Give it all that arrives; each method returns what is to be applied now. While :meth:`wants_snapshot` says so, ask
    the engine for one over control: messages are held back until it is there. Holds no blocks itself.
    """

    def __init__(self) -> None:
        self.epoch = ""
        self._applied: int | None = None
        self._held: list[tuple[int, BlocksUpdate]] = []
        self._asked = False

    @property
    def applied(self) -> int | None:
        """Sequence number of the last update given out; None while a snapshot is needed."""
        return self._applied

    def wants_snapshot(self) -> bool:
        """True once for each snapshot that must be asked for."""
        if self._applied is not None or self._asked:
            return False
        self._asked = True
        return True

    def snapshot_failed(self) -> None:
        """The snapshot asked for will not come; another is wanted."""
        self._asked = False

    def snapshot(self, reply: SnapshotReply) -> list[BlocksUpdate]:
        """A snapshot came: it, and what was held back and is newer."""
        self._asked = False
        if reply.blocks is None:
            return []
        if reply.epoch != self.epoch:
            self.epoch = reply.epoch
            self._applied, self._held = None, [held for held in self._held if held[1].epoch == reply.epoch]
        included = reply.sequences.get(TOPIC_BLOCKS.decode(), 0)
        if self._applied is not None and included < self._applied:
            return []  # overtaken by a full update
        self._applied = included
        held, self._held = self._held, []
        updates = [reply.blocks]
        for sequence, update in held:
            updates += self.take(sequence, update)
        return updates

    def take(self, sequence: int, update: BlocksUpdate) -> list[BlocksUpdate]:
        """A ``blocks`` message came."""
        if update.epoch != self.epoch:
            self.epoch, self._applied, self._held = update.epoch, None, []
        if self._applied is not None and sequence <= self._applied:
            return []
        if update.full or (self._applied is not None and sequence == self._applied + 1):
            self._applied, self._held = sequence, []
            return [update]
        self._applied = None
        self._held.append((sequence, update))
        return []

    def stats(self, stats: Stats) -> None:
        """A ``stats`` message came: it tells whether the last ``blocks`` messages were lost."""
        if stats.epoch != self.epoch:
            self.epoch, self._applied, self._held = stats.epoch, None, []
        elif self._applied is not None and stats.sequences.get(TOPIC_BLOCKS.decode(), 0) > self._applied:
            self._applied = None


def follow_blocks(client: Client, timeout: float | None = None) -> Iterator[BlocksUpdate]:
    """The blocks of an engine: first all of them, then every change, without a gap.

    Ends when nothing came for ``timeout`` seconds. Raises what the client raises, :class:`EngineGone` above all.
    """
    feed = BlocksFeed()
    with client.subscribe([TOPIC_BLOCKS, TOPIC_STATS]) as subscription:
        while True:
            if feed.wants_snapshot():
                yield from feed.snapshot(client.snapshot())
            received = subscription.receive(timeout)
            if received is None:
                return
            _, sequence, message = received
            if isinstance(message, BlocksUpdate):
                yield from feed.take(sequence, message)
            elif isinstance(message, Stats):
                feed.stats(message)
