"""The first start: welcomed once, with the engine starting meanwhile; language and model are chosen there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pagedeck.engine.config import DEFAULT_MODEL
from pagedeck.gui import welcome
from pagedeck.gui.app import parser, states_engine
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.state import ConnectionState
from pagedeck.gui.welcome import Welcome
from pagedeck.ipc.protocol import Shutdown
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink


class Look:
    """``pagedeck models``, answered by the test."""

    asked: ClassVar[list[list[str]]] = []
    done: ClassVar[list[Any]] = []

    def __init__(self, arguments: list[str], on_done: object, on_line: object = None, parent: object = None) -> None:
        self.asked.append(arguments)
        self.done.append(on_done)

    def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def look(monkeypatch: pytest.MonkeyPatch) -> type[Look]:
    monkeypatch.setattr(Look, "asked", [])
    monkeypatch.setattr(Look, "done", [])
    for module in ("welcome", "models.page"):
        monkeypatch.setattr(f"pagedeck.gui.{module}.ModelsCommand", Look)
    return Look


def shown(window: MainWindow) -> Welcome | None:
    return next((dialog for dialog in window.findChildren(Welcome) if dialog.isVisible()), None)


def opened(window: MainWindow) -> Welcome:
    window.welcome()
    dialog = shown(window)
    assert dialog is not None
    return dialog


ABSENT = {"kind": "default", "complete": False, "bytes": 0, "expected": 92_871_040}
PRESENT = {
    "kind": "default", "complete": True, "bytes": 640 << 20, "expected": 640 << 20, "parameters": 134_515_008,
    "context_length": 8192,
}  # fmt: skip


def facts(dialog: Welcome) -> str:
    return dialog.facts.text().replace("\u00a0", " ") if dialog.facts.isVisible() else ""


def test_a_newcomer_is_welcomed_once_and_the_default_model_needs_no_choice(
    window: MainWindow, link: ScriptedLink, look: type[Look], qtbot: QtBot
) -> None:
    assert welcome.DEFAULT_MODEL == DEFAULT_MODEL
    window.welcome_newcomer()
    dialog = shown(window)
    assert dialog is not None
    assert look.asked[-1] == ["list"]  # which is quick: no weights, no torch
    look.done[-1]([ABSENT], "")
    assert "To download: 89 MiB" in facts(dialog)
    qtbot.mouseClick(dialog.start_button, Qt.MouseButton.LeftButton)
    assert shown(window) is None
    assert link.count(Shutdown) == 0  # the engine that starts is the right one
    window.welcome_newcomer()
    assert shown(window) is None


def test_it_tells_what_became_of_the_default_model_when_its_engine_is_ready(
    window: MainWindow, link: ScriptedLink, look: type[Look]
) -> None:
    link.say_connection(ConnectionState.LOADING)
    dialog = opened(window)
    look.done[-1]([ABSENT], "")
    assert "To download" in facts(dialog) and "when it has started" in facts(dialog)
    assert not dialog.look_button.isVisible()
    asked, feeder = len(look.asked), Feeder(num_blocks=512)
    link.view.begin(feeder.epoch)
    link.become_ready(feeder.status())
    assert look.asked[asked:] == [["list"]]
    look.done[-1]([PRESENT], "")
    link.view.apply_snapshot(feeder.snapshot())
    link.blocksChanged.emit()
    assert "To download" not in facts(dialog) and "On this machine: 640 MiB, 135 million" in facts(dialog)
    assert "16,384 tokens fit into its cache of" in facts(dialog)
    dialog.choices[1].setChecked(True)
    assert facts(dialog) == "" and dialog.look_button.isVisible()


def test_what_is_asked_ends_with_the_dialog(
    window: MainWindow, look: type[Look], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Look] = []
    monkeypatch.setattr(look, "stop", lambda self: stopped.append(self))
    opened(window).reject()
    assert len(stopped) == 1


def test_who_has_used_the_window_before_is_not_welcomed(window: MainWindow) -> None:
    window._keep()
    window.welcome_newcomer()
    assert shown(window) is None


def test_the_language_is_chosen_at_once(window: MainWindow, languages: Languages, qtbot: QtBot) -> None:
    dialog = opened(window)
    with qtbot.waitSignal(window.toolbar.languageChosen) as chosen:
        dialog.language.setCurrentIndex(dialog.language.findData(Language.CHINESE))
    assert chosen.args == ["zh_CN"]
    assert languages.current == Language.CHINESE
    qtbot.waitUntil(lambda: dialog.start_button.text() == "开始")


def test_a_folder_restarts_the_engine_with_it(
    window: MainWindow, link: ScriptedLink, tmp_path: Path, qtbot: QtBot
) -> None:
    dialog = opened(window)
    qtbot.keyClicks(dialog.path_field, str(tmp_path))
    assert dialog.choices[2].isChecked()
    qtbot.mouseClick(dialog.start_button, Qt.MouseButton.LeftButton)
    message = link.last(Shutdown)[0]
    assert isinstance(message, Shutdown) and message.drain and message.hand_back
    assert f"--model={tmp_path}" in window.session.arguments


def test_a_model_of_the_hub_is_downloaded_first_and_then_used(
    window: MainWindow, link: ScriptedLink, look: type[Look], qtbot: QtBot
) -> None:
    dialog = opened(window)
    dialog.choices[1].setChecked(True)
    assert not dialog.start_button.isEnabled()
    qtbot.keyClicks(dialog.hub_field, "owner/name")
    qtbot.mouseClick(dialog.start_button, Qt.MouseButton.LeftButton)
    assert window.rail.current == "models"
    place = look.asked.index(["fetch", "owner/name"])
    assert link.count(Shutdown) == 0
    look.done[place](None, "")
    assert link.count(Shutdown) == 1
    assert "--model=owner/name" in window.session.arguments


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        ([], False),
        (["--num-blocks", "64"], False),
        (["--model", "x"], True),
        (["--model=x"], True),
        (["--name", "mine"], True),
        (["--connection", "file.json"], True),
    ],
)
def test_a_command_line_that_says_what_to_run_skips_it(arguments: list[str], stated: bool) -> None:
    assert states_engine(*parser().parse_known_args(arguments)) is stated
