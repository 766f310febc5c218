"""What people do in the window, against a real engine: each action by the keys and buttons that they would use."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.presence import show_running
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.client import Client
from pagedeck.ipc.line import EngineError
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLineEdit
from pytestqt.qtbot import QtBot

from .conftest import OpenWindow

LOADED_MS = 120_000
SOON_MS = 60_000

ARGUMENTS = ["--device", "cpu", "--num-blocks", "1024", "--block-size", "16", "--threads", "1"]


@pytest.fixture
def window(tiny_model_folder: Path, open_window: OpenWindow) -> MainWindow:
    return open_window(["--model", str(tiny_model_folder), *ARGUMENTS])


@pytest.fixture
def served(window: MainWindow, qtbot: QtBot) -> MainWindow:
    """The window, once its engine serves."""
    window.session.open()
    ready(window, qtbot)
    return window


def ready(window: MainWindow, qtbot: QtBot) -> None:
    view = window.session.link.live
    qtbot.waitUntil(lambda: window.session.state == ConnectionState.READY, timeout=LOADED_MS)
    qtbot.waitUntil(lambda: bool(view.settings) and view.known, timeout=SOON_MS)


def press(qtbot: QtBot, button: QAbstractButton) -> None:
    qtbot.waitUntil(lambda: button.isVisible() and button.isEnabled(), timeout=SOON_MS)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def ask(window: MainWindow, qtbot: QtBot, text: str) -> None:
    qtbot.keyClicks(window.playground.prompt, text)
    qtbot.keyClick(window.playground.prompt, Qt.Key.Key_Return)


def test_a_conversation_is_stopped_repeated_and_begun_anew(
    served: MainWindow, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    link, page = served.session.link, served.playground
    chosen = page.parameters.sampling
    monkeypatch.setattr(page.parameters, "sampling", lambda: dataclasses.replace(chosen(), ignore_eos=True))
    served.rail.choose("playground")
    page.parameters.max_tokens.setValue(4000)
    page.parameters.samples.setValue(3)
    page.parameters.seed.setText("1")
    ask(served, qtbot, "the quick brown fox jumps over the lazy dog and sleeps in the sun")

    # Three samples side by side hold the prompt's blocks together, which the map shows.
    answer = page.turns[0].answer
    qtbot.waitUntil(lambda: all(sample.view.source_text for sample in answer.samples), timeout=SOON_MS)
    qtbot.waitUntil(lambda: link.view.device.counts[BlockState.SHARED] > 0, timeout=SOON_MS)
    press(qtbot, answer.map_button)
    assert served.rail.current == "map" and served.selection.request == answer.number
    served.rail.choose("playground")
    qtbot.keyClick(page.prompt, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: answer.done, timeout=SOON_MS)
    assert answer.samples[0].ending.text() == "stopped"

    page.parameters.samples.setValue(1)
    press(qtbot, page.regenerate_button)
    second = page.turns[0].answer
    assert len(page.turns) == 1 and second is not answer
    qtbot.waitUntil(lambda: bool(second.text), timeout=SOON_MS)

    # Cleared while it streams: what still comes for it disturbs nobody.
    ids = set(link.asked)
    press(qtbot, page.clear_button)
    qtbot.waitUntil(lambda: not ids & set(link.asked), timeout=SOON_MS)
    assert page.turns == [] and page.empty.isVisible()

    # What no message can carry is said, what is written stays, and the line to the engine lives on.
    page.parameters.seed.setText("9" * 30)
    ask(served, qtbot, "one")
    assert page.turns == [] and served.said.text().startswith("The seed must be a whole number")
    page.parameters.seed.clear()
    page.parameters.max_tokens.setValue(4)
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bool(page.turns) and page.turns[0].answer.finished is not None, timeout=SOON_MS)


def test_a_number_beyond_all_bounds_is_refused_beside_its_field(served: MainWindow, qtbot: QtBot) -> None:
    served.rail.choose("settings")
    editor = served.settings_panel.editors["max_batch_size"]
    assert isinstance(editor.field, QLineEdit)
    editor.field.selectAll()
    qtbot.keyClicks(editor.field, "9" * 30)
    qtbot.waitUntil(lambda: editor.refusal != "", timeout=SOON_MS)
    assert "1 to 65,536" in editor.refusal.replace(" – ", " to ")
    assert not served.settings_panel.apply_button.isEnabled()


def test_another_model_is_chosen_while_the_engine_still_starts(
    window: MainWindow, tiny_model_folder: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    other = shutil.copytree(tiny_model_folder, tmp_path / "another-model")
    window.session.open()
    assert window.session.starting
    window.use_model(str(other))
    view = window.session.link.live
    qtbot.waitUntil(lambda: view.status is not None and view.status.model == str(other), timeout=LOADED_MS)
    ready(window, qtbot)
    assert not window.restart.under_way and "another-model" in window.settings_panel.restart_box.outcome.text()


def value_of(window: MainWindow, name: str) -> Any:
    return next(info.value for info in window.session.link.view.settings if info.name == name)


def put(window: MainWindow, name: str, value: Any) -> None:
    field = window.settings_panel.editors[name].field
    if isinstance(field, QComboBox):
        field.setCurrentIndex(field.findData(value))
    else:
        field.setText(str(value))


#: What changes while the engine runs, with a value to try, in the order of trying.
TRIED: tuple[dict[str, Any], ...] = (
    {"block_size": 64},
    {"swap_space_gib": 0.0078125},
    {"num_blocks": 192},
    {
        "max_batch_size": 8, "class_limits": "batch=4", "token_budget": 64, "prefix_caching": False,
        "contiguous_blocks": 2, "eviction": "priority", "preemption": "recompute", "max_queue": 50, "max_clients": 20,
        "max_client_requests": 30,
    },
)  # fmt: skip


def test_every_live_setting_is_previewed_applied_told_and_undone(
    served: MainWindow, tmp_path: Path, qtbot: QtBot
) -> None:
    link, panel = served.session.link, served.settings_panel
    assert {name for tried in TRIED for name in tried} == panel.editors.keys()
    served.rail.choose("settings")
    first = {name: value_of(served, name) for name in panel.editors}
    before: list[dict[str, Any]] = []  # each change
    panel.export_file(tmp_path / "first.toml")
    with Client("pagedeck") as client:
        stream = client.submit(prompt="the quick brown fox", max_tokens=4000, ignore_eos=True)
        qtbot.waitUntil(lambda: any(row.state == "running" for row in link.view.live()), timeout=SOON_MS)
        for tried in TRIED:
            before.append({name: value_of(served, name) for name in tried})
            for name, value in tried.items():
                put(served, name, value)
            qtbot.waitUntil(panel._preview_effects.isVisible, timeout=SOON_MS)
            assert {name: value_of(served, name) for name in tried} == before[-1]
            press(qtbot, panel.apply_button)
            qtbot.waitUntil(lambda: all(value_of(served, n) == v for n, v in tried.items()), timeout=SOON_MS)  # noqa: B023
            qtbot.waitUntil(panel.undo_button.isEnabled, timeout=SOON_MS)
            assert panel._report is not None and panel._report.changes.keys() == tried.keys()
            assert panel._report_effects.isVisible() and panel.staged == {}

        # A file brings it all back as an edit, which can be forgotten; undo goes back change by change.
        panel.import_file(tmp_path / "first.toml")
        assert panel.staged == first
        press(qtbot, panel.discard_button)
        assert panel.staged == {}
        for values in reversed(before):
            press(qtbot, panel.undo_button)
            qtbot.waitUntil(lambda: all(value_of(served, n) == v for n, v in values.items()), timeout=SOON_MS)  # noqa: B023
            qtbot.waitUntil(lambda: not panel._applying, timeout=SOON_MS)
        assert not panel.undo_button.isVisible()
        qtbot.waitUntil(lambda: link.view.device.num_blocks == 1024, timeout=SOON_MS)
        assert {name: value_of(served, name) for name in first} == first and link.view.device.block_size == 16
        assert {row.state for row in link.view.requests.values()} <= {"running", "finished"}, "nobody lost a request"
        with contextlib.suppress(EngineError):  # it has ended
            stream.cancel()


def test_a_request_chosen_in_the_table_is_followed_everywhere(served: MainWindow, qtbot: QtBot) -> None:
    link, table = served.session.link, served.requests
    served.rail.choose("requests")
    with Client("pagedeck") as client:
        short = client.submit(prompt="the lazy dog", max_tokens=4, ignore_eos=True, seed=7)
        answer = short.text()
        long = {
            name: client.submit(prompt=f"the {name} fox", max_tokens=4000, ignore_eos=True, priority=name)
            for name in ("interactive", "batch")
        }
        qtbot.waitUntil(lambda: sum(row.state == "running" for row in link.view.live()) == 2, timeout=SOON_MS)
        row = next(row for row in link.view.live() if row.priority > 10)

        # By a click in the table: inspector, map and timeline show the same request.
        qtbot.waitUntil(lambda: table.model.row_of(row.number) is not None, timeout=SOON_MS)
        click_row(served, qtbot, row.number)
        assert served.selection.request == row.number
        qtbot.waitUntil(lambda: len(served.inspector.request.chips.blocks) > 1, timeout=SOON_MS)
        served.rail.choose("map")
        image = served.map.pools["device"].canvas.image
        qtbot.waitUntil(lambda: len(image.traced) > 1, timeout=SOON_MS)
        assert {int(owner) for owner in link.view.device.owner[image.traced]} == {row.number}
        steps = link.view.steps
        qtbot.waitUntil(lambda: bool(steps.including(row.number, 0, len(steps))), timeout=SOON_MS)

        # Found by its class, made urgent, cancelled by a key.
        served.rail.choose("requests")
        qtbot.keyClicks(table.filter, "batch")
        qtbot.waitUntil(lambda: table.model.shown == 1, timeout=SOON_MS)
        click_row(served, qtbot, row.number)
        next(action for action in table._class_actions if action.data() == "interactive").trigger()
        qtbot.waitUntil(lambda: link.view.requests[row.number].priority == 0, timeout=SOON_MS)
        qtbot.waitUntil(lambda: table.model.shown == 0, timeout=SOON_MS)
        table.filter.clear()
        click_row(served, qtbot, row.number)
        qtbot.waitUntil(table.cancel_action.isEnabled, timeout=SOON_MS)
        qtbot.keyClick(table.view, Qt.Key.Key_Delete)
        qtbot.waitUntil(lambda: link.view.requests[row.number].state == "cancelled", timeout=SOON_MS)
        assert "failed" not in {row.state for row in link.view.requests.values()}

        # The program that is copied asks the same again.
        first = min(link.view.requests)
        click_row(served, qtbot, first)
        press(qtbot, table.copy_button)
        qtbot.waitUntil(lambda: table.copy_button.text() == "Copied", timeout=SOON_MS)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(QGuiApplication.clipboard().text(), {})
        assert said.getvalue() == answer
        with contextlib.suppress(EngineError):  # it has ended
            long["interactive"].cancel()


def click_row(window: MainWindow, qtbot: QtBot, number: int) -> None:
    """Click a request's row in the table, once it is there."""
    table = window.requests
    qtbot.waitUntil(lambda: table.model.row_of(number) is not None, timeout=SOON_MS)
    place = table.view.visualRect(table.model.index(table.model.row_of(number) or 0, 0)).center()
    qtbot.mouseClick(table.view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert window.selection.request == number


def test_numbers_of_another_life_of_the_engine_select_nothing(served: MainWindow, qtbot: QtBot) -> None:
    view = served.session.link.live
    served.playground.parameters.max_tokens.setValue(4)
    served.rail.choose("playground")
    ask(served, qtbot, "the fox")
    answer = served.playground.turns[0].answer
    qtbot.waitUntil(lambda: answer.done and answer.number in view.requests, timeout=SOON_MS)
    press(qtbot, answer.map_button)
    assert served.selection.request == answer.number
    before = view.epoch
    press(qtbot, served.toolbar.restart_button)
    qtbot.waitUntil(lambda: view.epoch != before, timeout=LOADED_MS)
    assert served.selection.request is None
    assert served.inspector.empty.isVisible() and not answer.map_button.isEnabled()


def test_a_session_is_recorded_and_shown_again_by_window_and_command_line(
    served: MainWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    link, player = served.session.link, served.player
    served.recorder.folder = tmp_path / "recordings"
    press(qtbot, served.toolbar.record_button)
    served.rail.choose("playground")
    press(qtbot, served.playground.fill_button)
    qtbot.waitUntil(lambda: bool(link.view.live()), timeout=SOON_MS)
    qtbot.waitUntil(lambda: not link.view.live() and bool(link.view.requests), timeout=SOON_MS)
    path, requests = served.recorder.path, set(link.view.requests)
    press(qtbot, served.toolbar.record_button)
    assert path is not None and str(path) in served.said.text()

    served.open_recording(path)
    qtbot.waitUntil(lambda: player.ready, timeout=SOON_MS)
    for speed in (4.0, 16.0):
        box = served.replay_bar.speed
        box.setCurrentIndex(box.findData(speed))
        box.activated.emit(box.currentIndex())
    assert player.speed == 16.0
    qtbot.waitUntil(lambda: not player.playing, timeout=SOON_MS)
    replay = player.replay
    assert replay is not None and replay.at == replay.end
    assert set(link.view.requests) == requests and not link.view.live()
    slider = served.replay_bar.slider
    slider.setValue(replay.end // 2)
    qtbot.waitUntil(lambda: replay.at == replay.end // 2, timeout=SOON_MS)
    served.rail.choose("map")
    for name, save in (("map.png", served.files.save_picture), ("requests.csv", served.files.save_requests)):
        served.files.save(tmp_path / name, save)
        assert (tmp_path / name).stat().st_size > 0
    qtbot.keyClick(slider, Qt.Key.Key_Escape)
    assert not link.replaying and served.session.state == ConnectionState.READY

    # From the command line no engine is started for it; it ends as it is told.
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "another"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    process = subprocess.Popen([sys.executable, "-m", "pagedeck", "app", "--replay", str(path)])
    try:
        qtbot.waitUntil(lambda: process.poll() is not None or show_running(), timeout=SOON_MS)
        process.terminate()
        assert process.wait(60) == 0
        assert [*(tmp_path / "another").glob("*.json")] == []
    finally:
        process.kill()
        process.wait()
