"""The engine's core: what it refuses, how requests end, what failures cost, and changing settings while it runs."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import psutil
import pytest
from pagedeck.engine.config import GIB
from pagedeck.engine.core import ENDED_KEPT, Engine
from pagedeck.engine.facts import request_facts, setting_facts
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request
from pagedeck.ipc.protocol import ReconfigureReport, SettingInfo
from pagedeck.ipc.telemetry import Percentiles, RequestRow, Stats, StepRecord, TierStats
from pagedeck.ipc.vocabulary import FinishReason, Refused, RequestState, SamplingParams

from . import harness
from .harness import VOCABULARY, Troubled, expected, make_engine, output, run, step, submit


@pytest.fixture(params=[0, 1], ids=["alone", "overlapped"], autouse=True)
def depth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every test holds with and without steps in flight."""
    monkeypatch.setattr(harness, "DEPTH", request.param)
    return request.param


def prompt(length: int, first: int = 1) -> list[int]:
    return [first, *range(100, 100 + length - 1)]


def refused(engine: Engine, **arguments: Any) -> Refused:
    """The refusal of a submit that is fine but for ``arguments``; nothing may have changed."""
    fine: dict[str, Any] = {"id": "x", "prompt": [1, 2], "sampling": SamplingParams(max_tokens=3), "priority": 10}
    before = dict(engine.requests), len(engine.scheduler.waiting)
    with pytest.raises(Refused) as caught:
        engine.submit(**{**fine, **arguments})
    assert (dict(engine.requests), len(engine.scheduler.waiting)) == before
    return caught.value


# --- submitting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "field", "part"),
    [
        ({"id": ""}, "id", "non-empty"),
        ({"prompt": []}, "prompt", "at least one"),
        ({"prompt": [1, VOCABULARY]}, "prompt", "0 to 999"),
        ({"prompt": [-1]}, "prompt", "-1"),
        ({"prompt": [True]}, "prompt", "True"),
        ({"prompt": ["1"]}, "prompt", "'1'"),
        ({"sampling": SamplingParams(max_tokens=0)}, "max_tokens", "0"),
        ({"sampling": SamplingParams(temperature=math.nan)}, "temperature", "nan"),
        ({"priority": "urgent"}, "priority", "interactive"),
    ],
)
def test_bad_input_is_refused_with_field_and_value(arguments: dict[str, Any], field: str, part: str) -> None:
    refusal = refused(make_engine(), **arguments)
    assert refusal.field == field
    assert part in str(refusal)


def test_a_live_id_is_refused_and_free_again_afterwards() -> None:
    engine = make_engine()
    submit(engine, "x", [1], 2)
    assert refused(engine).code == "duplicate"
    run(engine)
    submit(engine, "x", [1], 2)


def test_a_full_queue_is_refused() -> None:
    engine = make_engine(max_queue=2)
    submit(engine, "a", [1], 2)
    submit(engine, "b", [1], 2)
    refusal = refused(engine)
    assert refusal.code == "queue_full" and "2" in str(refusal)
    run(engine)


def test_a_prompt_as_long_as_the_context_is_refused() -> None:
    engine = make_engine(context_length=32)
    refusal = refused(engine, prompt=prompt(32))
    assert refusal.code == "too_long" and "31" in str(refusal)
    request = submit(engine, "a", prompt(31), 5)
    run(engine)
    assert request.sequences[0].finish_reason is FinishReason.LENGTH
    assert len(output(request)) == 1


def test_a_prompt_is_measured_before_its_tokens_are_looked_at() -> None:
    class Unlooked(list[int]):
        def __iter__(self) -> Any:
            raise AssertionError("looked at")

    assert refused(make_engine(context_length=32), prompt=Unlooked([1] * 32)).code == "too_long"
    assert refused(make_engine(), prompt=[*range(1, 31), 2**70]).field == "prompt"


def test_within_the_context_but_beyond_the_pool_is_refused_with_the_numbers() -> None:
    engine = make_engine(num_blocks=8, block_size=8)
    refusal = refused(engine, prompt=prompt(40), sampling=SamplingParams(max_tokens=26))
    assert refusal.code == "too_large"
    assert "9 blocks" in str(refusal) and "up to 8" in str(refusal)
    fits = submit(engine, "a", prompt(40), 25)
    run(engine)
    assert output(fits) == expected(fits)


def test_samples_count_when_a_request_is_measured_against_the_pool() -> None:
    engine = make_engine(num_blocks=8, block_size=8)
    assert refused(engine, prompt=prompt(33), sampling=SamplingParams(max_tokens=8, n=5)).code == "too_large"
    fits = submit(engine, "a", prompt(33), 8, n=4)  # 4 shared blocks and 4 tails
    run(engine)
    assert all(output(fits, index) == expected(fits, index) for index in range(4))


