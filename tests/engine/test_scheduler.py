"""Who runs, who waits, who gives way. Driven through the core, on a device of plain numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.engine.config import EngineConfig, parse_class_limits
from pagedeck.engine.core import Engine
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request, Sequence
from pagedeck.engine.scheduling import scheduler
from pagedeck.engine.scheduling.forecast import Forecast, OutputLengths
from pagedeck.engine.scheduling.scheduler import AGED, SHARE
from pagedeck.ipc.vocabulary import Hold, Refused, RequestState, SamplingParams

from . import harness
from .harness import expected, make_engine, one_at_a_time, output, run, step, submit


def numbers(engine: Engine) -> list[int]:
    """Which requests are in the next step."""
    return [number for number, _, _ in step(engine).report.entries]


def assert_whole(*requests: Request) -> None:
    for request in requests:
        assert request.state is RequestState.FINISHED, request.error
        for index in range(request.sampling.n):
            assert output(request, index) == expected(request, index)


@pytest.fixture(params=[0, 1], ids=["alone", "overlapped"], autouse=True)
def depth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every test holds with and without steps in flight."""
    monkeypatch.setattr(harness, "DEPTH", request.param)
    return request.param


def prompt(length: int, first: int = 1) -> list[int]:
    """Distinct ``first``: nothing to share."""
    return [first, *range(100, 100 + length - 1)]


# --- the budget -----------------------------------------------------------------------------------------------------


@one_at_a_time
def test_decodes_come_first_and_prompts_fill_what_is_left() -> None:
    engine = make_engine(token_budget=16)
    a = submit(engine, "a", prompt(10, 1), 20)
    step(engine)
    b = submit(engine, "b", prompt(40, 2), 5)
    c = submit(engine, "c", prompt(5, 3), 5)
    entries = [step(engine).report.entries for _ in range(3)]
    assert entries[0] == [(a.number, 1, False), (b.number, 15, True)]
    assert entries[1] == [(a.number, 1, False), (b.number, 15, True)]
    assert entries[2] == [(a.number, 1, False), (b.number, 10, True), (c.number, 5, True)]
    run(engine)
    assert_whole(a, b, c)


@one_at_a_time
def test_an_arrival_joins_the_very_next_step() -> None:
    engine = make_engine()
    submit(engine, "a", prompt(4, 1), 30)
    step(engine)
    step(engine)
    late = submit(engine, "late", prompt(4, 2), 3)
    assert late.number in numbers(engine)


@one_at_a_time
def test_an_urgent_prompt_overtakes_one_that_is_being_prefilled() -> None:
    engine = make_engine(token_budget=8)
    batch = submit(engine, "batch", prompt(60, 1), 3, priority=20)
    step(engine)
    urgent = submit(engine, "urgent", prompt(8, 2), 3, priority=0)
    assert numbers(engine) == [urgent.number]
    run(engine)
    assert_whole(batch, urgent)


@one_at_a_time
def test_beside_decodes_prompts_come_in_chunks_that_nobody_notices() -> None:
    """As many tokens as the device was measured to compute in that time, and no fewer than a few."""
    engine = make_engine(token_budget=200, num_blocks=256)
    a = submit(engine, "a", prompt(150, 1), 20)
    assert step(engine).report.entries == [(a.number, 150, True)], "nobody else waits for a token"
    engine.runner.forward_ms = 2500.0  # for 150 tokens: 15 in a quarter of a second
    b = submit(engine, "b", prompt(120, 2), 5)
    c = submit(engine, "c", prompt(40, 3), 5, priority=0)
    engine.scheduler.brisk = 60
    assert step(engine).report.entries == [(a.number, 1, False), (c.number, 40, True), (b.number, 19, True)]
    chunk = scheduler.LEAST_CHUNK
    assert step(engine).report.entries == [(c.number, 1, False), (a.number, 1, False), (b.number, chunk, True)]
    late = submit(engine, "late", prompt(40, 4), 5)
    result = step(engine)
    assert result.report.entries == [(c.number, 1, False), (a.number, 1, False), (b.number, chunk, True)]
    assert result.report.hold == Hold.BUDGET
    run(engine)
    assert_whole(a, b, c, late)


