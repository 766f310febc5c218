"""An engine that the app started: a child process that ends when the app does, unless it is let go.

The child's standard input is a pipe that nobody writes to. When the app ends, however it ends, the pipe closes and
the engine (started with ``--exit-with-parent``) stops: no orphan. QProcess would kill its child when it is destroyed,
so it could never let one go; hence ``subprocess``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

_WATCH_MS = 150

#: How long a terminated engine has before it is killed.
KILL_AFTER_MS = 3000
_LAST_LINES = 12
_LAST_BYTES = 16_384


class EngineProcess(QObject):
    """Starts, watches and stops ``pagedeck serve``.

    Signals: ``stopped`` when it ended as asked, ``died`` when it ended otherwise: with its last words, and the number
    of the signal that ended it, 0 for none.
    """

    stopped = Signal()
    died = Signal(str, int)

    def __init__(self, name: str, arguments: Sequence[str], output: Path, parent: QObject | None = None) -> None:
        """``arguments`` are the engine's settings as command-line options; ``output`` collects what it prints."""
        super().__init__(parent)
        self.name = name
        self._arguments = [*arguments]
        self._output = output
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._insisted = False
        self._released = False
        self._watch = QTimer(self, interval=_WATCH_MS)
        self._watch.timeout.connect(self._look)
        self._deadline = QTimer(self, singleShot=True)
        self._deadline.timeout.connect(self._insist)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "pagedeck", "serve", "--name", self.name, "--exit-with-parent", *self._arguments]

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the engine; a failure to start is reported by ``died``, like any other early end."""
        self._stopping = self._insisted = self._released = False
        self._output.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._output.open("wb") as output:
                self._child = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the app's terminal is the app's to handle
                )
        except OSError as error:
            message = str(error)
            QTimer.singleShot(0, self, lambda: self.died.emit(message, 0))
            return
        self._watch.start()

    def stop(self, ask: Callable[[], None], patience_s: float = 5.0) -> None:
        """Ask the engine to shut down (``ask`` sends the message), and insist when it does not."""
        if not self.running or self._stopping:
            return
        self._stopping = True
        ask()
        self._close_pipe()
        self._deadline.start(round(patience_s * 1000))

    def stop_now(self, ask: Callable[[], None], patience_s: float = 4.0) -> None:
        """As :meth:`stop`, returning when the engine has ended: for the app's last moments."""
        child = self._child
        if child is None or self._released:
            return
        self._watch.stop()
        self._deadline.stop()
        if child.poll() is None:
            if not self._stopping:
                ask()
            self._close_pipe()
        for insist in (child.terminate, child.kill):
            try:
                child.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                insist()
        child.wait()
        self._child = None

    def release(self) -> None:
        """Stop watching an engine that was told to go on without the app (message ``Release``)."""
        self._released = True
        self._watch.stop()

    def last_words(self) -> str:
        """The end of what the engine printed: the last traceback or the last lines."""
        try:
            with self._output.open("rb") as output:
                output.seek(0, 2)
                output.seek(max(0, output.tell() - _LAST_BYTES))
                text = output.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-_LAST_LINES:])

    def _close_pipe(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def _insist(self) -> None:
        """Terminate; when called again (the deadline runs once more), kill."""
        if not self.running or self._child is None:
            return
        if self._insisted:
            self._child.kill()
            return
        self._insisted = True
        self._child.terminate()
        self._deadline.start(KILL_AFTER_MS)

    def _look(self) -> None:
        if self._child is None or self._child.poll() is None:
            return
        code = self._child.returncode
        self._watch.stop()
        self._deadline.stop()
        self._close_pipe()
        self._child = None
        if self._stopping or code == 0:
            self.stopped.emit()
        elif code < 0:
            self.died.emit(self.last_words(), -code)
        else:
            self.died.emit("\n".join(filter(None, (self.last_words(), f"[exit code {code}]"))), 0)
