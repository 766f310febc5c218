"""The line to a server that publishes cache events: a thread reads, the window is told at most 30 times a second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from ...ipc.kv_events import EventBatch
from ...ipc.kv_subscriber import EventFeed
from ..map.block_image import AGE_TOP
from . import server_metrics
from .pool import AttachedCache
from .server_metrics import CacheFigures

FRAME_MS = 33
METRICS_S = 2.0
PATIENCE_MS = 2_000  # after which a server that is not there is missed
_WAIT_S = 0.2  # until a reader notices that nobody wants it any more
_REST_S = 0.016  # between two looks at the socket, however much comes
_TAKE_S = 0.012  # of a frame, for what was told: the rest of it is the window's
_INBOX_MAX = 20_000  # batches; beyond it they wait in the socket, as far as there is room


@dataclass(frozen=True, slots=True)
class Source:
    """Where a server publishes: ``endpoint``, which it connects to if ``bind``; ``replay`` and ``metrics`` as far as it
    has them."""

    endpoint: str
    replay: str = ""
    metrics: str = ""
    bind: bool = False


class AttachedLink(QObject):
    """Keeps :attr:`cache` true to what the server of ``source`` tells. Reads only: nothing is ever asked of its cache.

    Raises:
        Refused: an address of the source is none.
    """

    changed = Signal()
    _arrived = Signal()

    def __init__(self, source: Source, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.source = source
        self.cache = AttachedCache(time.time() - AGE_TOP)
        self.partial = False
        self.lost = 0
        self.sequence: int | None = None
        self.heard: float | None = None  # Unix seconds of the last batch here
        self.connected: bool | None = None  # whether a server is at the other end; None as long as that may yet be
        self.figures = CacheFigures()
        self.metrics_error = ""
        self._inbox: deque[EventBatch | CacheFigures | Exception] = deque()
        self._closing = threading.Event()
        self._frame = QTimer(self, interval=FRAME_MS, singleShot=True)
        self._frame.timeout.connect(self._deliver)
        self._arrived.connect(self._schedule, Qt.ConnectionType.QueuedConnection)
        self._patience = QTimer(self, interval=PATIENCE_MS, singleShot=True)
        self._patience.timeout.connect(self._deliver)
        self._patience.start()
        self._feed = EventFeed(source.endpoint, source.replay or None, bind=source.bind)
        self.address = self._feed.address
        self._reader = threading.Thread(target=self._read, name="cache events", daemon=True)
        self._reader.start()
        if source.metrics:
            threading.Thread(target=self._read_metrics, name="metrics", daemon=True).start()

    @property
    def open(self) -> bool:
        return not self._closing.is_set()

    def close(self) -> None:
        """Let go of the server; what was told stays."""
        self._closing.set()
        self._reader.join()
        self._deliver()
        self._inbox.clear()
        for timer in (self._frame, self._patience):  # whichever thread the rest of this object ends in
            timer.stop()

    # --- threads --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        peers = 0
        with self._feed:
            while self.open:
                batches = self._feed.receive(_WAIT_S)
                if batches or self._feed.peers != peers:
                    peers = self._feed.peers
                    self._put(batches)
                    self._closing.wait(_REST_S)  # else this thread would leave the window's none of Python's time
                while self.open and len(self._inbox) > _INBOX_MAX:
                    self._closing.wait(_REST_S)

    def _read_metrics(self) -> None:
        while self.open:
            try:
                self._put([server_metrics.read(self.source.metrics)])
            except (OSError, ValueError) as error:
                self._put([error])
            self._closing.wait(METRICS_S)

    def _put(self, items: Sequence[EventBatch | CacheFigures | Exception]) -> None:
        self._inbox.extend(items)
        if self.open:
            with contextlib.suppress(RuntimeError):  # the window has ended meanwhile, and this with it
                self._arrived.emit()

    # --- the GUI thread -------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._frame.isActive():
            self._frame.start()

    def _deliver(self) -> None:
        """Take what was told, as far as a frame has time for it."""
        self.cache.apply(self._due())
        self.partial, self.lost, self.sequence = self._feed.partial, self._feed.lost, self._feed.sequence
        if self._feed.peers or self.connected is not None or not self._patience.isActive():
            self.connected = self._feed.peers > 0
        self.changed.emit()
        if self._inbox and self.open:
            self._schedule()

    def _due(self) -> Iterator[EventBatch]:
        until = time.monotonic() + _TAKE_S
        while self._inbox and time.monotonic() < until:
            item = self._inbox.popleft()
            if isinstance(item, EventBatch):
                self.heard = time.time()
                yield item
            elif isinstance(item, CacheFigures):
                self._take_figures(item)
            else:
                self.figures, self.metrics_error = CacheFigures(), str(item)

    def _take_figures(self, figures: CacheFigures) -> None:
        self.figures, self.metrics_error = figures, ""
        if figures.blocks and figures.block_size:
            self.cache.device.set_capacity(figures.blocks, figures.block_size)
