"""The sockets that cache events leave by: one that publishes, and one that repeats what somebody missed."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections import deque

import zmq

from ...ipc.endpoint import set_defaults
from ...ipc.kv_events import END, decode_start, encode_sequence
from ...ipc.vocabulary import Refused

#: Batches that can be repeated.
KEPT = 10_000

_log = logging.getLogger(__name__)


class EventSocket(threading.Thread):
    """Publishes payloads at ``endpoint``, numbered from 0, and repeats the last ``KEPT`` at ``replay``, if given.

    Nothing here is encrypted: that is how its readers know it.

    Raises:
        Refused: an address is not one that can be listened on.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, replay: str | None) -> None:
        super().__init__(name="cache events", daemon=True)
        self._queue: deque[bytes | None] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._publisher = context.socket(zmq.PUB)
        self._repeater = context.socket(zmq.ROUTER)
        self._repeater.set(zmq.ROUTER_MANDATORY, 1)
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._sequence = 0
        try:
            self.endpoint = _listen(self._publisher, endpoint, "kv_events")
            self.replay = _listen(self._repeater, replay, "kv_events_replay") if replay else ""
        except Refused:
            self._close()
            raise

    def send(self, payload: bytes) -> None:
        """Publish, from any thread."""
        self._queue.append(payload)
        self._wake()

    def close(self) -> None:
        self._queue.append(None)
        self._wake()
        self.join(timeout=5.0)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended
            self._wake_in.send(b"\0")

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_out.fileno(), zmq.POLLIN)
        poller.register(self._repeater, zmq.POLLIN)
        try:
            while True:
                poller.poll()
                with contextlib.suppress(BlockingIOError):
                    self._wake_out.recv(4096)
                while self._queue:
                    payload = self._queue.popleft()
                    if payload is None:
                        return
                    self._publish(payload)
                self._repeat()
        finally:
            self._close()

    def _publish(self, payload: bytes) -> None:
        self._kept.append((self._sequence, payload))
        self._publisher.send_multipart([b"", encode_sequence(self._sequence), payload])
        self._sequence += 1

    def _repeat(self) -> None:
        """Answer who asks. What its socket does not take is lost to it, which the missing end tells."""
        with contextlib.suppress(zmq.Again):
            while True:
                asker, *frames = self._repeater.recv_multipart(zmq.NOBLOCK)
                start = decode_start(frames)
                if start is None:
                    continue
                with contextlib.suppress(zmq.ZMQError):
                    for sequence, payload in self._kept:
                        if sequence >= start:
                            self._repeater.send_multipart([asker, b"", encode_sequence(sequence), payload], zmq.NOBLOCK)
                    self._repeater.send_multipart([asker, b"", encode_sequence(END), b""], zmq.NOBLOCK)

    def _close(self) -> None:
        self._publisher.close(linger=0)
        self._repeater.close(linger=0)
        self._wake_in.close()
        self._wake_out.close()


def _listen(bound: zmq.Socket[bytes], address: str, field: str) -> str:
    """Listen there; returns the address with the port that was chosen."""
    set_defaults(bound)
    bound.set(zmq.SNDHWM, KEPT + 1)
    try:
        bound.set(zmq.IPV6, "[" in address)
        bound.bind(address)
    except zmq.ZMQError as error:
        reason = zmq.strerror(error.errno or 0)
        raise Refused(
            f"{field} is {address!r}, where nobody can listen ({reason}); accepted is tcp://ADDRESS:PORT of this "
            "machine with a free port, or ipc://FILE.",
            field=field,
        ) from None
    return bound.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