@one_at_a_time
def test_a_spent_chunk_is_no_reason_to_displace_anybody() -> None:
    engine = make_engine(token_budget=200, num_blocks=256)
    engine.runner.forward_ms = 5000.0
    low = submit(engine, "low", prompt(10, 1), 20, priority=20)
    step(engine)
    urgent = [submit(engine, f"u{i}", prompt(40, 2 + i), 3, priority=0) for i in range(3)]
    assert step(engine).report.prefill_tokens == scheduler.LEAST_CHUNK
    run(engine)
    assert_whole(low, *urgent)
    assert low.preemptions == 0


@one_at_a_time
def test_a_chunk_follows_the_speed_that_was_measured() -> None:
    engine = make_engine(token_budget=200, num_blocks=256)
    a = submit(engine, "a", prompt(100, 1), 30)
    engine.runner.forward_ms = 500.0
    step(engine)  # 100 tokens in half a second
    b = submit(engine, "b", prompt(150, 2), 5)
    assert step(engine).report.entries == [(a.number, 1, False), (b.number, 49, True)]
    engine.runner.forward_ms = 50.0
    for _ in range(20):
        step(engine)
    assert engine.scheduler.brisk > 50, "fifty tokens in fifty milliseconds"
    run(engine)
    assert_whole(a, b)


def test_a_budget_of_one_token_serves_all() -> None:
    engine = make_engine(token_budget=1, num_blocks=16)
    requests = [submit(engine, f"r{i}", prompt(9, i), 4) for i in range(4)]
    run(engine)
    assert_whole(*requests)


def test_equal_priorities_run_by_arrival() -> None:
    engine = make_engine(max_batch_size=1)
    requests = [submit(engine, f"r{i}", prompt(3, i), 2) for i in range(4)]
    ended = [request.number for result in run(engine) for request in result.ended]
    assert ended == [r.number for r in requests]


# --- scarce blocks --------------------------------------------------------------------------------------------------


def test_two_that_hold_blocks_and_both_need_more_both_end() -> None:
    engine = make_engine(hasty=True, num_blocks=8, block_size=8, prefix_caching=False)
    a = submit(engine, "a", prompt(16, 1), 40)
    b = submit(engine, "b", prompt(16, 2), 40)
    run(engine)
    assert_whole(a, b)
    assert a.preemptions == 0, "the older one never gives way"
    assert b.preemptions > 0


def test_the_lowest_class_gives_way_first_then_the_youngest() -> None:
    engine = make_engine(hasty=True, num_blocks=12, block_size=8, preemption="recompute", prefix_caching=False)
    old_batch = submit(engine, "old batch", prompt(15, 1), 60, priority=20)
    normal = submit(engine, "normal", prompt(15, 2), 60, priority=10)
    young_normal = submit(engine, "young normal", prompt(15, 3), 60, priority=10)
    order: list[int] = []
    while engine.has_work:
        order += step(engine).report.preempted
    assert order[:2] == [old_batch.number, young_normal.number]
    assert normal.preemptions == 0
    assert_whole(old_batch, normal, young_normal)


def test_a_victim_is_no_reason_to_skip_the_next() -> None:
    engine = make_engine(hasty=True, num_blocks=10, block_size=8, prefix_caching=False, preemption="recompute")
    requests = [submit(engine, f"r{i}", prompt(14, i), 40) for i in range(4)]
    while engine.has_work:
        alive = [r for r in requests if r.state is RequestState.RUNNING and r.sequences[0].pending == 1]
        report = step(engine).report
        if report.preempted:
            served = [number for number, _, _ in report.entries]
            stayed = [r.number for r in alive if r.number not in report.preempted]
            assert [n for n in stayed if n in served] == stayed
    assert_whole(*requests)
    assert engine.metrics.counters.preemptions > 0


@pytest.mark.parametrize("host_blocks", [0, 64])
def test_nobody_is_preempted_in_the_step_after_it_came_back(host_blocks: int) -> None:
    engine = make_engine(hasty=True, num_blocks=10, block_size=8, host_blocks=host_blocks, prefix_caching=False)
    requests = [submit(engine, f"r{i}", prompt(10, i), 50, priority=i % 3) for i in range(6)]
    came_back: list[int] = []
    while engine.has_work:
        report = step(engine).report
        lost = report.preempted + report.swapped_out
        assert not set(lost) & set(came_back)
        assert not set(lost) & {number for number, _, _ in report.entries}, "in a step and preempted in it"
        came_back = report.resumed
    assert engine.metrics.counters.preemptions > 0
    assert_whole(*requests)


