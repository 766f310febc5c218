"""What the claims are measured on: a model, engines of it, loads, and figures with their spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ...ipc.client import Client
from .. import own, variants
from ..drive import Outcome
from ..figures import span
from ..own import started
from ..shape import shape_of
from ..witness import Testimony, Witness
from ..workload import Item, make_load, mixed

#: Share of what static batches can do at all, at which their latency is looked at: they are neither idle nor behind.
STATIC_LOAD = 0.7
STATIC_REQUESTS = 16

Report = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """What came out, in words; whether that is what was claimed (``met``, none where nothing was); the samples."""

    text: str
    met: bool | None
    spread: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One claim. ``how`` says how it is measured."""

    key: str
    name: str
    claimed: str
    how: str
    measure: Callable[[Ground], Measured]


class Served:
    """An engine and what is heard of it."""

    def __init__(self, client: Client, witness: Witness) -> None:
        self.client = client
        self._witness = witness

    def run(self, items: Sequence[Item]) -> tuple[list[Outcome], Testimony]:
        """A load in which every request must be answered."""
        begin = time.time()
        outcomes = own.serve(self.client, items)
        return outcomes, self._witness.since(begin)

    def configure(self, **changes: Any) -> None:
        self.client.reconfigure(changes)


class Ground:
    """The model and the machine under the claims. What several claims look at is measured once."""

    def __init__(self, model: Path, *, threads: int, repeat: int, seed: int, report: Report) -> None:
        self.model = model
        self.shape = shape_of(model)
        self.threads = threads
        self.repeat = repeat
        self.seed = seed
        self.report = report

    @contextmanager
    def engine(self, **settings: Any) -> Iterator[Served]:
        """An engine with these settings, warm."""
        options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", _text(value))]
        with started(self.model, self.threads, self.report, options) as client, Witness(client) as witness:
            client.timeout = 120.0
            yield Served(client, witness)

    def load(self, name: str, requests: int, *, turn: int = 0, arrivals: str | None = None) -> list[Item]:
        """A named load; another one in each ``turn``."""
        return make_load(
            name,
            requests,
            seed=self.seed + turn,
            vocabulary=self.shape.vocabulary,
            context_length=self.shape.context_length,
            arrivals=arrivals,
        )

    def mixed(self, requests: int, *, turn: int = 0, **lengths: Any) -> list[Item]:
        """Requests of mixed lengths, all due at once."""
        return mixed(requests, seed=self.seed + turn, vocabulary=self.shape.vocabulary, **lengths)

    def static(self, items: Sequence[Item]) -> list[Outcome]:
        """transformers' static batches on a load."""
        return variants.static(self.model, items, threads=self.threads, report=self.report).outcomes

    @cached_property
    def static_load(self) -> tuple[float, list[Outcome]]:
        """An arrival rate that static batches can bear, and what became of the requests under it."""
        at_once = self.static(self.load("batch", STATIC_REQUESTS))
        rate = STATIC_LOAD * STATIC_REQUESTS / span(at_once)
        return rate, self.static(self.load("batch", STATIC_REQUESTS, arrivals=f"poisson:{rate}"))

    @cached_property
    def crowd(self) -> list[Testimony]:
        """What the engine told of itself while it served a crowd."""
        with self.engine() as served:
            return [served.run(self.mixed(24, turn=turn))[1] for turn in range(self.repeat)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """From the smallest to the largest, where there are several."""
    return f"{show(min(values))} to {show(max(values))} in {len(values)} runs" if len(values) > 1 else ""


def percent(value: float) -> str:
    return f"{value:.1%}"


def times(value: float) -> str:
    return f"{value:.2f} ×"
