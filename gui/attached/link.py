"""The line to a server that publishes cache events: a thread reads, the window is told at most 30 times a second."""

from __future__ import annotations

import threading
import time
from collections import deque
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
_WAIT_S = 0.2  # until a reader notices that nobody wants it any more


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
        self.figures = CacheFigures()
        self.metrics_error = ""
        self._inbox: deque[list[EventBatch] | CacheFigures | Exception] = deque()
        self._closing = threading.Event()
        self._frame = QTimer(self, interval=FRAME_MS, singleShot=True)
        self._frame.timeout.connect(self._deliver)
        self._arrived.connect(self._schedule, Qt.ConnectionType.QueuedConnection)
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

    # --- threads --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        with self._feed:
            while self.open:
                batches = self._feed.receive(_WAIT_S)
                if batches:
                    self._put(batches)

    def _read_metrics(self) -> None:
        while self.open:
            try:
                self._put(server_metrics.read(self.source.metrics))
            except (OSError, ValueError) as error:
                self._put(error)
            self._closing.wait(METRICS_S)

    def _put(self, item: list[EventBatch] | CacheFigures | Exception) -> None:
        self._inbox.append(item)
        if self.open:
            self._arrived.emit()

    # --- the GUI thread -------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._frame.isActive():
            self._frame.start()

    def _deliver(self) -> None:
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, list):
                self.cache.apply(item)
                self.heard = time.time()
            elif isinstance(item, CacheFigures):
                self._take_figures(item)
            else:
                self.metrics_error = str(getattr(item, "reason", item))
        self.partial, self.lost, self.sequence = self._feed.partial, self._feed.lost, self._feed.sequence
        self.changed.emit()

    def _take_figures(self, figures: CacheFigures) -> None:
        self.figures, self.metrics_error = figures, ""
        if figures.blocks and figures.block_size:
            self.cache.device.set_capacity(figures.blocks, figures.block_size)
