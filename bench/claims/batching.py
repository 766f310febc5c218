"""Claims about continuous batching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import figures
from ..drive import Outcome
from ..figures import e2e
from ..noise import interval
from ..workload import Item, percentile
from .ground import STATIC_LOAD, TASKS, Ground, Measured, Row, Served, mean, percent, spread, times

#: Requests that say what the engine can do at all, and of a run at a rate, which is long beside the latency.
AT_ONCE, REQUESTS = 48, 96

#: Shares of what the engine can do at all, from the highest, at which its latency is looked at.
LOADS = (0.9, 0.75, 0.6, 0.45, 0.3)

BATCH = 8


def _late(latencies: Sequence[float]) -> float:
    return percentile(latencies, 0.95)


def _latencies(outcomes: Sequence[Outcome]) -> list[float]:
    return [e2e(outcome) for outcome in outcomes]


def _equal_latency(ground: Ground) -> Measured:
    """Two engines differ in more than batching; how much of it batching is, the same engine in static batches says."""
    most, theirs = ground.static_load
    limit = _late(_latencies(theirs))
    ratios, flat_out, batching, late = [], [], [], []
    with ground.engine(prefix_caching=False) as served:
        for turn in ground.turns():
            tasks = ground.of(TASKS, AT_ONCE, turn=turn)
            together = figures.span(served.run(tasks)[0])
            batching.append(_in_batches(served, tasks, padded=True) / together)
            rate, latency = _within(limit, ground, served, AT_ONCE / together, turn)
            flat_out.append(AT_ONCE / together / most)
            ratios.append(rate / (STATIC_LOAD * most))
            late.append(latency)
    text = (
        f"{times(mean(ratios))} as many requests a second: 95th percentile {mean(late):.1f} s, in static batches "
        f"{limit:.1f} s; {times(mean(flat_out))} if both do what they can, of which batching alone is "
        f"{times(mean(batching))}, on the same engine"
    )
    samples = {"ratio": ratios, "flat_out": flat_out, "batching": batching, "latency_s": late}
    samples["static_requests_per_s"] = [most]
    return Measured(text, mean(ratios) >= 2.75, spread(ratios, times), samples)


def _within(limit: float, ground: Ground, served: Served, most: float, turn: int) -> tuple[float, float]:
    """The highest rate tried at which the 95th percentile of latency stays within ``limit`` (seconds), and that
    percentile; a rate of 0 if none does."""
    latency = 0.0
    for load in LOADS:
        items = ground.of(TASKS, REQUESTS, turn=turn, arrivals=f"poisson:{load * most}")
        latency = _late(_latencies(served.run(items)[0]))
        if latency <= limit:
            return load * most, latency
    return 0.0, latency


def _tail(ground: Ground) -> Measured:
    """In how many steps a request ends is the longest output of its batch, whatever its own."""
    _, theirs = ground.static_load
    waits = _latencies(theirs)
    ratio = interval([waits], lambda some: _late(some) / mean(some))
    steps = _batch_steps(theirs) / sum(len(outcome.tokens) for outcome in theirs)
    text = f"{times(ratio.value)} the mean, which is late as well: a request stays for {times(steps)} its own steps"
    sure = f"{times(ratio.low)} to {times(ratio.high)}, 95 % interval"
    return Measured(text, ratio.value >= 3.0, sure, {"latency_s": waits, "steps": [steps]})


def _batch_steps(outcomes: Sequence[Outcome]) -> int:
    """Steps of all requests if each stays until the last of its batch has ended; a batch ends at one time."""
    longest: dict[float, int] = {}
    for outcome in outcomes:
        longest[outcome.ended] = max(longest.get(outcome.ended, 0), len(outcome.tokens))
    return sum(longest[outcome.ended] for outcome in outcomes)


def _device(ground: Ground) -> Measured:
    shares = [testimony.share("forward", "sample") for testimony in ground.crowd]
    return Measured(f"{percent(mean(shares))} of the time", mean(shares) >= 0.85, spread(shares, percent),
                    {"share": shares})  # fmt: skip


def _bookkeeping(ground: Ground) -> Measured:
    """What a step spends neither on the device nor on choosing who runs is no memory management, but is told too."""
    shares = [testimony.share("schedule") for testimony in ground.crowd]
    whole = [1 - testimony.share("forward", "sample") for testimony in ground.crowd]
    text = (
        f"{percent(mean(shares))} of a step: all of scheduling and memory management; {percent(mean(whole))} with all "
        "else that the device does not do"
    )
    return Measured(text, mean(shares) < 0.02, spread(shares, percent), {"share": shares, "not_device": whole})


def _burst(ground: Ground) -> Measured:
    """The same engine with and without joining: without, a crowd is served in batches, each when the last has ended.
    Static batches, besides, go on computing who has ended until the longest output is there."""
    alone, static = [], []
    with ground.engine(prefix_caching=False) as served:
        for turn in ground.turns():
            crowd = ground.load("burst", 24, turn=turn, arrivals="burst:12:3")
            together = figures.span(served.run(crowd)[0])
            alone.append(_in_batches(served, crowd, padded=False) / together)
            static.append(_in_batches(served, crowd, padded=True) / together)
    text = (
        f"{times(mean(static))} the throughput of the same engine in static batches of {BATCH}; {times(mean(alone))} "
        "if those at least drop who has ended"
    )
    return Measured(text, mean(static) >= 2.0, spread(static, times), {"static": static, "no_joining": alone})


def _in_batches(served: Served, crowd: Sequence[Item], *, padded: bool) -> float:
    """Seconds until a crowd is served if nobody joins a batch that has begun; if ``padded``, all of a batch are
    computed until its longest output is there."""
    now = 0.0
    for first in range(0, len(crowd), BATCH):
        batch = crowd[first : first + BATCH]
        longest = max(item.output_tokens for item in batch)
        now = max(now, batch[-1].at)
        together = [replace(item, at=0.0, output_tokens=longest if padded else item.output_tokens) for item in batch]
        now += figures.span(served.run(together)[0])
    return now


ROWS = [
    Row(
        "batching",
        "Throughput of continuous batching against static batches at equal latency",
        "2.75 × (800 → 2,200 requests/s)",
        "short tasks; the latency is that of transformers.generate, batches of 8, at "
        f"{STATIC_LOAD:.0%} of what those can do",
        4.0,
        _equal_latency,
    ),
    Row(
        "tail",
        "95th percentile of latency in static batches",
        "3 to 5 × the mean",
        "32 of those tasks in the same static batches, once",
        2.5,
        _tail,
    ),
    Row("device", "Time in which the device computes", "85 % and more", "24 requests of mixed lengths at once", 0.5,
        _device),
    Row("bookkeeping", "Memory management's share of a step", "15 % before", "the same steps", 0.5, _bookkeeping),
    Row("burst", "Throughput of a burst when arrivals join at once", "2 ×", "two crowds of 12 questions, 3 s apart",
        1.7, _burst),
]  # fmt: skip
