"""The engine's process: opens the sockets, loads the model, runs the core loop, and ends in good order."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import msgspec
import zmq

from ... import __version__
from ...ipc.collector import calm
from ...ipc.endpoint import Endpoint, bind, remove_connection
from ...ipc.folders import state_folder
from ...ipc.protocol import (
    Done,
    EngineStatus,
    Failed,
    Release,
    SettingInfo,
    Shutdown,
    Submit,
)
from ...ipc.telemetry import TOPIC_EVENT, Event
from ...ipc.vocabulary import EngineState, Refused
from ..config import EngineConfig
from ..facts import setting_facts
from .audience import user_of
from .cache_events import CacheEvents
from .control import FOR_OPERATORS, Control, ending_of, forbidden, tokens_of
from .event_socket import EventSocket
from .intake import Prepared
from .logs import ROOT, EventHandler, close_log, open_log
from .publisher import Publisher
from .switchboard import ClientGone, Received, Switchboard, SwitchboardFailed
from .text import Text

if TYPE_CHECKING:
    from ..assembly import Assembled
    from ..core import Engine

#: How long a terminated engine goes on with what it has.
DRAIN_S = 10.0

#: While the model loads, whatever arrives wakes the loop, and the progress shown on a terminal tells its age.
_LOADING_WAIT_S = 1.0

#: What takes seconds to import, and would otherwise be imported without a word.
_LIBRARIES = {"torch": "PyTorch", "transformers.modeling_utils": "transformers", "numba": "numba"}

Progress = Callable[[str, float | None], None]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Report:
    detail: str
    progress: float | None


@dataclass(slots=True)
class _Loaded:
    assembled: Assembled


@dataclass(slots=True)
class _LoadFailed:
    error: BaseException


@dataclass(slots=True)
class _Stop:
    reason: str
    drain_s: float | None


@dataclass(slots=True)
class _Serving:
    """What there is once the model is loaded."""

    engine: Engine
    control: Control
    publisher: Publisher
    text: Text


def serve(
    config: EngineConfig,
    *,
    name: str = "pagedeck",
    listen: str | None = None,
    owned: bool = False,
    private: bool = False,
    kv_events: str | None = None,
    kv_events_replay: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Run an engine until it is told to stop; returns the process's exit code.

    ``listen`` is an address for TCP (``tcp://HOST:PORT``), None the private default. An ``owned`` engine ends when its
    standard input does, unless it was released. A ``private`` one is found by its name alone. Events of the prefix
    cache are published at ``kv_events`` and repeated at ``kv_events_replay``, if these addresses are given. SIGTERM and
    SIGINT let requests go on for ``DRAIN_S`` seconds, and end everything at once when they come again. ``progress`` is
    told what loading does and how far it is, and once nothing (an empty text) when that is over.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        log = state_folder() / f"{name}.log"
        endpoint = bind(context, name=name, listen=listen, model=config.model, log=str(log), private=private)
        events = _publish_events(context, endpoint, kv_events, kv_events_replay)
    except Refused as refused:
        print(f"pagedeck: {refused}", file=sys.stderr, flush=True)
        return 1
    handlers = open_log(log)
    service = Service(config, endpoint, _assemble, progress, events)
    if owned:
        threading.Thread(target=_watch_parent, args=(service,), name="parent", daemon=True).start()
    try:
        with _signals(service):
            code = service.run()
        context.term()  # waits a moment for the last words to be sent
    finally:
        close_log(handlers)
    if service.loading:  # half-imported libraries do not survive the interpreter's end
        sys.stderr.flush()
        os._exit(code)
    return code


def _publish_events(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: Endpoint, address: str | None, replay: str | None
) -> EventSocket | None:
    if address is None:
        return None
    try:
        return EventSocket(context, address, replay)
    except Refused:
        endpoint.close()
        raise


def _assemble(config: EngineConfig, report: Progress) -> Assembled:
    for module, title in _LIBRARIES.items():
        report(f"Importing {title}", None)
        importlib.import_module(module)
    report(f"Looking for {config.model}", None)
    from ..assembly import assemble

    return assemble(config, report)


def _watch_parent(service: Service) -> None:
    """An owned engine's standard input is a pipe that its parent holds: it ends when the parent does."""
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    if service.released:
        _log.info("The process that started the engine ended; released, the engine goes on")
    else:
        service.stop("The process that started the engine ended.")


