"""The settings panel: stage, preview, apply, report, refusal, undo."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from pagedeck.gui import quantities, words
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.session import EngineSession
from pagedeck.gui.settings.panel import SettingsPanel
from pagedeck.gui.settings.restart import Restart
from pagedeck.ipc.endpoint import Connection
from pagedeck.ipc.protocol import Failed, Reconfigure, Reconfigured, ReconfigureReport, SettingInfo
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QLabel, QLineEdit
from pytestqt.qtbot import QtBot

from .scripted_link import SETTINGS, ScriptedLink


@pytest.fixture
def panel(link: ScriptedLink, qtbot: QtBot, languages: Languages) -> SettingsPanel:
    made = SettingsPanel(link, Restart(EngineSession(link)))
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    return made


def report(dry_run: bool = False, **facts: Any) -> Reconfigured:
    facts = {"blocks_moved": 212, "bytes_copied": 41 * 2**20, "pause_ms": 38.0} | facts
    changes = facts.pop("changes", {"block_size": (32, 64)})
    return Reconfigured(report=ReconfigureReport(dry_run=dry_run, changes=changes, **facts))


def choose(panel: SettingsPanel, name: str, value: Any) -> None:
    field = panel.editors[name].field
    if isinstance(field, QComboBox):
        field.setCurrentIndex(field.findData(value))
    else:
        field.setText(str(value))


def texts(panel: SettingsPanel) -> str:
    return "\n".join(label.text() for label in panel.findChildren(QLabel) if label.isVisible()).replace("\u00a0", " ")


def wait_preview(link: ScriptedLink, qtbot: QtBot, amount: int = 1) -> Reconfigure:
    qtbot.waitUntil(lambda: link.count(Reconfigure) == amount)
    message = link.last(Reconfigure)[0]
    assert isinstance(message, Reconfigure)
    return message


def show_engine(link: ScriptedLink, name: str, **values: Any) -> None:
    """Turn to another engine: at first nothing is known of it."""
    link.connection = Connection(name, 1, name, 1, "", "", path=f"/run/{name}.json")
    link.view.begin(name)
    link.announce_all()
    link.become_ready()
    for info in link.view.settings:
        info.value = values.get(info.name, info.value)
    link.settingsChanged.emit()


def test_sections_stand_side_by_side_where_there_is_room(panel: SettingsPanel, qtbot: QtBot) -> None:
    live, fixed = panel._heading, panel._fixed_heading
    place = lambda label: label.mapTo(panel, label.rect().topLeft())  # noqa: E731
    assert place(live).x() == place(fixed).x() and place(live).y() < place(fixed).y()
    panel.resize(2200, 1300)
    qtbot.waitUntil(lambda: place(fixed).x() > place(live).x())
    assert place(fixed).y() == place(live).y()


@pytest.mark.parametrize("language", Language)
def test_in_the_smallest_window_no_setting_is_cut(
    window: MainWindow, link: ScriptedLink, languages: Languages, language: Language, qtbot: QtBot
) -> None:
    languages.switch(language)
    longest = SettingInfo("num_blocks", 200, "Blocks", live=True, unit="blocks", minimum=1, maximum=100_000_000)
    link.view.settings = [info for info in link.view.settings if info.name != "num_blocks"] + [longest]
    link.settingsChanged.emit()
    window.rail.choose("settings")
    window.resize(window.minimumSize())
    panel = window.settings_panel
    column, side = panel._scroll, panel._side
    qtbot.waitUntil(lambda: column.viewport().width() >= column.widget().minimumSizeHint().width())
    assert side.viewport().width() >= side.widget().minimumSizeHint().width()
    editor = panel.editors["num_blocks"]
    assert editor.width() >= editor.minimumSizeHint().width()


def test_no_choice_is_cut(panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot) -> None:
    choices = ["automatic", "the least recently used ones of all"]
    link.view.settings.append(SettingInfo("eviction", choices[1], "Which go first", live=True, choices=choices))
    link.settingsChanged.emit()
    field = panel.editors["eviction"].field
    qtbot.waitUntil(lambda: field.width() > field.fontMetrics().horizontalAdvance(choices[1]) + 30)


def test_settings_are_fields_and_those_that_need_a_restart_stand_apart(panel: SettingsPanel) -> None:
    assert [*panel.editors] == ["block_size", "swap_space_gib", "max_batch_size", "prefix_caching"]
    assert isinstance(panel.editors["block_size"].field, QComboBox)
    assert isinstance(panel.editors["swap_space_gib"].field, QLineEdit)
    assert [*panel.fixed_editors] == ["model", "num_blocks"]
    shown = texts(panel)
    assert "Needs a restart" in shown
    assert "(1 – 100)" in shown
    assert "(1 – 65,536)" in shown


def test_an_edit_is_marked_and_previewed_and_nothing_is_applied(
    panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot
) -> None:
    assert not panel.apply_button.isEnabled()
    choose(panel, "block_size", 64)
    assert "not applied; now 32" in texts(panel)
    message = wait_preview(link, qtbot)
    assert (message.changes, message.dry_run) == ({"block_size": 64}, True)
    link.answer(Reconfigure, report(dry_run=True, preempted=2, notes=["A note."]))
    shown = texts(panel)
    for text in ("Block size 32 → 64", "212", "41 MiB", "Pause, estimated", "about 38 ms", "2 sequences", "A note."):
        assert text in shown
    assert link.count(Reconfigure) == 1


def test_apply_reports_in_words_and_undo_goes_back(panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot) -> None:
    choose(panel, "block_size", 64)
    wait_preview(link, qtbot)
    qtbot.mouseClick(panel.apply_button, Qt.MouseButton.LeftButton)
    message = link.last(Reconfigure)[0]
    assert isinstance(message, Reconfigure)
    assert (message.changes, message.dry_run) == ({"block_size": 64}, False)
    with qtbot.waitSignal(panel.said) as said:
        link.answer(Reconfigure, report())
    expected = "Block size 32 → 64: 212 blocks moved, 41 MiB copied, 38 ms pause"
    assert said.args[0]().replace("\u00a0", " ") == expected
    assert expected in texts(panel)
    assert panel.staged == {}
    qtbot.mouseClick(panel.undo_button, Qt.MouseButton.LeftButton)
    message = link.last(Reconfigure)[0]
    assert isinstance(message, Reconfigure)
    assert (message.changes, message.dry_run) == ({"block_size": 32}, False)


def test_undo_goes_back_through_all_changes_and_names_each(
    panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot
) -> None:
    def done(**changes: tuple[Any, Any]) -> None:
        link.answer(Reconfigure, report(changes=changes))

    def asked() -> dict[str, Any]:
        message = link.last(Reconfigure)[0]
        assert isinstance(message, Reconfigure) and not message.dry_run
        return message.changes

    assert not panel.undo_button.isVisible()
    panel.change({"block_size": 64})
    done(block_size=(32, 64))
    panel.change({"block_size": 16, "max_batch_size": 8})
    done(block_size=(64, 16), max_batch_size=(256, 8))
    assert "Undo gives back: Block size 16 → 64, Batch size 8 → 256. 1 change before it" in texts(panel)
    qtbot.mouseClick(panel.undo_button, Qt.MouseButton.LeftButton)
    assert asked() == {"block_size": 64, "max_batch_size": 256}
    link.answer(Reconfigure, Failed(code="memory", field="block_size", message="There is no room for that."))
    assert "Block size 16 → 64" in texts(panel)  # what was refused can be tried again
    qtbot.mouseClick(panel.undo_button, Qt.MouseButton.LeftButton)
    done(block_size=(16, 64), max_batch_size=(8, 256))
    assert "Undo gives back: Block size 64 → 32." in texts(panel)
    qtbot.mouseClick(panel.undo_button, Qt.MouseButton.LeftButton)
    assert asked() == {"block_size": 32}
    done(block_size=(64, 32))
    assert not panel.undo_button.isVisible() and "Undo gives back" not in texts(panel)

    panel.change({"block_size": 64})
    done(block_size=(32, 64))
    assert panel.undo_button.isVisible()
    link.live.begin("e2")  # another engine: what was changed in the one before cannot be taken back
    link.become_ready()
    assert not panel.undo_button.isVisible()


def test_a_refused_value_says_why_beside_its_field(panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot) -> None:
    choose(panel, "max_batch_size", 0)
    wait_preview(link, qtbot)
    refusal = Failed(
        code="invalid", field="max_batch_size",
        message="max_batch_size is 0; accepted is an integer from 1 to 65,536 sequences.",
    )  # fmt: skip
    link.answer(Reconfigure, refusal)
    editor = panel.editors["max_batch_size"]
    assert editor.refusal.replace("\u00a0", " ") == "0 is not accepted; it may be 1 – 65,536 sequences."
    assert not panel.apply_button.isEnabled()
    choose(panel, "max_batch_size", 8)
    assert editor.refusal == ""


def test_a_refusal_for_another_reason_than_the_range_keeps_its_reason(
    panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot, languages: Languages
) -> None:
    choose(panel, "swap_space_gib", 8)
    wait_preview(link, qtbot)
    why = "swap_space_gib is 8.0; accepted is up to 2.10 GiB, the host memory that is free now."
    link.answer(Reconfigure, Failed(code="invalid", field="swap_space_gib", message=why))
    assert panel.editors["swap_space_gib"].refusal == why
    languages.switch(Language.CHINESE)
    link.answer(Reconfigure, Failed(code="invalid", field="swap_space_gib", message=why))
    assert "2.10 GiB" in panel.editors["swap_space_gib"].refusal and "主机" in panel.editors["swap_space_gib"].refusal


def test_a_refusal_of_no_field_is_said_in_the_preview(panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot) -> None:
    choose(panel, "block_size", 256)
    wait_preview(link, qtbot)
    link.answer(Reconfigure, Failed(code="invalid", message="There is no room for that."))
    assert "There is no room for that." in texts(panel)


def test_text_that_is_no_number_goes_to_the_engine_to_refuse(panel: SettingsPanel) -> None:
    choose(panel, "max_batch_size", "many")
    assert panel.staged == {"max_batch_size": "many"}
    choose(panel, "max_batch_size", "1,024")
    assert panel.staged == {"max_batch_size": 1024}
    choose(panel, "swap_space_gib", "1.5")
    assert panel.staged["swap_space_gib"] == 1.5


def test_a_late_preview_of_an_older_edit_is_not_shown(panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot) -> None:
    choose(panel, "block_size", 64)
    wait_preview(link, qtbot)
    late = link.last(Reconfigure)[1]
    choose(panel, "block_size", 16)
    late(report(dry_run=True))
    assert "212" not in texts(panel)
    assert "Asking the engine" in texts(panel)


def test_discard_and_a_change_by_somebody_else(panel: SettingsPanel, link: ScriptedLink) -> None:
    choose(panel, "block_size", 64)
    panel.discard()
    assert panel.staged == {}
    choose(panel, "max_batch_size", 8)
    link.become_ready()
    link.view.settings[2].value = 128
    link.settingsChanged.emit()
    assert panel.editors["block_size"].value == 128
    assert panel.staged == {"max_batch_size": 8}


def test_a_value_of_many_digits_is_no_edit(panel: SettingsPanel, link: ScriptedLink) -> None:
    editor = panel.editors["swap_space_gib"]
    for value in (1.23456789, 1234567.5, 1e-7, 2.0):
        link.view.settings = [
            replace(info, value=value) if info.name == "swap_space_gib" else info for info in SETTINGS
        ]
        link.settingsChanged.emit()
        assert editor.value == value and panel.staged == {}


def test_what_another_engine_refused_is_forgotten(panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot) -> None:
    choose(panel, "swap_space_gib", "1")
    qtbot.waitUntil(lambda: link.count(Reconfigure) == 1)
    link.answer(Reconfigure, Failed(code="gone", message="The engine's process ended unexpectedly."))
    assert panel._preview_text.text() == "The engine is gone."
    show_engine(link, "another")
    assert panel._preview_text.text().startswith("Change a setting")


def test_what_is_staged_waits_for_its_engine_while_another_is_shown(panel: SettingsPanel, link: ScriptedLink) -> None:
    show_engine(link, "one")
    choose(panel, "block_size", 64)
    choose(panel, "max_batch_size", "many")
    panel.stage({**panel.staged, "num_blocks": 77})
    show_engine(link, "two", block_size=16)
    assert panel.staged == {} and panel.staged_for_restart == {}
    choose(panel, "block_size", 8)
    show_engine(link, "one")
    assert panel.staged == {"block_size": 64, "max_batch_size": "many"} and panel.staged_for_restart == {
        "num_blocks": 77
    }
    panel.discard()
    show_engine(link, "two", block_size=16)
    assert panel.staged == {"block_size": 8} and "not applied; now 16" in texts(panel)
    show_engine(link, "one")
    assert panel.staged == {} and panel.staged_for_restart == {}


def test_what_is_staged_outlives_the_engine(panel: SettingsPanel, link: ScriptedLink) -> None:
    show_engine(link, "one")
    choose(panel, "block_size", 64)
    choose(panel, "max_batch_size", 8)
    show_engine(link, "one", block_size=64)
    assert panel.staged == {"max_batch_size": 8}


def test_a_range_without_an_end_names_its_beginning() -> None:
    seed = SettingInfo("seed", 0, "", live=False, minimum=0, maximum=2.0**63)
    assert words.accepted(seed) == "≥ 0"
    assert quantities.duration(1e-6) == "0\u00a0ms"
