"""Words and numbers for a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

#: Set to ``json``, it has progress told to a program.
PROGRESS_VARIABLE = "PAGEDECK_PROGRESS"

#: Where nothing can be rewritten, a stage that goes on says so about this often.
QUIET_S = 5.0


class Progress:
    """What is being done, how far it is and since when: one line that rewrites itself on a terminal, a line per stage
    elsewhere and for a long one a line every few seconds, and for programs (:data:`PROGRESS_VARIABLE`) each change as a
    line of JSON. ``clock`` tells seconds."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._for_programs = os.environ.get(PROGRESS_VARIABLE) == "json"
        self._live = self._stream.isatty() and not self._for_programs
        self._shown = ""
        self._stage = ""
        self._began: float | None = None
        self._told = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, text: str, fraction: float | None) -> None:
        if not text:
            return self.clear()
        if self._for_programs:
            self._tell(text, fraction)
        elif self._live:
            self._rewrite(self._line(text, fraction))
        else:
            self._append(text, fraction)
        return None

    def clear(self) -> None:
        if self._live and self._shown:
            self._rewrite("")

    def _tell(self, text: str, fraction: float | None) -> None:
        told = {"text": text, "fraction": None if fraction is None else round(fraction, 3)}
        line = json.dumps(told, ensure_ascii=False)
        if line != self._shown:
            print(line, file=self._stream, flush=True)
            self._shown = line

    def _append(self, text: str, fraction: float | None) -> None:
        stage, now = re.sub(r"[\d.,]+", "", text), self._clock()
        if stage == self._stage and now - self._told < QUIET_S:
            return
        line = _share(text, fraction) if stage == self._stage else text
        self._stage, self._told = stage, now
        if line != self._shown:
            print(line, file=self._stream, flush=True)
            self._shown = line

    def _line(self, text: str, fraction: float | None) -> str:
        now = self._clock()
        self._began = now if self._began is None else self._began
        age = int(now - self._began)
        return f"{_share(text, fraction)} · {age} s" if age else _share(text, fraction)

    def _rewrite(self, line: str) -> None:
        if line != self._shown:
            print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
            self._shown = line


def _share(text: str, fraction: float | None) -> str:
    return text if fraction is None else f"{text} ({fraction:.0%})"


def table(rows: list[list[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Columns of text, left-aligned but for those numbered in ``right``; the first row is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
