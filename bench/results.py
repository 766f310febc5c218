"""What a bench leaves behind: one JSON file with the machine, the settings and all raw samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..ipc.vocabulary import Refused
from .drive import Outcome
from .surroundings import surroundings

VERSION = 1

#: The stage of the tuner that decides.
FULL = "full load"


class Run(msgspec.Struct, omit_defaults=True):
    """One system on one load, once. Runs of the same name are repetitions."""

    name: str
    outcomes: list[Outcome]
    settings: dict[str, Any] = {}
    precision: str = "float32"
    memory_bytes: int | None = None
    engine: dict[str, Any] = {}  # what the engine told of itself meanwhile


class Claim(msgspec.Struct, omit_defaults=True):
    """A claim of the document that Pagedeck began with, and what was measured."""

    name: str
    claimed: str
    measured: str
    how: str
    met: bool | None  # none where there is nothing to meet
    spread: str = ""
    samples: dict[str, list[float]] = {}
    took_s: float = 0.0


class Trial(msgspec.Struct, omit_defaults=True):
    """Settings that the tuner tried: a figure's mean with its 95 % interval, as ``[value, low, high]``."""

    settings: dict[str, Any]
    stage: str
    figures: dict[str, list[float]]
    note: str = ""


class Changed(msgspec.Struct, omit_defaults=True):
    """A setting that the tuner chose to change. ``gain``: how many times as good that alone made it in a ``stage``, as
    ``[value, low, high]``; none where it was measured together with others only."""

    setting: str
    before: Any
    after: Any
    gain: list[float] | None = None
    stage: str = ""


class Results(msgspec.Struct, omit_defaults=True):
    """``kind``: run, peers, claims or tune. ``load``: how its items were made. Of a search for settings, ``objective``
    says what was to be made best, and ``gain`` how many times as good what was ``chosen`` is as the start."""

    kind: str
    surroundings: dict[str, Any]
    load: dict[str, Any] = {}
    runs: list[Run] = []
    claims: list[Claim] = []
    trials: list[Trial] = []
    chosen: dict[str, Any] = {}
    objective: dict[str, Any] = {}
    limits: dict[str, float] = {}  # what an answer has to keep to be a good one, as figures.Limits names it
    gain: list[float] = []
    changed: list[Changed] = []
    notes: list[str] = []
    format: str = "pagedeck-bench"
    version: int = VERSION

    def names(self) -> list[str]:
        """Names of its runs, in order."""
        return list(dict.fromkeys(run.name for run in self.runs))

    def repetitions(self, name: str) -> list[list[Outcome]]:
        """The outcomes of all runs of that name."""
        return [run.outcomes for run in self.runs if run.name == name]


def new(kind: str, **facts: Any) -> Results:
    """Results of this machine, today."""
    return Results(kind, surroundings(), **facts)


def write(results: Results, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def read(path: Path) -> Results:
    """Raises :class:`Refused` for a file that is none of these, or of a newer version."""
    try:
        results = msgspec.json.decode(path.read_bytes(), type=Results)
    except OSError as error:
        raise Refused(f"The results {path} cannot be read: {error.strerror}.", field="results") from error
    except msgspec.DecodeError as error:
        raise Refused(f"{path} holds no results of pagedeck bench: {error}.", field="results") from error
    if results.format != "pagedeck-bench" or results.version > VERSION:
        accepted = f"pagedeck-bench up to version {VERSION}"
        raise Refused.value("results", f"{results.format} version {results.version}", accepted)
    return results
