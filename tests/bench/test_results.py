"""Results as files and pages, what changed between two of them, and how sure that is."""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pagedeck import cli
from pagedeck.bench import figures, report, results
from pagedeck.bench.changes import changes
from pagedeck.bench.drive import Outcome
from pagedeck.bench.noise import interval, ratio
from pagedeck.bench.results import Claim, Results, Run, Trial
from pagedeck.bench.summary import POINTS
from pagedeck.commands import load
from pagedeck.commands.terminal import PROGRESS_VARIABLE, Progress
from pagedeck.ipc.vocabulary import Refused


def outcomes(seed: int, slowness: float = 1.0) -> list[Outcome]:
    rng = random.Random(seed)
    made = []
    for n in range(40):
        due = 0.1 * n
        times = [due + slowness * (0.5 + 0.1 * k + 0.02 * rng.random()) for k in range(10)]
        made.append(Outcome(due, due, times[-1], times, [1] * 10, 20))
    return made


def found(slowness: float = 1.0, seed: int = 0) -> Results:
    runs = [Run("pagedeck", outcomes(seed + n, slowness), {"block-size": "16"}) for n in range(3)]
    return results.new("run", load={"name": "chat", "requests": 40}, runs=runs)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    before = found()
    before.claims = [Claim("a", "b", "c", "d", None)]
    results.write(before, tmp_path / "r.json")
    assert results.read(tmp_path / "r.json") == before


@pytest.mark.parametrize("text", ["", "{}", '{"kind": 3}', '{"kind": "run", "surroundings": {}, "format": "x"}'])
def test_what_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(Refused, match=r"results|accepted is pagedeck-bench"):
        results.read(tmp_path / "r.json")
    with pytest.raises(Refused, match="cannot be read: No such file"):
        results.read(tmp_path / "none.json")


def test_noise_is_told_from_change() -> None:
    same = changes(found(), found(seed=50))
    assert all(change.better is None for change in same)
    slower = {change.figure: change for change in changes(found(), found(1.3, seed=50))}
    assert slower["e2e_p95"].better is False and slower["itl_p50"].better is False
    assert slower["e2e_p95"].ratio.value == pytest.approx(1.3, rel=0.02)
    faster = {change.figure: change.better for change in changes(found(), found(0.7, seed=50))}
    assert faster["e2e_p50"] is True and faster["tokens_per_s"] is not False


def test_only_the_same_can_be_compared() -> None:
    other = found()
    other.load = {"name": "burst"}
    with pytest.raises(Refused, match="different loads"):
        changes(found(), other)
    other = found()
    other.runs = [Run("static", outcomes(1))]
    with pytest.raises(Refused, match="no run in common: one has pagedeck, the other static"):
        changes(found(), other)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng, held = random.Random(0), 0
    for trial in range(100):
        runs = [[rng.gauss(10.0, 2.0) for _ in range(30)] for _ in range(4)]
        each = interval(runs, lambda values: sum(values) / len(values), rounds=200, seed=trial)
        held += each.low <= 10.0 <= each.high
    assert held >= 88
    assert ratio([[2.0, 4.0]], [[1.0, 2.0]], max, rounds=50).value == 2.0


def test_the_command_fails_on_a_regression_only_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    results.write(found(), Path(files[0]))
    results.write(found(1.3), Path(files[1]))
    assert load.compare(before=files[0], after=files[1], fail=False, as_json=False) == 0
    assert load.compare(before=files[0], after=files[1], fail=True, as_json=False) == 1
    assert load.compare(before=files[1], after=files[0], fail=True, as_json=False) == 0
    assert "worse" in capsys.readouterr().out