def test_admission_leaves_room_to_grow() -> None:
    engine = make_engine(num_blocks=96, block_size=8, prefix_caching=False)
    requests = [submit(engine, f"r{i}", prompt(10 + 7 * i % 30, i), 10 + 11 * i % 60) for i in range(40)]
    run(engine)
    assert_whole(*requests)
    counters = engine.metrics.counters
    assert counters.redone_tokens < 0.02 * (counters.prompt_tokens + counters.output_tokens)
    assert counters.steps < 250, "and yet the batch was not kept small"


def test_a_preempted_request_keeps_its_turn() -> None:
    engine = make_engine(max_batch_size=1)
    first = submit(engine, "first", prompt(4, 1), 30, priority=20)
    step(engine)
    second = submit(engine, "second", prompt(4, 2), 5, priority=20)
    urgent = submit(engine, "urgent", prompt(4, 3), 5, priority=0)
    ended = [request.id for result in run(engine) for request in result.ended]
    assert ended == ["urgent", "first", "second"]
    assert_whole(first, second, urgent)


# --- swap or recompute ----------------------------------------------------------------------------------------------


@one_at_a_time
def test_swapping_computes_nothing_twice() -> None:
    engine = make_engine(hasty=True, num_blocks=10, host_blocks=64, preemption="swap", prefix_caching=False)
    requests = [submit(engine, f"r{i}", prompt(12, i), 40) for i in range(4)]
    states = set()
    while engine.has_work:
        step(engine)
        states |= {r.state for r in requests}
    assert RequestState.SWAPPED in states and RequestState.PREEMPTED not in states
    assert engine.metrics.counters.redone_tokens == 0
    assert_whole(*requests)


def test_a_full_host_tier_falls_back_to_recomputing() -> None:
    engine = make_engine(hasty=True, num_blocks=16, host_blocks=3, preemption="swap", prefix_caching=False)
    requests = [submit(engine, f"r{i}", prompt(12, i), 60) for i in range(6)]
    results = run(engine)
    assert any(r.report.swapped_out for r in results) and any(r.report.preempted for r in results)
    assert_whole(*requests)


def test_auto_follows_the_measured_speeds() -> None:
    def preempted_by(link: float, prefill: float) -> set[str]:
        engine = make_engine(hasty=True, num_blocks=10, host_blocks=64, preemption="auto", prefix_caching=False)
        engine.speeds.link._memory = engine.speeds.prefill._memory = 1e-9  # what follows counts, not this run's noise
        requests = [submit(engine, f"r{i}", prompt(12, i), 40) for i in range(4)]
        ways = set()
        while engine.has_work:
            engine.speeds.link.add(link, 1.0)
            engine.speeds.prefill.add(prefill, 1.0)
            report = step(engine).report
            ways |= {"swap"} if report.swapped_out else set()
            ways |= {"recompute"} if report.preempted else set()
        assert_whole(*requests)
        return ways

    assert preempted_by(link=1e12, prefill=10.0) == {"swap"}
    assert preempted_by(link=10.0, prefill=1e12) == {"recompute"}


def test_preempted_and_back_it_finds_its_prefix() -> None:
    engine = make_engine(max_batch_size=1, num_blocks=64, preemption="recompute")
    first = submit(engine, "first", prompt(32, 1), 20)
    for _ in range(6):
        step(engine)
    submit(engine, "urgent", prompt(4, 2), 3, priority=0)
    run(engine)
    assert_whole(first)
    assert first.preemptions == 1
    assert engine.metrics.counters.redone_tokens < 8, "all full blocks were still there"


# --- classes --------------------------------------------------------------------------------------------------------


@one_at_a_time
def test_a_higher_class_does_not_wait_behind_max_batch_size() -> None:
    engine = make_engine(max_batch_size=2)
    low = [submit(engine, f"low{i}", prompt(4, i), 30, priority=20) for i in range(2)]
    step(engine)
    high = submit(engine, "high", prompt(4, 9), 5, priority=0)
    report = step(engine).report
    assert [number for number, _, _ in report.entries] == [low[0].number, high.number]
    assert report.preempted == [low[1].number]
    run(engine)
    assert_whole(high, *low)


