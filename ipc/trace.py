"""What was asked of an engine and when, as JSON lines without any text: a load that can be repeated.

A line is an object: ``at`` (seconds, from any moment on), ``prompt_tokens``, ``output_tokens``, ``priority`` (a class),
and ``prefix``, a number for each whole ``piece`` tokens of the prompt: prompts that begin with the same numbers begin
with the same tokens. The numbers mean nothing beyond the life of one engine.
"""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from .telemetry import Event
from .vocabulary import priority_name

#: Tokens of a prompt that one number stands for.
PIECE = 64


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request of a trace."""

    at: float
    prompt_tokens: int
    output_tokens: int
    priority: str = "normal"
    prefix: tuple[int, ...] = ()
    piece: int = PIECE


def line_of(event: Event) -> Line | None:
    """The line of a request that has just been answered; None for any other event."""
    row = event.row
    if event.kind != "finished" or row is None:
        return None
    return Line(row.arrival, row.prompt_tokens, row.output_tokens, priority_name(row.priority), tuple(row.prefix))


def write_line(file: BinaryIO, line: Line) -> None:
    file.write(msgspec.json.encode(line) + b"\n")