def test_goodput_is_compared_by_stated_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, slowness in zip(files, (1.0, 1.3), strict=True):
        run = found(slowness)
        run.limits = {"ttft_s": 0.6}
        results.write(run, Path(file))
    assert load.compare(before=files[0], after=files[1], fail=True, as_json=True) == 1
    [goodput] = [each for each in json.loads(capsys.readouterr().out) if each["figure"] == "goodput"]
    assert goodput["better"] is False and goodput["ratio"]["high"] < 0.1, "none is as early any more"
    assert load.compare(before=files[1], after=files[0], fail=True, as_json=False) == 0
    assert load.summary(file=files[0]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    low, high = told["systems"][0]["figures"]["goodput"][1:]
    assert told["figures"]["goodput"]["more_is_better"] and told["limits"] == {"ttft_s": 0.6} and low <= high


def test_the_page_is_whole_and_the_same_every_time() -> None:
    all_of_it = found()
    all_of_it.runs.append(Run("<static>", outcomes(9, 2.0), precision="float32"))
    all_of_it.claims = [Claim("Memory & waste", "85 %", "90 %", "how", True, "89 to 91")]
    all_of_it.trials = [
        Trial(
            {"block_size": size},
            "sweep",
            {"tokens_per_s": [size, size - 1, size + 1], "e2e_p95": [9 - size / 16, 1, 9]},
        )
        for size in (16, 32)
    ]
    all_of_it.chosen = {"block_size": 32}
    text = report.html(all_of_it)
    assert text == report.html(all_of_it)
    assert "&lt;static&gt;" in text and "<static>" not in text and "Memory &amp; waste" in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(pictures) == 5
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert not re.findall(r'(?:src|href)="(?!#)', text.replace('xlink:href="#', ""))  # nothing is fetched
    assert text.count('<tr class="chosen">') == 1


def test_of_a_search_its_start_and_its_choice_are_compared() -> None:
    search = found()
    search.kind = "tune"
    search.trials = [Trial({"block_size": size}, "full load", {}) for size in range(1, 41)]
    search.runs = [Run(f"full load: {trial.settings}", outcomes(1, 1.0), trial.settings) for trial in search.trials]
    search.runs.append(Run("sweep: 7", outcomes(1, 1.0), {"block_size": 7}))
    search.chosen = {"block_size": 7}
    assert report.compared(search) == ["full load: {'block_size': 1}", "full load: {'block_size': 7}"]
    assert report.html(search).count("<svg") == 4


def test_the_front_is_what_nothing_beats() -> None:
    assert report.front_of([(1, 5), (2, 4), (2, 7), (3, 7), (4, 9), (0.5, 1)]) == [(0.5, 1), (1, 5), (2, 7), (4, 9)]


def test_a_summary_holds_what_the_page_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = found()
    before.claims = [Claim("a", "b", "c", "d", False, samples={"x": [1.0]})]
    results.write(before, tmp_path / "r.json")
    assert load.summary(file=str(tmp_path / "r.json")) == 0
    told = json.loads(capsys.readouterr().out)
    (system,) = told["systems"]
    value, low, high = system["figures"]["tokens_per_s"]
    assert low <= value <= high and f"{value:.3g}" in report.html(before)
    times, shares = system["curves"]["itl"]
    assert len(times) == len(shares) <= POINTS and times == sorted(times) and shares[-1] == 1.0
    gaps = [gap for run in before.runs for one in run.outcomes for gap in figures.between(one)]
    assert (times[0], times[-1]) == (min(gaps), max(gaps)) and len(gaps) > POINTS
    assert told["claims"] == [{"name": "a", "claimed": "b", "measured": "c", "how": "d", "met": False, "spread": ""}]


def test_the_app_opens_a_file_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[list[str]] = []
    monkeypatch.setattr(cli, "_open_app", lambda arguments: opened.append(arguments) or 0)
    file = tmp_path / "r.json"
    results.write(found(), file)
    assert cli.main(["bench", "open", str(file)]) == 0 and opened == [["--results", str(file)]]
    file.write_text("{}")
    assert cli.main(["bench", "open", str(file)]) == 1 and len(opened) == 1
    assert "holds no results of pagedeck bench" in capsys.readouterr().err


def test_progress_for_programs_is_a_line_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRESS_VARIABLE, "json")
    said = io.StringIO()
    with Progress(said) as progress:
        for share in (None, 0.1, 0.1, 0.25):
            progress("Working, 3 of 4", share)
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [line["fraction"] for line in lines] == [None, 0.1, 0.25]
    assert {line["text"] for line in lines} == {"Working, 3 of 4"}


def test_progress_in_a_file_goes_on_while_a_stage_lasts() -> None:
    said, now = io.StringIO(), [0.0]
    with Progress(said, lambda: now[0]) as progress:
        for second, trial, share in ((0, 1, 0.0), (1, 1, 0.1), (5, 1, 0.5), (9, 1, 0.9), (11, 2, 0.0), (17, 2, 0.0)):
            now[0] = second
            progress(f"Measuring, trial {trial}", share)
        progress("Writing", None)
    lines = ["Measuring, trial 1", "Measuring, trial 1 (50%)", "Measuring, trial 2 (0%)", "Writing"]
    assert said.getvalue().splitlines() == lines


def test_what_changed_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, slowness in zip(files, (1.0, 1.3), strict=True):
        results.write(found(slowness), Path(file))
    assert load.compare(before=files[0], after=files[1], fail=True, as_json=True) == 1
    told = {change["figure"]: change for change in json.loads(capsys.readouterr().out)}
    assert told["e2e_p95"]["better"] is False and told["e2e_p95"]["ratio"]["value"] == pytest.approx(1.3, rel=0.02)
