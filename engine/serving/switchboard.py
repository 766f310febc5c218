"""The thread that owns the engine's sockets.

It answers what needs no engine (hello, ping, status, settings) at once, however long a step takes; hands everything
else to the core loop's inbox; and sends what the core loop gives it. A slow client costs the engine nothing: what it
does not take waits here, tokens of one sample melt into one message, and beyond a bound the client is given up. So does
what is said to a client whose connection broke, until it is back or was away too long.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import zmq

from ...ipc import protocol
from ...ipc.endpoint import Endpoint
from ...ipc.ledger import Ledger
from ...ipc.protocol import (
    GONE_AFTER_S,
    HEARTBEAT_S,
    PROTOCOL_VERSION,
    Bye,
    ClientMessage,
    ConfigReply,
    EngineMessage,
    EngineStatus,
    Failed,
    GetConfig,
    GetStatus,
    Hello,
    Ping,
    Pong,
    SettingInfo,
    StatusReply,
    Welcome,
)
from ...ipc.telemetry import TelemetryMessage
from .audience import Audience, user_of
from .doorkeeper import OWNER, Doorkeeper
from .peers import GivenUp, Peer

#: Messages that the sockets themselves hold for one receiver.
CONTROL_QUEUE = 1000
TELEMETRY_QUEUE = 200

#: Clients at once, where nothing else is stated.
MAX_CLIENTS = 1000

#: What is kept of a client's own name.
NAME_MAX = 100

_RETRY_S = 0.02
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Received:
    """A client's message, for the core loop."""

    client: str
    message: ClientMessage
    operator: bool = True


@dataclass(slots=True)
class ClientGone:
    client: str
    reason: str


@dataclass(slots=True)
class SwitchboardFailed:
    """The socket thread ended on an error; the engine cannot be reached any more."""


