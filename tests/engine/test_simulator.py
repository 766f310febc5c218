"""The simulator: its figures add up, are the same every time, and say that planning does not look at the pool."""

from __future__ import annotations

import json

import pytest
from pagedeck.cli import main
from pagedeck.engine.simulator import Simulation, SimulationReport, jain, simulate, step_costs, trace
from pagedeck.ipc.vocabulary import PRIORITIES, Refused

SMALL = Simulation(num_blocks=2_000, num_host_blocks=200, live=20, token_budget=512, requests=120)


@pytest.fixture(scope="module")
def report() -> SimulationReport:
    return simulate(SMALL)


def test_the_trace_is_seeded_and_heavy_tailed() -> None:
    arrivals, again = list(trace(SMALL)), list(trace(SMALL))
    assert arrivals == again
    assert [a.time for a in arrivals] == sorted(a.time for a in arrivals)
    assert {a.priority for a in arrivals} == set(PRIORITIES.values())
    prompts = sorted(len(a.prompt) for a in arrivals)
    assert prompts[-1] > 5 * prompts[len(prompts) // 2]
    assert all(4 <= a.output_tokens <= a.max_tokens for a in arrivals)


def test_every_request_ends_with_its_output(report: SimulationReport) -> None:
    arrivals = list(trace(SMALL))
    assert report.requests == 120 == sum(fared.requests for fared in report.classes.values())
    assert report.output_tokens == sum(a.output_tokens for a in arrivals)
    assert 1 < report.running_mean <= report.running_most <= 20
    assert report.virtual_s > arrivals[-1].time


def test_the_figures_are_possible(report: SimulationReport) -> None:
    assert 0 < report.allocated < report.allocated_most <= 1
    assert 0.9 < report.filled <= 1
    assert 0 < report.wasted_blocks < 1, "less than a block a sequence"
    assert 0 < report.prefix_hits < 1
    assert 0 <= report.swaps <= report.preemptions
    assert report.thrash == report.redone_tokens / report.computed_tokens < 0.1
    assert 0 < report.jain <= 1
    assert report.classes["interactive"].waiting_mean_s <= report.classes["batch"].waiting_mean_s
    assert report.schedule_us_p50 <= report.core_us_p50


def test_virtual_time_is_the_same_every_time(report: SimulationReport) -> None:
    again = simulate(SMALL).facts()
    for name, value in report.facts().items():
        if not name.endswith(("_p50", "_p99")) and name != "wall_s":
            assert again[name] == value, name


def test_a_step_costs_the_same_in_a_pool_a_hundred_times_as_large() -> None:
    ratios = []
    for seed in range(5):  # something else may run meanwhile
        small, large = step_costs(64, [2_000, 200_000], steps=60, seed=seed)
        ratios.append(large.schedule_us_p50 / small.schedule_us_p50)
        if min(ratios) < 1.3:
            return
    raise AssertionError(f"ratios {ratios}")


def test_jain() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([]) == 1.0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"live": 0}, "live"),
        ({"block_size": 17}, "block_size"),
        ({"num_blocks": 3}, "num_blocks"),
        ({"load": 0.0}, "load"),
    ],
)
def test_what_cannot_be_simulated_is_refused(fields: dict[str, int], field: str) -> None:
    with pytest.raises(Refused) as refusal:
        Simulation(**fields).check()
    assert refusal.value.field == field


def test_the_command_prints_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pagedeck.engine.simulator.step_costs", lambda running, pools: step_costs(8, [500] * len(pools), steps=5)
    )
    options = ["--blocks", "2000", "--host-blocks", "0", "--live", "10", "--requests", "30", "--token-budget", "512"]
    assert main(["bench", "simulate", *options]) == 0
    shown = capsys.readouterr().out
    for word in ("allocated", "filled", "preemptions", "thrash", "Jain", "interactive", "µs", "× as long"):
        assert word in shown
    assert main(["bench", "simulate", *options, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["requests"] == 30 and len(facts["step_costs"]) == 3
    assert main(["bench", "simulate", "--live", "0"]) == 1
    assert "live is 0" in capsys.readouterr().err