# --- ends -----------------------------------------------------------------------------------------------------------


def eos_of(length: int, at: int) -> int:
    """The token that the model gives at output position ``at``."""
    engine = make_engine()
    return expected(submit(engine, "probe", prompt(length), at + 1))[at]


def test_the_end_token_ends_unless_ignored() -> None:
    engine = make_engine(eos_ids=frozenset({eos_of(10, 4)}))
    stops = submit(engine, "stops", prompt(10), 12)
    goes_on = submit(engine, "goes on", prompt(10), 12, ignore_eos=True)
    run(engine)
    assert output(stops) == expected(stops)[:5]
    assert stops.sequences[0].finish_reason is FinishReason.STOP
    assert output(goes_on) == expected(goes_on)
    assert goes_on.sequences[0].finish_reason is FinishReason.LENGTH


def test_a_stop_string_ends() -> None:
    engine = make_engine()
    request = submit(engine, "a", prompt(10), 12, stop=(f"{eos_of(10, 4)} ",))
    outputs = [o for result in run(engine) for o in result.outputs]
    assert request.sequences[0].finish_reason is FinishReason.STOP
    assert "".join(o.text for o in outputs) == request.sequences[0].text
    assert request.sequences[0].text == "".join(f"{token} " for token in expected(request)[:4])


def test_outputs_carry_every_token_once_and_the_end_once() -> None:
    engine = make_engine()
    request = submit(engine, "a", prompt(10), 12, n=2)
    results = run(engine)
    for index in range(2):
        outputs = [o for result in results for o in result.outputs if o.index == index]
        assert [token for o in outputs for token in o.token_ids] == expected(request, index)
        assert [o.finish_reason for o in outputs] == [None] * 11 + [FinishReason.LENGTH]
    assert [r for result in results for r in result.ended] == [request]
    assert request.e2e_s >= request.ttft_s >= request.queue_s >= 0


def test_a_cancelled_request_frees_its_blocks_at_once_and_is_reported_once() -> None:
    engine = make_engine(num_blocks=16, prefix_caching=False)
    waiting = submit(engine, "waiting", prompt(5, 3), 5, priority=20)
    running = submit(engine, "running", prompt(20, 1), 50)
    engine.config = engine.scheduler.config = engine.config.changed({"max_batch_size": 1})
    step(engine)
    assert running.state is RequestState.RUNNING and waiting.state is RequestState.WAITING
    assert engine.cancel("running") and engine.cancel("waiting")
    assert not engine.cancel("running")
    assert engine.cache.device.used_count == 0
    assert engine.has_work, "the ends are still to be reported"
    assert step(engine).ended == [running, waiting]
    assert not engine.has_work
    assert {running.state, waiting.state} == {RequestState.CANCELLED}
    assert engine.runner.forgotten


def test_a_client_that_goes_takes_only_its_own() -> None:
    engine = make_engine()
    theirs = [submit(engine, f"t{i}", prompt(5, i), 9, client="gone") for i in range(2)]
    other = submit(engine, "other", prompt(5, 7), 9, client="here")
    step(engine)
    assert engine.cancel_client("gone") == 2
    run(engine)
    assert [r.state for r in theirs] == [RequestState.CANCELLED] * 2
    assert output(other) == expected(other)


def test_of_many_that_end_at_once_each_is_told_as_it_was() -> None:
    engine = make_engine()
    amount = 2 * ENDED_KEPT + 5
    for index in range(amount):
        submit(engine, f"r{index}", [1, 2], 1)
    for index in range(amount):
        engine.cancel(f"r{index}")
    ended = step(engine).ended
    assert len(ended) == amount and {request.state for request in ended} == {RequestState.CANCELLED}
    assert all(len(request.sequences) == 1 for request in ended)
    submit(engine, "later", [1, 2], 1)
    run(engine)
    assert not ended[0].sequences and ended[-1].sequences, "what is not known any more holds no memory"


def test_ended_requests_stay_known_within_bounds() -> None:
    engine = make_engine()
    for index in range(ENDED_KEPT + 5):
        submit(engine, f"r{index}", [1, 2], 1)
        engine.cancel(f"r{index}")
    assert len(engine.ended) == ENDED_KEPT
    assert engine.ended[-1].id == f"r{ENDED_KEPT + 4}"


# --- failures -------------------------------------------------------------------------------------------------------


def test_logits_that_are_not_finite_fail_that_request_only() -> None:
    engine = make_engine(runner=Troubled(512))
    bad = submit(engine, "bad", prompt(9, 1), 9, n=2)
    good = submit(engine, "good", prompt(9, 2), 9)
    engine.runner.not_finite = "bad"
    results = run(engine)
    assert bad.state is RequestState.FAILED
    assert bad.error_code == "model" and "not finite" in bad.error
    assert [r for result in results for r in result.ended] == [bad, good]
    assert output(good) == expected(good)


