"""Several engines: the list follows processes as they come, go, die and come back; the window shows one of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pagedeck.gui import i18n
from pagedeck.gui.engines.engine_list import EngineList, ListedEngine
from pagedeck.gui.engines.process import EngineProcess
from pagedeck.gui.engines.start_dialog import StartDialog
from pagedeck.gui.link import EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.session import EngineSession
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.client import Client
from pagedeck.ipc.endpoint import read_connection
from pagedeck.ipc.vocabulary import Refused
from PySide6.QtCore import QSettings, Qt
from pytestqt.qtbot import QtBot

from .loading_engines import command, loading_engine

SOON_MS = 60_000


@pytest.fixture
def settings(tmp_path: Path) -> QSettings:
    return QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(folder))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    return folder


@pytest.fixture
def window(
    runtime: Path,
    languages: i18n.Languages,
    settings: QSettings,
    monkeypatch: pytest.MonkeyPatch,
    qtbot: QtBot,
) -> Iterator[MainWindow]:
    """A window that shows no engine yet."""
    monkeypatch.setattr(EngineProcess, "command", property(lambda self: command(self.name)))
    session = EngineSession(EngineLink())
    made = MainWindow(session, languages, settings)
    qtbot.addWidget(made)
    made.show()
    made.rail.choose("engines")
    yield made
    session.close()
    made.engines.close()


def named(engines: EngineList, name: str) -> ListedEngine:
    return next(engine for engine in engines if engine.name == name)


def states(engines: EngineList) -> dict[str, str]:
    return {engine.name: engine.state.value for engine in engines}


def shown_rows(window: MainWindow) -> list[list[str]]:
    model = window.engines_page.model
    return [[model.index(row, column).data() for column in range(3)] for row in range(model.rowCount())]


def press(window: MainWindow, name: str, button: str, qtbot: QtBot) -> None:
    """Choose an engine's row and click one of the page's buttons."""
    page = window.engines_page
    page.choose(named(window.engines, name))
    qtbot.mouseClick(getattr(page, f"{button}_button"), Qt.MouseButton.LeftButton)


def shows(window: MainWindow, process: subprocess.Popen[bytes]) -> bool:
    status = window.session.link.view.status
    return status is not None and status.pid == process.pid and window.session.state == ConnectionState.LOADING


def test_engines_come_are_shown_in_turn_die_and_come_back(window: MainWindow, qtbot: QtBot) -> None:
    engines, page = window.engines, window.engines_page
    assert page.empty.isVisible() and not page.view.isVisible()
    both = {"first": "loading", "second": "loading"}
    with loading_engine("first") as first, loading_engine("second") as second:
        qtbot.waitUntil(lambda: states(engines) == both, timeout=SOON_MS)
        assert not page.empty.isVisible()
        assert sorted(shown_rows(window)) == [["first", "loading", "tiny"], ["second", "loading", "tiny"]]

        # The window shows one of them, then the other one; the first goes on meanwhile.
        press(window, "first", "show", qtbot)
        qtbot.waitUntil(lambda: shows(window, first), timeout=SOON_MS)
        assert named(engines, "first").shown and not page.show_button.isEnabled()
        press(window, "second", "show", qtbot)
        qtbot.waitUntil(lambda: shows(window, second), timeout=SOON_MS)
        qtbot.waitUntil(lambda: states(engines) == both, timeout=SOON_MS)

        # One that is not shown stands still, goes on, is killed.
        os.kill(first.pid, signal.SIGSTOP)
        qtbot.waitUntil(lambda: states(engines)["first"] == "not_answering", timeout=SOON_MS)
        os.kill(first.pid, signal.SIGCONT)
        qtbot.waitUntil(lambda: states(engines) == both, timeout=SOON_MS)
        first.kill()
        qtbot.waitUntil(lambda: states(engines)["first"] == "died", timeout=SOON_MS)
        assert not page.show_button.isEnabled() and states(engines)["second"] == "loading"

        # Another life under its name is the same row.
        with loading_engine("first"):
            qtbot.waitUntil(lambda: states(engines) == both, timeout=SOON_MS)
            press(window, "first", "stop", qtbot)
            qtbot.waitUntil(lambda: states(engines)["first"] == "stopped", timeout=SOON_MS)
        press(window, "first", "forget", qtbot)
        assert states(engines) == {"second": "loading"}
        assert second.poll() is None


def test_another_engine_is_started_beside_the_windows_own(window: MainWindow, qtbot: QtBot) -> None:
    engines, page, session = window.engines, window.engines_page, window.session
    session.open()
    qtbot.waitUntil(lambda: states(engines) == {"pagedeck": "loading"}, timeout=SOON_MS)
    first = session._processes["pagedeck"].pid

    page.start_another()
    dialog = page.findChild(StartDialog)
    assert dialog.name.text() == "pagedeck-2"
    dialog.name.setText("pagedeck")
    qtbot.mouseClick(dialog.start_button, Qt.MouseButton.LeftButton)
    assert dialog.isVisible() and "'pagedeck' runs already" in dialog.refusal.text()
    dialog.name.setText("other")
    dialog.model.setText("/models/other")
    dialog.preset.setCurrentIndex(1)
    dialog.settings.setText("--num-blocks 128 --chat-template 'a b'")
    qtbot.mouseClick(dialog.start_button, Qt.MouseButton.LeftButton)
    assert session.name == "other" and session.owned and session.starting
    assert session._arguments_of["other"] == [
        "--model", "/models/other", "--preset", dialog.preset.currentData(), "--num-blocks", "128",
        "--chat-template", "a b",
    ]  # fmt: skip
    qtbot.waitUntil(lambda: states(engines) == {"pagedeck": "loading", "other": "loading"}, timeout=SOON_MS)

    # The first one, unseen, starts anew, and is shown again; the second one ends for that.
    press(window, "pagedeck", "restart", qtbot)
    qtbot.waitUntil(lambda: session.owns("pagedeck") and session._processes["pagedeck"].pid != first, timeout=SOON_MS)
    qtbot.waitUntil(lambda: states(engines)["pagedeck"] == "loading", timeout=SOON_MS)
    page.stop_left.setChecked(True)
    press(window, "pagedeck", "show", qtbot)
    assert session.name == "pagedeck"
    qtbot.waitUntil(lambda: states(engines)["other"] == "stopped", timeout=SOON_MS)
    qtbot.waitUntil(lambda: not session.owns("other"), timeout=SOON_MS)

    # What was started here can be started again.
    press(window, "other", "show", qtbot)
    qtbot.waitUntil(lambda: states(engines)["other"] == "loading" and not session.starting, timeout=SOON_MS)
    pids = [process.pid for process in session._processes.values()]
    window.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_one_that_is_not_shown_and_dies_says_its_last_words(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    engines, session = window.engines, window.session
    session.open()
    qtbot.waitUntil(lambda: states(engines) == {"pagedeck": "loading"}, timeout=SOON_MS)
    with loading_engine("other"):
        qtbot.waitUntil(lambda: len(engines) == 2, timeout=SOON_MS)
        press(window, "other", "show", qtbot)
        monkeypatch.setattr(
            EngineProcess, "command", property(lambda self: [sys.executable, "-c", "raise SystemExit('no memory')"])
        )
        press(window, "pagedeck", "restart", qtbot)
        qtbot.waitUntil(lambda: states(engines)["pagedeck"] == "died", timeout=SOON_MS)
        assert "no memory" in window.engines_page.last_words.text()


def test_all_of_the_windows_own_serve_on_when_they_shall(window: MainWindow, qtbot: QtBot) -> None:
    session = window.session
    session.open()
    qtbot.waitUntil(lambda: states(window.engines) == {"pagedeck": "loading"}, timeout=SOON_MS)
    session.launch("other", [])
    both = {"pagedeck": "loading", "other": "loading"}
    qtbot.waitUntil(lambda: states(window.engines) == both and not session.starting, timeout=SOON_MS)
    processes = [psutil.Process(process.pid) for process in session._processes.values()]
    session.keep_serving = True
    window.close()
    try:
        assert all(process.is_running() for process in processes)
        for name in both:
            with Client(name) as client:
                client.shutdown(drain=False)
        _, left = psutil.wait_procs(processes, timeout=60)
        assert left == []
    finally:
        for process in processes:
            if process.is_running():
                process.kill()


def test_a_connection_file_from_elsewhere_is_opened_and_remembered(
    window: MainWindow, settings: QSettings, runtime: Path, tmp_path: Path, qtbot: QtBot
) -> None:
    engines, session = window.engines, window.session
    given = tmp_path / "given.json"
    with loading_engine("far", listen="tcp://127.0.0.1:0"):
        qtbot.waitUntil(lambda: states(engines) == {"far": "loading"}, timeout=SOON_MS)
        shutil.move(runtime / "far.json", given)
        engines.forget(named(engines, "far"))

        window.engines_page.open(str(given))
        qtbot.waitUntil(lambda: session.state == ConnectionState.LOADING, timeout=SOON_MS)
        assert session.elsewhere and not session.owned and not session.restartable
        assert [(engine.name, engine.shown, engine.elsewhere) for engine in engines] == [("far", True, True)]

        # The next window knows it, and the one that forgot it does not.
        again = EngineList(EngineSession(EngineLink()), settings)
        qtbot.waitUntil(lambda: states(again) == {"far": "loading"}, timeout=SOON_MS)
        again.forget(named(again, "far"))
        again.close()
        assert [*EngineList(EngineSession(EngineLink()), settings)] == []

    # What has ended is connected to, not started; what cannot be opened says why.
    qtbot.waitUntil(lambda: session.state == ConnectionState.DIED, timeout=SOON_MS)
    assert window.banner.action.text() == "Connect"
    given.write_text("{}")
    window.engines_page.open(str(given))
    assert "is not a connection file" in window.said.text()
    with pytest.raises(Refused, match="There is no connection file"):
        engines.open(str(tmp_path / "nowhere.json"))


def test_the_menu_names_the_engines_and_leads_to_the_page(window: MainWindow, qtbot: QtBot) -> None:
    bar = window.toolbar
    bar.list_engines()
    assert bar._engines.actions()[0].text() == "No engine runs"
    with loading_engine("one") as one:
        qtbot.waitUntil(lambda: states(window.engines) == {"one": "loading"}, timeout=SOON_MS)
        bar.list_engines()
        entry = bar._engines.actions()[0]
        assert entry.text() == "one · tiny · loading" and not entry.isChecked()
        entry.trigger()
        qtbot.waitUntil(lambda: window.session.state == ConnectionState.LOADING, timeout=SOON_MS)
        assert read_connection(window.session.file).pid == one.pid
        window.rail.choose("map")
        bar.all_engines.trigger()
        assert window.pages.currentWidget() is window.engines_page
