"""Claims about how much of the memory is put to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..inside import simulated_memory
from ..inside.simulated_memory import Arrival
from ..workload import LOADS, Load
from .ground import Ground, Measured, Row, mean, percent, spread

Trace = Callable[[int], Iterator[Arrival]]

#: Conversations that go on beside one another, and tokens that all of them begin with: as in the named load, and as
#: the instructions of a shop's assistant.
CONVERSATIONS = 8
SYSTEM_PROMPTS = (96, 512)

SIMULATED = "real scheduler and cache, simulated device, virtual time"


def _fullness(ground: Ground, arrivals: Trace, *, contiguous: bool) -> list[float]:
    return [
        simulated_memory.fullness(arrivals(ground.seed + turn), contiguous=contiguous).filled for turn in ground.turns()
    ]


def _unused(arrivals: Trace, least: float) -> Callable[[Ground], Measured]:
    def measure(ground: Ground) -> Measured:
        wasted, ours = (
            [1 - filled for filled in _fullness(ground, arrivals, contiguous=contiguous)]
            for contiguous in (True, False)
        )
        text = f"{percent(mean(wasted))} reserved at once in one piece; {percent(mean(ours))} with pages"
        return Measured(text, mean(wasted) >= least, spread(wasted, percent), {"contiguous": wasted, "paged": ours})

    return measure


def _used(ground: Ground) -> Measured:
    ours = _fullness(ground, simulated_memory.mixed_lengths, contiguous=False)
    text = f"{percent(mean(ours))} of the slots that requests hold carry a token"
    return Measured(text, mean(ours) >= 0.9, spread(ours, percent), {"filled": ours})


def _reused(ground: Ground) -> Measured:
    found = [simulated_memory.reuse(ground.seed + turn) for turn in ground.turns()]
    text = f"{percent(mean(found))} of the blocks given out had been another request's before; none is allocated anew"
    return Measured(text, mean(found) >= 0.95, spread(found, percent), {"reused": found})


def _shared(ground: Ground) -> Measured:
    """Blocks that are held at a moment against those that would be held then if each conversation had its own. How
    much is saved lies in how much of a conversation is its system prompt, so there is a longer one besides."""
    saved: dict[int, list[float]] = {length: [] for length in SYSTEM_PROMPTS}
    hits = []
    with ground.engine() as served:
        for turn in ground.turns():
            for length, found in saved.items():
                load = ground.of(_conversations(length), 4 * CONVERSATIONS, turn=turn)
                outcomes, testimony = served.run(load)
                found.append(testimony.saved)
                hits.append(sum(o.cached_tokens for o in outcomes) / sum(o.prompt_tokens for o in outcomes))
    (short, usual), (long, more) = saved.items()
    text = (
        f"{percent(mean(usual))} fewer blocks at any time under a system prompt of {short} tokens, "
        f"{percent(mean(more))} under one of {long}; {percent(mean(hits))} of all prompt tokens need not be computed"
    )
    samples = {"saved": usual, "saved_long": more, "hits": hits}
    return Measured(text, mean(usual) >= 0.4, spread(usual, percent), samples)


def _conversations(system_prompt: int) -> Load:
    ((_, kind),) = LOADS["multi-turn"].kinds
    return Load("conversations", ((1.0, replace(kind, shared=system_prompt)),), "at-once")


ROWS = [
    Row(
        "reservation",
        "Memory left unused when 2,048 tokens are reserved and 200 are used",
        "85 % and more",
        f"600 requests, 150 + 50 tokens of 2,048 allowed; {SIMULATED}",
        0.3,
        _unused(simulated_memory.fixed_lengths, 0.85),
    ),
    Row(
        "fragments",
        "Memory left unused by reservation at mixed lengths",
        "30 to 50 %",
        f"600 requests, limits one to four times their outputs; {SIMULATED}",
        0.3,
        _unused(simulated_memory.mixed_lengths, 0.3),
    ),
    Row(
        "utilisation",
        "Memory put to use with pages",
        "90 % and more",
        f"the same requests of mixed lengths, blocks of 32; {SIMULATED}",
        0.3,
        _used,
    ),
    Row(
        "sharing",
        "Memory saved by shared prefixes in conversations",
        "40 %",
        "eight conversations of four turns side by side, on the model; what counts is the shorter system prompt",
        1.0,
        _shared,
    ),
    Row(
        "reuse",
        "Blocks that come back from the pool",
        "95 % and more",
        f"3,000 requests of mixed lengths through 1,000 blocks; {SIMULATED}",
        0.3,
        _reused,
    ),
]