def test_an_equal_class_waits_behind_max_batch_size() -> None:
    engine = make_engine(max_batch_size=1)
    first = submit(engine, "first", prompt(4, 1), 5)
    step(engine)
    second = submit(engine, "second", prompt(4, 2), 5)
    assert numbers(engine) == [first.number]
    run(engine)
    assert first.preemptions == second.preemptions == 0


@one_at_a_time
def test_a_higher_class_takes_blocks_of_lower_ones_only_if_that_suffices() -> None:
    engine = make_engine(hasty=True, num_blocks=8, block_size=8, prefix_caching=False)
    normal = submit(engine, "normal", prompt(30, 1), 10, priority=10)
    batch = submit(engine, "batch", prompt(15, 2), 10, priority=20)
    for _ in range(3):
        step(engine)
    huge = submit(engine, "huge", prompt(55, 3), 5, priority=5)
    report = step(engine).report
    assert huge.number in [number for number, _, _ in report.entries]
    assert report.preempted == [batch.number, normal.number]
    run(engine)
    assert_whole(normal, batch, huge)

    engine = make_engine(num_blocks=8, block_size=8, prefix_caching=False)
    equal = submit(engine, "equal", prompt(30, 1), 10, priority=5)
    batch = submit(engine, "batch", prompt(15, 2), 10, priority=20)
    for _ in range(3):
        step(engine)
    submit(engine, "huge", prompt(55, 3), 5, priority=5)
    assert step(engine).report.preempted == [], "the batch job's blocks would not have been enough"
    run(engine)
    assert_whole(equal, batch)


class Admissions:
    """Watches who gets in, in which order, and whom that displaces."""

    def __init__(self, engine: Engine) -> None:
        self.free = 0  # that displaced nobody
        self.brought_forward = 0  # of all, those that had waited longest
        self.overtakers: dict[int, list[int]] = {}  # free ones, before and at the first start of a request
        self._scheduler = engine.scheduler
        self._start, self._preempt = engine.scheduler._start, engine.scheduler.preempt
        self._displaced = 0
        engine.scheduler._start, engine.scheduler.preempt = self.start, self.preempt

    def submitted(self, request: Request) -> None:
        self.overtakers[request.number] = [self.free]

    def preempt(self, sequence: Sequence, **more: Any) -> None:
        self._displaced += 1
        self._preempt(sequence, **more)

    def start(self, sequence: Sequence) -> None:
        self.free += not self._displaced
        self._displaced = 0
        self.brought_forward += sequence.rank == AGED
        started = self.overtakers[sequence.request.number]
        if len(started) == 1:
            started.append(self.free)
        self._start(sequence)
        self._displaced = 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 5, 10, 20]), st.integers(1, 40), st.integers(1, 12), st.integers(0, 3)),
        min_size=20,
        max_size=120,
    ),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([16, 64]),
    st.sampled_from([0, 30]),
)
def test_nobody_is_passed_for_ever(
    arrivals: list[tuple[int, int, int, int]], places: int, num_blocks: int, host_blocks: int
) -> None:
    """Whoever comes with n unfinished requests before it gets in as one of the next SHARE (n + 1) that displace nobody,
    whatever comes later; and all but every SHARE-th of those that get in go by class."""
    engine = make_engine(max_batch_size=places, num_blocks=num_blocks, host_blocks=host_blocks)
    watch = Admissions(engine)
    before: dict[int, int] = {}
    for index, (priority, length, tokens, steps) in enumerate(arrivals):
        ahead = len(engine.requests)
        request = submit(engine, f"r{index}", prompt(length, index + 1), tokens, priority=priority)
        before[request.number] = ahead
        watch.submitted(request)
        for _ in range(steps):
            step(engine)
    run(engine)
    for number, ahead in before.items():
        submitted, started = watch.overtakers[number]
        assert started - submitted <= SHARE * (ahead + 1)
    assert watch.brought_forward <= watch.free // (SHARE - 1) + 1


def test_a_stream_of_urgent_requests_lets_others_in() -> None:
    engine = make_engine(max_batch_size=1)
    jobs = [submit(engine, f"job{i}", prompt(3, i), 4, priority=20) for i in range(3)]
    for index in range(2 * SHARE + 2):
        submit(engine, f"u{index}", prompt(2, 1), 5, priority=0)
        for _ in range(5):
            engine.step()
    assert [job.state for job in jobs] == [RequestState.FINISHED] * 2 + [RequestState.WAITING], "one at a time"


