"""Rules speak when their evidence is there and only then; what is measured twice is compared honestly."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pagedeck.gui.advice.evidence import Evidence, Window, window
from pagedeck.gui.advice.rule import ITL_P95, QUEUE_P95, REDONE, WASTE, Finding, Measurement, Verdict, compare, measure
from pagedeck.gui.advice.rules import RULES
from pagedeck.gui.advice.trial import SETTLE_S, Stage, begin
from pagedeck.gui.state import EngineView

from .evidence import CALM, EPOCH, GIB, STEPS, Told

SETTINGS: dict[str, Any] = {
    "block_size": 32, "swap_space_gib": 0.0, "max_batch_size": 64, "token_budget": 256, "prefix_caching": True,
    "preemption": "auto", "num_blocks": 1000, "allocation": "paged",
}  # fmt: skip
NAMES = [rule.key for rule in RULES]


class Session:
    """An engine that is watched, and the evidence of it."""

    def __init__(self) -> None:
        self.told, self.evidence, self.view = Told(), Evidence(), EngineView()
        self.view.begin(EPOCH)

    def run(self, seconds: int, **load: Any) -> Session:
        for _ in range(seconds):
            for message in self.told.second(**load):
                self.view.apply(*message)
            assert self.view.stats is not None
            self.evidence.take(self.view, self.view.stats)
        return self

    def window(self, seconds: int = 60, since: float = 0.0) -> Window:
        return window(self.evidence, self.view.durations, seconds, since)

    def found(self, **settings: Any) -> dict[str, Finding]:
        looked = {rule.key: rule.look(self.window(rule.seconds), SETTINGS | settings) for rule in RULES}
        return {key: finding for key, finding in looked.items() if finding is not None}


#: Rule -> a load under which it speaks, the settings then, and what it would change.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "swap": ({"preemptions": 1, "redone": 100, "parked": 24_000}, {}, {"swap_space_gib": 1.0}),
    "pool": ({"waiting": 3, "hold": "blocks", "used": 980, "tokens": 31_000}, {}, {"num_blocks": 1488}),
    "batch": ({"waiting": 3, "hold": "max_batch_size"}, {"max_batch_size": 10}, {"max_batch_size": 16}),
    "small_budget": ({"step_tokens": 256, "prefill_steps": 6}, {}, {"token_budget": 512}),
    "large_budget": (
        {"prefill_steps": 3, "prefill_ms": 300.0, "itl": (*[0.03] * 9, 0.3)},
        {},
        {"token_budget": 128},
    ),
    "prefixes": ({"queried": 1000, "hits": 300, "evicted": 2}, {}, {"swap_space_gib": 0.25}),
    "waste": ({"tokens": 11_000, "contexts": 120}, {}, {"block_size": 8}),
    "scattered": (
        {"contexts": 1_200, "block_size": 16, "mean_run": 2.0, "tokens": 7_900, "itl": (*[0.03] * 9, 0.06)},
        {"block_size": 16},
        {"block_size": 32},
    ),
    "idle_host": ({"host_blocks": 512}, {"swap_space_gib": 0.5}, {"swap_space_gib": 0.0}),
}


def test_every_rule_has_a_case_and_measures_something() -> None:
    assert [*CASES] == NAMES
    assert all(rule.quantity is not rule.price for rule in RULES)


@pytest.mark.parametrize("key", NAMES)
def test_a_rule_speaks_under_its_load_and_under_no_other(key: str) -> None:
    load, settings, changes = CASES[key]
    rule = next(rule for rule in RULES if rule.key == key)
    session = Session().run(rule.seconds + 1, **load)
    found = session.found(**settings)
    assert found[key].changes == changes
    assert all(math.isfinite(value) for value in found[key].figures.values())
    assert [*found] == [key]


def test_a_calm_engine_is_left_alone() -> None:
    assert Session().run(61).found() == {}


def test_the_evidence_is_what_the_engine_measured() -> None:
    session = Session().run(61, **CASES["swap"][0])
    figures = session.found()["swap"].figures
    assert figures["per_minute"] == pytest.approx(60, rel=0.02)
    assert figures["redone"] == pytest.approx(0.2)
    assert figures["wanted"] == 24_000 * (1 << 20) / 32
    figures = Session().run(61, **CASES["waste"][0]).found()["waste"].figures
    assert figures["wasted"] == pytest.approx(1 - 11_000 / 16_000)
    assert figures["tokens"] == 120


def test_swap_space_that_has_room_is_not_what_is_missing() -> None:
    load = {"preemptions": 1, "redone": 100, "parked": 2_400, "host_blocks": 512}
    assert "swap" not in Session().run(61, **load).found()
    assert "swap" in Session().run(61, **load, host_used=500).found()


def test_no_more_memory_is_asked_for_than_is_free() -> None:
    load = CASES["swap"][0] | {"free_memory": 1 * GIB}
    assert Session().run(61, **load).found() == {}
    load = CASES["pool"][0] | {"free_memory": GIB // 8}
    assert Session().run(61, **load).found() == {}


def test_a_larger_batch_stays_within_blocks_and_budget() -> None:
    load = {"waiting": 3, "hold": "max_batch_size", "used": 740, "tokens": 23_000}
    assert Session().run(61, **load).found(max_batch_size=100)["batch"].changes == {"max_batch_size": 120}
    assert Session().run(61, **load).found(max_batch_size=100, token_budget=104)["batch"].changes == {
        "max_batch_size": 104
    }
    assert "batch" not in Session().run(61, **load).found(max_batch_size=100, token_budget=100)


def test_idle_seconds_are_not_evidence() -> None:
    session = Session().run(30).run(100, running=0, step_tokens=0).run(10)
    seen = session.window(60)
    assert seen.seconds == 40
    assert seen.total("steps") == 40 * STEPS
    assert session.window(5).seconds == 5
    assert session.window(60, since=session.told.time - 4).seconds == 4


# --- before and after -----------------------------------------------------------------------------------------------


def measured(value: float, error: float = 0.0, load: float = 10.0) -> Measurement:
    return Measurement(value, error, 60.0, load)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (measured(1.0), measured(0.5), Verdict.BETTER),
        (measured(1.0), measured(1.5), Verdict.WORSE),
        (measured(1.0), measured(0.97), Verdict.NOISE),
        (measured(1.0, 0.3), measured(0.5, 0.3), Verdict.NOISE),
        (measured(1.0, 0.1), measured(0.5, 0.1), Verdict.BETTER),
        (measured(1.0), measured(0.5, load=30.0), Verdict.OTHER_LOAD),
        (measured(1.0), measured(0.5, load=0.0), Verdict.OTHER_LOAD),
        (measured(math.nan), measured(0.5), Verdict.UNKNOWN),
        (measured(1.0, math.nan), measured(0.5, math.nan), Verdict.BETTER),
        (measured(0.0), measured(0.0), Verdict.NOISE),
    ],
)
def test_a_difference_is_told_from_noise_and_from_another_load(
    before: Measurement, after: Measurement, verdict: Verdict
) -> None:
    assert compare(QUEUE_P95, before, after) is verdict


def test_of_hits_more_is_better() -> None:
    hits = next(rule for rule in RULES if rule.key == "prefixes").quantity
    assert compare(hits, measured(0.2), measured(0.4)) is Verdict.BETTER


def test_an_error_is_how_much_a_quantity_varied() -> None:
    steady = measure(WASTE, Session().run(60, tokens=11_000).window())
    assert (steady.value, steady.error) == (pytest.approx(1 - 11_000 / 16_000), pytest.approx(0))
    session = Session()
    for turn in range(6):
        session.run(10, tokens=(9_000, 14_000)[turn % 2])
    assert measure(WASTE, session.window()).error == pytest.approx(0.07, abs=0.02)
    assert measure(ITL_P95, session.window()).value == pytest.approx(0.031, rel=0.06)
    assert math.isnan(measure(REDONE, Session().run(4).window(60)).error)


def test_a_trial_measures_the_same_again_over_as_long_a_time() -> None:
    load, _, changes = CASES["waste"]
    rule = next(rule for rule in RULES if rule.key == "waste")
    session = Session().run(40, **load)
    now = session.told.time
    trial = begin(
        rule, Finding("waste", changes, {}), {"block_size": 32}, session.evidence, session.view.durations, 0.0, now
    )
    assert trial.before.seconds == 30 and trial.before.value == pytest.approx(0.3125)
    assert trial.price_before is not None and trial.price_before.value == pytest.approx(0.031, rel=0.06)
    better = load | {"block_size": 8, "used": 1400, "blocks": 4000, "block_bytes": 1 << 18}
    session.run(int(SETTLE_S) + 10, **better)
    trial.go_on(session.evidence, session.view.durations)
    assert trial.stage is Stage.MEASURING and trial.progress == pytest.approx(1 / 3)
    session.run(50, running=0, step_tokens=0)
    trial.go_on(session.evidence, session.view.durations)
    assert trial.stage is Stage.MEASURING and trial.progress == pytest.approx(1 / 3)
    session.run(20, **better)
    trial.go_on(session.evidence, session.view.durations)
    assert trial.stage is Stage.MEASURED and trial.after is not None
    assert trial.after.value == pytest.approx(1 - 11_000 / 11_200)
    assert (trial.verdict, trial.price_verdict) == (Verdict.BETTER, Verdict.NOISE)


def test_evidence_is_bounded() -> None:
    evidence = Session().run(3).evidence
    assert evidence.capacity == 3600 and len(evidence) == 3
    assert CALM["running"] == evidence.column("sequences")[-1]
