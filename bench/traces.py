"""Loads that happened: Pagedeck's own traces (see ``ipc/trace``), and the public formats BurstGPT and Mooncake."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..ipc.trace import PIECE, Line
from ..ipc.vocabulary import PRIORITIES, Refused
from .workload import FIRST_TOKEN, Item

#: Tokens that a hash of Mooncake's stands for.
MOONCAKE_PIECE = 512


def read_trace(path: Path) -> list[Line]:
    """The requests of a trace, in the order of their times, the first of which becomes 0.

    Raises:
        Refused: the file cannot be read, or a line of it is not one of a known format; names the line.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(_burst_gpt(file) if path.suffix == ".csv" else _json_lines(file))
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The trace {path} cannot be read: {error}.", field="trace") from error
    if not lines:
        raise Refused(f"The trace {path} has no request.", field="trace")
    lines.sort(key=lambda line: line.at)
    first = lines[0].at
    return [msgspec.structs.replace(line, at=line.at - first) for line in lines]


def items(lines: Iterable[Line], *, seed: int, vocabulary: int, context_length: int, speed: float = 1.0) -> list[Item]:
    """A load that repeats a trace, ``speed`` times as fast. Tokens are random, the same where prefixes are; what does
    not fit into ``context_length`` is cut."""
    load = []
    for number, line in enumerate(lines):
        output = max(1, min(line.output_tokens, context_length // 2))
        length = max(1, min(line.prompt_tokens, context_length - output))
        prompt: list[int] = []
        for piece in line.prefix:
            rng = random.Random(f"{seed} piece {piece}")
            prompt += [rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(line.piece)]
        rng = random.Random(f"{seed} request {number}")
        prompt += [rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(length - len(prompt))]
        load.append(Item(prompt[:length], output, line.at / speed, line.priority))
    return load


def _json_lines(file: Iterable[str]) -> Iterator[Line]:
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue
        try:
            yield _line(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            accepted = "an object with at, prompt_tokens and output_tokens, or Mooncake's timestamp, input_length and "
            raise Refused(
                f"Line {number} of the trace is {text.strip()[:80]!r}; accepted is {accepted}output_length ({error}).",
                field="trace",
            ) from error


def _line(facts: dict[str, Any]) -> Line:
    if "input_length" in facts:  # Mooncake: milliseconds, and a hash for each 512 tokens
        numbers = (facts["timestamp"] / 1e3, facts["input_length"], facts["output_length"])
        return _checked(*numbers, "normal", facts.get("hash_ids", ()), MOONCAKE_PIECE)
    numbers = (facts["at"], facts["prompt_tokens"], facts["output_tokens"])
    return _checked(*numbers, facts.get("priority", "normal"), facts.get("prefix", ()), facts.get("piece", PIECE))


def _checked(at: Any, prompt: Any, output: Any, priority: Any, prefix: Any, piece: Any) -> Line:
    if priority not in PRIORITIES:
        raise ValueError(f"priority {priority!r}")
    line = Line(float(at), int(prompt), int(output), priority, tuple(map(int, prefix)), int(piece))
    if line.at < 0 or not 1 <= line.prompt_tokens <= 10_000_000 or line.output_tokens < 0 or line.piece < 1:
        raise ValueError("a number is out of range")
    return line


def _burst_gpt(file: Iterable[str]) -> Iterator[Line]:
    """``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``; failed requests have no response."""
    for number, row in enumerate(csv.DictReader(file), 2):
        try:
            output = int(row["Response tokens"])
            if output:
                yield _checked(row["Timestamp"], row["Request tokens"], output, "normal", (), PIECE)
        except (ValueError, TypeError, KeyError) as error:
            raise Refused(
                f"Line {number} of the trace is not BurstGPT's ({error!r}); accepted are columns Timestamp, Request "
                "tokens and Response tokens.",
                field="trace",
            ) from error