@contextlib.contextmanager
def _signals(service: Service) -> Iterator[None]:
    before = {number: signal.signal(number, service.signalled) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Service:
    """One life of an engine behind the sockets of ``endpoint``, which it closes at its end.

    The thread that calls :meth:`run` is the core's; no other touches the engine. ``assemble`` loads it, on a thread of
    its own.
    """

    def __init__(
        self,
        config: EngineConfig,
        endpoint: Endpoint,
        assemble: Callable[[EngineConfig, Progress], Assembled],
        progress: Progress | None = None,
        events: EventSocket | None = None,
    ) -> None:
        self.released = False  # by its owner: it lives on without it
        self._config = config
        self._endpoint = endpoint
        self._assemble = assemble
        self._progress = progress
        self._events = events
        self._cache_events: CacheEvents | None = None
        self._loader = threading.Thread(target=self._load, name="loader", daemon=True)
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        connection = endpoint.connection
        self._status = EngineStatus(
            name=connection.name,
            state=EngineState.LOADING.value,
            model=config.model,
            epoch=connection.epoch,
            pid=connection.pid,
            version=__version__,
            detail="Starting",
            started=time.time(),
            telemetry=connection.telemetry,
            log=connection.log,
        )
        self._switchboard = Switchboard(
            endpoint,
            self._inbox,
            self._current_status,
            self._current_settings,
            lambda: self._current_config().max_clients,
        )
        self._serving: _Serving | None = None
        self._stopping: _Stop | None = None
        self._stop_at: float | None = None
        self._interrupted = False
        self._exit_code = 0

    # --- from start to end --------------------------------------------------------------------------------------------

    def run(self) -> int:
        connection = self._endpoint.connection
        events = EventHandler(connection.epoch, lambda event: self._switchboard.publish(TOPIC_EVENT, event))
        ROOT.addHandler(events)
        address = self._endpoint.control.get_string(zmq.LAST_ENDPOINT)  # where others may be let in, that is to be seen
        self._switchboard.start()
        if self._events is not None:
            self._events.start()
            replayed = f", repeated at {self._events.replay}" if self._events.replay else ""
            _log.info("Cache events, unencrypted, at %s%s", self._events.endpoint, replayed)
        _log.info("Listening at %s, connection file %s", address, connection.path)
        self._loader.start()
        try:
            self._loop()
        except Exception as error:
            self._break(f"The engine broke down: {type(error).__name__}: {error}", error)
        finally:
            self._end()
            ROOT.removeHandler(events)
        return self._exit_code

    @property
    def loading(self) -> bool:
        return self._loader.is_alive()

    def stop(self, reason: str, drain_s: float | None = 0.0) -> None:
        """End soon, from any thread. ``drain_s``: seconds that requests may go on; None is until they are done."""
        self._inbox.put(_Stop(reason, drain_s))

    def signalled(self, number: int, _frame: FrameType | None) -> None:
        """A signal's handler: the first lets requests go on for a while, the second ends everything at once."""
        if self._interrupted:
            remove_connection(self._endpoint.connection)
            os._exit(128 + number)
        self._interrupted = True
        self.stop(f"The engine got {signal.Signals(number).name}.", DRAIN_S)

    def _break(self, sentence: str, error: BaseException | None) -> None:
        self._exit_code = 1
        _log.error("%s", sentence, exc_info=error)
        self._announce(EngineState.FAILED, sentence)

    def _end(self) -> None:
        text = self._stopping.reason if self._stopping else self._status.detail
        if self._serving is not None:
            self._serving.control.abandon(text)
        if self._status.state != EngineState.FAILED:  # then its last words are said
            self._announce(EngineState.STOPPED, text)
            _log.info("Stopped: %s", text)
        self._switchboard.close()
        if self._events is not None:
            self._events.close()

    def _loop(self) -> None:
        wait = 0.0
        while not self._done():
            for item in self._arrivals(wait):
                self._handle(item)
            if self._serving is not None:
                wait = self._turn(self._serving)
            else:
                wait = _LOADING_WAIT_S
                if self._progress and self.loading:
                    self._progress(self._status.detail, self._status.progress)

    def _turn(self, serving: _Serving) -> float:
        """A step, if there is work, and the telemetry that is due; returns the seconds until something may be due."""
        if serving.engine.has_work:
            result = serving.engine.step()
            for output in result.outputs:
                self._switchboard.send(output.request.client, tokens_of(output, serving.text))
            for request in result.ended:
                self._switchboard.send(request.client, ending_of(request))
            serving.publisher.stepped(result)
            serving.engine.forget()
        if self._cache_events is not None:
            self._cache_events.publish()
        wait = serving.publisher.tick(time.monotonic())
        self._status.stats = serving.publisher.stats
        return 0.0 if serving.engine.has_work else wait

    def _arrivals(self, wait: float) -> Iterator[object]:
        """Everything that has arrived; waits for the first for up to ``wait`` seconds."""
        if self._stop_at is not None:
            wait = min(wait, max(0.0, self._stop_at - time.monotonic()))
        with contextlib.suppress(queue.Empty):
            yield self._inbox.get(timeout=wait) if wait > 0 else self._inbox.get_nowait()
            for _ in range(self._inbox.qsize()):
                yield self._inbox.get_nowait()

    def _done(self) -> bool:
        if self._stopping is None:
            return False
        if self._serving is None or not self._serving.control.has_work:
            return True
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    # --- what arrives -------------------------------------------------------------------------------------------------

    def _handle(self, item: object) -> None:
        if isinstance(item, Received):
            self._receive(item)
        elif isinstance(item, Prepared):
            assert self._serving is not None
            self._serving.control.submit_prepared(item)
        elif isinstance(item, ClientGone):
            cancelled = self._serving.control.cancel_client(item.client) if self._serving else 0
            if cancelled:
                _log.info("%s %d requests cancelled.", item.reason, cancelled)
        elif isinstance(item, _Report):
            self._announce(EngineState.LOADING, item.detail, item.progress)
        elif isinstance(item, _Loaded | _LoadFailed):
            if self._progress:
                self._progress("", None)
            if isinstance(item, _Loaded):
                self._take_over(item.assembled)
            else:
                self._fail(item.error)
        elif isinstance(item, _Stop):
            self._stop_for(item)
        elif isinstance(item, SwitchboardFailed):
            raise RuntimeError("the socket thread ended")

    def _receive(self, received: Received) -> None:
        client, message = received.client, received.message
        if isinstance(message, FOR_OPERATORS) and not received.operator:
            self._switchboard.send(client, forbidden(message, user_of(client)))
        elif isinstance(message, Shutdown):
            self._stop_for(_Stop("A client asked for it.", None if message.drain else 0.0))
            if message.hand_back and self._serving is not None:
                self._serving.control.hand_back("The engine is about to stop; ask the one that follows it.")
            self._switchboard.send(client, Done(id=message.id))
        elif isinstance(message, Release):
            self.released = True
            self._switchboard.send(client, Done(id=message.id))
        elif self._stopping is not None and isinstance(message, Submit):
            text = "The engine is about to stop and takes nothing new."
            self._switchboard.send(client, Failed(id=message.id, code="draining", message=text))
        elif self._serving is not None:
            self._serving.control.handle(client, message, received.operator)
        else:
            text = f"The model is still being loaded: {self._status.detail}."
            self._switchboard.send(client, Failed(id=message.id, code="loading", message=text))

    def _stop_for(self, stop: _Stop) -> None:
        """Begin to end; a second reason can only make it sooner."""
        self._stopping = self._stopping or stop
        if stop.drain_s is not None:
            at = time.monotonic() + stop.drain_s
            self._stop_at = at if self._stop_at is None else min(at, self._stop_at)
        if not self._done():
            self._announce(EngineState.DRAINING, stop.reason)

    # --- loading ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        def report(detail: str, progress: float | None) -> None:
            self._inbox.put(_Report(detail, progress))

        try:
            self._inbox.put(_Loaded(self._assemble(self._config, report)))
        except BaseException as error:
            self._inbox.put(_LoadFailed(error))

    def _take_over(self, loaded: Assembled) -> None:
        engine, model = loaded.engine, loaded.model
        text = Text(model.tokenizer, engine.context_length)
        publisher = Publisher(self._status.epoch, engine, self._switchboard)
        control = Control(engine, text, publisher, self._switchboard.send, self._inbox.put)
        self._serving = _Serving(engine, control, publisher, text)
        if self._events is not None:
            self._cache_events = CacheEvents(engine.cache, self._events.send)
        calm()
        self._status = msgspec.structs.replace(
            self._status,
            model=model.name,
            device=loaded.config.device,
            dtype=loaded.config.dtype,
            context_length=engine.context_length,
            parameters=model.parameters,
            vocabulary=engine.vocabulary,
            chat_template=text.has_chat_template,
        )
        if self._stopping is None:
            self._announce(EngineState.READY, "")
        _log.info("Ready: %s", model.name)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, Refused):
            self._break(str(error), None)
        else:
            self._break(f"The model could not be loaded: {type(error).__name__}: {error}", error)
        self._stopping = _Stop(self._status.detail, 0.0)

    # --- state --------------------------------------------------------------------------------------------------------

    def _current_status(self) -> EngineStatus:
        return self._status

    def _current_settings(self) -> list[SettingInfo]:
        return [SettingInfo(**facts) for facts in setting_facts(self._current_config())]

    def _current_config(self) -> EngineConfig:
        return self._serving.engine.config if self._serving else self._config

    def _announce(self, state: EngineState, detail: str, progress: float | None = None) -> None:
        self._status = msgspec.structs.replace(self._status, state=state.value, detail=detail, progress=progress)
        event = Event(
            epoch=self._status.epoch,
            time=time.time(),
            kind="state",
            text=detail,
            level="error" if state is EngineState.FAILED else "info",
            state=state.value,
            progress=progress,
        )
        self._switchboard.publish(TOPIC_EVENT, event)