class Switchboard(threading.Thread):
    """Owns ``endpoint``'s sockets from :meth:`start` until :meth:`close`.

    ``inbox`` gets a :class:`Received` for each message that the core loop must see, and a :class:`ClientGone` for each
    client that said hello and went. ``status``, ``settings`` and ``max_clients`` are called on this thread and must not
    block. A client that is not the owner's is called ``USER:`` and its identity, which :func:`.audience.user_of` takes
    apart.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        inbox: queue.SimpleQueue[object],
        status: Callable[[], EngineStatus],
        settings: Callable[[], list[SettingInfo]],
        max_clients: Callable[[], int] = lambda: MAX_CLIENTS,
    ) -> None:
        super().__init__(name="switchboard", daemon=True)
        self._endpoint = endpoint
        self._doorkeeper = Doorkeeper(endpoint)
        self._looked = 0.0  # at keys that were revoked
        self._shut = False
        self._control = endpoint.control
        self._telemetry = endpoint.telemetry
        #: Who subscribes to telemetry.
        self.audience = Audience(endpoint.telemetry, self._doorkeeper)
        self._control.set(zmq.SNDHWM, CONTROL_QUEUE)
        self._telemetry.set(zmq.SNDHWM, TELEMETRY_QUEUE)
        self._inbox = inbox
        self._status = status
        self._settings = settings
        self._max_clients = max_clients
        self._outbox: deque[tuple[str, EngineMessage] | list[bytes]] = deque()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._awake = False
        self._closing = False
        self._peers: dict[str, Peer] = {}
        self._given_up: OrderedDict[str, GivenUp] = OrderedDict()
        self._publishing = threading.Lock()

    # --- from any thread ------------------------------------------------------------------------------------------

    def send(self, client: str, message: EngineMessage) -> None:
        """Send to one client, at once or when it can take it; nothing happens when it is gone."""
        self._outbox.append((client, message))
        self._wake()

    def publish(self, topic: bytes, message: TelemetryMessage, clients: Sequence[str] = ()) -> None:
        """Tell subscribers. ``clients``: whose each of the message's request rows is."""
        with self._publishing:  # numbers must leave in order
            self._outbox.extend(self.audience.frames(topic, message, clients))
        self._wake()

    def client_name(self, client: str) -> str:
        """What a client called itself in its hello, after the name of its key if it is not the owner's."""
        peer, user = self._peers.get(client), user_of(client)
        name = peer.name if peer else ""
        return f"{user}/{name}" if user else name

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
        if self._doorkeeper.gate is not None:
            poller.register(self._doorkeeper.gate, zmq.POLLIN)
        last = time.monotonic()
        try:
            while True:
                closing = self._closing  # read first: what was sent before close() is in the outbox by now
                lagging = self._shut or any(peer.waiting and not peer.away for peer in self._peers.values())
                poller.poll(0 if closing else round(1000 * (_RETRY_S if lagging else HEARTBEAT_S)))
                now = time.monotonic()
                if now - last > 2 * HEARTBEAT_S:
                    self._excuse(now - last)
                last = now
                self._keep_door(now)
                self._receive(now)
                self.audience.note()
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

    def _keep_door(self, now: float) -> None:
        """Let in who may come in, and break with those whose key was revoked: of one connection, that means all of
        them; the others' clients come back at once and go on."""
        if now - self._looked >= HEARTBEAT_S or self._doorkeeper.knocked:
            self._looked = now
            revoked = self._doorkeeper.revoked()
            if revoked:
                for client in [client for client in self._peers if user_of(client) in revoked]:
                    self._forget(client, f"The key {user_of(client)!r} was revoked.")
                for client in [client for client in self._given_up if user_of(client) in revoked]:
                    del self._given_up[client]
                self._endpoint.shut()
                self._shut = True
        self._doorkeeper.answer()  # last, so that a key that takes a revoked one's name is not taken for it
        if self._shut:
            self._shut = not self._endpoint.reopen()

    def _receive(self, now: float) -> None:
        for _ in range(1000):  # then let others have their turn
            try:
                identity, user, *frames = self._take()
            except zmq.Again:
                return
            if not self._doorkeeper.knows(user):
                continue  # its key was revoked, and this was still under way
            client = f"{user}:{identity.hex()}" if user else identity.hex()
            if len(frames) != 1:
                self._reply(
                    identity, Failed(code="protocol", message=f"A message is one frame; these were {len(frames)}.")
                )
                continue
            try:
                message = protocol.decode_client(frames[0])
            except msgspec.DecodeError as error:
                self._refuse(identity, client, frames[0], error)
                continue
            self._handle(identity, client, message, now)

    def _take(self) -> tuple[bytes, str, *tuple[bytes, ...]]:
        """Who sent a message, as which user, and its frames."""
        if self._doorkeeper.gate is None:
            identity, *frames = self._control.recv_multipart(zmq.NOBLOCK)
            return identity, OWNER, *frames
        parts = self._control.recv_multipart(zmq.NOBLOCK, copy=False)
        return parts[0].bytes, str(parts[-1].get("User-Id")), *(part.bytes for part in parts[1:])

    def _refuse(self, identity: bytes, client: str, frame: bytes, error: msgspec.DecodeError) -> None:
        """Answer a frame that is no message; among those of a client that numbers them, it counts like any other."""
        envelope = protocol.decode_envelope(frame)
        peer = self._peers.get(client)
        if peer is None:
            self._reply(identity, undecodable(envelope.id, error))
        elif peer.ledger is None or peer.ledger.takes(envelope):
            self._deliver(client, undecodable(envelope.id, error))

    def _handle(self, identity: bytes, client: str, message: ClientMessage, now: float) -> None:
        if isinstance(message, Hello) and not self._greet(identity, client, message, now):
            return
        peer = self._peers.get(client)
        if peer is None:
            self._refuse_stranger(identity, client, message, now)
            return
        peer.heard = now
        if peer.ledger is not None and not peer.ledger.takes(message):
            return
        if isinstance(message, Hello):
            self._deliver(client, Welcome(id=message.id, status=self._status()))
        elif isinstance(message, Ping):
            self._deliver(client, Pong(id=message.id, time=time.time()))
        elif isinstance(message, GetStatus):
            self._deliver(client, StatusReply(id=message.id, status=self._status()))
        elif isinstance(message, GetConfig):
            self._deliver(client, ConfigReply(id=message.id, settings=self._settings()))
        elif isinstance(message, Bye):
            del self._peers[client]
            self._inbox.put(ClientGone(client, "The client said goodbye."))
        else:
            self._inbox.put(Received(client, message, self._doorkeeper.is_operator(user_of(client))))

    def _greet(self, identity: bytes, client: str, hello: Hello, now: float) -> bool:
        """Make a client of who says hello, or know it again; False where it cannot be and was told."""
        if hello.version != PROTOCOL_VERSION:
            text = f"This engine speaks protocol version {PROTOCOL_VERSION}, the client version {hello.version}."
            self._reply(identity, Failed(id=hello.id, code="protocol", message=text, field="version"))
            return False
        if hello.resumes:
            return client in self._given_up or self._resume(identity, client, hello)
        if client not in self._peers and len(self._peers) >= self._max_clients():
            text = f"{len(self._peers):,} clients are connected already (max_clients); try again later."
            self._reply(identity, Failed(id=hello.id, code="too_many_clients", message=text))
            return False
        self._given_up.pop(client, None)
        name = hello.client[:NAME_MAX]
        if hello.numbered:
            if client in self._peers:
                self._forget(client, "The client began anew.")
            self._peers[client] = Peer(identity, name, now, Ledger(), hello.pid)
        else:
            self._peers.setdefault(client, Peer(identity, name, now))
        return True

    def _resume(self, identity: bytes, client: str, hello: Hello) -> bool:
        """Go on over a new connection where the last one broke."""
        peer = self._peers.get(client)
        missing = peer.ledger.unseen(hello.seen) if peer and peer.ledger else None
        if peer is None or missing is None:
            text = "The connection broke and what was sent meanwhile is lost; the client's requests were cancelled."
            self._reply(identity, Failed(id=hello.id, code="lost", message=text))
            if peer is not None:
                self._forget(client, text)
            return False
        peer.away = False
        peer.again = deque(missing)
        _log.info("%s is back on a new connection; %d messages are sent again.", peer.name, len(missing))
        return True

    def _refuse_stranger(self, identity: bytes, client: str, message: ClientMessage, now: float) -> None:
        """One that never said hello, or is forgotten; or one that was given up and is told so.

        That makes it a client again, unless it numbers its messages: then it has to begin anew with a hello.
        """
        given_up = self._given_up.get(client)
        if given_up is None:
            self._reply(identity, unknown_client(message))
            return
        notice = msgspec.structs.replace(given_up.notice, id=message.id)
        if given_up.numbered:
            if self._reply(identity, notice):
                del self._given_up[client]
            return
        del self._given_up[client]
        self._peers[client] = peer = Peer(identity, given_up.name, now)
        for held in (*given_up.ends, notice):
            peer.hold(held)

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
            if client in self._given_up:
                self._given_up[client].end(message)
            return
        if not peer.waiting and not peer.away:
            frame = peer.write(message)
            try:
                self._put(peer, frame)
                peer.left(frame)
                return
            except zmq.Again:
                pass
            except zmq.ZMQError as error:
                self._disconnected(client, peer, error)
                if client not in self._peers:
                    return
        peer.hold(message)
        if peer.too_far_behind:
            text = f"The client left {peer.backlog_bytes:,} bytes of answers unread and was given up."
            self._give_up(client, Failed(code="slow_client", message=text))

    def _put(self, peer: Peer, frame: bytes) -> None:
        self._control.send_multipart([peer.identity, frame], zmq.NOBLOCK)

    def _retry(self) -> None:
        for client, peer in list(self._peers.items()):
            if not peer.waiting or peer.away:
                continue
            try:
                peer.send_waiting(partial(self._put, peer))
            except zmq.Again:
                continue
            except zmq.ZMQError as error:
                self._disconnected(client, peer, error)

    def _watch(self, now: float) -> None:
        for client, peer in list(self._peers.items()):
            silent = now - peer.heard
            if silent > GONE_AFTER_S:
                text = f"The client was silent for {silent:.0f} s; its requests were cancelled."
                self._give_up(client, Failed(code="slow_client", message=text))
            elif silent > 1.5 * HEARTBEAT_S and now - peer.probed > HEARTBEAT_S:
                peer.probed = now
                if not peer.away:
                    self._deliver(client, Pong(time=time.time()))
                elif peer.lost():
                    self._forget(client, "The client's process ended.")

    def _disconnected(self, client: str, peer: Peer, error: zmq.ZMQError) -> None:
        """Its connection broke: wait for it to come back, if it can."""
        if error.errno != zmq.EHOSTUNREACH:
            raise error
        peer.away = True
        if peer.ledger is None or peer.lost():
            self._forget(client, "The client closed its connection.")

    def _give_up(self, client: str, notice: Failed) -> None:
        """Forget a client that may speak again, and then hears ``notice``."""
        peer = self._peers[client]
        self._given_up[client] = given_up = GivenUp(peer.name, peer.ledger is not None, notice)
        for message in peer.backlog:
            given_up.end(message)
        while len(self._given_up) > 1000:
            self._given_up.popitem(last=False)
        self._forget(client, notice.message)

    def _forget(self, client: str, reason: str) -> None:
        del self._peers[client]
        self._inbox.put(ClientGone(client, reason))

    def _reply(self, identity: bytes, message: Failed) -> bool:
        """Answer somebody who is no client (yet); what cannot be sent at once is dropped (False)."""
        try:
            self._control.send_multipart([identity, protocol.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True


def unknown_client(message: ClientMessage) -> Failed:
    """The answer to who said no hello; or did, if he numbers his messages, to an engine that knows nothing of it."""
    if message.serial or message.seen:
        text = "The engine does not know this client any more; whatever it asked has ended."
        return Failed(id=message.id, code="lost", message=text)
    return Failed(id=message.id, code="protocol", message="Say hello first: this engine does not know the client.")


def undecodable(id: str, error: msgspec.DecodeError) -> Failed:
    """The answer to a frame that is no message: what msgspec said, and the field that it names."""
    text, _, place = str(error).partition(" - at `$.")
    field_name = place.rstrip("`").removesuffix("...")
    where = f" in {field_name}" if field_name else ""
    return Failed(id=id, code="invalid", message=f"{text}{where}.", field=field_name)
