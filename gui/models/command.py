"""``pagedeck models …`` in a process of its own: looking at models needs libraries that the window does without."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QProcess
from shiboken6 import isValid

#: Called once with the answer, or with none and why there is none.
Done = Callable[[Any, str], None]


class ModelsCommand(QProcess):
    """One run. It ends with its parent, at once with :meth:`stop`, and then tells nothing any more."""

    def __init__(
        self,
        arguments: list[str],
        on_done: Done,
        on_line: Callable[[dict[str, Any]], None] | None = None,
        parent: QObject | None = None,
    ) -> None:
        """``on_line`` is given each line of JSON as it comes, for a command that prints such; ``on_done`` gets the
        whole answer of any other."""
        super().__init__(parent)
        self._on_done, self._on_line = on_done, on_line
        self._output, self._told = b"", 0
        # One that is destroyed while it runs tells so when there is no object any more.
        self.readyReadStandardOutput.connect(lambda: self._read() if isValid(self) else None)
        self.finished.connect(lambda code, _status: self._end(code) if isValid(self) else None)
        self.errorOccurred.connect(self._broke)
        self.start(sys.executable, ["-m", "pagedeck", "models", *arguments, "--json"])
        self.closeWriteChannel()

    def stop(self) -> None:
        for signal in (self.readyReadStandardOutput, self.finished, self.errorOccurred):
            signal.disconnect()
        self.finished.connect(lambda *_: self.deleteLater())
        self.kill()

    def _read(self) -> None:
        self._output += bytes(self.readAllStandardOutput().data())
        if self._on_line is None:
            return
        *lines, _ = self._output[self._told :].split(b"\n")
        self._told += sum(len(line) + 1 for line in lines)
        for line in lines:
            self._on_line(json.loads(line))

    def _end(self, code: int) -> None:
        self._read()
        self.deleteLater()
        if code == 0:
            self._on_done(None if self._on_line is not None else json.loads(self._output), "")
        else:
            said = bytes(self.readAllStandardError().data()).decode("utf-8", "replace").strip().splitlines()
            self._on_done(None, said[-1].removeprefix("pagedeck: ") if said else f"[exit code {code}]")

    def _broke(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.deleteLater()
            self._on_done(None, self.errorString())
