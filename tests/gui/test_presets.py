"""The preset chooser: stages like hand edits, explains each value, and knows which preset an engine works by."""

from __future__ import annotations

from typing import Any

import pytest
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.facts import setting_facts
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.session import EngineSession
from pagedeck.gui.settings.panel import SettingsPanel
from pagedeck.gui.settings.presets import matching
from pagedeck.gui.settings.restart import Restart
from pagedeck.ipc.presets import find_preset, presets
from pagedeck.ipc.protocol import Reconfigure, Reconfigured, ReconfigureReport, SettingInfo
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QLineEdit
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink


def tell_settings(link: ScriptedLink, **values: Any) -> None:
    config = EngineConfig(**{"token_budget": 256, "num_blocks": 512} | values)
    link.view.settings = [SettingInfo(**facts) for facts in setting_facts(config)]
    link.settingsChanged.emit()


@pytest.fixture
def panel(link: ScriptedLink, qtbot: QtBot, languages: Languages) -> SettingsPanel:
    tell_settings(link)
    made = SettingsPanel(link, Restart(EngineSession(link)))
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    return made


def choose(panel: SettingsPanel, qtbot: QtBot, name: str) -> None:
    """As the keyboard does it."""
    box = panel.preset.box
    steps = box.findData(name) - box.currentIndex()
    for _ in range(abs(steps)):
        qtbot.keyClick(box, Qt.Key.Key_Down if steps > 0 else Qt.Key.Key_Up)
    assert box.currentData() == name


def reasons(panel: SettingsPanel) -> dict[str, str]:
    return {name: editor.reason for name, editor in panel.editors.items() if editor.reason}


def preset_text(panel: SettingsPanel) -> str:
    return "\n".join(label.text() for label in panel.preset.findChildren(QLabel))


def differences(name: str) -> dict[str, Any]:
    default = EngineConfig()
    return {key: value for key, value in find_preset(name).values.items() if getattr(default, key) != value}


@pytest.mark.parametrize("name", presets())
def test_a_choice_is_staged_previewed_applied_and_undone_as_hand_edits_are(
    panel: SettingsPanel, link: ScriptedLink, qtbot: QtBot, name: str
) -> None:
    choose(panel, qtbot, name)
    changes = differences(name)
    assert panel.staged == changes
    qtbot.waitUntil(lambda: link.count(Reconfigure) == 1)
    asked = link.last(Reconfigure)[0]
    assert isinstance(asked, Reconfigure) and (asked.changes, asked.dry_run) == (changes, True)
    qtbot.mouseClick(panel.apply_button, Qt.MouseButton.LeftButton)
    asked = link.last(Reconfigure)[0]
    assert isinstance(asked, Reconfigure) and (asked.changes, asked.dry_run) == (changes, False)
    before = {key: getattr(EngineConfig(), key) for key in changes}
    done = {key: (before[key], value) for key, value in changes.items()}
    link.answer(Reconfigure, Reconfigured(report=ReconfigureReport(False, done)))
    assert panel.staged == {} and panel.preset.preset == find_preset(name)
    qtbot.mouseClick(panel.undo_button, Qt.MouseButton.LeftButton)
    asked = link.last(Reconfigure)[0]
    assert isinstance(asked, Reconfigure) and (asked.changes, asked.dry_run) == (before, False)
    link.answer(
        Reconfigure, Reconfigured(report=ReconfigureReport(False, {k: (b, a) for k, (a, b) in done.items()}))
    )  # fmt: skip
    assert panel.preset.preset is None and reasons(panel) == {}


def test_every_value_has_its_reason_beside_it(panel: SettingsPanel, qtbot: QtBot) -> None:
    assert reasons(panel) == {}
    choose(panel, qtbot, "tight-memory")
    preset = find_preset("tight-memory")
    assert reasons(panel) == {name: choice.reason.en for name, choice in preset.settings.items()}
    assert preset.when.en in preset_text(panel)
    shown = [label.text() for label in panel.editors["block_size"].findChildren(QLabel) if label.isVisible()]
    assert preset.settings["block_size"].reason.en in shown


def test_a_value_of_ones_own_loses_the_reason_and_is_counted(panel: SettingsPanel, qtbot: QtBot) -> None:
    choose(panel, qtbot, "long-documents")
    field = panel.editors["max_batch_size"].field
    assert isinstance(field, QLineEdit)
    field.setText("12")
    assert "max_batch_size" not in reasons(panel) and "block_size" in reasons(panel)
    assert "1 setting of your own" in preset_text(panel)
    assert panel.staged["max_batch_size"] == 12
    field.setText("16")
    assert "max_batch_size" in reasons(panel)
    assert "of your own" not in preset_text(panel)


def test_from_one_preset_to_another_nothing_is_left_behind(panel: SettingsPanel, qtbot: QtBot) -> None:
    choose(panel, qtbot, "online-chat")
    choose(panel, qtbot, "tight-memory")
    assert panel.staged == differences("tight-memory")
    choose(panel, qtbot, "")
    assert panel.staged == {} and reasons(panel) == {}


def test_discard_takes_the_choice_back(panel: SettingsPanel, qtbot: QtBot) -> None:
    choose(panel, qtbot, "online-chat")
    qtbot.mouseClick(panel.discard_button, Qt.MouseButton.LeftButton)
    assert panel.preset.box.currentData() == "" and panel.staged == {}


def test_an_engine_that_works_by_a_preset_is_shown_so(panel: SettingsPanel, link: ScriptedLink) -> None:
    assert panel.preset.preset is None
    tell_settings(link, **find_preset("offline-batch").values)
    assert panel.preset.box.currentText() == "Offline batch"
    assert reasons(panel)
    tell_settings(link)
    assert panel.preset.preset is None


def test_settings_that_only_seem_to_be_a_presets_are_not() -> None:
    values = find_preset("online-chat").values
    assert matching(values | {"token_budget": 256}) == find_preset("online-chat")
    assert matching({name: value for name, value in values.items() if name != "eviction"}) is None
    assert matching({}) is None


def test_reasons_are_said_in_the_windows_language(panel: SettingsPanel, languages: Languages, qtbot: QtBot) -> None:
    choose(panel, qtbot, "long-documents")
    languages.switch(Language.CHINESE)
    qtbot.waitUntil(lambda: panel.preset.box.currentText() == "长文档")
    preset = find_preset("long-documents")
    assert reasons(panel) == {name: choice.reason.zh_CN for name, choice in preset.settings.items()}
    assert preset.when.zh_CN in preset_text(panel)
