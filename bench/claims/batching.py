"""Claims about continuous batching."""

from __future__ import annotations

from collections.abc import Sequence

from .. import figures
from ..drive import Outcome
from ..figures import e2e
from ..workload import Item, percentile
from .ground import STATIC_LOAD, Ground, Measured, Row, Served, mean, percent, spread, times

REQUESTS = 24
GROWTH = 1.25  # from one arrival rate that is tried to the next


def _latency(outcomes: Sequence[Outcome]) -> float:
    return percentile([e2e(outcome) for outcome in outcomes], 0.95)


def _equal_latency(ground: Ground) -> Measured:
    rate, theirs = ground.static_load
    limit = _latency(theirs)
    found = []
    with ground.engine() as served:
        for turn in range(ground.repeat):
            tried = 2.0
            while _latency(_at(ground, served, tried * rate, turn)) <= limit and tried < 100:
                tried *= GROWTH
            found.append(tried / GROWTH)
    text = f"{times(mean(found))} as many requests a second with a 95th percentile of at most {limit:.1f} s"
    return Measured(text, mean(found) >= 2.75, spread(found, times), {"ratio": found, "static_rate": [rate]})


def _at(ground: Ground, served: Served, rate: float, turn: int) -> list[Outcome]:
    return served.run(ground.load("batch", REQUESTS, turn=turn, arrivals=f"poisson:{rate}"))[0]


def _tail(ground: Ground) -> Measured:
    _, theirs = ground.static_load
    waits = [e2e(outcome) for outcome in theirs]
    ratio = percentile(waits, 0.95) / mean(waits)
    return Measured(f"{times(ratio)} the mean", ratio >= 3.0, samples={"latency_s": waits})


def _device(ground: Ground) -> Measured:
    shares = [testimony.share("forward", "sample") for testimony in ground.crowd]
    return Measured(f"{percent(mean(shares))} of the time", mean(shares) >= 0.85, spread(shares, percent),
                    {"share": shares})  # fmt: skip


def _bookkeeping(ground: Ground) -> Measured:
    shares = [testimony.share("schedule") for testimony in ground.crowd]
    text = f"{percent(mean(shares))} of a step: all of scheduling and memory management"
    return Measured(text, mean(shares) < 0.02, spread(shares, percent), {"share": shares})


def _burst(ground: Ground) -> Measured:
    """The same engine with and without joining: without, a crowd is served in batches, each when the last has ended."""
    found = []
    with ground.engine(prefix_caching=False) as served:
        for turn in range(ground.repeat):
            crowd = ground.load("burst", 24, turn=turn, arrivals="burst:12:3")
            together = figures.span(served.run(crowd)[0])
            found.append(_in_batches(served, crowd, 8) / together)
    text = f"{times(mean(found))} the throughput of the same engine in batches of 8"
    return Measured(text, mean(found) >= 2.0, spread(found, times), {"ratio": found})


def _in_batches(served: Served, crowd: Sequence[Item], size: int) -> float:
    """Seconds until a crowd is served if nobody joins a batch that has begun."""
    now = 0.0
    for first in range(0, len(crowd), size):
        batch = crowd[first : first + size]
        now = max(now, batch[-1].at)
        together = [Item(item.prompt, item.output_tokens) for item in batch]
        now += figures.span(served.run(together)[0])
    return now


ROWS = [
    Row(
        "batching",
        "Throughput of continuous batching against static batches at equal latency",
        "2.75 × (800 → 2,200 requests/s)",
        f"independent tasks; the latency is that of transformers.generate, batches of 8, at {STATIC_LOAD:.0%} load",
        _equal_latency,
    ),
    Row("tail", "95th percentile of latency in static batches", "3 to 5 × the mean", "the same run of static batches",
        _tail),
    Row("device", "Time in which the device computes", "85 % and more", "24 requests of mixed lengths at once",
        _device),
    Row("bookkeeping", "Memory management's share of a step", "15 % before", "the same steps", _bookkeeping),
    Row("burst", "Throughput of a burst when arrivals join at once", "2 ×", "two crowds of 12 questions", _burst),
]  # fmt: skip
