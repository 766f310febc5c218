"""The line to an engine: one socket thread, whose messages reach the GUI thread bundled, at most 30 times a second.

The only file of the app that touches sockets.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import zmq
from PySide6.QtCore import QObject, Qt, QTimer, Signal

from ..ipc import endpoint
from ..ipc.course import Course
from ..ipc.endpoint import Connection
from ..ipc.line import EngineError, Line, open_control
from ..ipc.protocol import (
    GONE_AFTER_S,
    HEARTBEAT_S,
    Accepted,
    Bye,
    Cancel,
    ConfigReply,
    DescribeBlock,
    DescribeRequest,
    EngineMessage,
    EngineStatus,
    Failed,
    Finished,
    GetConfig,
    GetSnapshot,
    GetStatus,
    Message,
    Ping,
    Reconfigure,
    Reconfigured,
    SampleResult,
    SetPriority,
    Shutdown,
    SnapshotReply,
    StatusReply,
    Submit,
    Tokens,
    Welcome,
)
from ..ipc.telemetry import TOPIC_BLOCKS, TOPICS, BlocksUpdate, Event, Stats, Steps, TelemetryMessage, decode_frames
from ..ipc.vocabulary import EngineState, FinishReason
from .state import ConnectionState, EngineView

LINGER_MS = 50  # for the goodbye to leave; a local engine has it at once
FRAME_MS = 33  # between two deliveries to the GUI thread
REST_MS = FRAME_MS // 2  # between two looks at the sockets, and after a delivery, however much comes
READ_MAX = 1_000  # messages that one look takes from a socket
TICK_MS = 250  # between two looks at the engine's health
NOT_ANSWERING_S = 2.0
PROCESS_CHECK_S = 0.5  # silence after which the process is looked at
INBOX_MAX = 20_000  # telemetry beyond it is dropped, and the gap repaired by a snapshot

_log = logging.getLogger(__name__)

#: How an engine that is about to end refuses what another one could take.
_LEAVING = ("shutdown", "draining")

T = TypeVar("T")
Reply = Callable[[EngineMessage], None]
StreamMessage = Accepted | Tokens | Finished | Failed

#: What the socket thread hands over; an error ends all that was asked until then.
Arrival = EngineMessage | tuple[bytes, int, TelemetryMessage] | EngineError

_CONNECTIONS = {
    EngineState.LOADING: ConnectionState.LOADING,
    EngineState.READY: ConnectionState.READY,
    EngineState.DRAINING: ConnectionState.DRAINING,
    EngineState.STOPPED: ConnectionState.STOPPED,
    EngineState.FAILED: ConnectionState.DIED,
}
_SERVING = (ConnectionState.READY, ConnectionState.DRAINING)

#: What views ask of the engine that they show; a recording answers nothing.
_ASKED_BY_VIEWS = (Cancel, DescribeBlock, DescribeRequest, Reconfigure, SetPriority)

_ENDS = (Finished, Failed)
_OF_STREAMS = (Tokens, Accepted, Finished, Failed)

#: What an engine tells changes these parts of a view; an :class:`Event` a request too, if it is about one.
_PARTS: dict[type, set[str]] = {BlocksUpdate: {"blocks"}, Steps: {"steps"}, Stats: {"stats", "requests"}}

#: All parts of a view: each has a signal that tells of its change.
PARTS = frozenset({"connection", "blocks", "steps", "stats", "requests", "settings", "events"})


def parts_changed(message: TelemetryMessage) -> set[str]:
    """The parts of a view that a telemetry message changes."""
    if isinstance(message, Event):
        return {"events", "requests"} if message.row is not None else {"events"}
    return _PARTS[type(message)]


@dataclass(slots=True)
class _Stream:
    """A request of this window, and who is told of it."""

    course: Course
    on_message: Callable[[StreamMessage], None]


class _Wire:
    """The sockets of one connection and the thread that owns them.

    An in-process pair of sockets wakes it for what is to be sent, so that it sleeps in one poller.
    """

    def __init__(self, connection: Connection, arrived: Callable[[], None], topics: Sequence[bytes]) -> None:
        self.heard = time.monotonic()
        self.refused = ""  # why the engine's side does not take this connection's key
        self.inbox: deque[Arrival] = deque()
        self.line = Line(connection, "app", self._put)
        self._outbox: deque[Message] = deque()
        self._announced = False
        self._connection = connection
        self._arrived = arrived
        self._topics = topics
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        address = f"inproc://{uuid.uuid4().hex}"
        self._outgoing = self._pair()
        self._outgoing.bind(address)
        self._incoming = self._pair()
        self._incoming.connect(address)
        self._thread = threading.Thread(target=self._run, name="engine link", daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        self._outbox.append(message)
        self._outgoing.send(b"")

    def take(self) -> Iterator[Arrival]:
        """All that has arrived."""
        self._announced = False  # first, so that nothing that arrives meanwhile is overlooked
        for _ in range(len(self.inbox)):
            yield self.inbox.popleft()

    def close(self) -> None:
        self.send(Bye())
        self._thread.join()
        self._context.destroy(linger=0)

    def _pair(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PAIR)
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.RCVHWM, 0)
        socket.set(zmq.LINGER, 0)
        return socket

    def _run(self) -> None:
        telemetry = self._context.socket(zmq.SUB)
        for topic in self._topics:
            telemetry.subscribe(topic)
        endpoint.connect(telemetry, self._connection.telemetry, self._connection)
        control, monitor = open_control(self._context, self._connection)
        awake, resting = _poller(control, monitor, telemetry, self._incoming), _poller(self._incoming)
        try:
            leaving = False
            while not leaving:
                ready = dict(awake.poll())
                if monitor in ready:
                    self.line.monitored(monitor.recv_multipart())
                    refusal = self.line.refusal()
                    self.refused = refusal.message if refusal else ""
                if control in ready:
                    self._receive_answers(control)
                if telemetry in ready:
                    self._receive_telemetry(telemetry)
                for frame in self.line.due():
                    self._say(control, frame)
                if self._incoming in ready:
                    self._incoming.recv()
                    outgoing = self._outbox.popleft()
                    leaving = isinstance(outgoing, Bye)
                    try:
                        self._say(control, self.line.write(outgoing))
                    except EngineError as error:
                        self._put(error.failed(outgoing.id))
                else:
                    resting.poll(REST_MS)  # else each message of thousands a second would wake this thread
        finally:
            control.disable_monitor()
            for socket in (monitor, telemetry, self._incoming):
                socket.close(linger=0)
            control.close(linger=LINGER_MS)

    def _say(self, control: zmq.Socket[bytes], frame: bytes) -> None:
        with contextlib.suppress(zmq.Again):  # the socket has given up on the engine: the line will say so
            control.send(frame, zmq.NOBLOCK)

    def _receive_answers(self, control: zmq.Socket[bytes]) -> None:
        self.heard = time.monotonic()
        for frame in _waiting(control.recv):
            message = self.line.read(frame)
            if message is not None:
                self._put(message)

    def _receive_telemetry(self, telemetry: zmq.Socket[bytes]) -> None:
        self.heard = time.monotonic()
        for frames in _waiting(telemetry.recv_multipart):
            try:
                message = decode_frames(frames)
            except ValueError as error:
                _log.warning("The engine sent telemetry that is not understood: %s", error)
                continue
            if len(self.inbox) < INBOX_MAX:
                self._put(message)

    def _put(self, item: Arrival) -> None:
        self.inbox.append(item)
        if not self._announced:  # once until it is taken: each time wakes the GUI thread
            self._announced = True
            self._arrived()


def _poller(*sockets: zmq.Socket[bytes]) -> zmq.Poller:
    """Waits for any of these to have something to read."""
    made = zmq.Poller()
    for socket in sockets:
        made.register(socket, zmq.POLLIN)
    return made


def _waiting(receive: Callable[[int], T]) -> Iterator[T]:
    """What has come to a socket, without waiting for more."""
    with contextlib.suppress(zmq.Again):
        for _ in range(READ_MAX):
            yield receive(zmq.NOBLOCK)


class EngineLink(QObject):
    """Keeps :attr:`live` true to the engine that it is attached to, and carries requests there and answers back.

    :attr:`view` is what the window shows: the live view, or a recording's (:meth:`show`) while the live one goes on
    unseen. :attr:`now` tells the time of what is shown, in Unix seconds.

    Everything but the sockets happens on the GUI thread. When the engine ends and another one appears under its
    name, the link attaches to that one by itself.
    """

    connectionChanged = Signal()
    blocksChanged = Signal()
    stepsChanged = Signal()
    statsChanged = Signal()
    requestsChanged = Signal()
    settingsChanged = Signal()
    eventsChanged = Signal()
    eventReceived = Signal(object)  # telemetry.Event
    #: What the live view just took in, in order: ``(topic, sequence, message)``, a snapshot or settings (as replies),
    #: an :class:`EngineStatus`, a :class:`ConnectionState`, or the :class:`Connection` that a life begins with.
    told = Signal(object)
    #: So many requests of this window were asked again of an engine that followed another one.
    carried = Signal(int)
    _arrived = Signal()

    def __init__(self, parent: QObject | None = None, topics: Sequence[bytes] = TOPICS) -> None:
        """``topics`` of telemetry are listened to: without all of them the view knows how the engine is, and not all
        that it does."""
        super().__init__(parent)
        self._topics = topics
        self.live = self.view = EngineView()
        self.now: Callable[[], float] = time.time
        self.connection: Connection | None = None
        self._wire: _Wire | None = None
        self._ids = (f"app-{uuid.uuid4().hex[:8]}-{n}" for n in itertools.count(1))
        self._replies: dict[str, Reply] = {}
        self._streams: dict[str, _Stream] = {}
        self._carrying = False
        self._held: set[str] = set()  # streams that no engine has, and that the next one is asked for
        self._changed: set[str] = set()
        self._stop_asked = False
        self._beat = 0.0
        self._due = 0.0  # monotonic seconds; when the next delivery may be
        self._frame = QTimer(self, singleShot=True)
        self._frame.timeout.connect(self._deliver)
        self._tick = QTimer(self, interval=TICK_MS)
        self._tick.timeout.connect(self._check)
        self._arrived.connect(self._schedule, Qt.ConnectionType.QueuedConnection)

    # --- what others call ---------------------------------------------------------------------------------------

    def attach(self, connection: Connection) -> None:
        """Watch this engine instead of any other."""
        self._hang_up("The app turned to another engine.")
        self.connection = connection
        self.live.begin(connection.epoch)
        self.told.emit(connection)
        self._stop_asked = False
        self._wire = _Wire(connection, self._arrived.emit, self._topics)
        self._tick.start()
        self._set(ConnectionState.CONNECTING)
        hello = self._wire.line.hello(next(self._ids))  # which the line may say again
        self._replies[hello.id] = self._welcomed
        self._wire.send(hello)
        self.announce_all()

    def detach(self) -> None:
        """Let go of the engine. Its last known state stays visible."""
        self._hang_up("The app let go of the engine.")
        self._tick.stop()
        self.connection = None
        self._set(ConnectionState.DISCONNECTED)
        self._announce()

    @property
    def replaying(self) -> bool:
        """Whether a recording is shown instead of the engine."""
        return self.view is not self.live

    def show(self, view: EngineView | None, now: Callable[[], float] = time.time) -> None:
        """Show a recording's view, whose time ``now`` tells; None shows the engine again."""
        shown = view or self.live
        if shown is not self.view:
            shown.redraw_after(self.view)
            self.view, self.now = shown, now
            self.announce_all()

    def announce(self, parts: Set[str]) -> None:
        """Tell that these parts of the shown view changed."""
        for name in sorted(parts):
            getattr(self, f"{name}Changed").emit()

    def announce_all(self) -> None:
        """Tell that everything shown changed."""
        self._changed.clear()
        self.announce(PARTS)

    def request(self, message: Message, on_reply: Reply) -> None:
        """Send a message; ``on_reply`` gets its one reply, :class:`Failed` with code ``gone`` when none can come."""
        message = msgspec.structs.replace(message, id=next(self._ids))
        if self._wire is None or (self.replaying and isinstance(message, _ASKED_BY_VIEWS)):
            failed = self._no_engine(message.id)
            QTimer.singleShot(0, self, lambda: on_reply(failed))
            return
        if isinstance(message, Shutdown):
            self._stop_asked = True
        self._replies[message.id] = on_reply
        self._wire.send(message)

    def submit(self, message: Submit, on_message: Callable[[StreamMessage], None]) -> str:
        """Run a prompt; ``on_message`` gets everything up to :class:`Finished` or :class:`Failed`. Returns its id."""
        message = msgspec.structs.replace(message, id=message.id or next(self._ids))
        if self._wire is None or self.replaying:
            failed = self._no_engine(message.id)
            QTimer.singleShot(0, self, lambda: on_message(failed))
        else:
            self._streams[message.id] = _Stream(Course(message), on_message)
            self._wire.send(message)
        return message.id

    def cancel(self, id: str) -> None:
        if id in self._held:
            self._held.remove(id)
            self._streams.pop(id).on_message(Finished(id=id, samples=[SampleResult(0, FinishReason.CANCELLED, 0)]))
        else:
            self.request(Cancel(request=id), lambda _reply: None)

    @property
    def asked(self) -> Set[str]:
        """The ids of this window's requests that have no end yet."""
        return self._streams.keys()

    def repeatable(self, id: str) -> bool:
        """Whether a request of this window can be asked of another engine without its reader noticing."""
        return self._streams[id].course.repeatable

    def carry(self) -> None:
        """The engine is about to be followed by another one: requests of this window that can be repeated are asked
        again of that one."""
        self._carrying = True

    def carry_no_more(self) -> None:
        """No engine follows: what waits for one fails."""
        self._carrying = False
        held, self._held = self._held, set()
        for id in held:
            self._streams.pop(id).on_message(self._no_engine(id))

    def _no_engine(self, id: str) -> Failed:
        reason = "This is a recording: it holds no texts, and nothing in it can be changed."
        return Failed(id=id, code="gone", message=reason if self.replaying else "No engine is connected.")

    # --- deliveries -----------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Deliver as soon as the last delivery is long enough ago."""
        if not self._frame.isActive():
            self._frame.start(max(0, round(1000 * (self._due - time.monotonic()))))

    def _deliver(self) -> None:
        began = time.monotonic()
        self._hand_out()
        # However much comes and however long it takes, the window has time for its user.
        self._due = max(began + FRAME_MS / 1000, time.monotonic() + REST_MS / 1000)

    def _hand_out(self) -> None:
        wire = self._wire
        if wire is None:
            return
        for item in wire.take():
            if isinstance(item, tuple):
                self._telemetry(*item)
            elif isinstance(item, EngineError):
                self._fail_all(Failed(code=item.code, message=item.message))
            else:
                self._control(item)
            if self._wire is not wire:  # a callback turned to another engine
                return
        self._ask_snapshot()
        self._announce()

    def _telemetry(self, topic: bytes, sequence: int, message: TelemetryMessage) -> None:
        self.live.apply(topic, sequence, message)
        self.told.emit((topic, sequence, message))
        self._changed |= parts_changed(message)
        if isinstance(message, Event):
            self._event(message)

    def _event(self, event: Event) -> None:
        if event.kind == "state" and event.state:
            self._set_engine_state(event.state, event.text, event.progress)
        elif event.kind == "reconfigured":
            self.request(GetConfig(), self._configured)
        self.eventReceived.emit(event)

    def _control(self, message: EngineMessage) -> None:
        stream = self._streams.get(message.id)
        if stream is not None:
            self._told_of_stream(stream, message)
            return
        on_reply = self._replies.pop(message.id, None)
        if on_reply is not None:
            on_reply(message)
        if isinstance(message, Reconfigured) and not message.report.dry_run:
            self.request(GetConfig(), self._configured)

    def _told_of_stream(self, stream: _Stream, message: EngineMessage) -> None:
        if isinstance(message, Failed) and message.code in _LEAVING and self._carries(stream):
            self._held.add(message.id)
            return
        # A request that is asked again has another number, which its reader wants to know.
        new = stream.course.take(message) or (message if isinstance(message, Accepted) else None)
        if isinstance(new, _ENDS):
            del self._streams[message.id]
        if isinstance(new, _OF_STREAMS):
            stream.on_message(new)

    def _carries(self, stream: _Stream) -> bool:
        return self._carrying and stream.course.repeatable

    def _ask_again(self) -> None:
        """Ask an engine that became ready for what the one before it left."""
        held, self._held, self._carrying = self._held, set(), False
        for id, stream in self._streams.items():
            if id in held and self._wire is not None:
                self._wire.send(stream.course.repeat())
        if held:
            self.carried.emit(len(held))

    def _announce(self) -> None:
        """Tell what changed; of an engine that is not shown, only how it is."""
        changed, self._changed = self._changed, set()
        self.announce(changed & {"connection"} if self.replaying else changed)

    # --- what the link itself asks --------------------------------------------------------------------------------

    def _welcomed(self, reply: EngineMessage) -> None:
        if isinstance(reply, Welcome):
            self._take_status(reply.status)
        elif isinstance(reply, Failed) and reply.code != "gone":
            self._set(ConnectionState.DISCONNECTED, reply.message)

    def _statused(self, reply: EngineMessage) -> None:
        if isinstance(reply, StatusReply):
            self._take_status(reply.status)

    def _take_status(self, status: EngineStatus) -> None:
        self.live.status = status
        self.told.emit(status)
        self._changed.add("connection")
        self._set_engine_state(status.state, status.detail, status.progress)

    def _set_engine_state(self, state: str, detail: str, progress: float | None) -> None:
        before = self.live.connection
        self._set(_CONNECTIONS[EngineState(state)], detail, progress)
        if self.live.connection in _SERVING and before not in _SERVING:
            self.request(GetStatus(), self._statused)  # the model's facts are known now
            self.request(GetConfig(), self._configured)
            self._ask_snapshot()
            if self.live.connection == ConnectionState.READY:
                self._ask_again()

    def _configured(self, reply: EngineMessage) -> None:
        if isinstance(reply, ConfigReply):
            self.live.settings = reply.settings
            self.told.emit(reply)
            self._changed.add("settings")

    def _ask_snapshot(self) -> None:
        if TOPIC_BLOCKS in self._topics and self.live.connection in _SERVING and self.live.feed.wants_snapshot():
            self.request(GetSnapshot(), self._snapshot)

    def _snapshot(self, reply: EngineMessage) -> None:
        if isinstance(reply, SnapshotReply):
            self.live.apply_snapshot(reply)
            self.told.emit(reply)
            self._changed |= {"blocks", "requests"}
        else:
            self.live.feed.snapshot_failed()

    # --- health ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        wire, connection = self._wire, self.connection
        if connection is None:
            return
        if wire is None:
            successor = endpoint.find_successor(connection)
            if successor is not None:
                self.attach(successor)
            return
        now = time.monotonic()
        silent = now - wire.heard
        if wire.refused:
            self._hang_up(wire.refused)
            self._set(ConnectionState.DISCONNECTED, wire.refused)
        elif silent > PROCESS_CHECK_S and connection.local and not connection.process_alive():
            self._ended()
        elif silent > NOT_ANSWERING_S:
            self._set(ConnectionState.NOT_ANSWERING)
            if silent > GONE_AFTER_S and not connection.local:  # its process cannot be looked at
                self._fail_all(Failed(code="gone", message=f"{connection} has not answered for {silent:.0f} s."))
        elif self.live.connection == ConnectionState.NOT_ANSWERING:
            self._set(ConnectionState.CONNECTING)
            self.request(GetStatus(), self._statused)
        if self._wire is not None and now - self._beat >= HEARTBEAT_S:
            self._beat = now
            self._heartbeat()
        self._announce()

    def _heartbeat(self) -> None:
        if self.live.connection == ConnectionState.READY:
            self.request(Ping(), lambda _reply: None)
        else:
            self.request(GetStatus(), self._statused)
        self._ask_snapshot()

    def _ended(self) -> None:
        """The process is gone: as somebody wished, or not."""
        last = self.live.connection
        wished = self._stop_asked or last in (ConnectionState.STOPPED, ConnectionState.DRAINING)
        detail = self.live.detail if last in (ConnectionState.STOPPED, ConnectionState.DIED) else ""
        self._hang_up("The engine stopped." if wished else "The engine's process ended unexpectedly.")
        self._set(ConnectionState.STOPPED if wished else ConnectionState.DIED, detail)

    def _set(self, state: ConnectionState, detail: str = "", progress: float | None = None) -> None:
        if self.live.set_connection(state, detail, progress):
            self.told.emit(state)
            self._changed.add("connection")

    def _hang_up(self, reason: str) -> None:
        """Close the sockets; whoever waits for an answer is told that none will come."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._fail_all(Failed(code="gone", message=reason))

    def _fail_all(self, reason: Failed) -> None:
        replies, self._replies = self._replies, {}
        ending = {id: stream for id, stream in self._streams.items() if not self._carries(stream)}
        self._held |= self._streams.keys() - ending.keys()
        for id, stream in ending.items():
            del self._streams[id]
            stream.on_message(msgspec.structs.replace(reason, id=id))
        for id, on_reply in replies.items():
            on_reply(msgspec.structs.replace(reason, id=id))