def test_a_step_that_fails_takes_those_in_it_and_nobody_else() -> None:
    engine = make_engine(runner=Troubled(512), max_batch_size=2)
    bad = submit(engine, "bad", prompt(9, 1), 9)
    beside = submit(engine, "beside", prompt(9, 2), 9)
    later = submit(engine, "later", prompt(9, 3), 9)
    engine.runner.broken = "bad"
    run(engine)
    assert bad.state is beside.state is RequestState.FAILED
    assert bad.error_code == "internal" and "the device is on fire" in bad.error
    assert output(later) == expected(later)
    assert engine.cache.device.used_count == 0


def test_too_little_working_memory_makes_smaller_steps_not_failures() -> None:
    engine = make_engine(runner=Troubled(1024), num_blocks=128, token_budget=64)
    engine.runner.memory = 11
    requests = [submit(engine, f"r{i}", prompt(30, i), 6) for i in range(6)]
    run(engine)
    assert all(output(r) == expected(r) for r in requests)
    assert engine.runner.largest <= 11
    assert engine.scheduler.budget <= 11, "later steps are planned to fit"
    reconfigure(engine, {"token_budget": 63})
    assert engine.scheduler.budget == 63


def test_a_single_token_that_finds_no_memory_fails_its_request() -> None:
    engine = make_engine(runner=Troubled(512))
    engine.runner.memory = 0
    request = submit(engine, "a", prompt(9, 1), 9)
    run(engine)
    assert request.state is RequestState.FAILED and "MemoryError" in request.error


# --- reconfiguring --------------------------------------------------------------------------------------------------


def busy_engine(count: int = 6, **settings: Any) -> tuple[Engine, list[Request]]:
    engine = make_engine(**{"num_blocks": 64, "block_size": 8, **settings})
    requests = [submit(engine, f"r{i}", [*prompt(20, 1), i + 1], 30, priority=i % 3 * 10) for i in range(count)]
    for _ in range(8):
        step(engine)
    return engine, requests


def bookkeeping(engine: Engine) -> Any:
    return (
        engine.config,
        engine.cache.block_size,
        engine.cache.host.num_blocks,
        {number: table.blocks.tolist() for number, table in engine.cache.tables.items()},
        [r.preemptions for r in engine.requests.values()],
    )


@pytest.mark.parametrize(
    ("changes", "field", "part"),
    [
        ({"block_size": 33}, "block_size", "one of 8, 16"),
        ({"block_sise": 16}, "block_sise", "no setting"),
        ({"model": "other"}, "model", "restart"),
        ({"num_blocks": None}, "num_blocks", "integer"),
        ({"num_blocks": 3, "block_size": 8}, "num_blocks", "blocks of 8 tokens"),
        ({"token_budget": None}, "token_budget", "integer"),
        ({"block_size": 16, "max_batch_size": 0}, "max_batch_size", "from 1"),
        ({"swap_space_gib": 65_000.0}, "swap_space_gib", "free now"),
    ],
)
def test_an_impossible_change_changes_nothing(changes: dict[str, Any], field: str, part: str) -> None:
    engine, requests = busy_engine()
    before = bookkeeping(engine)
    for dry_run in (True, False):
        with pytest.raises(Refused) as refusal:
            reconfigure(engine, changes, dry_run=dry_run)
        assert refusal.value.field == field and part in str(refusal.value)
    assert bookkeeping(engine) == before
    run(engine)
    assert all(output(r) == expected(r) for r in requests)


def test_every_live_setting_changes_while_requests_run() -> None:
    engine, requests = busy_engine()
    changes = {
        "block_size": 32,
        "swap_space_gib": 100 * 32 * 8 / GIB,
        "max_batch_size": 2,
        "token_budget": 5,
        "prefix_caching": False,
        "preemption": "recompute",
        "max_queue": 7,
        "max_clients": 8,
        "max_client_requests": 9,
    }
    foreseen = reconfigure(engine, changes, dry_run=True)
    assert engine.cache.block_size == 8
    done = reconfigure(engine, changes)
    assert done.changes == {name: (foreseen.changes[name][0], value) for name, value in changes.items()}
    assert (done.blocks_moved, done.bytes_copied, done.cached_dropped, done.preempted) == (
        foreseen.blocks_moved, foreseen.bytes_copied, foreseen.cached_dropped, foreseen.preempted,
    )  # fmt: skip
    assert done.pause_ms > 0 and foreseen.pause_ms > 0
    assert engine.cache.block_size == 32 and engine.cache.host.num_blocks == 100
    run(engine)
    assert all(output(r) == expected(r) for r in requests)


def test_a_setting_that_stays_as_it_was_is_no_change() -> None:
    engine, _ = busy_engine()
    report = reconfigure(engine, {"block_size": 8, "max_batch_size": 16})
    assert (report.changes, report.blocks_moved, report.bytes_copied) == ({}, 0, 0)