@one_at_a_time
def test_one_that_has_waited_longest_holds_up_nobody_who_can_displace_others() -> None:
    """There is no room for it, and it gets what comes free; who needs no more than lower classes have gets in."""
    engine = make_engine(hasty=True, max_batch_size=4, num_blocks=16, block_size=8, prefix_caching=False)
    engine.scheduler._passed = SHARE
    small = [submit(engine, f"s{i}", prompt(20, i), 30, priority=10) for i in range(3)]
    for _ in range(3):
        step(engine)
    assert [s.rank == AGED for s in engine.scheduler.running] == [True, False, False]
    engine.scheduler._passed = SHARE
    huge = submit(engine, "huge", prompt(100, 8), 4, priority=10)
    step(engine)
    assert huge.sequences[0].rank == AGED and huge.state is RequestState.WAITING
    later = submit(engine, "later", prompt(4, 9), 4, priority=10)
    urgent = submit(engine, "urgent", prompt(4, 7), 4, priority=0)
    report = step(engine).report
    assert urgent.state is RequestState.RUNNING and len(report.preempted) == 1
    assert later.state is RequestState.WAITING, "the free place is kept"
    run(engine)
    assert huge.started < later.started
    assert_whole(huge, later, urgent, *small)


@one_at_a_time
def test_who_came_back_is_served_before_it_is_displaced_again() -> None:
    engine = make_engine(max_batch_size=1, host_blocks=20)
    job = submit(engine, "job", prompt(10, 1), 60, priority=20)
    step(engine)
    for index in range(5):
        submit(engine, f"u{index}", prompt(4, 2), 2, priority=0)
        for _ in range(5):
            step(engine)
    assert job.preemptions == 2
    run(engine)
    assert_whole(job)


@one_at_a_time
def test_nobody_is_displaced_for_what_may_never_be_needed() -> None:
    """An urgent request that fits now takes no blocks of lower classes for fear that it will grow: they can still give
    way then."""
    engine = make_engine(num_blocks=20, block_size=8, prefix_caching=False)
    for _ in range(50):
        engine.scheduler.lengths.add(4, cut_off=False)
    lower = submit(engine, "lower", prompt(60, 1), 60, priority=20)
    for _ in range(4):
        step(engine)
    for _ in range(200):
        engine.scheduler.lengths.add(2_000, cut_off=False)
    engine.scheduler._forecast_step = -100
    urgent = submit(engine, "urgent", prompt(8, 2), 100, priority=0)
    assert urgent.number in numbers(engine)
    assert lower.preemptions == 0
    run(engine)
    assert lower.preemptions == 1, "it grew"
    assert_whole(lower, urgent)


def test_a_changed_priority_changes_the_order() -> None:
    engine = make_engine(max_batch_size=1)
    submit(engine, "running", prompt(3, 1), 6)
    step(engine)
    submit(engine, "a", prompt(3, 2), 3)
    submit(engine, "b", prompt(3, 3), 3)
    engine.set_priority("b", 5)
    engine.set_priority("running", 0)
    ended = [request.id for result in run(engine) for request in result.ended]
    assert ended == ["running", "b", "a"]


# --- samples --------------------------------------------------------------------------------------------------------


def test_samples_share_the_prompt_and_each_goes_its_own_way() -> None:
    engine = make_engine(num_blocks=64, block_size=8)
    request = submit(engine, "a", prompt(33, 1), 12, n=4)
    while not request.forked or request.first_token is None:
        step(engine)
    assert engine.cache.device.used_count == 4 + 4, "four full blocks for all, a tail for each"
    run(engine)
    assert len({tuple(output(request, index)) for index in range(4)}) == 4
    assert_whole(request)


def test_samples_of_a_prompt_of_one_token() -> None:
    engine = make_engine()
    request = submit(engine, "a", [5], 6, n=3)
    run(engine)
    assert_whole(request)


def test_more_samples_than_places_take_turns() -> None:
    engine = make_engine(max_batch_size=2)
    request = submit(engine, "a", prompt(20, 1), 6, n=5)
    run(engine)
    assert_whole(request)


