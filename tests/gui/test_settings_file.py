"""Settings to a file and back: staged like edits, what is wrong told by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.facts import setting_facts
from pagedeck.gui.i18n import Languages
from pagedeck.gui.session import EngineSession
from pagedeck.gui.settings import file as settings_file
from pagedeck.gui.settings.panel import SettingsPanel
from pagedeck.gui.settings.restart import Restart
from pagedeck.ipc.protocol import Reconfigure, SettingInfo
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink


@pytest.fixture
def panel(link: ScriptedLink, qtbot: QtBot, languages: Languages) -> SettingsPanel:
    made = SettingsPanel(link, Restart(EngineSession(link)))
    qtbot.addWidget(made)
    made.resize(900, 700)
    made.show()
    return made


def test_every_setting_of_the_engine_survives_the_way_to_a_file_and_back(tmp_path: Path) -> None:
    config = EngineConfig(model='a "quoted" 模型', swap_space_gib=0.5, class_limits="batch=16", prefix_caching=False)
    settings = [SettingInfo(**facts) for facts in setting_facts(config)]
    settings_file.write(tmp_path / "mine.toml", settings, "mine")
    values, problems = settings_file.read(tmp_path / "mine.toml", settings)
    assert problems == []
    assert EngineConfig(**values) == config
    assert values == {info.name: info.value for info in settings if info.value is not None}


def test_a_file_is_staged_like_edits_and_changes_nothing_by_itself(
    panel: SettingsPanel, link: ScriptedLink, tmp_path: Path, qtbot: QtBot
) -> None:
    with qtbot.waitSignal(panel.said) as said:
        panel.export_file(tmp_path / "mine.toml")
    assert str(tmp_path) in said.args[0]()
    text = (tmp_path / "mine.toml").read_text()
    changed = text.replace("block_size = 32", "block_size = 64").replace('model = "tiny"', 'model = "other"')
    changed = changed.replace("num_blocks = 256", "num_blocks = 100")
    (tmp_path / "other.toml").write_text(changed)
    panel.import_file(tmp_path / "other.toml")
    assert (panel.staged, panel.staged_for_restart) == ({"block_size": 64}, {"model": "other", "num_blocks": 100})
    assert not panel.problems.isVisible()
    message = link.last(Reconfigure)[0]
    assert isinstance(message, Reconfigure) and (message.changes, message.dry_run) == ({"block_size": 64}, True)


def test_what_is_wrong_is_told_by_line_and_the_rest_is_staged(panel: SettingsPanel, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(
        "# mine\nblock_size = 33\nblok_size = 64\nmax_batch_size = true\nnum_blocks = 1e9\nswap_space_gib = 2\n"
        "prefix_caching = 1\nmodel = 7\n[table]\nx = 1\n"
    )
    panel.import_file(path)
    said = panel.problems.text().replace("\u00a0", " ").splitlines()
    assert [line.partition(":")[0] for line in said] == [f"Line {number}" for number in (2, 3, 4, 5, 7, 8, 9)]
    assert "block_size: 33 is not accepted; it may be 8 · 16 · 32 · 64 · 128 · 256." in said[0]
    assert "There is no setting blok_size." in said[1]
    assert panel.problems.isVisible()
    assert panel.staged == {"swap_space_gib": 2}


@pytest.mark.parametrize("content", [b"block_size 64\n", b"\xff\xfe\x00", b"#" * 1_000_001])
def test_what_is_no_file_of_settings_is_said_so(panel: SettingsPanel, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.toml"
    path.write_bytes(content)
    panel.import_file(path)
    assert panel.problems.text().startswith("This is no ")
    panel.import_file(tmp_path / "missing.toml")
    assert "missing.toml was not read" in panel.problems.text()
    assert panel.staged == {}
