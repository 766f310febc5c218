"""A second start of the app shows the window of the first, also out of the tray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pagedeck.gui import app, presence
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.presence import Presence
from PySide6.QtCore import QProcess, QProcessEnvironment
from pytestqt.qtbot import QtBot

SOON_MS = 60_000

#: A window's process that is killed.
DIES = """
import os, signal
from PySide6.QtCore import QCoreApplication
from pagedeck.gui.presence import Presence
application = QCoreApplication([])
presence = Presence()
assert presence.begin()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_second_start_brings_the_window_back_from_the_tray(window: MainWindow, tmp_path: Path, qtbot: QtBot) -> None:
    first = Presence(window)
    first.called.connect(window.come_back)
    assert first.begin()
    window.hide()  # as in the tray
    second = QProcess()
    environment = QProcessEnvironment.systemEnvironment()
    environment.insert("XDG_CONFIG_HOME", str(tmp_path))
    environment.insert("QT_QPA_PLATFORM", "offscreen")
    environment.insert("PAGEDECK_RUNTIME", os.environ["PAGEDECK_RUNTIME"])
    second.setProcessEnvironment(environment)
    second.setProgram(sys.executable)
    second.setArguments(["-m", "pagedeck", "app"])
    with qtbot.waitSignal(second.finished, timeout=SOON_MS):
        second.start()
    assert second.exitCode() == 0
    assert window.isVisible()
    first.end()


def test_nobody_answers_where_no_window_is(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path))
    assert not presence.show_running()


def test_of_two_windows_one_is_shown_and_a_dead_ones_place_is_taken(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path))
    subprocess.run([sys.executable, "-c", DIES], check=False)
    assert (tmp_path / ".window").exists()
    first, second = Presence(), Presence()
    assert first.begin()
    assert not second.begin()
    first.end()
    assert second.begin()
    second.end()


@pytest.mark.parametrize(
    ("arguments", "plain"),
    [
        ([], True),
        (["--name", "other"], False),
        (["--replay", "some.pagedeck"], False),
        (["--results", "some.json"], False),
        (["--theme", "dark"], False),
        (["--num-blocks", "100"], False),
    ],
)
def test_who_asks_for_something_in_particular_gets_a_window_of_its_own(arguments: list[str], plain: bool) -> None:
    assert app.is_plain(*app.parser().parse_known_args(arguments)) is plain
