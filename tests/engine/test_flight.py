"""Planning ahead of the device: what is in flight may end, lose its blocks or fail, and nobody's tokens change.

On :class:`TokenMemory` with one step in flight, which computes when it lands: nothing is known of a token any earlier.
"""

from __future__ import annotations

from typing import Any

import pytest
from pagedeck.engine.core import Engine, StepResult
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request
from pagedeck.ipc.vocabulary import FinishReason, RequestState

from . import harness
from .harness import VOCABULARY, Troubled, expected, make_engine, output, run, step, submit
from .token_memory import Launch, TokenMemory


@pytest.fixture(autouse=True)
def overlapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "DEPTH", 1)


class Witness(Troubled):
    """Remembers how far each sequence was computed, and how many steps were in flight at each launch."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.reached: dict[int, int] = {}
        self.ahead: list[int] = []
        self.refusals = 0  # launches with work from now on that find no memory

    def launch(self, plan: Any, cache: Any) -> Launch:
        if plan.work and self.refusals:
            self.refusals -= 1
            raise MemoryError
        if plan.work:
            self.ahead.append(sum(bool(launch.shares) for launch in self.queue))
        for work in plan.work:
            seq = work.sequence.number
            self.reached[seq] = max(self.reached.get(seq, 0), work.start + work.count)
        return super().launch(plan, cache)


def engine_with(**settings: Any) -> tuple[Engine, Witness]:
    witness = Witness(settings.get("num_blocks", 64) * 8, settings.get("host_blocks", 0) * 8)
    return make_engine(runner=witness, **settings), witness


def prompt(length: int, first: int = 1) -> list[int]:
    return [first, *range(100, 100 + length - 1)]


def foreseen(tokens: list[int], count: int) -> list[int]:
    """The first ``count`` tokens that follow the prompt ``tokens``."""
    return expected(submit(make_engine(), "probe", tokens, count))


def in_flight(engine: Engine) -> list[Request]:
    return [r for r in engine.requests.values() if any(s.in_flight for s in r.sequences)]


# --- in the usual way -----------------------------------------------------------------------------------------------


def test_the_next_step_is_launched_before_the_one_before_it_has_landed() -> None:
    engine, witness = engine_with()
    request = submit(engine, "a", prompt(5), 20)
    results = run(engine)
    assert output(request) == expected(request)
    assert witness.ahead == [0] + [1] * 19
    assert [result.report.step for result in results] == list(range(1, 21))
    assert [len(result.outputs) for result in results] == [1] * 20


def test_chunks_and_their_decodes_follow_one_another_in_flight() -> None:
    engine, witness = engine_with(token_budget=7)
    requests = [submit(engine, f"r{i}", prompt(30, i), 9) for i in range(3)]
    run(engine)
    assert all(output(r) == expected(r) for r in requests)
    assert witness.ahead.count(0) == 1


def test_an_arrival_joins_the_next_step_that_is_planned() -> None:
    engine, _ = engine_with()
    submit(engine, "a", prompt(5), 20)
    step(engine)
    late = submit(engine, "late", prompt(5, 2), 3)
    entries = [[number for number, _, _ in step(engine).report.entries] for _ in range(2)]
    assert late.number not in entries[0], "that one was in flight already"
    assert late.number in entries[1]


@pytest.mark.parametrize("limits", [{"max_tokens": 6}, {"max_tokens": 1}, {"max_tokens": 50, "context_length": 16}])
def test_lengths_are_known_ahead_and_never_overrun(limits: dict[str, int]) -> None:
    engine, witness = engine_with(context_length=limits.get("context_length", 4096))
    request = submit(engine, "a", prompt(9), limits["max_tokens"])
    run(engine)
    length = len(request.sequences[0].tokens)
    assert length == min(9 + limits["max_tokens"], engine.context_length)
    assert request.sequences[0].finish_reason is FinishReason.LENGTH
    assert witness.reached == {1: length - 1}, "the last token is never computed"


# --- ends that nobody foresees --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(5, 9))
def test_an_end_token_discards_the_one_step_too_many(at: int) -> None:
    """Around the border of a block: 16 tokens are reached at the 7th."""
    tokens = prompt(9)
    end = foreseen(tokens, at + 1)[at]
    engine, witness = engine_with(eos_ids=frozenset({end}))
    request = submit(engine, "a", tokens, 40)
    beside = submit(engine, "beside", prompt(9, 2), 20, ignore_eos=True)
    run(engine)
    length = 9 + at + 1
    assert output(request) == foreseen(tokens, at + 1)
    assert request.sequences[0].finish_reason is FinishReason.STOP
    assert witness.reached[1] == length, "the end token itself was computed, and nothing beyond it"
    assert output(beside) == expected(beside)
    cached = engine.cache.match([*tokens, *output(request), 1])
    assert cached == (length - 1) // 8 * 8, "what the discarded step completed is not to be found"
    again = submit(engine, "again", [*tokens, *output(request)], 12, ignore_eos=True)
    run(engine)
    assert output(again) == expected(again)


def test_a_stop_string_ends_one_step_late_without_a_token_more() -> None:
    tokens = prompt(10)
    engine, _ = engine_with()
    request = submit(engine, "a", tokens, 12, stop=(f"{foreseen(tokens, 5)[4]} ",))
    outputs = [o for result in run(engine) for o in result.outputs]
    assert [token for o in outputs for token in o.token_ids] == foreseen(tokens, 5)
    assert request.sequences[0].tokens == [*tokens, *foreseen(tokens, 5)]


def test_what_is_cancelled_in_flight_gives_its_blocks_to_the_next_step() -> None:
    engine, _ = engine_with(num_blocks=4, prefix_caching=False)
    gone = submit(engine, "gone", prompt(20, 1), 12)
    heir = submit(engine, "heir", prompt(20, 2), 12)
    step(engine)
    step(engine)
    assert in_flight(engine) == [gone]
    told = list(output(gone))
    assert engine.cancel("gone")
    assert engine.cache.device.used_count == 0
    results = run(engine)
    assert output(heir) == expected(heir)
    assert output(gone) == told, "tokens in flight are not its own any more"
    assert not any(o.request is gone for result in results for o in result.outputs)
    assert [r for result in results for r in result.ended] == [gone, heir]


def test_a_client_that_goes_leaves_a_step_in_flight_that_lands_for_nobody() -> None:
    engine, witness = engine_with()
    submit(engine, "a", prompt(5), 20, client="c")
    step(engine)
    assert engine.cancel_client("c") == 1
    assert engine.has_work
    results = run(engine)
    assert [len(r.ended) for r in results] == [1] and not results[0].outputs
    assert not witness.queue


# --- blocks that go -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_what_is_preempted_in_flight_keeps_its_token_and_computes_it_again(preemption: str) -> None:
    engine, _ = engine_with(hasty=True, num_blocks=8, host_blocks=16, preemption=preemption, prefix_caching=False)
    requests = [submit(engine, f"r{i}", prompt(14, i), 30) for i in range(3)]
    results: list[StepResult] = []
    caught = 0
    while engine.has_work:
        before = {r.number for r in in_flight(engine)}
        results.append(step(engine))
        waiting = {s.request.number for s in engine.scheduler.waiting}
        caught += bool(before & waiting)
    assert caught, "some were in flight"
    assert all(output(r) == expected(r) for r in requests)
    for request in requests:
        told = [token for result in results for o in result.outputs if o.request is request for token in o.token_ids]
        assert told == expected(request)
    counters = engine.metrics.counters
    assert counters.redone_tokens and counters.swaps == (counters.preemptions if preemption == "swap" else 0)


def test_samples_fork_from_what_has_landed() -> None:
    engine, witness = engine_with(token_budget=16)
    request = submit(engine, "a", prompt(40), 12, n=3)
    beside = submit(engine, "b", prompt(12, 2), 30)
    run(engine)
    assert all(output(request, index) == expected(request, index) for index in range(3))
    assert output(beside) == expected(beside)
    assert witness.ahead.count(0) == 2, "at the start, and once before the samples forked"


def test_changes_of_settings_land_first_and_lose_no_token() -> None:
    engine, witness = engine_with(num_blocks=32, host_blocks=8)
    requests = [submit(engine, f"r{i}", prompt(20, i), 30) for i in range(3)]
    results = [step(engine) for _ in range(5)]
    for changes in ({"block_size": 16}, {"max_batch_size": 1}, {"prefix_caching": False}, {"block_size": 8}):
        assert in_flight(engine)
        reconfigure(engine, changes, dry_run=True)
        assert not in_flight(engine) and not witness.queue
        planned = engine.step_number
        results.append(step(engine))
        assert engine.step_number == planned, "its tokens are handed out before anything else is begun"
        results.append(step(engine))
        reconfigure(engine, changes)
        results.append(step(engine))
        results += [step(engine) for _ in range(3)]
    results += run(engine)
    for request in requests:
        assert output(request) == expected(request)
        told = [token for result in results for o in result.outputs if o.request is request for token in o.token_ids]
        assert told == expected(request)


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [30, 11, 3])
def test_memory_that_runs_out_at_landing_computes_what_was_behind_again(memory: int) -> None:
    engine, witness = engine_with(token_budget=64, num_blocks=128)
    requests = [submit(engine, f"r{i}", prompt(20, i), 12, n=1 + i % 2) for i in range(6)]
    for _ in range(3):
        step(engine)
    assert in_flight(engine)
    late = [submit(engine, f"late{i}", prompt(33, i + 6), 9) for i in range(2)]
    witness.memory = memory
    run(engine)
    for request in [*requests, *late]:
        assert all(output(request, index) == expected(request, index) for index in range(request.sampling.n))
    assert engine.scheduler.budget <= memory


@pytest.mark.parametrize("refusals", [1, 2])
def test_memory_that_runs_out_at_launch_lets_the_step_before_land(refusals: int) -> None:
    engine, witness = engine_with(token_budget=64)
    requests = [submit(engine, f"r{i}", prompt(12, i), 12) for i in range(4)]
    step(engine)
    assert in_flight(engine)
    witness.refusals = refusals
    results = run(engine)
    assert all(output(r) == expected(r) for r in requests)
    assert [len(result.outputs) for result in results[:2]] == [4, 4], "in parts, and yet in the same step"


def test_what_lost_its_blocks_behind_a_step_that_found_no_memory_samples_nothing_there() -> None:
    def start() -> tuple[Engine, Witness, list[Request]]:
        engine, witness = engine_with(hasty=True, num_blocks=6, prefix_caching=False, preemption="recompute")
        return engine, witness, [submit(engine, f"r{i}", prompt(15, i), 30) for i in range(2)]

    engine, _, requests = start()
    while not requests[1].preemptions:
        step(engine)
    assert not in_flight(engine)[1:], "its token has landed, and it waits"
    last = engine.step_number - 1

    engine, witness, requests = start()
    while engine.step_number < last:
        step(engine)
    assert in_flight(engine) == requests
    known = len(output(requests[1]))
    witness.memory = 1
    step(engine)
    assert requests[1].preemptions == 1 and not requests[1].sequences[0].in_flight
    assert len(output(requests[1])) == known
    run(engine)
    assert all(output(r) == expected(r) for r in requests)


def test_logits_that_are_not_finite_fail_at_landing_and_take_nobody_along() -> None:
    engine, witness = engine_with()
    bad = submit(engine, "bad", prompt(9, 1), 12)
    good = submit(engine, "good", prompt(9, 2), 12)
    for _ in range(3):
        step(engine)
    told = list(output(bad))
    witness.not_finite = "bad"
    results = run(engine)
    assert bad.state is RequestState.FAILED and bad.error_code == "model"
    assert output(bad) == told == foreseen(prompt(9, 1), 12)[: len(told)]
    assert not any(o.request is bad for result in results for o in result.outputs)
    assert output(good) == expected(good)
    assert engine.cache.device.used_count == 0


def test_a_device_that_breaks_takes_those_in_that_step_and_nobody_behind_it() -> None:
    engine, witness = engine_with(token_budget=64)
    bad = submit(engine, "bad", prompt(9, 1), 12)
    step(engine)
    step(engine)
    later = submit(engine, "later", prompt(9, 2), 12)
    witness.broken = "bad"
    step(engine)
    assert bad.state is RequestState.FAILED and "the device is on fire" in bad.error
    run(engine)
    assert output(later) == expected(later)


# --- what it is for -------------------------------------------------------------------------------------------------


class VirtualTime:
    now = 0.0


class Timed(TokenMemory):
    """A device that takes ``compute`` seconds of a virtual clock for a step, one step after another."""

    def __init__(self, time: VirtualTime, compute: float, depth: int) -> None:
        super().__init__(512, vocabulary=VOCABULARY, depth=depth)
        self.time, self.compute = time, compute
        self.free_at = 0.0
        self.done: dict[int, float] = {}

    def launch(self, plan: Any, cache: Any) -> Launch:
        launch = super().launch(plan, cache)
        if plan.work:
            self.free_at = max(self.free_at, self.time.now) + self.compute
        self.done[id(launch)] = self.free_at
        return launch

    def run_until(self, launch: Launch) -> None:
        super().run_until(launch)
        self.time.now = max(self.time.now, self.done.pop(id(launch)))


@pytest.mark.parametrize(
    ("plan", "compute", "alone", "overlapped"),
    [(0.002, 0.010, 0.012, 0.010), (0.010, 0.010, 0.020, 0.010), (0.010, 0.003, 0.013, 0.010)],
)
def test_a_step_takes_the_longer_of_planning_and_computing(
    plan: float, compute: float, alone: float, overlapped: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not their sum. On a virtual clock: planning is stated to take as long as it does."""
    for depth, period in ((0, alone), (1, overlapped)):
        time = VirtualTime()
        engine = make_engine(runner=Timed(time, compute, depth))
        undelayed = engine.scheduler.plan

        def delayed(number: int, undelayed: Any = undelayed, time: VirtualTime = time) -> Any:
            time.now += plan
            return undelayed(number)

        monkeypatch.setattr(engine.scheduler, "plan", delayed)
        request = submit(engine, "a", prompt(5), 100)
        step(engine)
        begun = time.now
        for _ in range(90):
            step(engine)
        assert (time.now - begun) / 90 == pytest.approx(period)
        run(engine)
        assert output(request) == expected(request)
