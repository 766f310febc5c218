"""Other pools under live requests: what fits stays, the lowest give way, and a change happens wholly or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.engine.config import GIB
from pagedeck.engine.core import Engine
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request
from pagedeck.ipc.vocabulary import Refused, RequestState

from .harness import VOCABULARY, expected, make_engine, output, run, step, submit
from .oracle import NumberOracle
from .test_properties import EOS, EXAMPLES, SETTINGS, World, action, random_examples
from .token_memory import SLOT_BYTES


def busy(**settings: Any) -> tuple[Engine, list[Request]]:
    """Four requests of three classes, all running."""
    engine = make_engine(**{"num_blocks": 64, "token_budget": 64, **settings})
    priorities = (20, 0, 10, 20)
    requests = [submit(engine, f"r{i}", [i + 1] * (20 + i), 40, priority) for i, priority in enumerate(priorities)]
    for _ in range(8):
        step(engine)
    assert len(engine.scheduler.running) == 4
    return engine, requests


def everything(engine: Engine) -> Any:
    cache = engine.cache
    return (
        engine.config,
        {seq: (table.blocks.tolist(), table.held, table.computed) for seq, table in cache.tables.items()},
        [(p.num_blocks, p.block_size, p.state.tolist(), p.cached(), p.free_runs()) for p in (cache.device, cache.host)],
        [(r.state, r.preemptions) for r in engine.requests.values()],
        engine.runner.device.tolist(),
        engine.runner.host.tolist(),
    )


def finish(engine: Engine, requests: list[Request]) -> None:
    engine.cache.check()
    run(engine)
    assert all(output(request) == expected(request) for request in requests)


@pytest.mark.parametrize("changes", [
    {"num_blocks": 200},
    {"num_blocks": 40},
    {"num_blocks": 20, "block_size": 16},
    {"num_blocks": 100, "block_size": 32, "swap_space_gib": 64 * 32 * SLOT_BYTES / GIB},
    {"num_blocks": 14},
])  # fmt: skip
def test_a_dry_run_tells_what_the_change_then_does(changes: dict[str, Any]) -> None:
    engine, requests = busy(host_blocks=16)
    submit(engine, "short", [9] * 30, 1)
    step(engine)
    before = everything(engine)
    foreseen = reconfigure(engine, changes, dry_run=True)
    assert everything(engine) == before
    done = reconfigure(engine, changes)
    for name in ("changes", "blocks_moved", "bytes_copied", "cached_dropped", "preempted", "notes"):
        assert getattr(done, name) == getattr(foreseen, name), name
    assert engine.cache.device.num_blocks == changes["num_blocks"] == engine.config.num_blocks
    assert len(engine.runner.device) == changes["num_blocks"] * engine.config.block_size
    finish(engine, requests)


def test_a_smaller_pool_takes_the_blocks_of_the_lowest_first() -> None:
    engine, requests = busy()
    foreseen = reconfigure(engine, {"num_blocks": 8}, dry_run=True)
    assert foreseen.preempted == 2 and any("2 sequences give up" in note for note in foreseen.notes)
    reconfigure(engine, {"num_blocks": 8})
    assert [r.preemptions for r in requests] == [1, 0, 0, 1]
    assert [r.state for r in requests] == [RequestState.PREEMPTED, *[RequestState.RUNNING] * 2, RequestState.PREEMPTED]
    finish(engine, requests)


def test_a_pool_too_small_for_a_live_request_is_refused_with_the_numbers() -> None:
    engine, requests = busy()
    before = everything(engine)
    for dry_run in (True, False):
        with pytest.raises(Refused, match=r"num_blocks is 7, and request 'r0' needs 8 blocks of 8 tokens") as refusal:
            reconfigure(engine, {"num_blocks": 7}, dry_run=dry_run)
        assert refusal.value.field == "num_blocks"
    assert everything(engine) == before
    finish(engine, requests)


def test_a_pool_larger_than_free_memory_is_refused_with_the_number() -> None:
    engine, _ = busy()
    engine.runner.most_slots = 803
    with pytest.raises(Refused, match=r"num_blocks is 101.*accepted are up to 100,") as refusal:
        reconfigure(engine, {"num_blocks": 101})
    assert (refusal.value.field, refusal.value.code) == ("num_blocks", "memory")
    reconfigure(engine, {"num_blocks": 100})


@pytest.mark.parametrize("changes", [
    {"num_blocks": 9},
    {"num_blocks": 300},
    {"num_blocks": 12, "block_size": 16, "swap_space_gib": 32 * 16 * SLOT_BYTES / GIB, "token_budget": 3},
    {"swap_space_gib": 2 * 8 * SLOT_BYTES / GIB, "block_size": 32, "prefix_caching": False, "eviction": "priority"},
])  # fmt: skip
def test_memory_denied_in_the_middle_leaves_everything_as_it_was(changes: dict[str, Any]) -> None:
    engine, requests = busy(host_blocks=16)
    engine.run_journal()
    before = everything(engine)
    engine.runner.denials = 1
    with pytest.raises(Refused, match="did not give that memory") as refusal:
        reconfigure(engine, changes)
    assert refusal.value.field in changes
    assert everything(engine) == before
    reconfigure(engine, changes)
    finish(engine, requests)


def test_the_number_of_blocks_follows_the_block_size() -> None:
    engine, requests = busy()
    reconfigure(engine, {"block_size": 16})
    assert engine.config.num_blocks == 32 == engine.cache.device.num_blocks
    assert not reconfigure(engine, {"num_blocks": 32}).changes
    reconfigure(engine, {"block_size": 8, "num_blocks": 32})  # not the 64 that would keep the pool's size
    assert engine.config.num_blocks == 32 == engine.cache.device.num_blocks
    finish(engine, requests)


def test_runs_ahead_and_the_order_of_eviction_change_while_requests_run() -> None:
    engine, requests = busy()
    reconfigure(engine, {"contiguous_blocks": 4, "eviction": "priority"})
    for _ in range(10):
        step(engine)
    assert engine.cache.device.ahead_count > 0 and engine.cache.device.by_priority
    reconfigure(engine, {"contiguous_blocks": 0})
    finish(engine, requests)


def test_a_priority_given_later_is_what_cached_blocks_remember() -> None:
    engine, requests = busy()
    reconfigure(engine, {"eviction": "priority"})
    engine.set_priority("r0", -5)
    finish(engine, requests)
    pool = engine.cache.device
    block = pool.cached()[-1]
    assert pool.priority[block] == -5 and pool.contents(block)[0] == 1


class Resized(World):
    """A world whose pools change, and whose memory is at times denied."""

    def deny(self, changes: dict[str, Any]) -> None:
        engine = self.engine
        engine.run_journal()
        before = everything(engine)
        engine.runner.denials = 1
        try:
            reconfigure(engine, changes)
        except Refused:
            assert everything(engine) == before
            self.check()
        engine.runner.denials = 0


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "num_blocks": st.integers(6, 40),
        "block_size": st.sampled_from([8, 16, 32]),
        "swap_space_gib": st.integers(0, 40).map(lambda blocks: blocks * 8 * SLOT_BYTES / GIB),
        "contiguous_blocks": st.integers(0, 4),
        "eviction": st.sampled_from(["lru", "priority"]),
        "prefix_caching": st.sampled_from([True, True, False]),
    },
)
RESIZES = st.one_of(
    action([1, 2, 20, 30, 40, 50, 60]),
    st.tuples(st.just("reconfigure"), CHANGES),
    st.tuples(st.just("deny"), CHANGES),
    st.just(("step", 9)),
)


@random_examples(EXAMPLES // 2)
@given(SETTINGS, st.lists(RESIZES, min_size=10, max_size=40), st.sampled_from([(0,), (0,), (0, 11), (14,), (0, 30, 5)]))
def test_tokens_do_not_depend_on_the_pools(
    chosen: dict[str, Any], actions: list[Any], windows: tuple[int, ...]
) -> None:
    """Of one group of layers, or of several that see different windows."""
    engine = make_engine(eos_ids=EOS, windows=windows, **chosen)
    world = Resized(engine, EOS, NumberOracle(VOCABULARY, windows), sum(engine.runner.slot_bytes))
    for name, *arguments in actions:
        getattr(world, name)(*arguments)
    world.finish()
