"""``pagedeck bench …`` and ``pagedeck tune`` in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, Signal

from ..command import Command

#: Exit code of a command that was interrupted.
INTERRUPTED = 130


class MeasureCommand(Command):
    """``progressed``: what is being done and the share of it, or None; ``ended``: the exit code, what was printed, and
    the last words where it failed. What it has started ends with it."""

    progressed = Signal(str, object)
    ended = Signal(int, str, str)

    def __init__(self, arguments: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.interrupted = False
        environment = QProcessEnvironment.systemEnvironment()
        environment.insert("PAGEDECK_PROGRESS", "json")
        self.setProcessEnvironment(environment)
        if hasattr(QProcess, "UnixProcessParameters"):  # whoever ignores Ctrl-C would have its children ignore it too
            parameters = QProcess.UnixProcessParameters()
            parameters.flags = QProcess.UnixProcessFlag.ResetSignalHandlers
            self.setUnixProcessParameters(parameters)
        self.begin(arguments)

    def interrupt(self) -> None:
        """As Ctrl-C does: what was measured is kept."""
        self.interrupted = True
        if sys.platform == "win32":
            self.kill()
        elif self.processId():
            os.kill(self.processId(), signal.SIGINT)

    def _hear(self, line: str) -> None:
        try:
            told = json.loads(line)
            self.progressed.emit(told["text"], told["fraction"])
        except (ValueError, TypeError, KeyError):
            super()._hear(line)

    def _over(self, code: int, output: bytes, problem: str) -> None:
        self.ended.emit(code, output.decode("utf-8", "replace"), problem)


def ask(arguments: Sequence[str], on_answer: Callable[[object, str], None], parent: QObject) -> MeasureCommand:
    """Run a command that prints JSON; ``on_answer`` gets what it says, or None and why there is nothing."""
    command = MeasureCommand(arguments, parent)
    command.ended.connect(lambda code, output, problem: on_answer(json.loads(output) if code == 0 else None, problem))
    return command
