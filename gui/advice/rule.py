"""What a rule is: something measured, a reason to change a setting, and how to tell whether that helped. No Qt."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from .evidence import Window

#: A difference of less than this share of what was before is none.
NOISE_SHARE = 0.05
#: So many standard errors, too.
NOISE_ERRORS = 2.0
#: Loads that differ by more than this factor are not to be compared.
LOAD_FACTOR = 1.5

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True)
class Quantity:
    """Something that can be measured over a window. ``unit`` as of charts: ``s``, ``%``, ``B`` …; NaN is no value."""

    key: str
    unit: str
    measure: Callable[[Window], float] = field(compare=False)
    more_is_better: bool = False


WASTE = Quantity("waste", "%", lambda w: 1 - w.total("tokens") / max(float(np.dot(*_used(w))), 1.0))
REDONE = Quantity("redone", "%", lambda w: w.gain_ratio("redone_tokens", "computed_tokens"))
HITS = Quantity("hits", "%", lambda w: w.gain_ratio("prefix_hit_tokens", "prefix_queried_tokens"), more_is_better=True)
MEMORY = Quantity("memory", "B", lambda w: w.mean("memory_bytes"))
QUEUE_P95 = Quantity("queue_p95", "s", lambda w: w.latency("queue", 0.95))
TTFT_P95 = Quantity("ttft_p95", "s", lambda w: w.latency("ttft", 0.95))
ITL_P95 = Quantity("itl_p95", "s", lambda w: w.latency("itl", 0.95))
RATE = Quantity("rate", "tok/s", lambda w: w.mean("output_tokens_per_s"), more_is_better=True)


def _used(window: Window) -> tuple[np.ndarray, np.ndarray]:
    return window.rows["used"], window.rows["block_size"]


@dataclass(frozen=True)
class Finding:
    """What a rule found: ``changes`` of settings that it would try, and the ``figures`` that say why."""

    rule: str
    changes: dict[str, Any]
    figures: dict[str, float]


class Rule(ABC):
    """``quantity`` is what the change is to better, ``price`` what it may cost; both are measured before and after.
    ``seconds`` of work must have been seen."""

    key: str
    seconds: int
    quantity: Quantity
    price: Quantity | None = None

    @abstractmethod
    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        """What ``settings`` (the live ones, by name) might better be, or None where nothing says so."""


@dataclass(frozen=True)
class Measurement:
    """A quantity over a window; ``error`` is its standard error, from how much it varied within."""

    value: float
    error: float
    seconds: float
    load: float  # requests in the engine, on average


def measure(quantity: Quantity, window: Window) -> Measurement:
    parts = np.array([quantity.measure(piece) for piece in window.pieces()])
    parts = parts[np.isfinite(parts)]
    error = float(parts.std(ddof=1) / math.sqrt(len(parts))) if len(parts) > 1 else math.nan
    load = sum(window.mean(name) for name in ("running", "waiting", "swapped")) if window.seconds else 0.0
    return Measurement(quantity.measure(window) if window.seconds else math.nan, error, window.seconds, load)


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    NOISE = "noise"  # within what it varies by itself
    OTHER_LOAD = "other_load"  # too different a load to compare
    UNKNOWN = "unknown"  # nothing was measured


def compare(quantity: Quantity, before: Measurement, after: Measurement) -> Verdict:
    if not (math.isfinite(before.value) and math.isfinite(after.value)):
        return Verdict.UNKNOWN
    if max(before.load, after.load) > LOAD_FACTOR * max(min(before.load, after.load), 1e-9):
        return Verdict.OTHER_LOAD
    errors = math.hypot(*(m.error if math.isfinite(m.error) else 0.0 for m in (before, after)))
    gained = (after.value - before.value) * (1 if quantity.more_is_better else -1)
    if abs(gained) <= max(NOISE_ERRORS * errors, NOISE_SHARE * abs(before.value)):
        return Verdict.NOISE
    return Verdict.BETTER if gained > 0 else Verdict.WORSE


def in_quarters(gib: float) -> float:
    """Rounded up to a quarter of a GiB."""
    return math.ceil(4 * gib) / 4