def test_two_groups_of_samples_are_swapped_and_come_back() -> None:
    engine = make_engine(hasty=True, num_blocks=14, block_size=8, host_blocks=64, preemption="swap")
    groups = [submit(engine, f"g{i}", prompt(20, i), 20, n=3, priority=20) for i in range(2)]
    for _ in range(8):
        step(engine)
    urgent = submit(engine, "urgent", prompt(60, 9), 20, priority=0)
    swapped = set()
    while engine.has_work:
        swapped |= set(step(engine).report.swapped_out)
    assert swapped
    assert_whole(urgent, *groups)


# --- prefix hits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 3])
def test_a_whole_prompt_in_the_cache_still_runs_its_last_token(samples: int) -> None:
    engine = make_engine(block_size=8)
    submit(engine, "a", prompt(32, 1), 4)
    run(engine)
    again = submit(engine, "again", prompt(32, 1), 4, n=samples)
    run(engine)
    assert again.cached_tokens == 31
    assert_whole(again)


def test_another_salt_shares_nothing() -> None:
    engine = make_engine(block_size=8)
    submit(engine, "a", prompt(32, 1), 4, cache_salt="one")
    run(engine)
    other = submit(engine, "other", prompt(32, 1), 4, cache_salt="two")
    run(engine)
    assert other.cached_tokens == 0
    assert_whole(other)


def test_a_shared_prompt_lets_more_in_than_would_fit_apart() -> None:
    engine = make_engine(num_blocks=24, block_size=8, max_batch_size=8, token_budget=200)
    first = submit(engine, "first", prompt(128, 1), 30)
    step(engine)
    step(engine)
    others = [submit(engine, f"r{i}", [*prompt(128, 1), 3 + i], 4) for i in range(2)]
    step(engine)
    assert all(r.state is RequestState.RUNNING and r.cached_tokens == 128 for r in others)
    run(engine)
    assert_whole(first, *others)


# --- cases known to have hurt others --------------------------------------------------------------------------------


def test_nothing_is_scheduled_and_preempted_in_the_same_step() -> None:
    engine = make_engine(hasty=True, num_blocks=12, block_size=8, token_budget=24, prefix_caching=False)
    requests = [submit(engine, f"r{i}", prompt(10 + i, i), 40, priority=20 - 5 * (i % 4)) for i in range(8)]
    preempted = 0
    while engine.has_work:
        report = step(engine).report
        lost = {*report.preempted, *report.swapped_out}
        preempted += len(lost)
        assert not lost & {number for number, _, _ in report.entries}
    assert preempted
    assert_whole(*requests)


def test_a_host_hit_evicted_between_lookup_and_load_is_not_read() -> None:
    """The second request finds its beginning in the host tier, which is full: what makes room on the device for it
    goes there."""
    engine = make_engine(num_blocks=12, block_size=8, host_blocks=6, max_batch_size=2)
    first = submit(engine, "first", prompt(44, 1), 4)
    run(engine)
    other = submit(engine, "other", prompt(70, 2), 10)  # the first one's blocks go to the host
    run(engine)
    assert engine.cache.host.cached_count
    again = submit(engine, "again", prompt(44, 1), 30)
    beside = submit(engine, "beside", prompt(40, 9), 12)
    run(engine)
    assert again.cached_tokens, "some of it was still there"
    assert_whole(first, other, again, beside)


def test_what_two_computed_apart_is_freed_while_still_mapped() -> None:
    """Two equal prompts in one step are computed twice; one copy of each block goes, under the tables of both."""
    engine = make_engine(num_blocks=64, block_size=8, token_budget=200)
    twins = [submit(engine, f"t{i}", prompt(48, 1), 20) for i in range(2)]
    step(engine)
    tables = [engine.cache.table(t.sequences[0].number).tolist() for t in twins]
    assert tables[0][:6] == tables[1][:6]
    engine.cancel("t0")
    other = submit(engine, "other", prompt(200, 3), 20)  # takes what was freed
    run(engine)
    assert_whole(twins[1], other)


# --- limits by class ------------------------------------------------------------------------------------------------


def running(engine: Engine) -> list[str]:
    return sorted(s.request.id for s in engine.scheduler.running)


