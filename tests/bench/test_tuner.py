"""The tuner: its search on an engine that the test plays, its predictions, and all of it on a tiny model."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pagedeck.bench import results
from pagedeck.bench.drive import Outcome
from pagedeck.bench.figures import Limits
from pagedeck.bench.inside.predict import fit, predict
from pagedeck.bench.results import Run
from pagedeck.bench.summary import summary_of
from pagedeck.bench.tuner import search as searching
from pagedeck.bench.tuner import space
from pagedeck.bench.tuner.objective import Objective
from pagedeck.bench.tuner.search import FULL, HALF, SWEEP, TURNS, Search, Tried, traffic
from pagedeck.bench.workload import Item, make_load
from pagedeck.commands import tune as command
from pagedeck.ipc.client import Client, EngineError
from pagedeck.ipc.launch import Engine
from pagedeck.ipc.protocol import EngineStatus, SettingInfo
from pagedeck.ipc.telemetry import StepRecord
from pagedeck.ipc.vocabulary import Refused

START = {
    "block_size": 32,
    "max_batch_size": 32,
    "token_budget": 256,
    "swap_space_gib": 0.0,
    "contiguous_blocks": 0,
}
BEST = START | {"block_size": 64, "max_batch_size": 64, "token_budget": 512}


def steps(fixed: float = 20.0, each: float = 0.5) -> list[StepRecord]:
    rng = random.Random(0)
    made = []
    for n in range(60):
        decodes, prefill = rng.randint(1, 32), rng.choice((0, 64, 200))
        spent = fixed + each * (decodes + prefill)
        made.append(StepRecord(n, n, 256, prefill, decodes, decodes, 0, 0, 0.1, spent, 0.0, 0.1, [], [], [], []))
    return made


class Played:
    """An engine whose speed falls off around the best settings, and which lacks the memory to swap."""

    def __init__(self) -> None:
        self.settings = dict(START)
        self.trials: list[tuple[dict[str, Any], int]] = []
        self.mood = lambda run: 1.0  # how fast the machine is in a run
        tier = SimpleNamespace(num_blocks=4000, block_size=32, block_bytes=32 * 1000)
        self.steps, self.stats = steps(), []
        self._status = SimpleNamespace(stats=SimpleNamespace(device=tier))

    def config(self) -> list[SettingInfo]:
        return [SettingInfo(name, value, "") for name, value in self.settings.items()]

    def status(self) -> EngineStatus:
        return self._status  # type: ignore[return-value]

    def reconfigure(self, changes: dict[str, Any], dry_run: bool = False) -> None:
        if changes.get("swap_space_gib"):
            raise EngineError("too little memory")
        if not dry_run:
            self.settings |= {name: value for name, value in changes.items() if name in self.settings}

    def speed(self) -> float:
        off = sum(abs(math.log2(self.settings[name] / BEST[name])) for name in list(BEST)[:3])
        return 100 * 0.8**off

    def drive(self, client: Any, items: Sequence[Item], report: Any) -> list[Outcome]:
        self.trials.append((dict(self.settings), len(items)))
        rng, now, made = random.Random(len(items)), 0.0, []
        speed = self.speed() * self.mood(len(self.trials))
        for item in items:
            now += item.output_tokens / speed * rng.uniform(0.999, 1.001)
            made.append(Outcome(0.0, 0.0, now, [now] * item.output_tokens, [1] * item.output_tokens))
        return made


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    made = Played()
    monkeypatch.setattr(searching, "drive", made.drive)
    return made


ITEMS = [Item([300] * 20, 40) for _ in range(40)]


def search(played: Played, *, seconds: float = 600.0, **more: Any) -> Search:
    objective = more.pop("objective", Objective("throughput"))
    return Search(
        played,  # type: ignore[arg-type]
        played,  # type: ignore[arg-type]
        ITEMS,
        objective,
        deadline=time.monotonic() + seconds,
        report=lambda text, share: None,
        **more,
    )


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator takes a second for all combinations; a few will do here."""
    monkeypatch.setattr(
        space,
        "COARSE",
        {"block_size": (16, 64), "max_batch_size": (8, 32), "token_budget": (128, 512), "swap_space_gib": (0.0, 1.0),
         "contiguous_blocks": (0,)},
    )  # fmt: skip


