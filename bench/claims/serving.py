"""Claims about priorities, swapping and block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import figures
from ..drive import Outcome
from ..figures import e2e
from ..workload import Item, percentile
from .ground import Ground, Measured, Row, mean, percent, spread

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)


def _priorities(ground: Ground) -> Measured:
    found = []
    with ground.engine(prefix_caching=False, max_batch_size=8) as served:
        for turn in range(ground.repeat):
            load = ground.load("mixed", 32, turn=turn, arrivals="poisson:4")
            alike = [replace(item, priority="normal") for item in load]
            urgent = [place for place, item in enumerate(load) if item.priority == "interactive"]
            with_classes, without = (_mean_latency(served.run(each)[0], urgent) for each in (load, alike))
            found.append(1 - with_classes / without)
    text = f"{percent(mean(found))} less than first come, first served"
    return Measured(text, mean(found) >= 0.6, spread(found, percent), {"less": found})


def _mean_latency(outcomes: Sequence[Outcome], places: Sequence[int]) -> float:
    return mean([e2e(outcomes[place]) for place in places])


def _rescued(ground: Ground) -> Measured:
    shares, counts = [], []
    with ground.engine(num_blocks=64, swap_space_gib=1, max_batch_size=64, prefix_caching=False) as served:
        for turn in range(ground.repeat):
            load = ground.mixed(24, turn=turn, prompts=(64, 256), outputs=(96, 192))
            outcomes, testimony = served.run(load)
            hit = len(testimony.preempted)
            whole = sum(not o.error and len(o.tokens) == i.output_tokens for o, i in zip(outcomes, load, strict=True))
            shares.append(1.0 if whole == len(load) else max(0.0, 1 - (len(load) - whole) / max(1, hit)))
            counts.append(hit)
    text = f"{percent(mean(shares))} of {sum(counts)} requests that lost their blocks were finished"
    return Measured(text, mean(shares) >= 0.8 and sum(counts) > 0, spread(shares, percent), {"share": shares})


def _many(ground: Ground) -> Measured:
    found, most, swapped = [], [], []
    common = {"swap_space_gib": 4, "max_batch_size": 128, "prefix_caching": False, "block_size": 16}
    with ground.engine(num_blocks=1200, **common) as served:
        for turn in range(ground.repeat):
            load = ground.mixed(104, turn=turn, prompts=(24, 64), outputs=(48, 80))
            served.configure(num_blocks=1200)
            roomy = mean([e2e(outcome) for outcome in served.run(load)[0]])
            served.configure(num_blocks=480)  # for about half of them
            outcomes, testimony = served.run(load)
            found.append(mean([e2e(outcome) for outcome in outcomes]) / roomy - 1)
            most.append(testimony.running_most)
            swapped.append(len(testimony.swapped))
    text = (
        f"{mean(found):+.1%} with room for half of 104 requests at once ({min(most)} ran side by side, {sum(swapped)} "
        "were swapped), against room for all"
    )
    return Measured(text, mean(found) <= 0.15, spread(found, lambda v: f"{v:+.1%}"), {"more": found})


def _documents(ground: Ground) -> Measured:
    """Jitter is how far the 99th percentile of the time between tokens lies above the median."""
    jitter: dict[str, list[float]] = {"32": [], "64": []}
    speed: dict[str, list[float]] = {"32": [], "64": []}
    with ground.engine(prefix_caching=False) as served:
        for turn in range(ground.repeat):
            load = _long(ground, turn)
            for size, ahead in ((32, 0), (64, 8)):
                served.configure(block_size=size, contiguous_blocks=ahead)
                outcomes, _ = served.run(load)
                gaps = [gap for outcome in outcomes for gap in figures.between(outcome)[8:]]
                jitter[str(size)].append(percentile(gaps, 0.99) / percentile(gaps, 0.5) - 1)
                speed[str(size)].append(figures.tokens_per_s(outcomes))
    small, large = mean(jitter["32"]), mean(jitter["64"])
    faster = mean(speed["64"]) / mean(speed["32"]) - 1
    text = f"±{small:.0%} → ±{large:.0%}; throughput {faster:+.1%}"
    return Measured(text, large <= 0.05 and faster >= 0.4, samples={f"jitter_{n}": v for n, v in jitter.items()})


def _long(ground: Ground, turn: int) -> list[Item]:
    return ground.mixed(3, turn=turn, prompts=(1200, 1800), outputs=(64, 65))


def _sizes(ground: Ground) -> Measured:
    speeds: dict[int, list[float]] = {size: [] for size in BLOCK_SIZES}
    tails: dict[int, list[float]] = {size: [] for size in BLOCK_SIZES}
    filled: dict[int, list[float]] = {size: [] for size in BLOCK_SIZES}
    with ground.engine(prefix_caching=False) as served:
        for turn in range(ground.repeat):
            load = ground.mixed(16, turn=turn, outputs=(16, 64))
            for size in BLOCK_SIZES:
                served.configure(block_size=size)
                outcomes, testimony = served.run(load)
                speeds[size].append(figures.tokens_per_s(outcomes))
                tails[size].append(percentile([e2e(outcome) for outcome in outcomes], 0.99))
                filled[size].append(testimony.filled)
    text = "; ".join(
        f"{size}: {percent(mean(filled[size]))} filled, {mean(speeds[size]):.0f} tokens/s, {mean(tails[size]):.1f} s"
        for size in BLOCK_SIZES
    )
    return Measured(text, None, samples={f"tokens_per_s_{size}": values for size, values in speeds.items()})


ROWS = [
    Row("priorities", "Latency of interactive requests with priorities", "60 % less",
        "chat beside documents and tasks, more than the engine can do, eight places", _priorities),
    Row("rescue", "Requests rescued by swapping when memory runs out", "80 %",
        "24 requests that need about three times the device pool", _rescued),
    Row("many", "Latency of 100 and more requests at once with 4 GiB of swap", "15 % more",
        "104 short requests; the same engine, its device pool changed while it runs", _many),
    Row("documents", "Long documents with blocks of 64 and reserved runs: jitter and throughput",
        "±30 % → ±5 %, +40 %", "three documents of 1,200 to 1,800 tokens; the same engine, reconfigured", _documents),
    Row("blocks", "Block sizes: memory put to use, throughput, 99th percentile of latency", "a table that is missing",
        "16 requests of mixed lengths; the same engine, repaged between runs", _sizes),
]  # fmt: skip
