"""The window over a real engine in a process of its own: start, prompt, blocks, another block size, stop, death."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.client import Client
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from .conftest import OpenWindow

LOADED_MS = 120_000
SOON_MS = 30_000

ARGUMENTS = ["--device", "cpu", "--num-blocks", "256", "--block-size", "16", "--threads", "1"]


@pytest.fixture
def window(tiny_model_folder: Path, open_window: OpenWindow) -> MainWindow:
    return open_window(["--model", str(tiny_model_folder), *ARGUMENTS])


def start(window: MainWindow, qtbot: QtBot) -> int:
    """Start the engine by the session, as the app does, and wait until it serves; returns its process id."""
    window.session.open()
    view = window.session.link.view
    qtbot.waitUntil(lambda: window.session.state == ConnectionState.READY, timeout=LOADED_MS)
    qtbot.waitUntil(lambda: bool(view.settings) and view.device.num_blocks > 0, timeout=SOON_MS)
    assert view.status is not None
    return view.status.pid


def state_of(window: MainWindow) -> ConnectionState:
    return window.session.state


@pytest.mark.usefixtures("fresh_engines")
def test_a_session_from_start_to_stop(window: MainWindow, qtbot: QtBot) -> None:
    view = window.session.link.view
    window.session.open()
    assert state_of(window) == ConnectionState.LOADING
    assert window.banner.isVisible()
    pid = start(window, qtbot)
    assert not window.banner.isVisible()
    assert view.device.num_blocks == 256

    # A prompt: its blocks appear on the map, its text in the playground, its row in the table.
    window.rail.choose("playground")
    page = window.playground
    page.parameters.max_tokens.setValue(120)
    page.parameters.seed.setText("1")
    qtbot.keyClicks(page.prompt, "the quick brown fox jumps over the lazy dog")
    qtbot.keyClick(page.prompt, Qt.Key.Key_Return)
    # Active, or on a busy machine, where the answer has ended before the window looks again, cached already.
    qtbot.waitUntil(lambda: view.device.counts[BlockState.FREE] < view.device.num_blocks, timeout=SOON_MS)
    answer = page.turns[0].answer
    qtbot.waitUntil(lambda: answer.done, timeout=SOON_MS)
    assert answer.failed is None, answer.failed
    assert answer.finished is not None
    assert answer.finished.output_tokens > 0
    qtbot.waitUntil(lambda: answer.number in view.requests, timeout=SOON_MS)

    # Change the block size under load, by the panel: preview first, then the map re-tiles, and no request is lost.
    page.fill_button.click()
    qtbot.waitUntil(lambda: len(view.live()) > 0, timeout=SOON_MS)
    window.rail.choose("settings")
    panel = window.settings_panel
    field = panel.editors["block_size"].field
    assert isinstance(field, QComboBox)
    field.setCurrentIndex(field.findData(32))
    qtbot.waitUntil(panel._preview_effects.isVisible, timeout=SOON_MS)
    assert view.device.block_size == 16
    qtbot.mouseClick(panel.apply_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: (view.device.block_size, view.device.num_blocks) == (32, 128), timeout=SOON_MS)
    qtbot.waitUntil(lambda: window.said.text().startswith("Block size 16 → 32"), timeout=SOON_MS)
    window.rail.choose("map")
    window.grab()
    qtbot.waitUntil(lambda: all(page._load.values()), timeout=LOADED_MS)
    qtbot.waitUntil(lambda: view.stats is not None and view.stats.finished >= 9, timeout=SOON_MS)
    assert view.stats is not None
    assert view.stats.failed == 0

    # A refused value says why beside its field, and changes nothing.
    window.rail.choose("settings")
    panel.editors["max_batch_size"].field.setText("0")  # type: ignore[union-attr]
    qtbot.waitUntil(lambda: panel.editors["max_batch_size"].refusal != "", timeout=SOON_MS)
    assert not panel.apply_button.isEnabled()

    qtbot.mouseClick(window.toolbar.stop_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: state_of(window) == ConnectionState.STOPPED, timeout=SOON_MS)
    qtbot.waitUntil(lambda: not psutil.pid_exists(pid), timeout=SOON_MS)
    assert window.banner.action.text() == "Start"


def test_a_killed_engine_is_shown_as_died_and_can_be_restarted(window: MainWindow, qtbot: QtBot) -> None:
    pid = start(window, qtbot)
    os.kill(pid, signal.SIGKILL)
    qtbot.waitUntil(lambda: state_of(window) == ConnectionState.DIED, timeout=SOON_MS)
    assert window.banner.isVisible()
    assert window.banner.title.text() == "The engine was killed."
    assert "memory" in window.banner.detail.text()
    qtbot.mouseClick(window.banner.action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: state_of(window) == ConnectionState.READY, timeout=LOADED_MS)
    assert window.session.link.view.status is not None
    assert window.session.link.view.status.pid != pid


def test_a_stalled_engine_is_shown_as_not_answering_and_comes_back(window: MainWindow, qtbot: QtBot) -> None:
    pid = start(window, qtbot)
    os.kill(pid, signal.SIGSTOP)
    try:
        qtbot.waitUntil(lambda: state_of(window) == ConnectionState.NOT_ANSWERING, timeout=SOON_MS)
        assert "has not answered" in window.banner.title.text()
    finally:
        os.kill(pid, signal.SIGCONT)
    qtbot.waitUntil(lambda: state_of(window) == ConnectionState.READY, timeout=SOON_MS)


def test_the_inspector_and_cancel_reach_the_engine(window: MainWindow, qtbot: QtBot) -> None:
    start(window, qtbot)
    view = window.session.link.view
    with Client(window.session.link.connection) as client:
        stream = client.submit(
            prompt="the lazy dog sleeps in the sun", max_tokens=3000, temperature=0.0, ignore_eos=True
        )
        qtbot.waitUntil(lambda: any(row.state == "running" for row in view.live()), timeout=SOON_MS)
        row = view.live()[0]
        window.show_on_map(row.number)
        chips = window.inspector.request.chips
        qtbot.waitUntil(lambda: len(chips.blocks) > 1, timeout=SOON_MS)
        chips.chosen.emit(0)
        qtbot.waitUntil(lambda: window.inspector.block.detail is not None, timeout=SOON_MS)
        detail = window.inspector.block.detail
        assert detail is not None
        assert [owner.request for owner in detail.owners] == [row.number]
        assert detail.text.startswith("the lazy")
        qtbot.mouseClick(window.inspector.request.cancel_button, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: view.requests[row.number].state == "cancelled", timeout=SOON_MS)
        stream.text()


def test_closing_the_window_leaves_no_orphan(window: MainWindow, qtbot: QtBot) -> None:
    pid = start(window, qtbot)
    window.close()
    assert not psutil.pid_exists(pid)


def test_an_engine_let_go_serves_on(window: MainWindow, qtbot: QtBot, tmp_path: Path) -> None:
    pid = start(window, qtbot)
    window.toolbar.keep_serving.setChecked(True)
    window.close()
    engine = psutil.Process(pid)
    assert engine.is_running()
    try:
        with Client("pagedeck") as client:
            assert client.submit(prompt="the fox", max_tokens=4, ignore_eos=True).text()
            client.shutdown(drain=False)
        psutil.wait_procs([engine], timeout=60)
        assert not engine.is_running()
    finally:
        if engine.is_running():
            engine.kill()
