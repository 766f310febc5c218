"""The models page over the real command, against a hub of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pagedeck.gui.i18n import Languages
from pagedeck.gui.models.card import Model, ModelCard
from pagedeck.gui.models.page import ModelsPage
from pagedeck.gui.session import EngineSession
from pagedeck.gui.state import ConnectionState
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from ..fake_hub import MODEL, FakeHub, fake_hub
from .scripted_link import ScriptedLink

SOON_MS = 60_000


@pytest.fixture
def hub(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with fake_hub(tiny_model_folder, tmp_path / "hf") as made:
        for name in ("RUNTIME", "STATE", "CACHE"):
            monkeypatch.setenv(f"PAGEDECK_{name}", str(tmp_path / name.lower()))
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def page(hub: FakeHub, link: ScriptedLink, languages: Languages, qtbot: QtBot) -> ModelsPage:
    made = ModelsPage(EngineSession(link))
    link.say_connection(ConnectionState.STOPPED)
    qtbot.addWidget(made)
    made.resize(1000, 700)
    made.show()
    qtbot.waitUntil(lambda: "SmolLM2-135M-Instruct" in made.cards, timeout=SOON_MS)
    return made


def click(qtbot: QtBot, button: QPushButton) -> None:
    qtbot.waitUntil(lambda: button.isVisible() and button.isEnabled(), timeout=SOON_MS)  # a new card shows a turn later
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def card(page: ModelsPage, qtbot: QtBot) -> ModelCard:
    qtbot.waitUntil(lambda: MODEL in page.cards, timeout=SOON_MS)
    return page.cards[MODEL]


def test_the_default_model_is_offered_before_it_is_there(page: ModelsPage, qtbot: QtBot) -> None:
    default = page.cards["SmolLM2-135M-Instruct"]
    assert "Not on this machine yet" in default.facts.text()
    with qtbot.waitSignal(page.used) as used:
        click(qtbot, default.use_button)
    assert used.args == ["SmolLM2-135M-Instruct"]


def test_a_model_is_looked_up_downloaded_with_a_pause_used_and_deleted(
    page: ModelsPage, hub: FakeHub, qtbot: QtBot
) -> None:
    page.id_field.setText(MODEL)
    click(qtbot, page.look_button)
    shown = card(page, qtbot)
    qtbot.waitUntil(lambda: "To download: 383 KiB" in shown.estimate.text().replace("\u00a0", " "), timeout=SOON_MS)
    assert "These are estimates." in shown.estimate.text()
    assert not shown.use_button.isVisible()

    hub.hold_after = 100_000
    click(qtbot, shown.fetch_button)
    qtbot.waitUntil(lambda: page.models[MODEL].have >= 100_000, timeout=SOON_MS)
    assert shown.progress.isVisible() and 0 < shown.progress.value() < 1000
    click(qtbot, shown.pause_button)
    qtbot.waitUntil(lambda: "paused" in shown.facts.text(), timeout=SOON_MS)
    hub.hold_after = None
    hub.go_on.set()
    click(qtbot, shown.fetch_button)
    qtbot.waitUntil(shown.use_button.isVisible, timeout=SOON_MS)
    assert hub.ranges[0] is None and hub.ranges[1] is not None
    assert "on the disk" in shown.facts.text()

    with qtbot.waitSignal(page.used) as used:
        click(qtbot, shown.use_button)
    assert used.args == [MODEL]

    click(qtbot, shown.remove_button)
    click(qtbot, shown.keep_button)
    assert shown.remove_button.isVisible()
    click(qtbot, shown.remove_button)
    click(qtbot, shown.sure_button)
    qtbot.waitUntil(lambda: MODEL not in page.cards, timeout=SOON_MS)


def test_a_download_can_be_given_up(page: ModelsPage, hub: FakeHub, qtbot: QtBot) -> None:
    hub.hold_after = 100_000
    page.get(MODEL)  # to be used as soon as it is there
    shown = card(page, qtbot)
    qtbot.waitUntil(lambda: page.models[MODEL].have >= 100_000, timeout=SOON_MS)
    click(qtbot, shown.drop_button)
    qtbot.waitUntil(lambda: MODEL not in page.cards, timeout=SOON_MS)
    assert not (Path(hub.environment["HF_HUB_CACHE"]) / "models--owner--tiny").exists()

    # Whoever downloads it after all has not asked for it to be used.
    hub.hold_after = None
    hub.go_on.set()
    used: list[str] = []
    page.used.connect(used.append)
    page.fetch(MODEL)
    qtbot.waitUntil(lambda: MODEL in page.models and page.models[MODEL].complete, timeout=SOON_MS)
    assert used == []


def test_it_says_why_a_model_cannot_be_had(page: ModelsPage, qtbot: QtBot) -> None:
    page.id_field.setText("not an id")
    click(qtbot, page.look_button)
    assert "owner/name" in page.state.text()
    page.id_field.setText("owner/other")
    qtbot.keyClick(page.id_field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "The hub has no model owner/other" in page.state.text(), timeout=SOON_MS)
    page.fetch(MODEL + "-other")
    shown = page.cards[MODEL + "-other"]
    qtbot.waitUntil(shown.problem.isVisible, timeout=SOON_MS)
    assert "The hub has no model" in shown.problem.text()
    assert shown.fetch_button.isVisible()


def test_a_folder_of_ones_own_can_be_used_and_is_not_ours_to_delete(
    page: ModelsPage, tiny_model_folder: Path, qtbot: QtBot
) -> None:
    name = str(tiny_model_folder)
    page.look(name)
    qtbot.waitUntil(lambda: name in page.cards and page.cards[name].estimate.isVisible(), timeout=SOON_MS)
    shown = page.cards[name]
    for _ in range(2):
        assert shown.use_button.isVisible() and not shown.remove_button.isVisible()
        assert not shown.fetch_button.isVisible() and "million parameters" in shown.facts.text()
        page.refresh()
        qtbot.waitUntil(lambda: not page._running, timeout=SOON_MS)
    with qtbot.waitSignal(page.used) as used:
        click(qtbot, shown.use_button)
    assert used.args == [name]


def test_cards_stand_side_by_side_where_there_is_room(page: ModelsPage, qtbot: QtBot) -> None:
    for name in ("a/one", "a/two", "a/three"):
        page._show(page.models.setdefault(name, Model(name, {})))
    cards = [*page.cards.values()]

    def columns() -> int:
        return len({card.mapTo(page, QPoint()).x() for card in cards})

    for width, amount in ((600, 1), (1000, 2), (2100, 4)):
        page.resize(width, 700)
        qtbot.waitUntil(lambda amount=amount: columns() == amount)
        assert len({card.width() for card in cards}) == 1 and cards[0].width() > 0.8 * width / amount
    page._forget("a/one")
    assert page.cards["a/two"] is cards[2]
    qtbot.waitUntil(lambda: page.cards["a/two"].x() == cards[0].width() + cards[0].x() + 16)
