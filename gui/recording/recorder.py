"""Recording what the engine tells, as it tells it: the GUI thread notes, a thread of its own packs and writes."""

from __future__ import annotations

import errno
import itertools
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QStandardPaths, Signal

from ... import __version__
from ...ipc.endpoint import Connection
from ...ipc.protocol import ConfigReply, EngineStatus, SnapshotReply
from ...ipc.telemetry import TelemetryMessage, encode_frames
from ..link import EngineLink
from ..state import ConnectionState, EngineView
from .file import SUFFIX, AnyRecord, ConnectionTold, Frame, Header, Keyframe, Resynced, SettingsTold, StatusTold, Writer

FLUSH_S = 1.0  # what a kill of the app can lose
KEYFRAME_MS = 10_000  # the least time between two keyframes; they also wait until changes outweigh them
QUEUE = 50_000  # messages that the disk may lag behind

_Noted = AnyRecord | tuple[int, bytes, int, TelemetryMessage]


def keyframe(view: EngineView, at: int, *, fresh: bool) -> Keyframe:
    """All that a view knows but its past."""
    return Keyframe(
        at,
        fresh,
        str(view.connection),
        view.detail,
        view.progress,
        _without_paths(view.status) if view.status is not None else None,
        view.stats,
        view.settings,
        view.snapshot(),
    )


class Recorder(QObject):
    """Records the link's live view. ``changed``: it began or ended; ``failed``: why it ended by itself."""

    changed = Signal()
    failed = Signal(object, object)  # OSError, Path of the file
    _broke = Signal(object, object)  # of the thread: which, why

    def __init__(self, link: EngineLink, parent: QObject | None = None) -> None:
        super().__init__(parent)
        documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        self.folder = Path(documents or Path.home()) / "Pagedeck"
        self._link = link
        self._thread: _WriterThread | None = None
        self._started = 0.0  # monotonic
        self._keyframe_at = 0
        self._was_whole = False  # whether the last keyframe had all blocks
        self._broke.connect(self._break_off)

    @property
    def recording(self) -> bool:
        return self._thread is not None

    @property
    def path(self) -> Path | None:
        """Of the file that is being written."""
        return self._thread.writer.path if self._thread is not None else None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._thread.writer.size if self._thread is not None else 0

    @property
    def elapsed_ms(self) -> int:
        return int(1000 * (time.monotonic() - self._started))

    def start(self, name: str, path: Path | None = None) -> None:
        """Record the engine ``name`` to a new file. Raises ``OSError`` where none can be written."""
        if path is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self._free_path(f"{name} {time.strftime('%Y-%m-%d %H-%M-%S')}")
        writer = Writer(path, Header(name, time.time(), __version__))
        self._started = time.monotonic()
        self._thread = _WriterThread(writer, self._broke.emit)
        self._put_keyframe(fresh=True)
        self._link.told.connect(self._note)
        self.changed.emit()

    def _free_path(self, stem: str) -> Path:
        """Where no recording is yet: of those that begin in the same second, the later ones are numbered."""
        names = itertools.chain([stem], (f"{stem} ({number})" for number in itertools.count(2)))
        return next(path for name in names if not (path := self.folder / f"{name}{SUFFIX}").exists())

    def stop(self) -> None:
        """End the file; returns when it is complete."""
        if self._thread is not None:
            self._link.told.disconnect(self._note)
            self._thread.finish()
            thread, self._thread = self._thread, None
            self.changed.emit()
            if thread.error is not None:
                self.failed.emit(thread.error, thread.writer.path)

    def _note(self, told: object) -> None:
        at, view = self.elapsed_ms, self._link.live
        if isinstance(told, tuple):
            topic, sequence, message = told
            self._put((at, topic, sequence, message))
            self._put_keyframe_when_due(at)
        elif isinstance(told, Connection):
            self._put_keyframe(fresh=True)
        elif isinstance(told, ConnectionState):
            self._put(ConnectionTold(at, str(view.connection), view.detail, view.progress))
        elif isinstance(told, EngineStatus):
            self._put(StatusTold(at, _without_paths(told)))
        elif isinstance(told, ConfigReply):
            self._put(SettingsTold(at, told.settings))
        elif isinstance(told, SnapshotReply):
            self._put(Resynced(at, told))

    def _put_keyframe_when_due(self, at: int) -> None:
        """Only where nothing is held back: a keyframe cannot say what is."""
        if self._thread is None or self._link.live.feed.applied is None:
            return
        outweighed = self._thread.writer.section_bytes >= self._thread.writer.keyframe_bytes
        if not self._was_whole or (outweighed and at - self._keyframe_at >= KEYFRAME_MS):
            self._put_keyframe(fresh=False)

    def _put_keyframe(self, *, fresh: bool) -> None:
        self._keyframe_at = self.elapsed_ms
        self._was_whole = self._link.live.feed.applied is not None
        self._put(keyframe(self._link.live, self._keyframe_at, fresh=fresh))

    def _put(self, noted: _Noted) -> None:
        if self._thread is not None and not self._thread.put(noted):
            self._break_off(self._thread, OSError(errno.EBUSY, "the disk does not keep up"))

    def _break_off(self, thread: _WriterThread, error: OSError) -> None:
        """The thread could not write; what it wrote stays."""
        if thread is self._thread:
            self._thread = None
            self._link.told.disconnect(self._note)
            thread.abandon()
            self.changed.emit()
            self.failed.emit(error, thread.writer.path)


class _WriterThread(threading.Thread):
    """Packs and writes what is put, until :meth:`finish`. ``error``: why it ended before."""

    def __init__(self, writer: Writer, broke: Callable[[_WriterThread, OSError], None]) -> None:
        super().__init__(name="recorder", daemon=True)
        self.writer = writer
        self.error: OSError | None = None
        self._broke = broke
        self._queue: queue.Queue[_Noted | None] = queue.Queue(QUEUE)
        self._abandoned = False
        self.start()

    def put(self, noted: _Noted) -> bool:
        """Whether there was room."""
        try:
            self._queue.put_nowait(noted)
        except queue.Full:
            return False
        return True

    def finish(self) -> None:
        """Write what is left and close the file."""
        while self.is_alive():
            try:
                self._queue.put(None, timeout=FLUSH_S)
            except queue.Full:
                continue
            self.join()

    def abandon(self) -> None:
        self._abandoned = True

    def run(self) -> None:
        try:
            self._write_all()
            self.writer.close()
        except OSError as error:
            self.error = error
            self.writer.abandon()
            self._broke(self, error)

    def _write_all(self) -> None:
        due = time.monotonic() + FLUSH_S
        while not self._abandoned:
            try:
                noted = self._queue.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                self.writer.flush()
                due = time.monotonic() + FLUSH_S
                continue
            if noted is None:
                return
            self.writer.add(_frame(*noted) if isinstance(noted, tuple) else noted)
            if time.monotonic() >= due:
                self.writer.flush()
                due = time.monotonic() + FLUSH_S


def _frame(at: int, topic: bytes, sequence: int, message: TelemetryMessage) -> Frame:
    return Frame(at, topic, sequence, encode_frames(topic, sequence, message)[2])


def _without_paths(status: EngineStatus) -> EngineStatus:
    """Where this machine keeps its sockets and logs is nobody's business who gets the file."""
    return msgspec.structs.replace(status, telemetry="", log="")