def test_the_search_finds_the_best_and_stops(played: Played) -> None:
    looked = search(played)
    best = looked.run()
    assert {name: best.settings[name] for name in list(BEST)[:3]} == {name: BEST[name] for name in list(BEST)[:3]}
    assert best.stage == FULL and all(not settings["swap_space_gib"] for settings, _ in played.trials)
    assert len(played.trials) == sum(len(tried.runs) for tried in looked.tried) < 60
    assert {tried.stage for tried in looked.tried} == {SWEEP, HALF, FULL}
    assert "discarded" in looked.notes["sweep"] and "turns" not in looked.notes
    assert [settings for settings, _ in played.trials[-2 * TURNS :]] == [best.settings, START] * TURNS
    value, low, high = looked.gain()
    assert low <= value <= high and value == pytest.approx(0.8**-3, rel=0.01)
    changed = {change.setting: change for change in looked.changed()}
    assert {name: (one.before, one.after) for name, one in changed.items()} == {
        "block_size": (32, 64), "max_batch_size": (32, 64), "token_budget": (256, 512)
    }  # fmt: skip
    for change in changed.values():
        assert change.stage == FULL and change.gain and change.gain[0] == pytest.approx(0.8**-1, rel=0.01)


def test_a_gain_within_noise_is_none(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Played, "speed", lambda self: 100.0)
    looked = search(played)
    best = looked.run()
    assert best.settings == START and not looked.gain() and not looked.changed() and not looked.turns


def test_a_machine_that_was_slow_for_a_while_makes_no_gain(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Played, "speed", lambda self: 100.0)
    played.mood = lambda run: 0.5 if run == 1 else 1.0  # the start's first run
    assert search(played).run().settings == START
    played.settings = dict(START)
    looked = search(played)  # all but the start are lucky, until they are measured in turns
    played.mood = lambda run: 1.5 if looked._set_aside and played.settings != START else 1.0
    assert looked.run().settings == START
    assert len(looked.turns) == TURNS and "What looked better was not" in looked.notes["turns"]


def test_what_is_of_no_use_is_taken_back(played: Played) -> None:
    start, useless = START | {"max_batch_size": 64, "token_budget": 512}, {"contiguous_blocks": 16}
    played.settings = dict(start)
    looked = search(played)
    looked.base = looked._trial(start, FULL)
    looked.best = looked._trial(start | useless | {"block_size": 64}, FULL)
    looked._simplify()
    assert looked.best.settings == start | {"block_size": 64}
    (change,) = looked.changed()
    assert change.gain == looked.gain() and change.gain[0] == pytest.approx(1 / 0.8, rel=0.01)


def test_an_interrupted_search_goes_on_where_it_was(played: Played) -> None:
    first = search(played)
    seen: list[Run] = []
    first._keep = seen.append
    first.run()
    before = len(played.trials)
    played.settings = dict(START)  # another process
    again = search(played, kept=[Tried(run.settings, run.name.partition(":")[0], [run.outcomes]) for run in seen[:7]])
    best = again.run()
    assert {name: best.settings[name] for name in list(BEST)[:3]} == {name: BEST[name] for name in list(BEST)[:3]}
    assert len(played.trials) - before == before - 7


def test_time_that_is_up_leaves_the_best_so_far(played: Played) -> None:
    looked = search(played, seconds=600.0)
    drive = played.drive

    def slow(*arguments: Any) -> list[Outcome]:
        if len(played.trials) == 3:
            looked._deadline = 0.0
        return drive(*arguments)

    searching.drive = slow  # type: ignore[assignment]
    best = looked.run()
    assert best.stage == FULL and best.settings == START and "Time was up" in looked.notes["end"]
    assert len(looked.tried) == 4


def test_a_search_in_a_hurry_keeps_time_to_measure_its_choice_again(played: Played) -> None:
    looked = search(played)
    drive = played.drive

    def slow(*arguments: Any) -> list[Outcome]:
        if looked.best is not looked.base and looked._set_aside:  # something was found: time for the turns is left
            looked._deadline = time.monotonic() + looked._set_aside
        return drive(*arguments)

    searching.drive = slow  # type: ignore[assignment]
    best = looked.run()
    assert best.settings != START and "Time was up" in looked.notes["end"] and looked.turns
    assert looked.gain()[1] > 1.0


def test_traffic_of_the_stages() -> None:
    items = [Item([300], 4, at=n) for n in range(10)]
    assert traffic(items, FULL) == items and traffic(items, SWEEP) == items[:5]
    assert [item.at for item in traffic(items, HALF)] == [2 * n for n in range(5)]
    assert len(traffic(ITEMS, HALF)) == 20


def test_objectives() -> None:
    fast, slow = ([Outcome(0, 0, t * n, [t * n / 2, t * n], [1, 1]) for n in range(1, 30)] for t in (1.0, 2.0))
    assert Objective("throughput").gain([fast], [slow]).value == pytest.approx(2.0)
    assert Objective("latency").gain([fast], [slow]).value == pytest.approx(2.0)
    aim = Objective("goodput", Limits(ttft_s=5.0))
    assert aim.gain([fast], [slow]).value == pytest.approx(10.5 / 29 / (5.5 / 58))
    never = Objective("goodput", Limits(ttft_s=0.1))
    assert never.gain([slow], [slow]).value == pytest.approx(1.0)
    assert Objective("goodput", Limits(ttft_s=0.6)).gain([fast], [slow]).low > 1.0, "where none was good, one is better"
    assert "goodput" in aim.figures([fast]) and "goodput" not in Objective("latency").figures([fast])
    with pytest.raises(Refused, match="objective is 'speed'; accepted is throughput, latency, goodput"):
        Objective("speed")
    with pytest.raises(Refused, match="needs --ttft-limit or --itl-limit"):
        Objective("goodput")


