"""How a decoding step is cut into programs: what it costs on a device that runs so many at once."""

from __future__ import annotations

import heapq
import itertools

import pytest
from pagedeck.kernels.triton.split import GRAIN, LONGEST, SHORTEST, WAVE, split

PROCESSORS = (46, 108, 132, 304)
MERGE = 32  # positions that writing and merging a program's partial result costs, about


def finish(contexts: list[int], kv_heads: int, longest: int, processors: int) -> float:
    """When the last program of a step is done, in positions, where ``WAVE`` of them run on each processor."""
    cut = split(len(contexts), kv_heads, longest, processors)
    free = [0.0] * (WAVE * processors)
    work = []
    for context in contexts:
        whole, rest = divmod(context, cut.span)
        pieces = [cut.span] * whole + [rest] * (rest > 0)
        work += [piece + (MERGE if cut.segments > 1 else 0) for piece in pieces] * kv_heads
    for piece in work:
        heapq.heapreplace(free, free[0] + piece)
    return max(free)


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("context", [1, 255, 256, 5000, 32_768, 131_072])
def test_a_cut_covers_the_context_in_whole_tiles(context: int, processors: int) -> None:
    for sequences, kv_heads in itertools.product((1, 3, 12, 64, 300), (1, 4, 8)):
        segments, span = split(sequences, kv_heads, context, processors)
        assert segments * span >= context > (segments - 1) * span - GRAIN
        assert span % GRAIN == 0
        assert span <= LONGEST
        assert segments == 1 or span >= SHORTEST


@pytest.mark.parametrize("processors", PROCESSORS)
@pytest.mark.parametrize("context", [2048, 8192, 65_536])
def test_time_grows_with_the_batch_without_a_cliff(context: int, processors: int) -> None:
    """One sequence more makes a step longer by its share of the work, or by a third."""
    times = [finish([context] * n, 8, context, processors) for n in range(1, 65)]
    for n, (before, after) in enumerate(itertools.pairwise(times), 2):
        assert after <= before * max(n / (n - 1), 4 / 3) + SHORTEST, f"{n} sequences: {before} to {after}"


@pytest.mark.parametrize("sequences", [1, 2, 4, 8, 12, 16, 32, 64, 256])
def test_the_device_is_full(sequences: int) -> None:
    """A step takes at most half as long again as if all of its work were spread evenly."""
    for context in (8192, 32_768):
        ideal = sequences * 8 * context / (WAVE * 132)
        assert finish([context] * sequences, 8, context, 132) <= max(1.5 * ideal, 2 * SHORTEST)


def test_a_long_context_among_short_ones_does_not_run_alone() -> None:
    mixed = [65_536] + [512] * 63
    ideal = sum(mixed) * 8 / (WAVE * 132)
    assert finish(mixed, 8, 65_536, 132) <= ideal + 2 * LONGEST


def test_a_bucket_longer_than_the_contexts_costs_little() -> None:
    """A captured graph is cut for the longest context of its bucket."""
    for sequences in (1, 8, 64):
        exact = finish([5000] * sequences, 8, 5000, 132)
        assert finish([5000] * sequences, 8, 8192, 132) <= 1.6 * exact
