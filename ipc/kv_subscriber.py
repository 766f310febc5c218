"""Cache events from the subscriber's side: in order, what was missed asked for again, and what stays unknown said."""

from __future__ import annotations

import contextlib
import struct
import time
from types import TracebackType
from typing import Any, Self

import zmq

from .endpoint import set_defaults
from .kv_events import END, AllBlocksCleared, EventBatch, decode, decode_frames, encode_sequence
from .vocabulary import Refused

#: Batches that may wait in the socket; more are lost, and the loss is noticed.
QUEUE = 100_000

#: Batches that one look takes from a socket.
READ_MAX = 1_000

#: Seconds without an answer after which a replay counts as not to be had.
REPLAY_S = 5.0

_Numbered = tuple[int, EventBatch]


class EventFeed:
    """What a server publishes about its prefix cache, as batches that make a whole. It belongs to the thread that uses
    it.

    Args:
        endpoint: where the server publishes; or with ``bind``, where it connects to.
        replay: where it repeats what was missed, if it does.

    ``partial`` says whether something may have been stored that was never told here, ``lost`` how many batches are
    missing, ``sequence`` the number of the last one, ``peers`` how many publishers there are at the other end. A server
    that began anew is told as a cleared cache.

    Raises:
        Refused: an address is none.
    """

    def __init__(self, endpoint: str, replay: str | None = None, *, bind: bool = False) -> None:
        self.partial = False
        self.lost = 0
        self.sequence: int | None = None
        self.peers = 0
        self._time = 0.0  # of the last batch
        self._context: zmq.Context[Any] = zmq.Context()
        self._subscriber = self._context.socket(zmq.SUB)
        self._asker = self._context.socket(zmq.DEALER)
        for socket in (self._subscriber, self._asker):
            set_defaults(socket)
            socket.set(zmq.RCVHWM, QUEUE)
        self._subscriber.subscribe(b"")
        self._monitor = self._subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        self._poller = zmq.Poller()
        self._poller.register(self._monitor, zmq.POLLIN)
        self._asked = False
        self._asked_from = 0
        self._ask_until = 0.0
        self._held: list[_Numbered] = []  # came while a replay is under way
        self._replay = replay
        try:
            _open(self._subscriber, endpoint, "endpoint", bind=bind)
            self._poller.register(self._subscriber, zmq.POLLIN)
            if replay:
                _open(self._asker, replay, "replay", bind=False)
                self._poller.register(self._asker, zmq.POLLIN)
                self._ask(0)
        except Refused:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Where it listens, with the port that was chosen, or where it is connected to."""
        return self._subscriber.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def receive(self, timeout: float) -> list[EventBatch]:
        """What came within ``timeout`` seconds, as soon as something did. Malformed messages are passed over."""
        end = time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            if self._asked:
                left = min(left, max(0.0, self._ask_until - time.monotonic()))
            ready = dict(self._poller.poll(round(1000 * left)))
            batches: list[EventBatch] = []
            if self._monitor in ready:
                came = struct.unpack_from("=H", self._monitor.recv_multipart()[0])[0] != zmq.EVENT_DISCONNECTED
                self.peers = max(0, self.peers + (1 if came else -1))
            if self._asker in ready:
                batches += self._receive_repeated()
            if self._subscriber in ready:
                for numbered in _drain(self._subscriber):
                    batches += self._take(*numbered)
            if self._asked and time.monotonic() >= self._ask_until:
                batches += self._replayed(whole=False)
            if batches or time.monotonic() >= end:
                return batches

    # --- live -----------------------------------------------------------------------------------------------------

    def _take(self, sequence: int, batch: EventBatch) -> list[EventBatch]:
        """A batch came as it was published."""
        if sequence == END:
            return []
        if self._asked:
            self._held.append((sequence, batch))
            return []
        if self.sequence is None:
            self.partial = sequence > 0
        elif sequence <= self.sequence:
            return self._begin_anew(sequence, batch) if batch.time > self._time else []
        elif sequence > self.sequence + 1:
            if self._replay:
                self._ask(self.sequence + 1)
                self._held.append((sequence, batch))
                return []
            self._miss(sequence - self.sequence - 1)
        self.sequence, self._time = sequence, batch.time
        return [batch]

    def _begin_anew(self, sequence: int, batch: EventBatch) -> list[EventBatch]:
        """The server counts from the start again: it is another one, whose cache was empty."""
        self.sequence, self.partial, self._time = None, False, 0.0
        cleared = EventBatch(batch.time, (AllBlocksCleared(),), batch.rank)
        if self._replay:
            self._ask(0)
            self._held.append((sequence, batch))
            return [cleared]
        return [cleared, *self._take(sequence, batch)]

    def _miss(self, count: int) -> None:
        self.lost += count
        self.partial = True

    # --- replay ---------------------------------------------------------------------------------------------------

    def _ask(self, start: int) -> None:
        self._asked, self._asked_from = True, start
        self._ask_until = time.monotonic() + REPLAY_S
        with contextlib.suppress(zmq.Again):  # nobody is there: then no answer comes
            self._asker.send_multipart([b"", encode_sequence(start)], zmq.NOBLOCK)

    def _receive_repeated(self) -> list[EventBatch]:
        batches: list[EventBatch] = []
        for sequence, batch in _drain(self._asker):
            if sequence == END:
                if self._asked:
                    batches += self._replayed(whole=True)
            elif self._asked:
                self._ask_until = time.monotonic() + REPLAY_S
                batches += self._take_repeated(sequence, batch)
        return batches

    def _take_repeated(self, sequence: int, batch: EventBatch) -> list[EventBatch]:
        expected = 0 if self.sequence is None else self.sequence + 1
        if sequence < expected:
            return []
        if sequence > expected:
            self._miss(sequence - expected)  # older than what is kept there
        self.sequence, self._time = sequence, batch.time
        return [batch]

    def _replayed(self, whole: bool) -> list[EventBatch]:
        """A replay ended, or does not come: go on with what was published meanwhile."""
        self._asked = False
        held, self._held = self._held, []
        if not whole and self.sequence is None:
            self.partial = True
        batches: list[EventBatch] = []
        for place, (sequence, batch) in enumerate(held):
            if self.sequence is not None and sequence > self.sequence + 1:
                if whole and self._asked_from <= self.sequence:  # this may have been published after the answer
                    self._held = held[place:]
                    self._ask(self.sequence + 1)
                    return batches
                self._miss(sequence - self.sequence - 1)
            if self.sequence is None:
                self.partial = self.partial or sequence > 0
            if self.sequence is None or sequence > self.sequence:
                self.sequence, self._time = sequence, batch.time
                batches.append(batch)
        return batches

    # --- its end --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._subscriber.disable_monitor()
        self._monitor.close(linger=0)
        self._subscriber.close(linger=0)
        self._asker.close(linger=0)
        self._context.term()


def _drain(socket: Any) -> list[_Numbered]:
    """What waits in a socket, or the first of it, without what is malformed; an end of a replay has an empty batch."""
    found: list[_Numbered] = []
    with contextlib.suppress(zmq.Again):
        for _ in range(READ_MAX):
            frames = socket.recv_multipart(zmq.NOBLOCK)
            with contextlib.suppress(ValueError):
                sequence, payload = decode_frames(frames)
                ended = sequence == END and not payload
                found.append((sequence, EventBatch(0.0, ()) if ended else decode(payload)))
    return found


def _open(socket: Any, address: str, field: str, *, bind: bool) -> None:
    try:
        socket.set(zmq.IPV6, "[" in address)
        socket.bind(address) if bind else socket.connect(address)
    except zmq.ZMQError as error:
        verb = "listened on" if bind else "connected to"
        raise Refused(
            f"{field} is {address!r}, which cannot be {verb} ({zmq.strerror(error.errno or 0)}); accepted is "
            "tcp://ADDRESS:PORT or ipc://FILE.",
            field=field,
        ) from None
