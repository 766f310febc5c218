"""Claims about priorities, swapping and block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .. import figures
from ..drive import Outcome
from ..figures import e2e
from ..witness import Testimony
from ..workload import Item, percentile
from .ground import Ground, Measured, Row, mean, percent, spread, times

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)

#: Blocks of 32 that are too few for the tasks that come, and for the crowds of questions beside them.
SCARCE = 64
CROWD = 8

#: Requests at once, and tokens in each of their blocks.
MANY, MANY_SIZE = 104, 16


def _priorities(ground: Ground) -> Measured:
    """All together more than the engine can do, the urgent ones alone less."""
    found, others = [], []
    with ground.engine(prefix_caching=False, max_batch_size=8) as served:
        for turn in ground.turns():
            load = ground.load("mixed", 32, turn=turn, arrivals="poisson:1.5")
            alike = [replace(item, priority="normal") for item in load]
            urgent = [item.priority == "interactive" for item in load]
            ranked, equal = (served.run(each)[0] for each in (load, alike))
            found.append(1 - _mean_latency(ranked, urgent, True) / _mean_latency(equal, urgent, True))
            others.append(_mean_latency(ranked, urgent, False) / _mean_latency(equal, urgent, False) - 1)
    text = f"{percent(mean(found))} less than first come, first served; all others {mean(others):+.1%}"
    samples = {"less": found, "others_more": others}
    return Measured(text, mean(found) >= 0.6, spread(found, percent), samples)


def _mean_latency(outcomes: Sequence[Outcome], urgent: Sequence[bool], which: bool) -> float:
    return mean([e2e(outcome) for outcome, is_urgent in zip(outcomes, urgent, strict=True) if is_urgent is which])


@dataclass(slots=True)
class _Exhausted:
    """What became of a load under which memory ran out: the requests that ``lost`` their blocks; those of them that
    were ``finished``, and ``rescued``, which is finished with nothing computed again; seconds until all had ended."""

    lost: int
    finished: int
    rescued: int
    span: float

    @classmethod
    def of(cls, load: Sequence[Item], outcomes: Sequence[Outcome], testimony: Testimony) -> _Exhausted:
        short = sum(len(o.tokens) != i.output_tokens for o, i in zip(outcomes, load, strict=True))
        lost = len(testimony.preempted)
        rescued = len(testimony.preempted - testimony.recomputed)
        return cls(lost, max(0, lost - short), max(0, rescued - short), figures.span(outcomes))


def _rescued(ground: Ground) -> Measured:
    """The same load with swap, with recomputing alone, and with memory reserved at once, when nobody can lose any."""
    swap: list[_Exhausted] = []
    again: list[_Exhausted] = []
    reserved: list[_Exhausted] = []
    pool = {"num_blocks": SCARCE, "prefix_caching": False}
    # Left to itself an engine computes again what costs less than its copy, as the shortest do on a small model.
    with ground.engine(swap_space_gib=1, preemption="swap", **pool) as served:
        for turn in ground.turns():
            load = _crowded(ground, turn)
            for gib, found in ((1.0, swap), (0.0, again))[:: 1 if turn % 2 == 0 else -1]:
                served.configure(swap_space_gib=gib)
                found.append(_Exhausted.of(load, *served.run(load)))
    with ground.engine(allocation="contiguous", swap_space_gib=0, contiguous_blocks=0, **pool) as served:
        for turn in ground.turns():
            load = _crowded(ground, turn)
            reserved.append(_Exhausted.of(load, *served.run(load)))
    lost = sum(each.lost for each in swap)
    shares = [each.rescued / each.lost for each in swap if each.lost] or [0.0]
    slower = mean([b.span / a.span for a, b in zip(swap, again, strict=True)])
    waiting = mean([b.span / a.span for a, b in zip(swap, reserved, strict=True)])
    text = (
        f"{percent(mean(shares))} of the {lost} requests that lost their blocks were finished from swap, nothing "
        f"computed again; without swap {sum(each.finished for each in again)} of {sum(each.lost for each in again)}, "
        f"computed again, all in {times(slower)} the time; with memory reserved in one piece, in {times(waiting)}"
    )
    samples = {
        "share": shares,
        "lost": [float(each.lost) for each in swap],
        "span_s": [each.span for each in swap],
        "span_s_recomputing": [each.span for each in again],
        "span_s_reserved": [each.span for each in reserved],
    }
    return Measured(text, lost > 0 and mean(shares) >= 0.8, spread(shares, percent), samples)


def _crowded(ground: Ground, turn: int) -> list[Item]:
    """Tasks for twice the pool, and crowds of questions that each need all of it. A crowd comes when some task has
    ended and others fill the pool, however fast the machine is."""
    tasks = ground.mixed(3 * CROWD, turn=turn, prompts=(32, 64), outputs=(96, 128))
    crowds = (ground.mixed(CROWD, turn=turn + number, prompts=(192, 256), outputs=(48, 64)) for number in (100, 200))
    return [
        *(replace(task, priority="batch") for task in tasks),
        *(
            replace(one, priority="interactive", after=CROWD * place)
            for place, crowd in enumerate(crowds)
            for one in crowd
        ),
    ]


def _many(ground: Ground) -> Measured:
    """The mean may fall where the tail rises: with less room the first are done sooner, so both are looked at."""
    found, tail, most, swapped = [], [], [], []
    common = {"swap_space_gib": 4, "max_batch_size": 128, "prefix_caching": False, "block_size": MANY_SIZE}
    with ground.engine(num_blocks=1200, **common) as served:
        for turn in ground.turns():
            load = ground.mixed(MANY, turn=turn, prompts=(24, 64), outputs=(48, 80))
            need = sum(-(-(len(item.prompt) + item.output_tokens) // MANY_SIZE) for item in load)
            served.configure(num_blocks=need)
            roomy = [e2e(outcome) for outcome in served.run(load)[0]]
            served.configure(num_blocks=need // 2)
            outcomes, testimony = served.run(load)
            tight = [e2e(outcome) for outcome in outcomes]
            found.append(mean(tight) / mean(roomy) - 1)
            tail.append(percentile(tight, 0.95) / percentile(roomy, 0.95) - 1)
            most.append(testimony.running_most)
            swapped.append(len(testimony.swapped))
    text = (
        f"{mean(found):+.1%}, 95th percentile {mean(tail):+.1%}, with room for half of {MANY} requests at once against "
        f"room for all; {min(most)} ran side by side while others waited, {sum(swapped)} were swapped"
    )
    samples = {"more": found, "p95_more": tail, "running_most": [float(n) for n in most]}
    samples["swapped"] = [float(n) for n in swapped]
    return Measured(text, max(mean(found), mean(tail)) <= 0.15, spread(found, lambda v: f"{v:+.1%}"), samples)


def _documents(ground: Ground) -> Measured:
    """Jitter is how far the 99th percentile of the time between tokens lies above the median, while both documents are
    being answered: before, what makes the one late is the other's prompt."""
    ways = ((32, 0), (64, 8))
    jitter: dict[int, list[float]] = {size: [] for size, _ in ways}
    speed: dict[int, list[float]] = {size: [] for size, _ in ways}
    with ground.engine(prefix_caching=False) as served:
        for turn in ground.turns():
            load = _long(ground, turn)
            for size, ahead in ways if turn % 2 == 0 else ways[::-1]:
                served.configure(block_size=size, contiguous_blocks=ahead)
                outcomes, _ = served.run(load)
                gaps = _gaps_together(outcomes)
                jitter[size].append(percentile(gaps, 0.99) / percentile(gaps, 0.5) - 1)
                speed[size].append(figures.tokens_per_s(outcomes))
    small, large = mean(jitter[32]), mean(jitter[64])
    faster = [large / small - 1 for small, large in zip(speed[32], speed[64], strict=True)]
    text = f"±{small:.0%} → ±{large:.0%}; throughput {mean(faster):+.1%}"
    samples = {f"jitter_{size}": found for size, found in jitter.items()}
    samples |= {f"tokens_per_s_{size}": found for size, found in speed.items()}
    met = large <= 0.05 and mean(faster) >= 0.4
    return Measured(text, met, spread(jitter[64], lambda value: f"±{value:.0%}"), samples)


