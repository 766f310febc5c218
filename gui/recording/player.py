"""Playing a recording in the window: open, play, seek, speed, back to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from ...ipc.vocabulary import Refused
from ..link import FRAME_MS, EngineLink
from .file import Recording
from .replay import Replay

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
READ_MS = 20  # of reading between two looks at what the user does


class Player(QObject):
    """Shows a recording through the link in place of the engine. ``changed``: something that can be read here did."""

    changed = Signal()
    failed = Signal(object)  # Refused or OSError: why a recording that was opened cannot be read

    def __init__(self, link: EngineLink, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self.replay: Replay | None = None
        self.read_share: float | None = None  # 0 to 1 while the file is being read
        self.speed = 1.0
        self.playing = False
        self._reading: Iterator[float] = iter(())
        self._from = (0.0, 0.0)  # monotonic seconds and milliseconds of the recording at which playing began
        self._reader = QTimer(self, interval=0)
        self._reader.timeout.connect(self._read_on)
        self._frame = QTimer(self, interval=FRAME_MS)
        self._frame.timeout.connect(self._go_on)

    @property
    def ready(self) -> bool:
        """Whether a recording is there and read."""
        return self.replay is not None and self.read_share is None

    def open(self, path: Path) -> None:
        """Show a recording instead of what is shown. Raises :class:`Refused` or ``OSError`` and changes nothing."""
        recording = Recording(path)
        self._drop()
        replay = self.replay = Replay(recording)
        self.read_share = 0.0
        self._reading = replay.read()
        self._reader.start()
        self._link.show(replay.view, lambda: replay.now)
        self.changed.emit()

    def close(self) -> None:
        """Back to the engine."""
        if self.replay is not None:
            self._drop()
            self._link.show(None)
            self.changed.emit()

    def play(self) -> None:
        """Go on from here; at the end, from the beginning."""
        if self.replay is not None and self.ready:
            if self.replay.at >= self.replay.end:
                self._show(0)
            if not self.ready:  # it could not be shown
                return
            self._begin()
            self.playing = True
            self._frame.start()
            self.changed.emit()

    def pause(self) -> None:
        if self.playing:
            self.playing = False
            self._frame.stop()
            self.changed.emit()

    def toggle(self) -> None:
        self.pause() if self.playing else self.play()

    def seek(self, at: int) -> None:
        """Show another moment, in milliseconds."""
        if self.ready:
            self._show(at)
            self._begin()
            self.changed.emit()

    def skip(self, ms: int) -> None:
        """Go so far on, or back."""
        if self.replay is not None:
            self.seek(self.replay.at + ms)

    def set_speed(self, speed: float) -> None:
        self.speed = speed
        self._begin()
        self.changed.emit()

    def _show(self, at: int) -> None:
        assert self.replay is not None
        self._turn(self.replay.seek, at)

    def _turn(self, move: Callable[[int], Set[str]], at: int) -> None:
        """Go to a moment; back to the engine, where what is there cannot be read."""
        try:
            changed = move(at)
        except (Refused, OSError, ValueError) as error:
            self.close()
            self.failed.emit(error)
        else:
            self._link.announce(changed)

    def _begin(self) -> None:
        self._from = time.monotonic(), float(self.replay.at if self.replay is not None else 0)

    def _go_on(self) -> None:
        assert self.replay is not None
        begun, at = self._from
        self._turn(self.replay.play, int(at + 1000 * self.speed * (time.monotonic() - begun)))
        if self.replay is not None and self.replay.at >= self.replay.end:
            self.pause()
        self.changed.emit()

    def _read_on(self) -> None:
        assert self.replay is not None
        until = time.monotonic() + READ_MS / 1000
        try:
            while time.monotonic() < until:
                self.read_share = next(self._reading)
        except StopIteration:
            self._reader.stop()
            self.read_share = None
            self._link.announce_all()
            self.play()
        except (Refused, OSError, ValueError) as error:
            self.close()
            self.failed.emit(error)
        self.changed.emit()

    def _drop(self) -> None:
        self._reader.stop()
        self._frame.stop()
        self.playing = False
        self.read_share = None
        if self.replay is not None:
            self.replay.recording.close()
            self.replay = None
