"""Where the engine's log goes: a rotating file, stderr, and (warnings and errors) its telemetry."""

from __future__ import annotations

import logging
import logging.handlers
import time
from collections.abc import Callable
from pathlib import Path

from ...ipc.telemetry import Event

MAX_BYTES = 2_000_000
KEPT_FILES = 3

#: The package's own logger, above all modules' ones.
ROOT = logging.getLogger(__name__.partition(".")[0])


def open_log(path: Path) -> list[logging.Handler]:
    """Send the package's log to ``path`` and stderr; returns the handlers, for :func:`close_log`."""
    file = logging.handlers.RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"))
    screen = logging.StreamHandler()
    screen.setFormatter(_ScreenFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    handlers: list[logging.Handler] = [file, screen]
    for handler in handlers:
        ROOT.addHandler(handler)
    ROOT.setLevel(logging.INFO)
    ROOT.propagate = False
    return handlers


def close_log(handlers: list[logging.Handler]) -> None:
    for handler in handlers:
        ROOT.removeHandler(handler)
        handler.close()
    ROOT.propagate = True


class _ScreenFormatter(logging.Formatter):
    """Errors as the one sentence that a person needs; how they came about is in the file."""

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.ERROR:
            return f"pagedeck: {record.getMessage()}"
        return super().format(record)


class EventHandler(logging.Handler):
    """Tells subscribers about warnings and errors. ``publish`` takes an :class:`Event` from any thread."""

    def __init__(self, epoch: str, publish: Callable[[Event], None]) -> None:
        super().__init__(logging.WARNING)
        self._epoch = epoch
        self._publish = publish

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        event = Event(epoch=self._epoch, time=time.time(), kind="log", text=record.getMessage(), level=level)
        self._publish(event)