def _long(ground: Ground, turn: int) -> list[Item]:
    """Outputs are long enough that the first document is still answered when the other one's prompt is computed."""
    most = min(3600, ground.shape.context_length - 256)
    return ground.mixed(2, turn=turn, prompts=(min(3000, most), most), outputs=(256, 256))


def _gaps_together(outcomes: Sequence[Outcome]) -> list[float]:
    begin = max(outcome.arrivals[0] for outcome in outcomes)
    end = min(outcome.ended for outcome in outcomes)
    return [b - a for outcome in outcomes for a, b in pairwise(outcome.arrivals) if begin < a and b <= end]


def _sizes(ground: Ground) -> Measured:
    """Sizes take turns in another order in every other run, so that what drifts favours none."""
    speeds: dict[int, list[float]] = {size: [] for size in BLOCK_SIZES}
    gaps: dict[int, list[float]] = {size: [] for size in BLOCK_SIZES}
    filled: dict[int, list[float]] = {size: [] for size in BLOCK_SIZES}
    with ground.engine(prefix_caching=False) as served:
        for turn in ground.turns():
            load = ground.mixed(16, turn=turn, outputs=(16, 64))
            for size in BLOCK_SIZES if turn % 2 == 0 else BLOCK_SIZES[::-1]:
                served.configure(block_size=size)
                outcomes, testimony = served.run(load)
                speeds[size].append(figures.tokens_per_s(outcomes))
                gaps[size].append(percentile([gap for one in outcomes for gap in figures.between(one)], 0.99))
                filled[size].append(testimony.filled)
    text = "\n".join(
        f"{size}: {percent(mean(filled[size]))} filled, {mean(speeds[size]):.0f} tokens/s, {mean(gaps[size]):.2f} s"
        for size in BLOCK_SIZES
    )
    samples: dict[str, list[float]] = {}
    for size in BLOCK_SIZES:
        samples |= {f"tokens_per_s_{size}": speeds[size], f"itl_p99_{size}": gaps[size], f"filled_{size}": filled[size]}
    return Measured(text, None, samples=samples)


ROWS = [
    Row("priorities", "Latency of interactive requests with priorities", "60 % less",
        "chat beside documents and tasks, 1.5 requests a second, eight places", 1.7, _priorities),
    Row("rescue", "Requests rescued by swapping when memory runs out", "80 %",
        "24 tasks for twice the device pool, and two crowds of 8 urgent questions that each need all of it",
        2.2, _rescued),
    Row("many", "Latency of 100 and more requests at once with 4 GiB of swap", "15 % more",
        "104 short requests; the same engine, its device pool changed while it runs", 1.5, _many),
    Row("documents", "Long documents with blocks of 64 and reserved runs: jitter and throughput",
        "±30 % → ±5 %, +40 %", "two documents of 3,000 to 3,600 tokens side by side; the same engine, reconfigured",
        1.0, _documents),
    Row("blocks", "Block sizes: memory put to use, throughput, 99th percentile of the time between tokens",
        "a table that is missing", "16 requests of mixed lengths; the same engine, repaged between runs", 1.5, _sizes),
]  # fmt: skip
