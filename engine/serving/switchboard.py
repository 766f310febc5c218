"""The thread that owns the engine's sockets.

It answers what needs no engine (hello, ping, status) at once, however long a step takes; hands everything else to the
core loop's inbox; and sends what the core loop gives it. A slow client costs the engine nothing: what it does not
take waits here, tokens of one sample melt into one message, and beyond a bound the client is given up.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import zmq

from ...ipc import protocol, telemetry
from ...ipc.endpoint import Endpoint
from ...ipc.protocol import (
    GONE_AFTER_S,
    HEARTBEAT_S,
    PROTOCOL_VERSION,
    ClientMessage,
    EngineMessage,
    EngineStatus,
    Failed,
    Finished,
    GetStatus,
    Hello,
    Ping,
    Pong,
    StatusReply,
    Tokens,
    Welcome,
)

#: What may wait for one client before it is given up.
MAX_BACKLOG_BYTES = 64 * 1024 * 1024
MAX_BACKLOG_MESSAGES = 100_000

#: Messages that the sockets themselves hold for one receiver.
CONTROL_QUEUE = 1000
TELEMETRY_QUEUE = 200

_RETRY_S = 0.02
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Received:
    """A client's message, for the core loop."""

    client: str
    message: ClientMessage


@dataclass(slots=True)
class ClientGone:
    client: str
    reason: str


@dataclass(slots=True)
class SwitchboardFailed:
    """The socket thread ended on an error; the engine cannot be reached any more."""


@dataclass(slots=True)
class _Peer:
    """A client that said hello. ``backlog`` holds what its socket did not take yet, encoded except for tokens."""

    identity: bytes
    name: str
    heard: float
    probed: float = 0.0
    backlog: deque[Tokens | bytes] = field(default_factory=deque)
    backlog_bytes: int = 0
    unsent: dict[tuple[str, int], Tokens] = field(default_factory=dict)

    def hold(self, message: EngineMessage) -> None:
        if not isinstance(message, Tokens):
            frame = protocol.encode(message)
            self.backlog.append(frame)
            self.backlog_bytes += len(frame)
            return
        self.backlog_bytes += 5 * len(message.token_ids) + len(message.text)
        earlier = self.unsent.get((message.id, message.index))
        if earlier is not None:
            earlier.token_ids = earlier.token_ids + message.token_ids
            earlier.text += message.text
            return
        self.unsent[message.id, message.index] = message
        self.backlog.append(message)

    def release(self) -> bytes:
        """The next frame to send; it stays first until :meth:`sent`."""
        first = self.backlog[0]
        return first if isinstance(first, bytes) else protocol.encode(first)

    def sent(self) -> None:
        first = self.backlog.popleft()
        if isinstance(first, bytes):
            self.backlog_bytes -= len(first)
        else:
            self.backlog_bytes -= 5 * len(first.token_ids) + len(first.text)
            del self.unsent[first.id, first.index]

    @property
    def too_far_behind(self) -> bool:
        return self.backlog_bytes > MAX_BACKLOG_BYTES or len(self.backlog) > MAX_BACKLOG_MESSAGES


