"""Figures as CSV, for spreadsheets and notebooks, and what was asked as a load that can be repeated."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...ipc.telemetry import TOPIC_EVENT, Event, RequestRow
from ...ipc.trace import line_of, write_line
from ..state import LATENCY_COLUMNS, STEP_COLUMNS, EngineView, History
from .file import Frame, Recording

_REQUEST_COLUMNS = RequestRow.__struct_fields__


def write_requests(view: EngineView, path: Path) -> None:
    """One row a request, by number; columns as in :class:`RequestRow`, empty where nothing is known."""
    rows = (view.requests[number] for number in sorted(view.requests))
    _write(path, _REQUEST_COLUMNS, ([getattr(row, name) for name in _REQUEST_COLUMNS] for row in rows))


def write_steps(view: EngineView, path: Path) -> None:
    """One row a step; columns as in :class:`StepHistory`."""
    _write_history(path, STEP_COLUMNS, view.steps)


def write_latency(view: EngineView, path: Path) -> None:
    """One row a second; columns as in :class:`LatencyHistory`, empty where nothing was measured."""
    _write_history(path, LATENCY_COLUMNS, view.latency)


def write_trace(recording: Recording, path: Path) -> None:
    """A line for each request that finished in a recording, in the order of their arrival; no text is in it."""
    lines = [line for event in _events(recording) if (line := line_of(event)) is not None]
    with path.open("wb", buffering=0) as file:
        for line in sorted(lines, key=lambda line: line.at):
            write_line(file, line)


def _events(recording: Recording) -> Iterator[Event]:
    for section in range(len(recording)):
        for record in recording.records(section):
            if isinstance(record, Frame) and record.topic == TOPIC_EVENT:
                message = record.message()
                if isinstance(message, Event):
                    yield message


def _write_history(path: Path, columns: Sequence[str], history: History) -> None:
    series = [history.column(name) for name in columns]
    _write(path, columns, ([_plain(float(value)) for value in row] for row in zip(*series, strict=True)))


def _plain(value: float) -> float | int | str:
    if math.isnan(value):
        return ""
    return int(value) if value.is_integer() else value


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
