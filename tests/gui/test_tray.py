"""Closing the window: what becomes of the engine is asked once and kept; the tray brings the window back, or quits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pagedeck.gui import i18n, tray
from pagedeck.gui.engines.process import EngineProcess
from pagedeck.gui.leave_dialog import LeaveDialog
from pagedeck.gui.link import EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.session import EngineSession
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.client import Client
from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QAbstractButton, QSystemTrayIcon
from pytestqt.qtbot import QtBot

from .loading_engines import command

SOON_MS = 60_000


@pytest.fixture
def settings(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def window(
    languages: i18n.Languages, settings: QSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> Iterator[MainWindow]:
    """A window, on a desktop with a tray, that shows an engine of its own."""
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(EngineProcess, "command", property(lambda self: command(self.name)))
    monkeypatch.setattr(tray, "available", lambda: True)
    made = MainWindow(EngineSession(EngineLink()), languages, settings)
    qtbot.addWidget(made)
    made.show()
    made.session.open()
    qtbot.waitUntil(lambda: not made.session.starting, timeout=SOON_MS)
    qtbot.waitUntil(lambda: made.session.state == ConnectionState.LOADING, timeout=SOON_MS)
    yield made
    made.session.keep_serving = False
    made.session.close()
    made.engines.close()
    made.tray.hide()


def engine(window: MainWindow) -> psutil.Process:
    return psutil.Process(window.session._processes["pagedeck"].pid)


def asked(window: MainWindow) -> LeaveDialog | None:
    return next((dialog for dialog in window.findChildren(LeaveDialog) if dialog.isVisible()), None)


def answer(window: MainWindow, qtbot: QtBot, choose: str) -> None:
    """Close the window and answer its question."""
    window.close()
    dialog = asked(window)
    assert dialog is not None and window.isVisible()
    button: QAbstractButton = getattr(dialog, choose)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_it_goes_to_the_tray_and_comes_back(window: MainWindow, settings: QSettings, qtbot: QtBot) -> None:
    running = engine(window)
    answer(window, qtbot, "serve")
    assert not window.isVisible() and window.tray.icon.isVisible() and running.is_running()
    assert window.toolbar.keep_serving.isChecked()
    menu = window.tray.menu
    assert menu.state.text() == "tiny · loading" and not menu.state.isEnabled()
    assert (menu.start.isVisible(), menu.stop.isVisible(), menu.leave.isVisible()) == (False, True, True)
    window.tray.icon.activated.emit(QSystemTrayIcon.ActivationReason.Trigger)
    assert window.isVisible() and not window.tray.icon.isVisible()

    # The next time it does not ask.
    window.close()
    assert asked(window) is None and not window.isVisible() and window.tray.icon.isVisible()
    assert settings.value("engine/keep_serving", type=bool) is True
    menu.show_window.trigger()
    assert window.isVisible()


def test_it_stops_the_engine_and_remembers(
    window: MainWindow, settings: QSettings, languages: i18n.Languages, qtbot: QtBot
) -> None:
    running = engine(window)
    with qtbot.waitSignal(window.left):
        answer(window, qtbot, "stop")
    assert not running.is_running() and not window.isVisible() and not window.tray.icon.isVisible()
    again = MainWindow(EngineSession(EngineLink()), languages, settings)
    qtbot.addWidget(again)
    again.session.open()
    qtbot.waitUntil(lambda: again.session.state == ConnectionState.LOADING, timeout=SOON_MS)
    running = engine(again)
    again.close()
    assert asked(again) is None and not running.is_running()


def test_cancel_leaves_all_as_it_is(window: MainWindow, settings: QSettings, qtbot: QtBot) -> None:
    running = engine(window)
    answer(window, qtbot, "cancel")
    assert window.isVisible() and asked(window) is None and running.is_running()
    assert not settings.contains("engine/keep_serving")


def test_the_tray_quits_with_the_engine_or_without_it(window: MainWindow, qtbot: QtBot) -> None:
    running = engine(window)
    answer(window, qtbot, "serve")
    with qtbot.waitSignal(window.left):
        window.tray.menu.leave.trigger()
    assert running.is_running()
    try:
        with Client("pagedeck") as client:
            client.shutdown(drain=False)
        psutil.wait_procs([running], timeout=60)
        assert not running.is_running()
    finally:
        if running.is_running():
            running.kill()


def test_quitting_does_not_ask(window: MainWindow, qtbot: QtBot) -> None:
    running = engine(window)
    with qtbot.waitSignal(window.left):
        window.files.quit.trigger()
    assert asked(window) is None and not running.is_running()


def test_a_death_is_told_from_the_tray(window: MainWindow, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> None:
    told: list[str] = []
    monkeypatch.setattr(window.tray.icon, "showMessage", lambda title, text, icon: told.append(text))
    answer(window, qtbot, "serve")
    engine(window).kill()
    qtbot.waitUntil(lambda: told == ["Engine pagedeck: died"], timeout=SOON_MS)
    menu = window.tray.menu
    assert (menu.start.isVisible(), menu.stop.isVisible(), menu.leave.isVisible()) == (True, False, False)
    assert menu.quit.text() == "Quit"
    menu.start.trigger()
    qtbot.waitUntil(lambda: menu.stop.isVisible() and not window.session.starting, timeout=SOON_MS)


def test_without_a_tray_or_an_engine_of_its_own_it_just_closes(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    monkeypatch.setattr(tray, "available", lambda: False)
    running = engine(window)
    with qtbot.waitSignal(window.left):
        window.close()
    assert asked(window) is None and not running.is_running()
