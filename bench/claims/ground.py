"""What the claims are measured on: a model, engines of it, loads, and figures with their spread."""

from __future__ import annotations

import random
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
from ..workload import Item, Kind, Lengths, Load, load_items, make_load, mixed

#: Tasks whose outputs are mostly short and sometimes long, as lengths of outputs are.
TASKS = Load("short tasks", ((1.0, Kind(Lengths(96, 0.8, 16, 512), Lengths(32, 0.9, 8, 192))),), "at-once")

#: Share of what static batches can do at all, at which their latency is looked at: they are neither idle nor behind.
STATIC_LOAD = 0.7
STATIC_AT_ONCE, STATIC_REQUESTS = 16, 32

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
    """One claim. ``how`` says how it is measured; ``minutes`` is what a run takes on two cores."""

    key: str
    name: str
    claimed: str
    how: str
    minutes: float
    measure: Callable[[Ground], Measured]


class Served:
    """An engine and what is heard of it."""

    def __init__(self, client: Client, witness: Witness, report: Report) -> None:
        self.client = client
        self._witness = witness
        self._report = report

    def run(self, items: Sequence[Item]) -> tuple[list[Outcome], Testimony]:
        """A load in which every request must be answered."""
        begin = time.time()
        outcomes = own.serve(self.client, items, self._report)
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
        self._report = report
        self._doing = ""
        self._done = 0.0

    def begin(self, name: str, done: float) -> None:
        """From here on it is this row that is measured; ``done`` is the share of all rows that is behind."""
        self._doing, self._done = name, done
        self.report(name, None)

    def turns(self) -> Iterator[int]:
        """The numbers of a row's runs."""
        name = self._doing
        for turn in range(self.repeat):
            self._doing = f"{name}, run {turn + 1} of {self.repeat}"
            self.report(self._doing, None)
            yield turn
        self._doing = name

    def report(self, text: str, share: float | None) -> None:
        """Tell what is being done, or with a ``share`` how much of the load that is being served is answered."""
        self._report(text if share is None else f"{self._doing}: {share:.0%} answered", self._done)

    @contextmanager
    def engine(self, **settings: Any) -> Iterator[Served]:
        """An engine with these settings, warm."""
        options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", _text(value))]
        with started(self.model, self.threads, self._starting, options) as client, Witness(client) as witness:
            client.timeout = 120.0
            own.warm_up(client, self.mixed(own.WARM_UP))
            yield Served(client, witness, self.report)

    def _starting(self, text: str, share: float | None) -> None:
        self.report(text, None)

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

    def of(self, load: Load, requests: int, *, turn: int = 0, arrivals: str | None = None) -> list[Item]:
        """Requests of a load that has no name."""
        return load_items(
            load,
            requests,
            random.Random(self.seed + turn),
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
        """Requests a second that static batches can do, and what became of those that came at :data:`STATIC_LOAD` of
        that."""
        at_once = self.static(self.of(TASKS, STATIC_AT_ONCE))
        most = STATIC_AT_ONCE / span(at_once)
        return most, self.static(self.of(TASKS, STATIC_REQUESTS, turn=1, arrivals=f"poisson:{STATIC_LOAD * most}"))

    @cached_property
    def crowd(self) -> list[Testimony]:
        """What the engine told of itself while it served a crowd."""
        with self.engine() as served:
            return [served.run(self.mixed(24, turn=turn))[1] for turn in self.turns()]


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
