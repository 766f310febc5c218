"""``pagedeck bench …`` and ``pagedeck tune`` in a process of their own: what measures must not sit in the window."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, Signal
from shiboken6 import isValid

#: Exit code of a command that was interrupted.
INTERRUPTED = 130


class MeasureCommand(QProcess):
    """One run. ``progressed``: what is being done and the share of it, or None; ``ended``: the exit code, what was
    printed, and the last words where it failed."""

    progressed = Signal(str, object)
    ended = Signal(int, str, str)

    def __init__(self, arguments: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.interrupted = False
        self._errors: list[str] = []
        self._rest = b""
        environment = QProcessEnvironment.systemEnvironment()
        environment.insert("PAGEDECK_PROGRESS", "json")
        self.setProcessEnvironment(environment)
        if hasattr(QProcess, "UnixProcessParameters"):  # whoever ignores Ctrl-C would have its children ignore it too
            parameters = QProcess.UnixProcessParameters()
            parameters.flags = QProcess.UnixProcessFlag.ResetSignalHandlers
            self.setUnixProcessParameters(parameters)
        # One that is destroyed while it runs tells so when there is no object any more.
        self.readyReadStandardError.connect(lambda: self._read() if isValid(self) else None)
        self.finished.connect(lambda code, _status: self._end(code) if isValid(self) else None)
        self.errorOccurred.connect(self._broke)
        self.start(sys.executable, ["-m", "pagedeck", *arguments])
        self.closeWriteChannel()

    def interrupt(self) -> None:
        """As Ctrl-C does: what was measured is kept."""
        self.interrupted = True
        if sys.platform == "win32":
            self.kill()
        elif self.processId():
            os.kill(self.processId(), signal.SIGINT)

    def stop(self) -> None:
        """End at once and tell nothing any more; what it has started ends with it."""
        for told in (self.readyReadStandardError, self.finished, self.errorOccurred):
            told.disconnect()
        self.finished.connect(lambda *_: self.deleteLater())
        self.kill()

    def _read(self) -> None:
        *lines, self._rest = (self._rest + bytes(self.readAllStandardError().data())).split(b"\n")
        for line in lines:
            self._take(line.decode("utf-8", "replace"))

    def _take(self, line: str) -> None:
        try:
            told = json.loads(line)
            self.progressed.emit(told["text"], told["fraction"])
        except (ValueError, TypeError, KeyError):
            if line.strip():
                self._errors.append(line.strip())

    def _end(self, code: int) -> None:
        self._read()
        said = self._errors[-1].removeprefix("pagedeck: ") if self._errors else f"[exit code {code}]"
        output = bytes(self.readAllStandardOutput().data()).decode("utf-8", "replace")
        self.deleteLater()
        self.ended.emit(code, output, "" if code == 0 else said)

    def _broke(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.deleteLater()
            self.ended.emit(-1, "", self.errorString())


def ask(arguments: Sequence[str], on_answer: Callable[[object, str], None], parent: QObject) -> MeasureCommand:
    """Run a command that prints JSON; ``on_answer`` gets what it says, or None and why there is nothing."""
    command = MeasureCommand(arguments, parent)
    command.ended.connect(lambda code, output, problem: on_answer(json.loads(output) if code == 0 else None, problem))
    return command