def test_what_is_to_be_best_follows_the_load() -> None:
    def made(name: str, arrivals: str | None = None) -> list[Item]:
        return make_load(name, 8, seed=0, vocabulary=1000, context_length=2048, arrivals=arrivals)

    def found(items: list[Item], **limits: float) -> str:
        return command._objective_of(items, Limits(**limits))

    assert found(made("chat")) == found(made("multi-turn")) == "latency"
    assert found(made("batch")) == found(made("multi-turn", "closed:2")) == "throughput"
    assert found(made("chat"), ttft_s=1.0) == "goodput"


def test_predictions_follow_the_measured_steps() -> None:
    device = fit(steps(20.0, 0.5), slots=20_000, slot_bytes=1000)
    assert device.speeds.step_ms == pytest.approx(20.0) and device.speeds.tokens_per_s == pytest.approx(2000.0)
    items = make_load("multi-turn", 30, seed=0, vocabulary=1000, context_length=2048, arrivals="at-once")
    few, many = (predict(device, START | {"max_batch_size": size}, items) for size in (2, 32))
    assert few.requests == many.requests == 30 and many.virtual_s < few.virtual_s
    tasks = [Item([300] * 20, 40) for _ in range(64)]
    few, many = (predict(device, START | {"max_batch_size": size}, tasks) for size in (2, 32))
    assert many.virtual_s < few.virtual_s / 2 and many.e2e_p95_s < few.e2e_p95_s / 2


def test_all_of_it_on_a_model(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    allowed = {name: (value,) for name, value in START.items()} | {"token_budget": (128, 256)}
    for module in (space, searching):
        monkeypatch.setattr(module, "VALUES", allowed)
    monkeypatch.setattr(space, "COARSE", allowed)
    (tmp_path / "state").mkdir()
    output = tmp_path / "tune.json"

    def tune(**more: Any) -> int:
        asked: dict[str, Any] = {
            "model": str(tiny_model_folder), "load": "chat", "trace": None, "requests": 6, "arrivals": "at-once",
            "speed": 1.0, "seed": 0,
            "objective": "throughput", "ttft_limit": None, "itl_limit": None, "minutes": 15.0, "threads": 1,
            "apply": None, "undo": False, "output": str(output),
        }  # fmt: skip
        return command.tune(**(asked | more))

    assert tune() == 0
    found = results.read(output)
    assert found.kind == "tune" and found.chosen and found.objective["name"] == "throughput"
    assert len(found.runs) >= len(found.trials) >= 3
    told = summary_of(found)
    assert {"start", "chosen"} >= {system["role"] for system in told["systems"]} >= {"start"}
    assert sum(trial["chosen"] for trial in told["trials"]) == 1 and told["front"]
    said = capsys.readouterr().out
    assert output.with_suffix(".html").exists() and ("as they are" in said or "× as good as it was" in said)
    with pytest.raises(Refused, match="holds results of something else"):
        tune(requests=7)
    elsewhere = str(tmp_path / "other.json")
    with pytest.raises(Refused, match="which the load alone lasts"):
        tune(arrivals="poisson:0.001", output=elsewhere)
    with pytest.raises(Refused, match="objective is 'speed'"):
        tune(objective="speed", output=elsewhere)
    options = ["--model", str(tiny_model_folder), "--num-blocks", "64", "--threads", "1"]
    with Engine("tuned", options) as engine, Client(engine.wait_ready()) as client:
        assert tune(apply="tuned") == 0 and "holds this search's result" in capsys.readouterr().out
        assert {s.name: s.value for s in client.config()}.items() >= found.chosen.items()
        assert results.read(output) == found, "no second search"
        assert tune(undo=True) == 0
        assert command.set_on("tuned", {"token_budget": 128, "block_size": 16}) == 0
        assert {s.name: s.value for s in client.config()}["token_budget"] == 128
        assert json.loads((tmp_path / "state" / command.UNDO).read_text())["settings"]["block_size"] == 32
        assert tune(undo=True) == 0
        now = {s.name: s.value for s in client.config()}
        assert now["token_budget"] == 256 and now["block_size"] == 32
        with pytest.raises(Refused, match="nothing to take back"):
            tune(undo=True)
