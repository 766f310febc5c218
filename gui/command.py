"""``pagedeck …`` in a process of its own: looking at models needs libraries that the window does without, and what
measures must not sit in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from PySide6.QtCore import QObject, QProcess
from shiboken6 import isValid


class Command(QProcess):
    """One run, once :meth:`begin` is called. It ends with its parent, at once with :meth:`stop`, and then tells nothing
    any more."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rest = b""
        self._last_words = ""
        # One that is destroyed while it runs tells so when there is no object any more.
        self.readyReadStandardOutput.connect(lambda: self._print() if isValid(self) else None)
        self.readyReadStandardError.connect(lambda: self._read() if isValid(self) else None)
        self.finished.connect(lambda code, _status: self._end(code) if isValid(self) else None)
        self.errorOccurred.connect(self._broke)

    def begin(self, arguments: Sequence[str]) -> None:
        self.start(sys.executable, ["-m", "pagedeck", *arguments])
        self.closeWriteChannel()

    def stop(self) -> None:
        for told in (self.readyReadStandardOutput, self.readyReadStandardError, self.finished, self.errorOccurred):
            told.disconnect()
        self.finished.connect(lambda *_: self.deleteLater())
        self.kill()

    # --- for the commands there are ---------------------------------------------------------------------------------

    def _print(self) -> None:
        """Something came on its standard output."""

    def _hear(self, line: str) -> None:
        """A line came on its standard error; the last one says why it failed, if it does."""
        self._last_words = line.strip() or self._last_words

    def _over(self, code: int, output: bytes, problem: str) -> None:
        """``output`` that was not read yet; ``problem``: why it failed, or could not start."""
        raise NotImplementedError

    # --- inner ------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        *lines, self._rest = (self._rest + bytes(self.readAllStandardError().data())).split(b"\n")
        for line in lines:
            self._hear(line.decode("utf-8", "replace"))

    def _end(self, code: int) -> None:
        self._print()
        self._read()
        self._hear(self._rest.decode("utf-8", "replace"))
        self.deleteLater()
        problem = self._last_words.removeprefix("pagedeck: ") or f"[exit code {code}]"
        self._over(code, bytes(self.readAllStandardOutput().data()), problem if code else "")

    def _broke(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.deleteLater()
            self._over(-1, b"", self.errorString())