def test_a_class_has_no_more_in_a_step_than_its_limit() -> None:
    engine = make_engine(class_limits="batch=1,normal=2")
    for priority, name in ((20, "batch"), (10, "normal"), (0, "interactive")):
        for index in range(3):
            submit(engine, f"{name}{index}", prompt(4, priority + index), 12, priority=priority)
    step(engine)
    assert running(engine) == ["batch0", "interactive0", "interactive1", "interactive2", "normal0", "normal1"]
    run(engine)
    assert engine.metrics.counters.finished == 9
    assert engine.metrics.counters.preemptions == 0


def test_a_full_class_does_not_hold_up_the_others() -> None:
    engine = make_engine(class_limits="interactive=1", max_batch_size=4)
    for index in range(4):
        submit(engine, f"urgent{index}", prompt(4, index), 8, priority=0)
    submit(engine, "normal", prompt(4, 9), 8)
    step(engine)
    assert running(engine) == ["normal", "urgent0"]
    run(engine)


def test_limits_change_while_requests_run() -> None:
    engine = make_engine()
    requests = [submit(engine, f"b{index}", prompt(4, index), 20, priority=20) for index in range(4)]
    step(engine)
    assert len(engine.scheduler.running) == 4
    reconfigure(engine, {"class_limits": "batch=2"})
    preempted = step(engine).report.preempted + step(engine).report.preempted
    assert preempted == [r.number for r in requests[:1:-1]], "the youngest go"
    assert running(engine) == ["b0", "b1"]
    reconfigure(engine, {"class_limits": ""})
    run(engine)
    assert_whole(*requests)


def test_samples_of_a_limited_class_take_turns() -> None:
    engine = make_engine(class_limits="normal=2")
    request = submit(engine, "a", prompt(20, 1), 6, n=5)
    run(engine)
    assert_whole(request)


@pytest.mark.parametrize(
    "text", ["batch", "batch=0", "batch=-1", "batch=1,batch=2", "urgent=3", "batch=1.5", "batch=999999"]
)
def test_limits_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"class_limits is .*class=number") as refusal:
        EngineConfig(class_limits=text)
    assert refusal.value.field == "class_limits"
    assert parse_class_limits(" batch = 16, normal=48 ,") == {"batch": 16, "normal": 48}