def test_larger_blocks_that_do_not_suffice_cost_the_lowest_their_place() -> None:
    engine = make_engine(num_blocks=32, block_size=8, hasty=True)
    requests = [submit(engine, f"r{i}", prompt(10, i), 12, priority=(i % 2) * 10) for i in range(7)]
    for _ in range(5):
        step(engine)
    assert len(engine.scheduler.running) > 4
    foreseen = reconfigure(engine, {"block_size": 64}, dry_run=True)
    done = reconfigure(engine, {"block_size": 64})
    assert done.preempted == foreseen.preempted == 3, "four blocks are left"
    assert [r.preemptions for r in requests] == [0, 1, 0, 1, 0, 1, 0]
    given_up = {r.number for r in requests if r.preemptions}
    reports = [result.report for result in run(engine)]
    assert set(next(report.preempted for report in reports if report.preempted)) == given_up
    assert all(output(r) == expected(r) for r in requests)


def test_a_change_that_would_lock_a_request_out_is_refused() -> None:
    engine = make_engine(num_blocks=9, block_size=8)
    request = submit(engine, "long", prompt(40, 1), 32)
    step(engine)
    with pytest.raises(Refused, match=r"1 blocks.*'long' needs 2"):
        reconfigure(engine, {"block_size": 64})
    assert engine.cache.block_size == 8
    run(engine)
    assert output(request) == expected(request)


def test_a_smaller_host_tier_recomputes_what_it_cannot_hold() -> None:
    engine = make_engine(num_blocks=10, host_blocks=64, preemption="swap", prefix_caching=False, hasty=True)
    requests = [submit(engine, f"r{i}", prompt(12, i), 40) for i in range(5)]
    while not engine.scheduler.swapped:
        step(engine)
    done = reconfigure(engine, {"swap_space_gib": 0.0} if engine.config.swap_space_gib else {"swap_space_gib": 1e-9})
    assert engine.cache.host.num_blocks == 0
    assert done.preempted == 1 and engine.scheduler.swapped == 0
    run(engine)
    assert all(output(r) == expected(r) for r in requests)


def test_more_host_memory_than_is_free_is_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = busy_engine()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2 * GIB})())
    with pytest.raises(Refused, match=r"swap_space_gib is 3\.0.*2\.00 GiB"):
        reconfigure(engine, {"swap_space_gib": 3.0})
    reconfigure(engine, {"swap_space_gib": 0.0001})


def test_host_memory_that_the_machine_denies_leaves_everything_as_it_was() -> None:
    engine, requests = busy_engine(host_blocks=4)

    def deny(*_: Any) -> int:
        raise RuntimeError("cannot pin 8,192 bytes")

    engine.runner.reshape = deny
    with pytest.raises(Refused, match="cannot pin"):
        reconfigure(engine, {"block_size": 16, "swap_space_gib": 1024 * 8 / GIB, "token_budget": 1})
    assert (engine.cache.block_size, engine.cache.host.num_blocks, engine.config.token_budget) == (8, 4, 32)
    run(engine)
    assert all(output(r) == expected(r) for r in requests)


# --- facts ----------------------------------------------------------------------------------------------------------


def test_facts_fit_the_wire() -> None:
    engine, _ = busy_engine(host_blocks=8)
    facts = [RequestRow(**request_facts(r, engine.cache)) for r in engine.requests.values()]
    assert sum(f.blocks for f in facts) >= engine.cache.device.used_count > 0
    assert any(f.shared_blocks for f in facts)
    rows = [SettingInfo(**row) for row in setting_facts(engine.config)]
    assert {row.name: row.value for row in rows}["block_size"] == 8
    assert next(row for row in rows if row.name == "block_size").choices == [8, 16, 32, 64, 128, 256]
    stats = engine.stats()
    for tier in ("device", "host"):
        stats[tier] = TierStats(**stats[tier])
    stats["latency"] = {name: Percentiles(p.count, p.p50, p.p95, p.p99) for name, p in stats["latency"].items()}
    rest = {"epoch", "time", "sequences", "cpu_percent", "memory_bytes", "device_memory_bytes", "requests", "machine"}
    rest |= {"ends", "output_tokens", "step_tokens"}
    assert set(stats) | rest == set(Stats.__struct_fields__)
    report = step(engine).report
    assert set(StepRecord.__struct_fields__) == set(type(report).__dataclass_fields__)
    fields = set(type(reconfigure(engine, {})).__dataclass_fields__)
    assert fields == set(ReconfigureReport.__struct_fields__)


def test_the_core_imports_neither_sockets_nor_tensors() -> None:
    code = "import sys, pagedeck.engine.core; print(*{'torch', 'zmq', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
