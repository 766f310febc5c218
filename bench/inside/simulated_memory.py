"""How full memory is, with the real scheduler and cache on a simulated device in virtual time: outputs end long before
what their requests allow, as they do in life and cannot in a load of fixed lengths."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...engine.core import Engine
from ...engine.simulator import VOCABULARY, Arrival, Simulation, simulate

BLOCKS = 4_000
BLOCK_SIZE = 32
REQUESTS = 600
LIVE = 256

#: A small pool and many requests, so that all of it is needed over and over.
SMALL_POOL, MANY_REQUESTS, FEW_LIVE = 1_000, 3_000, 64


@dataclass(frozen=True, slots=True)
class Fullness:
    """``filled``: tokens ÷ slots of the blocks that requests hold, over all steps. ``running``: requests in a step."""

    filled: float
    running: float


def fixed_lengths(seed: int) -> Iterator[Arrival]:
    """150 tokens of prompt and 50 of output where 2,048 in all are allowed."""
    rng = random.Random(seed)
    for number in range(REQUESTS):
        prompt = [rng.randrange(1, VOCABULARY) for _ in range(150)]
        yield Arrival(number / 40, 10, prompt, 50, 2048 - 150)


def mixed_lengths(seed: int, requests: int = REQUESTS) -> Iterator[Arrival]:
    """Prompts from 32 to 1,024 tokens; outputs of which nobody knows how long they get, asked for with the next power
    of two as their limit, or the one after."""
    rng = random.Random(seed)
    for number in range(requests):
        prompt = [rng.randrange(1, VOCABULARY) for _ in range(round(32 * 32 ** rng.random()))]
        output = round(min(max(rng.lognormvariate(5.0, 0.8), 8), 1024))
        yield Arrival(number / 40, 10, prompt, output, 2 ** (output - 1).bit_length() * rng.choice((1, 2)))


def fullness(arrivals: Iterator[Arrival], *, contiguous: bool) -> Fullness:
    """How full the memory is that requests hold, over all steps."""
    simulation = Simulation(
        num_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        num_host_blocks=0,
        live=LIVE,
        contiguous=contiguous,
        prefix_caching=False,
    )
    report = simulate(simulation, arrivals=arrivals)
    return Fullness(report.filled, report.running_mean)


def reuse(seed: int) -> float:
    """Of all blocks given out, the share that another request had had before."""
    given = _Given()
    simulation = Simulation(
        num_blocks=SMALL_POOL, block_size=BLOCK_SIZE, num_host_blocks=0, live=FEW_LIVE, prefix_caching=False
    )
    simulate(simulation, arrivals=mixed_lengths(seed, MANY_REQUESTS), watch=given.watch)
    return given.reused


class _Given:
    """Counts the blocks that a pool gives out, and those that it had given out before."""

    def __init__(self) -> None:
        self._blocks: set[int] = set()
        self._count = 0

    @property
    def reused(self) -> float:
        return 1 - len(self._blocks) / self._count if self._count else 0.0

    def watch(self, engine: Engine) -> None:
        pool: Any = engine.cache.device
        hold = pool._hold

        def counted(blocks: Any, *more: Any) -> None:
            self._count += len(blocks)
            self._blocks.update(blocks.tolist())
            hold(blocks, *more)

        pool._hold = counted