# --- thrash ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host_blocks", [0, 6, 200])
def test_nothing_is_preempted_twice_for_the_same_token(host_blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adversary's load: long prompts of a low class, nobody leaves room to grow, and urgent requests keep coming,
    each of which takes all blocks that it can get, at any time."""
    monkeypatch.setattr(scheduler, "SERVED_STEPS", 0)
    monkeypatch.setattr(scheduler, "SHARE", 10_000)
    engine = make_engine(hasty=True, num_blocks=24, block_size=8, host_blocks=host_blocks, token_budget=16)
    got: dict[int, int] = {}
    preempt = engine.scheduler.preempt

    def watched(sequence: Sequence, **more: Any) -> None:
        assert got.get(sequence.number, -1) < len(sequence.tokens), "preempted again, and not a token further"
        got[sequence.number] = len(sequence.tokens)
        preempt(sequence, **more)

    engine.scheduler.preempt = watched
    victims = [submit(engine, f"v{i}", prompt(60 + i, i), 40, priority=20) for i in range(4)]
    for index in range(300):
        if index % 12 < 3:
            submit(engine, f"u{index}", prompt(20 + index % 30, 10 + index), 4, priority=index % 2 * 10)
        step(engine)
    run(engine)
    counters = engine.metrics.counters
    assert counters.preemptions > 10
    assert counters.redone_tokens <= counters.computed_tokens / 2
    assert_whole(*victims)


@one_at_a_time
def test_thrash_is_counted_in_all_and_of_late() -> None:
    engine = make_engine(hasty=True, num_blocks=10, block_size=8, prefix_caching=False)
    for index in range(4):
        submit(engine, f"r{index}", prompt(14, index), 40)
    results = run(engine)
    stats = engine.stats()
    work = sum(r.report.prefill_tokens + r.report.decode_tokens for r in results)
    assert stats["computed_tokens"] == stats["computed_last_minute"] == work
    assert stats["redone_tokens"] == stats["redone_last_minute"] == work - 4 * (14 + 40 - 1)


# --- what outputs are expected to become ----------------------------------------------------------------------------


def test_lengths_are_learnt_and_those_cut_off_count_as_longer() -> None:
    lengths = OutputLengths()
    assert 0.3 < float(lengths.surviving(np.array([181.0]))[0]) < 0.7, "the middle of what is supposed at first"
    for _ in range(3_000):
        lengths.add(100, cut_off=False)
        lengths.add(20, cut_off=True)
    at = lengths.surviving(np.array([10.0, 60.0, 130.0]))
    assert at[0] > 0.95 and at[1] > 0.95, "nothing ended by itself at 20"
    assert at[2] < 0.05
    for _ in range(5_000):
        lengths.add(1_000, cut_off=False)
    assert float(lengths.surviving(np.array([500.0]))[0]) > 0.95, "what was long ago is forgotten"


def test_what_little_is_known_leaves_more_room() -> None:
    """The same lengths, seen a few times or many times: the fewer, the more could they all be wrong together."""

    def expected_growth(times: int) -> float:
        lengths = OutputLengths()
        lengths._ended /= 1e6
        lengths._at_risk /= 1e6
        for _ in range(times):
            for length in (10, 100, 400):
                lengths.add(length, cut_off=False)
        request = Request(1, "r", [1] * 10, SamplingParams(), 10, longest=2_000)
        running = [Sequence(n, request, 0, [1] * 10) for n in range(50)]
        return Forecast(lengths, running).peak(running[0], 0.0)

    assert expected_growth(3) > 1.5 * expected_growth(300)


def test_nobody_is_let_in_whose_growth_would_put_others_out() -> None:
    """Outputs are known to be as long as they may: three fit side by side at full length, five would fit now."""

    def most_at_once(*, hasty: bool) -> tuple[int, int]:
        engine = make_engine(hasty=hasty, num_blocks=26, block_size=8, token_budget=64, prefix_caching=False)
        for _ in range(200):
            engine.scheduler.lengths.add(500, cut_off=False)
        requests = [submit(engine, f"r{i}", prompt(24, i), 40) for i in range(6)]
        most = 0
        while engine.has_work:
            step(engine)
            most = max(most, len(engine.scheduler.running))
        assert_whole(*requests)
        return most, engine.metrics.counters.preemptions

    assert most_at_once(hasty=False) == (3, 0)
    most, preemptions = most_at_once(hasty=True)
    assert most > 3 and preemptions > 0


# --- why others wait ------------------------------------------------------------------------------------------------


def held(engine: Engine) -> tuple[list[int], str]:
    report = step(engine).report
    return report.waited, report.hold


@one_at_a_time
def test_a_step_tells_who_waits_and_for_what() -> None:
    engine = make_engine(token_budget=16, max_batch_size=2, num_blocks=16)
    submit(engine, "a", prompt(10, 1), 20)
    assert held(engine) == ([], Hold.NOBODY)
    submit(engine, "b", prompt(40, 2), 5)
    c = submit(engine, "c", prompt(5, 3), 5)
    assert held(engine) == ([c.number], Hold.BATCH)
    engine.cancel("a")
    engine.cancel("b")
    assert held(engine) == ([], Hold.NOBODY)


@one_at_a_time
def test_who_waits_for_tokens_of_the_budget_and_who_for_blocks() -> None:
    engine = make_engine(token_budget=16, num_blocks=16)
    submit(engine, "a", prompt(60, 1), 5)
    b = submit(engine, "b", prompt(60, 2), 5)
    assert held(engine) == ([b.number], Hold.BUDGET)
    engine = make_engine(token_budget=64, num_blocks=8)
    submit(engine, "a", prompt(40, 1), 5)
    b = submit(engine, "b", prompt(40, 2), 5)
    assert held(engine) == ([b.number], Hold.BLOCKS)


@one_at_a_time
def test_who_waits_for_a_place_of_its_class() -> None:
    engine = make_engine(class_limits="batch=1")
    submit(engine, "a", prompt(4, 1), 20, priority=20)
    b = submit(engine, "b", prompt(4, 2), 20, priority=20)
    assert held(engine) == ([b.number], Hold.CLASS)
    submit(engine, "c", prompt(4, 3), 20)
    assert held(engine) == ([b.number], Hold.CLASS)


@one_at_a_time
def test_no_more_than_the_first_few_in_line_are_named() -> None:
    engine = make_engine(max_batch_size=1)
    requests = [submit(engine, str(n), prompt(4, n), 20) for n in range(1, 40)]
    assert held(engine) == ([r.number for r in requests[1 : 1 + scheduler.WAITED_TOLD]], Hold.BATCH)
