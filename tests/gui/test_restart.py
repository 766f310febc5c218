"""Restarting a real engine with other settings: what was asked of it goes over to the new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pagedeck import cli
from pagedeck.engine.config import EngineConfig
from pagedeck.gui import i18n
from pagedeck.gui.link import EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.session import EngineSession
from pagedeck.gui.settings.panel import SettingsPanel
from pagedeck.gui.settings.restart import Outcome, Restart, options
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.protocol import Failed, Finished, Shutdown, Submit, Tokens
from pagedeck.ipc.vocabulary import SamplingParams
from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink

LOADED_MS = 180_000
SOON_MS = 60_000

ARGUMENTS = ["--device", "cpu", "--num-blocks", "256", "--block-size", "16", "--threads", "1", "--max-batch-size", "1"]


class Reader:
    """Who asked for an answer, and what came of it."""

    def __init__(self, link: EngineLink, output: int, temperature: float = 0.0) -> None:
        sampling = SamplingParams(max_tokens=output, temperature=temperature, ignore_eos=True)
        self.got: list[Any] = []
        self.id = link.submit(Submit(token_ids=[*range(1, 40)], sampling=sampling), self.got.append)

    @property
    def tokens(self) -> list[int]:
        return [token for message in self.got if isinstance(message, Tokens) for token in message.token_ids]

    @property
    def ended(self) -> bool:
        return bool(self.got) and isinstance(self.got[-1], Finished | Failed)


@pytest.fixture
def session(
    tiny_model_folder: Path, qapp: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EngineSession]:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    made = EngineSession(EngineLink(), ["--model", str(tiny_model_folder), *ARGUMENTS])
    yield made
    made.close()


def click(qtbot: QtBot, button: QPushButton) -> None:
    qtbot.waitUntil(lambda: button.isVisible() and button.isEnabled(), timeout=SOON_MS)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def value(panel: SettingsPanel, name: str) -> Any:
    return next((info.value for info in panel._link.view.settings if info.name == name), None)


def test_requests_go_over_to_the_new_engine_and_wrong_settings_can_be_taken_back(
    session: EngineSession, languages: i18n.Languages, qtbot: QtBot
) -> None:
    link, restart = session.link, Restart(session)
    panel = SettingsPanel(link, restart)
    qtbot.addWidget(panel)
    panel.resize(1400, 1600)
    panel.show()
    session.open()
    qtbot.waitUntil(lambda: "context_length" in panel.fixed_editors, timeout=LOADED_MS)

    # One runs, two wait; what has begun finishes first, the others are asked again of the engine that follows.
    begun = Reader(link, 300, temperature=1.0)
    qtbot.waitUntil(lambda: bool(begun.tokens), timeout=SOON_MS)
    waiting = [Reader(link, 20), Reader(link, 30)]
    qtbot.waitUntil(lambda: restart.affected().own == 2 or begun.ended, timeout=SOON_MS)
    epoch = link.view.epoch
    panel.editors["max_queue"].field.setText("500")  # type: ignore[union-attr]
    panel.fixed_editors["context_length"].field.setText("1000")  # type: ignore[union-attr]
    assert "Context length 4,096 → 1,000" in panel.restart_box.explanation.text()
    outcomes: list[Outcome] = []
    restart.ended.connect(lambda outcome: outcomes.append(outcome))
    click(qtbot, panel.restart_box.patient_button)
    qtbot.waitUntil(lambda: bool(outcomes), timeout=LOADED_MS)
    assert outcomes[0].ready and link.view.epoch != epoch
    qtbot.waitUntil(lambda: all(reader.ended for reader in (begun, *waiting)), timeout=SOON_MS)
    assert [len(reader.tokens) for reader in (begun, *waiting)] == [300, 20, 30]
    assert [type(reader.got[-1]) for reader in (begun, *waiting)] == [Finished] * 3
    qtbot.waitUntil(lambda: value(panel, "context_length") == 1000, timeout=SOON_MS)
    assert value(panel, "max_queue") == 500
    assert panel.staged == panel.staged_for_restart == {}
    assert "Restarted in" in panel.restart_box.outcome.text()

    # An engine that does not start says so, and the one from before comes back. What waits, waits for it.
    held = Reader(link, 1000)
    qtbot.waitUntil(lambda: bool(held.tokens), timeout=SOON_MS)
    panel.fixed_editors["model"].field.setText("/no/such/model")  # type: ignore[union-attr]
    click(qtbot, panel.restart_box.now_button)
    qtbot.waitUntil(lambda: len(outcomes) == 2, timeout=LOADED_MS)
    assert not outcomes[1].ready and session.state == ConnectionState.DIED
    assert "did not start" in panel.restart_box.outcome.text()
    click(qtbot, panel.restart_box.back_button)
    qtbot.waitUntil(lambda: held.ended, timeout=LOADED_MS)
    assert isinstance(held.got[-1], Finished) and len(held.tokens) == 1000 - 39  # its context is full
    assert value(panel, "context_length") == 1000


def test_the_toolbar_restarts_as_the_settings_do(
    session: EngineSession, languages: i18n.Languages, tmp_path: Path, qtbot: QtBot
) -> None:
    """What has begun finishes first and is not waited for any more when the button is pressed again; what waits, and
    what can be repeated, is asked of the new engine."""
    window = MainWindow(session, languages, QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat))
    qtbot.addWidget(window)
    window.show()
    link = session.link
    session.open()
    qtbot.waitUntil(lambda: value(window.settings_panel, "max_queue") is not None, timeout=LOADED_MS)
    window.settings_panel.change({"max_queue": 500})
    qtbot.waitUntil(lambda: value(window.settings_panel, "max_queue") == 500, timeout=SOON_MS)
    begun, epoch = Reader(link, 3000), link.view.epoch
    qtbot.waitUntil(lambda: bool(begun.tokens), timeout=SOON_MS)
    waiting = Reader(link, 20)
    qtbot.waitUntil(lambda: window.restart.affected().own == 1 or begun.ended, timeout=SOON_MS)
    click(qtbot, window.toolbar.restart_button)
    qtbot.waitUntil(lambda: session.state != ConnectionState.READY, timeout=SOON_MS)
    if session.state == ConnectionState.DRAINING:  # else a quick machine has finished it already
        assert "restarts" in window.banner.title.text()
        click(qtbot, window.banner.action)
    qtbot.waitUntil(lambda: begun.ended and waiting.ended, timeout=LOADED_MS)
    assert link.view.epoch != epoch
    assert isinstance(waiting.got[-1], Finished) and len(waiting.tokens) == 20
    assert isinstance(begun.got[-1], Finished) and len(begun.tokens) == 3000
    qtbot.waitUntil(lambda: value(window.settings_panel, "max_queue") == 500, timeout=SOON_MS)
    window.quit()


# --- before and after, without an engine ------------------------------------------------------------------------------


def test_settings_become_options() -> None:
    chosen = {"num_blocks": None, "prefix_caching": False, "swap_space_gib": 0.5, "model": "-x"}
    assert options(chosen) == ["--num-blocks=none", "--prefix-caching=False", "--swap-space-gib=0.5", "--model=-x"]


def test_a_value_out_of_range_is_refused_beside_its_field(
    link: ScriptedLink, languages: i18n.Languages, qtbot: QtBot
) -> None:
    panel = SettingsPanel(link, Restart(EngineSession(link)))
    qtbot.addWidget(panel)
    panel.show()
    field = panel.fixed_editors["num_blocks"]
    field.field.setText("0")  # type: ignore[union-attr]
    assert field.refusal
    assert not panel.restart_box.patient_button.isEnabled()
    field.field.setText("50")  # type: ignore[union-attr]
    assert not field.refusal
    assert panel.restart_box.patient_button.isEnabled()
    assert not panel.restart_box.now_button.isVisible()  # nothing runs that it would not wait for
    assert "No request runs or waits" in panel.restart_box.explanation.text()
    panel.discard()
    assert not panel.restart_box.isVisible()


def test_an_engine_from_elsewhere_restarts_with_what_it_tells_of_itself(link: ScriptedLink) -> None:
    session = EngineSession(link)
    restart = Restart(session)
    restart.again()
    message = link.last(Shutdown)[0]
    assert isinstance(message, Shutdown) and message.drain and message.hand_back
    assert "--block-size=32" in session.arguments and "--model=tiny" in session.arguments
    link.say_connection(ConnectionState.DRAINING)
    restart.again()  # does not wait for what has begun any more
    message = link.last(Shutdown)[0]
    assert isinstance(message, Shutdown) and not message.drain
    assert link.count(Shutdown) == 2 and session.followed


def test_every_setting_survives_as_an_option() -> None:
    config = EngineConfig(class_limits="batch=16", num_blocks=100)
    for settings in (config, EngineConfig()):
        stated = cli.parser().parse_args(["serve", *options(dataclasses.asdict(settings))])
        assert EngineConfig(**cli.stated_settings(stated)) == settings
