"""The page that measures, over the real commands on a tiny model: start, watch, cancel, read, compare, take over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pagedeck.bench import results
from pagedeck.bench.drive import Outcome
from pagedeck.bench.results import Changed, Claim, Results, Run, Trial
from pagedeck.bench.tuner.objective import Objective
from pagedeck.gui import i18n
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.measure.page import MeasurePage, results_folder
from pagedeck.gui.rail import PAGES
from PySide6.QtCore import QMimeData, QPoint, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

SOON_MS = 60_000
START = {"block_size": 32, "token_budget": 256}
CHOSEN = {"block_size": 64, "token_budget": 256}


@pytest.fixture
def page(window: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasurePage:
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    window.rail.choose("measure")
    return window.measure


def click(qtbot: QtBot, button: QPushButton) -> None:
    assert button.isVisible() and button.isEnabled()
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def outcomes(slowness: float = 1.0) -> list[Outcome]:
    made = []
    for n in range(30):
        due = 0.1 * n
        times = [due + slowness * (0.5 + 0.01 * n + 0.1 * k) for k in range(8)]
        made.append(Outcome(due, due, times[-1], times, [1] * 8, 20))
    return made


def loaded(slowness: float = 1.0) -> Results:
    runs = [Run("pagedeck", outcomes(slowness)), Run("static", outcomes(2 * slowness))]
    return results.new("run", load={"name": "chat", "requests": 30}, runs=runs, limits={"ttft_s": 0.6})


def tuned() -> Results:
    aim = Objective("throughput")
    tried = [(START, "full load", 1.0), (CHOSEN, "sweep", 0.8), (CHOSEN, "full load", 0.7)]
    made = results.new("tune", load={"name": "chat", "requests": 30}, chosen=CHOSEN)
    for settings, stage, slowness in tried:
        made.trials.append(Trial(settings, stage, aim.figures([outcomes(slowness)])))
        name = ", ".join(f"{key} {value}" for key, value in settings.items())
        made.runs.append(Run(f"{stage}: {name}", outcomes(slowness), dict(settings)))
    made.objective, made.gain = {"name": "throughput"}, [1.3, 1.2, 1.4]
    made.changed = [Changed("block_size", 32, 64, [1.3, 1.2, 1.4], "full load")]
    made.notes = ["The simulator discarded 90 of 108 combinations.", "block_size 32 → 64: alone"]
    return made


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Results], Path]:
    def put(name: str, found: Results) -> Path:
        results.write(found, tmp_path / name)
        return tmp_path / name

    return put


def open_file(page: MeasurePage, path: Path, qtbot: QtBot) -> None:
    page.open(path)
    qtbot.waitUntil(lambda: page._reading is None, timeout=SOON_MS)


def test_a_load_is_measured_watched_and_shown(page: MeasurePage, tiny_model_folder: Path, qtbot: QtBot) -> None:
    seen: list[tuple[str, int]] = []
    click(qtbot, page.tabs["load"])
    assert "disturbs what is measured" in page.disturbance.text() and page.disturbance.isVisible()
    page.model.setText(str(tiny_model_folder))
    page.load.requests.setValue(4)
    page.load.repeat.setValue(1)
    page.load.arrivals.how.setCurrentIndex(page.load.arrivals.how.findData("at-once"))
    with qtbot.waitSignal(page.run.ended, timeout=2 * SOON_MS) as ended:
        click(qtbot, page.load.start_button)
        assert page.run.isVisible() and not page.claims.isEnabled()
        page.run.command.progressed.connect(lambda text, share: seen.append((text, page.run.progress.maximum())))
    assert ended.args == [True, ""]
    assert any("run 1 of 1" in text and maximum == 1000 for text, maximum in seen)
    qtbot.waitUntil(lambda: bool(page.results.summary), timeout=SOON_MS)
    assert page.stack.currentWidget() is page._views["results"] and not page.run.isVisible()
    assert page.results.figures.rows[-1] == ["Failed requests", "0"]
    assert page.results.figures.rows[0][0] == "Output tokens a second" and "…" in page.results.figures.rows[0][1]
    (file,) = results_folder().glob("*.json")
    assert page.files.currentText() == file.name and results.read(file).load["requests"] == 4


def test_a_search_that_is_cancelled_goes_on_where_it_was(
    page: MeasurePage, tiny_model_folder: Path, qtbot: QtBot
) -> None:
    click(qtbot, page.tabs["tune"])
    page.model.setText(str(tiny_model_folder))
    page.tune.requests.setValue(6)
    click(qtbot, page.tune.start_button)
    trials: list[str] = []
    page.run.command.progressed.connect(lambda text, share: trials.append(text))
    qtbot.waitUntil(lambda: any("trial 2" in text for text in trials), timeout=2 * SOON_MS)
    with qtbot.waitSignal(page.run.ended, timeout=SOON_MS) as ended:
        click(qtbot, page.run.cancel_button)
        assert not page.run.cancel_button.isEnabled()
    assert ended.args == [False, ""]
    (file,) = results_folder().glob("*.json")
    kept = len(results.read(file).runs)
    assert kept >= 1
    qtbot.waitUntil(lambda: "are kept" in page.results.chosen.verdict.text(), timeout=SOON_MS)
    click(qtbot, page.tabs["tune"])
    assert page._file_for(page.tune, ["--model", str(tiny_model_folder)]) == file


def test_what_cannot_be_measured_says_why(page: MeasurePage, tmp_path: Path, qtbot: QtBot) -> None:
    click(qtbot, page.tabs["load"])
    page.load.load.named.setCurrentIndex(page.load.load.named.findData(""))
    assert not page.load.start_button.isEnabled()
    page.load.load.trace.setText(str(tmp_path / "none.jsonl"))
    page.model.setText(str(tmp_path / "no-model"))
    with qtbot.waitSignal(page.said, timeout=SOON_MS) as said:
        click(qtbot, page.load.start_button)
    assert said.args[1] == "error" and "no-model" in said.args[0]()


def test_where_no_results_can_be_kept_nothing_is_measured(
    page: MeasurePage, window: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "other"))
    results_folder().rmdir()
    (tmp_path / "other" / "measured").write_text("in the way")
    page.list_files()
    assert page.files.count() == 0
    click(qtbot, page.tabs["load"])
    click(qtbot, page.load.start_button)
    assert not page.run.running and "There is no place for results" in window.said.text()


def test_a_file_that_vanishes_is_not_listed(
    page: MeasurePage, write: Callable[[str, Results], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one.json", "two.json"):
        results.write(loaded(), results_folder() / name)
    stat = Path.stat

    def vanish(path: Path, **how: Any) -> Any:
        if path.name == "one.json":
            raise FileNotFoundError(path)
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", vanish)
    page.list_files()
    assert [page.files.itemText(place) for place in range(page.files.count())] == ["two.json"]


def test_a_window_that_closes_ends_what_it_measures(
    page: MeasurePage, window: MainWindow, tiny_model_folder: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    page.run.begin(
        ["bench", "claims", "--only", "reuse", "--output", str(tmp_path / "r.json"), "--model", str(tiny_model_folder)]
    )
    command = page.run.command
    assert command is not None
    qtbot.waitUntil(lambda: command.state() == command.ProcessState.Running, timeout=SOON_MS)
    with qtbot.assertNotEmitted(page.run.ended):
        window.quit()
        qtbot.waitUntil(lambda: not page.run.running, timeout=SOON_MS)


def test_claims_are_chosen_and_shown(
    page: MeasurePage, write: Callable[[str, Results], Path], qtbot: QtBot, languages: i18n.Languages
) -> None:
    qtbot.waitUntil(lambda: bool(page.claims.rows_of), timeout=SOON_MS)
    assert "--only" not in page.claims.arguments()
    click(qtbot, page.claims.all_button)
    assert not page.claims.start_button.isEnabled()
    page.claims.rows_of["fragments"].click()
    assert page.claims.arguments()[2:4] == ["--only", "fragments"]
    found = results.new("claims")
    found.claims = [
        Claim("Memory put to use with pages", "90 % and more", "95.1% of it", "24 requests", True, "a to b")
    ]
    open_file(page, write("claims.json", found), qtbot)
    assert page.results.claims.rows == [
        ["Memory put to use with pages", "90 % and more", "95.1% of it\n(a to b)", "met", "24 requests"]
    ]
    languages.switch(i18n.Language.CHINESE)
    qtbot.waitUntil(lambda: page.results.claims.rows[0][3] == "达到", timeout=SOON_MS)
    assert page.results.claims.rows[0][:2] == ["分页后得到利用的内存", "90 % 以上"]


def test_what_was_tuned_is_staged_with_its_evidence(
    page: MeasurePage, window: MainWindow, write: Callable[[str, Results], Path], qtbot: QtBot
) -> None:
    open_file(page, write("tune.json", tuned()), qtbot)
    chosen = page.results.chosen
    assert chosen.changes.rows == [
        ["Block size", "32 → 64", "alone 1.30\u00a0×\u00a0(1.20\u00a0…\u00a01.40) as good, Full load"]
    ]
    assert [row[0] for row in page.results.trials.rows] == ["Full load", "Sweep", "Full load\nchosen"]
    assert page.results.pareto.isVisible() and len(page.results.summary["systems"]) == 2
    click(qtbot, chosen.preview_button)
    assert window.rail.current == "settings" and window.settings_panel.staged == {"block_size": 64}


def test_two_files_are_compared(page: MeasurePage, write: Callable[[str, Results], Path], qtbot: QtBot) -> None:
    click(qtbot, page.tabs["compare"])
    files = [write("before.json", loaded()), write("after.json", loaded(1.5))]
    for field, file in zip(page.compare.files, files, strict=True):
        field.setText(str(file))
    click(qtbot, page.compare.start_button)
    qtbot.waitUntil(lambda: bool(page.compare.table.rows), timeout=SOON_MS)
    told = {(row[0], row[1]): row[3] for row in page.compare.table.rows}
    assert told["Pagedeck", "Time to the last token, P95"] == "worse"
    assert told["Pagedeck", "Requests a second within the limits"] == "worse"
    page.compare.files[1].setText(str(write("other.json", results.new("run", runs=[Run("fifo", outcomes())]))))
    click(qtbot, page.compare.start_button)
    qtbot.waitUntil(lambda: "no run in common" in page.compare.refusal.text(), timeout=SOON_MS)


def test_a_file_is_dropped_on_the_window(
    page: MeasurePage, window: MainWindow, write: Callable[[str, Results], Path], tmp_path: Path, qtbot: QtBot
) -> None:
    window.rail.choose(PAGES[0].key)
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(write("run.json", loaded())))])
    buttons, keys = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    window.dropEvent(QDropEvent(QPoint(9, 9), Qt.DropAction.CopyAction, data, buttons, keys))
    assert window.rail.current == "measure"
    qtbot.waitUntil(lambda: len(page.results.summary.get("systems", [])) == 2, timeout=SOON_MS)
    rows = {row[0]: row[1:] for row in page.results.figures.rows}
    good, none = rows["Requests a second within the limits"]
    assert "…" in good and none.startswith("0")
    title, limits = page.results.facts.rows[-1]
    assert title == "Good answers" and limits.startswith("first token within 0.6")
    (tmp_path / "other.json").write_text(json.dumps({"kind": 3}))
    open_file(page, tmp_path / "other.json", qtbot)
    assert "holds no results" in page.problem.text() and len(page.results.summary["systems"]) == 2