class Switchboard(threading.Thread):
    """Owns ``endpoint``'s sockets from :meth:`start` until :meth:`close`.

    ``inbox`` gets a :class:`Received` for each message that the core loop must see, and a :class:`ClientGone` for each
    client that said hello and went. ``status`` is called on this thread and must not block.
    """

    def __init__(
        self, endpoint: Endpoint, inbox: queue.SimpleQueue[object], status: Callable[[], EngineStatus]
    ) -> None:
        super().__init__(name="switchboard", daemon=True)
        self._endpoint = endpoint
        self._control = endpoint.control
        self._telemetry = endpoint.telemetry
        self._control.set(zmq.SNDHWM, CONTROL_QUEUE)
        self._telemetry.set(zmq.SNDHWM, TELEMETRY_QUEUE)
        self._inbox = inbox
        self._status = status
        self._outbox: deque[tuple[str, EngineMessage] | list[bytes]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._awake = False
        self._closing = False
        self._peers: dict[str, _Peer] = {}
        self._given_up: OrderedDict[str, tuple[_Peer, Failed]] = OrderedDict()  # those that do not know it yet
        self._publishing = threading.Lock()
        self._subscribed: frozenset[bytes] = frozenset()
        #: Last sequence number of each topic.
        self.sequences: dict[str, int] = {topic.decode(): 0 for topic in telemetry.TOPICS}

    # --- from any thread ------------------------------------------------------------------------------------------

    def send(self, client: str, message: EngineMessage) -> None:
        """Send to one client, at once or when it can take it; nothing happens when it is gone."""
        self._outbox.append((client, message))
        self._wake()

    def wanted(self, topic: bytes) -> bool:
        """Whether anybody subscribes to ``topic``."""
        return any(topic.startswith(prefix) for prefix in self._subscribed)

    def publish(self, topic: bytes, message: telemetry.TelemetryMessage) -> None:
        with self._publishing:  # numbers must leave in order
            name = topic.decode()
            self.sequences[name] += 1
            self._outbox.append(telemetry.encode_frames(topic, self.sequences[name], message))
        self._wake()

    def client_name(self, client: str) -> str:
        """What a client called itself in its hello."""
        peer = self._peers.get(client)
        return peer.name if peer else ""

    def close(self) -> None:
        """Send what is left, as far as it is taken within a moment, and close the sockets."""
        self._closing = True
        self._wake()
        self.join(timeout=5.0)

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended
                self._wake_in.send(b"\0")

    # --- the thread -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._control, zmq.POLLIN)
        poller.register(self._telemetry, zmq.POLLIN)
        poller.register(self._wake_out.fileno(), zmq.POLLIN)
        last = time.monotonic()
        try:
            while True:
                closing = self._closing  # read first: what was sent before close() is in the outbox by now
                lagging = any(peer.backlog for peer in self._peers.values())
                poller.poll(0 if closing else round(1000 * (_RETRY_S if lagging else HEARTBEAT_S)))
                now = time.monotonic()
                if now - last > 2 * HEARTBEAT_S:
                    self._excuse(now - last)
                last = now
                self._receive(now)
                self._note_subscriptions()
                self._empty_outbox()
                self._retry()
                self._watch(now)
                if closing:
                    return
        except Exception as error:
            _log.exception("The socket thread ended: %s: %s", type(error).__name__, error)
            self._inbox.put(SwitchboardFailed())
        finally:
            self._endpoint.close()
            self._wake_in.close()
            self._wake_out.close()

    def _excuse(self, seconds: float) -> None:
        """This thread did not run for a while (suspended machine, stopped process): no client's silence counts."""
        for peer in self._peers.values():
            peer.heard += seconds

    def _receive(self, now: float) -> None:
        for _ in range(1000):  # then let others have their turn
            try:
                identity, *frames = self._control.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            client = identity.hex()
            if len(frames) != 1:
                self._reply(
                    identity, Failed(code="protocol", message=f"A message is one frame; these were {len(frames)}.")
                )
                continue
            try:
                message = protocol.decode_client(frames[0])
            except msgspec.DecodeError as error:
                self._reply(identity, undecodable(frames[0], error))
                continue
            self._handle(identity, client, message, now)

    def _handle(self, identity: bytes, client: str, message: ClientMessage, now: float) -> None:
        if isinstance(message, Hello):
            if message.version != PROTOCOL_VERSION:
                text = f"This engine speaks protocol version {PROTOCOL_VERSION}, the client version {message.version}."
                self._reply(identity, Failed(id=message.id, code="protocol", message=text, field="version"))
                return
            self._given_up.pop(client, None)
            self._peers.setdefault(client, _Peer(identity, message.client, now))
        peer = self._peers.get(client)
        if peer is None:
            self._refuse_stranger(identity, client, message.id, now)
            return
        peer.heard = now
        if isinstance(message, Hello):
            self._deliver(client, Welcome(id=message.id, status=self._status()))
        elif isinstance(message, Ping):
            self._deliver(client, Pong(id=message.id, time=time.time()))
        elif isinstance(message, GetStatus):
            self._deliver(client, StatusReply(id=message.id, status=self._status()))
        else:
            self._inbox.put(Received(client, message))

    def _refuse_stranger(self, identity: bytes, client: str, id: str, now: float) -> None:
        """One that never said hello; or one that was given up and is told so, which makes it a client again."""
        if client not in self._given_up:
            text = "Say hello first: this engine does not know the client."
            self._reply(identity, Failed(id=id, code="protocol", message=text))
            return
        peer, notice = self._given_up.pop(client)
        peer.heard = now
        peer.hold(msgspec.structs.replace(notice, id=id))  # after how its requests ended
        self._peers[client] = peer

    def _note_subscriptions(self) -> None:
        subscribed = set(self._subscribed)
        with contextlib.suppress(zmq.Again):
            while True:
                frame = self._telemetry.recv(zmq.NOBLOCK)
                if frame[:1] == b"\1":
                    subscribed.add(frame[1:])
                elif frame[:1] == b"\0":
                    subscribed.discard(frame[1:])
        self._subscribed = frozenset(subscribed)

    def _empty_outbox(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(4096)
        self._awake = False  # before looking: what comes later wakes us again
        while self._outbox:
            item = self._outbox.popleft()
            if isinstance(item, list):
                self._telemetry.send_multipart(item, zmq.NOBLOCK)
            else:
                self._deliver(*item)

    def _deliver(self, client: str, message: EngineMessage) -> None:
        peer = self._peers.get(client)
        if peer is None:
            if client in self._given_up and isinstance(message, Finished | Failed):
                self._given_up[client][0].hold(message)  # so that none of its requests stays open for it
            return
        if peer.backlog:
            peer.hold(message)
            if peer.too_far_behind:
                text = f"The client left {peer.backlog_bytes:,} bytes of answers unread and was given up."
                self._give_up(client, Failed(code="slow_client", message=text))
            return
        try:
            self._control.send_multipart([peer.identity, protocol.encode(message)], zmq.NOBLOCK)
        except zmq.Again:
            peer.hold(message)
        except zmq.ZMQError as error:
            self._lost(client, error)

    def _retry(self) -> None:
        for client, peer in list(self._peers.items()):
            try:
                while peer.backlog:
                    self._control.send_multipart([peer.identity, peer.release()], zmq.NOBLOCK)
                    peer.sent()
            except zmq.Again:
                continue
            except zmq.ZMQError as error:
                self._lost(client, error)

    def _watch(self, now: float) -> None:
        for client, peer in list(self._peers.items()):
            silent = now - peer.heard
            if silent > GONE_AFTER_S:
                text = f"The client was silent for {silent:.0f} s; its requests were cancelled."
                self._give_up(client, Failed(code="slow_client", message=text))
            elif silent > 1.5 * HEARTBEAT_S and now - peer.probed > HEARTBEAT_S:
                peer.probed = now
                self._deliver(client, Pong(time=time.time()))

    def _lost(self, client: str, error: zmq.ZMQError) -> None:
        if error.errno != zmq.EHOSTUNREACH:
            raise error
        self._give_up(client, None)

    def _give_up(self, client: str, notice: Failed | None) -> None:
        """Forget a client. ``notice`` is what it hears should it speak again."""
        peer = self._peers.pop(client)
        if notice is not None:
            self._given_up[client] = (_Peer(peer.identity, peer.name, peer.heard), notice)
            while len(self._given_up) > 1000:
                self._given_up.popitem(last=False)
        self._inbox.put(ClientGone(client, notice.message if notice else "The client closed its connection."))

    def _reply(self, identity: bytes, message: Failed) -> None:
        """Answer somebody who is no client (yet); what cannot be sent at once is dropped."""
        with contextlib.suppress(zmq.ZMQError):
            self._control.send_multipart([identity, protocol.encode(message)], zmq.NOBLOCK)


def undecodable(frame: bytes, error: msgspec.DecodeError) -> Failed:
    """The answer to a frame that is no message: what msgspec said, and the field that it names."""
    text, _, place = str(error).partition(" - at `$.")
    field_name = place.rstrip("`").removesuffix("...")
    where = f" in {field_name}" if field_name else ""
    return Failed(id=protocol.decode_id(frame), code="invalid", message=f"{text}{where}.", field=field_name)
