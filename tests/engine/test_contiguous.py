"""The baseline without paging: what a request may ever need is taken at once, in one piece."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.core import Engine
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.simulator import Simulation, simulate
from pagedeck.ipc.vocabulary import Refused, RequestState

from .harness import make_engine, step, submit
from .token_memory import generate

CONTIGUOUS: dict[str, Any] = {"allocation": "contiguous", "prefix_caching": False}


def contiguous_engine(num_blocks: int = 16, **settings: Any) -> Engine:
    return make_engine(num_blocks=num_blocks, **CONTIGUOUS, **settings)


def test_a_request_takes_its_longest_length_in_one_piece_and_others_wait_for_such_a_piece() -> None:
    engine = contiguous_engine(16)
    first = submit(engine, "a", [1] * 10, max_tokens=31)  # 40 tokens are computed: 5 blocks
    short = submit(engine, "b", [2] * 3, max_tokens=6)  # 1 block
    large = submit(engine, "c", [3] * 50, max_tokens=31)  # 10 blocks
    late = submit(engine, "d", [4] * 70, max_tokens=11)  # 10 blocks, too
    step(engine)
    for request, blocks in ((first, 5), (short, 1), (large, 10)):
        table = engine.cache.table(request.sequences[0].number).tolist()
        assert table == list(range(table[0], table[0] + blocks))
    assert late.state is RequestState.WAITING
    while large.state is not RequestState.FINISHED:
        step(engine)
        assert large.state is RequestState.FINISHED or late.state is RequestState.WAITING
    step(engine)
    assert late.state is RequestState.RUNNING and late.preemptions == large.preemptions == 0


@settings(max_examples=25)  # of eight requests each
@given(st.integers(0, 2**32))
def test_tokens_are_those_of_every_other_way(seed: int) -> None:
    rng = random.Random(seed)
    engine = contiguous_engine(16, max_batch_size=4)
    asked = [([rng.randrange(1000) for _ in range(rng.randint(1, 60))], rng.randint(1, 60)) for _ in range(8)]
    requests = [
        submit(engine, str(n), prompt, count, rng.choice((0, 10, 20))) for n, (prompt, count) in enumerate(asked)
    ]
    while engine.has_work:
        step(engine)
    for request, (prompt, count) in zip(requests, asked, strict=True):
        assert request.sequences[0].tokens[len(prompt) :] == generate(prompt, count, 1000)
    assert engine.cache.device.free_count == 16


def test_what_needs_blocks_is_refused() -> None:
    for name, value in (("prefix_caching", True), ("swap_space_gib", 1.0), ("contiguous_blocks", 4)):
        with pytest.raises(Refused, match=f"{name} is .* with allocation contiguous"):
            EngineConfig(**{**CONTIGUOUS, name: value})
    engine = contiguous_engine()
    with pytest.raises(Refused, match="n is 3; accepted is one sample"):
        submit(engine, "x", [1], max_tokens=4, n=3)
    for changes in ({"block_size": 16}, {"num_blocks": 32}, {"swap_space_gib": 1.0}):
        with pytest.raises(Refused, match="allocation contiguous"):
            reconfigure(engine, changes)


def test_it_wastes_what_paging_does_not() -> None:
    size: dict[str, Any] = {"num_blocks": 4_000, "num_host_blocks": 0, "live": 64, "requests": 300, "load": 0.9}
    paged, contiguous = (simulate(Simulation(**size, contiguous=flag)) for flag in (False, True))
    assert paged.requests == contiguous.requests == 300
    assert paged.filled > 0.9 > 0.7 > contiguous.filled > 0
    assert contiguous.preemptions == 0 or contiguous.swaps == 0
