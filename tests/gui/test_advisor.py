"""The advisor: advice appears with its evidence, is previewed, followed, measured again, undone, dismissed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pagedeck.gui.advice import wording as advice_words
from pagedeck.gui.advice.advisor import LINGER_S, Advisor
from pagedeck.gui.advice.dismissals import Dismissals
from pagedeck.gui.advice.page import AdvicePage, FindingCard, TrialCard
from pagedeck.gui.advice.rule import Finding, Rule
from pagedeck.gui.advice.rules import RULES
from pagedeck.gui.advice.trial import SETTLE_S, Stage
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.session import EngineSession
from pagedeck.gui.settings.panel import SettingsPanel
from pagedeck.gui.settings.restart import Restart
from pagedeck.ipc.endpoint import Connection
from pagedeck.ipc.protocol import Reconfigure, Reconfigured, ReconfigureReport
from PySide6.QtCore import QSettings, Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from .evidence import EPOCH, Told
from .scripted_link import ScriptedLink
from .test_advice import CASES
from .test_advice import Session as Evidenced
from .test_i18n import foreign, visible_texts

WASTING = {"tokens": 11_000, "contexts": 120}
FRUGAL = WASTING | {"block_size": 8, "used": 1400, "blocks": 4000, "block_bytes": 1 << 18}


class Session:
    """A page, the settings beside it, and an engine that tells."""

    def __init__(self, link: ScriptedLink, qtbot: QtBot) -> None:
        self.link, self.qtbot, self.told = link, qtbot, Told()
        link.view.begin(EPOCH)
        link.become_ready()
        self.advisor = Advisor(link)
        self.settings = SettingsPanel(link, Restart(EngineSession(link)))
        self.page = AdvicePage(self.advisor, link)
        self.settings.applied.connect(self.advisor.note)
        self.advisor.previewRequested.connect(self.settings.stage)
        self.advisor.undoRequested.connect(self.settings.change)
        for widget in (self.settings, self.page):
            qtbot.addWidget(widget)
            widget.resize(900, 700)
            widget.show()
        link.settingsChanged.emit()

    def run(self, seconds: int, **load: Any) -> None:
        for _ in range(seconds):
            self.link.tell(self.told.second(**load))

    @property
    def advice(self) -> list[str]:
        return [finding.rule for finding in self.advisor.advice]

    def press(self, button: Any) -> None:
        self.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)

    def answer(self, **changes: tuple[Any, Any]) -> None:
        """The engine changed its settings as it was asked."""
        report = ReconfigureReport(False, changes, 38.0, 212, 41 << 20)
        self.link.answer(Reconfigure, Reconfigured(report=report))
        self.told_settings(**{name: after for name, (_, after) in changes.items()})

    def told_settings(self, **values: Any) -> None:
        for info in self.link.view.settings:
            info.value = values.get(info.name, info.value)
        self.link.settingsChanged.emit()

    def follow(self) -> TrialCard:
        """Preview the first piece of advice, apply it, and let the engine do it."""
        self.press(self.page.cards[0].preview_button)
        self.press(self.settings.apply_button)
        self.answer(block_size=(32, 8))
        return self.page.trials[0]


@pytest.fixture
def session(link: ScriptedLink, languages: Languages, qtbot: QtBot) -> Session:
    return Session(link, qtbot)


def texts(widget: AdvicePage | FindingCard | TrialCard) -> str:
    shown = [label.text() for label in widget.findChildren(QLabel) if label.isVisibleTo(widget)]
    return "\n".join(shown).replace("\u00a0", " ")


def test_before_there_is_evidence_the_page_says_what_it_takes(session: Session) -> None:
    assert "about a minute of work" in texts(session.page)
    session.run(25, **WASTING)
    assert session.advice == []
    session.run(15, **WASTING)
    assert session.advice == ["waste"]
    assert "about a minute of work" not in texts(session.page)


def test_advice_has_its_figures_and_what_it_would_change(session: Session) -> None:
    session.run(40, **WASTING)
    shown = texts(session.page.cards[0])
    assert "31 % of the slots in allocated blocks hold no token: a sequence has 120 tokens" in shown
    assert "Block size 32 → 8" in shown


def test_the_button_previews_the_change_and_applies_nothing(session: Session) -> None:
    session.run(40, **WASTING)
    session.press(session.page.cards[0].preview_button)
    assert session.settings.staged == {"block_size": 8}
    asked = [message for message, _ in session.link.sent if isinstance(message, Reconfigure)]
    assert [(message.changes, message.dry_run) for message in asked] == [({"block_size": 8}, True)]


def test_dismissed_is_dismissed_until_it_is_asked_for_again(session: Session) -> None:
    session.run(40, **WASTING)
    session.press(session.page.cards[0].dismiss_button)
    session.run(10, **WASTING)
    assert session.advice == [] and session.page.cards == []
    assert "1 dismissed" in session.page.restore_button.text()
    session.press(session.page.restore_button)
    assert session.advice == ["waste"]


def look_again(session: Session, settings: QSettings, model: str = "tiny", **load: Any) -> list[str]:
    """What the next start of the window advises."""
    link = ScriptedLink()
    link.view.begin(EPOCH)
    link.become_ready()
    assert link.view.status is not None
    link.view.status = replace(link.view.status, model=model)
    advisor, told = Advisor(link, settings=settings), Told()
    link.settingsChanged.emit()
    for _ in range(40):
        link.tell(told.second(**load))
    return [finding.rule for finding in advisor.advice]


def test_dismissed_stays_dismissed_at_the_next_start(session: Session, tmp_path: Path) -> None:
    settings = QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat)
    session.advisor._dismissals = Dismissals(settings)
    session.run(40, **WASTING)
    session.press(session.page.cards[0].dismiss_button)
    assert look_again(session, settings, **WASTING) == []
    assert look_again(session, settings, model="another", **WASTING) == ["waste"]
    session.press(session.page.restore_button)
    assert look_again(session, settings, **WASTING) == ["waste"]


def test_dismissed_advice_comes_back_when_it_says_something_else(tmp_path: Path) -> None:
    kept = Dismissals(QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat))
    kept.add("e", Finding("swap", {"swap_space_gib": 1.0, "prefix_caching": True}, {}))
    swap = lambda gib, caching=True: Finding("swap", {"swap_space_gib": gib, "prefix_caching": caching}, {})  # noqa: E731
    assert kept.cover("e", swap(1.0)) and kept.cover("e", swap(1.75))
    assert not kept.cover("e", swap(4.0)) and not kept.cover("e", swap(1.0, False))
    assert not kept.cover("other", swap(1.0)) and not kept.cover("e", Finding("swap", {"swap_space_gib": 1.0}, {}))


@pytest.mark.parametrize("kept", ["{", "[1]", '{"e": 3, "f": {"waste": 4}}', "7"])
def test_what_is_no_list_of_dismissed_advice_is_none(kept: str, tmp_path: Path) -> None:
    settings = QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat)
    settings.setValue("advice/dismissed", kept)
    made = Dismissals(settings)
    assert made.of("e") == made.of("f") == set()


def test_advice_that_no_longer_holds_goes_after_a_while(session: Session) -> None:
    session.run(40, **WASTING)
    session.run(40)
    assert session.advice == ["waste"]
    session.run(int(LINGER_S) + 10)
    assert session.advice == []


def test_what_was_followed_is_measured_again(session: Session) -> None:
    session.run(40, **WASTING)
    card = session.follow()
    assert session.advice == [] and session.page.cards == []
    shown = texts(card)
    assert "Block size 32 → 8" in shown and "31 % → –" in shown and "Measuring: 0 of 30 s" in shown
    session.run(int(SETTLE_S) + 15, **FRUGAL)
    assert card.trial.stage is Stage.MEASURING
    assert card.progress.value() == 500
    session.run(15, **FRUGAL)
    shown = texts(card)
    assert card.trial.stage is Stage.MEASURED
    assert "31 % → 1.8 %" in shown
    assert (card.rows[0][2].text(), card.rows[0][2].property("role")) == ("better", "good")
    assert card.rows[1][0].text() == "Inter-token latency, P95"
    assert (card.rows[1][2].text(), card.rows[1][2].property("role")) == ("within noise", "muted")
    session.press(card.close_button)
    assert session.page.trials == [] and session.advisor.dismissed == set()


def test_a_trial_under_another_load_says_so(session: Session) -> None:
    session.run(40, **WASTING)
    card = session.follow()
    session.run(60, **FRUGAL | {"running": 40})
    assert card.rows[0][2].text().replace("\u00a0", " ") == "under another load (10 → 40 requests)"


def test_a_trial_is_undone_and_its_advice_not_given_again(session: Session) -> None:
    session.run(40, **WASTING)
    card = session.follow()
    session.press(card.undo_button)
    message = session.link.last(Reconfigure)[0]
    assert isinstance(message, Reconfigure) and (message.changes, message.dry_run) == ({"block_size": 32}, False)
    session.answer(block_size=(8, 32))
    assert card.trial.stage is Stage.UNDONE and "Undone." in texts(card)
    assert not card.undo_button.isVisibleTo(card)
    session.run(60, **WASTING)
    assert session.advice == []
    session.press(card.close_button)
    assert session.advisor.dismissed == {"waste"} and session.advice == []


def test_a_change_by_somebody_else_disturbs_a_trial_and_makes_evidence_old(session: Session) -> None:
    session.run(40, **WASTING)
    card = session.follow()
    session.run(10, **FRUGAL)
    session.told_settings(max_batch_size=128, block_size=32)
    assert card.trial.stage is Stage.DISTURBED
    session.run(5, **FRUGAL)
    assert "Another change came" in texts(card)
    session.press(card.close_button)
    session.advisor.restore()
    session.run(20, **WASTING)
    assert session.advice == []
    session.run(30, **WASTING)
    assert session.advice == ["waste"]


def test_another_life_of_the_engine_begins_without_evidence(session: Session) -> None:
    session.run(40, **WASTING)
    session.link.told.emit(Connection("e", 1, "e2", 1, "", ""))
    assert session.advice == []
    session.run(20, **WASTING)
    assert session.advice == []


def test_a_change_that_was_not_advised_is_no_trial(session: Session) -> None:
    session.run(40, **WASTING)
    session.settings.change({"block_size": 64})
    session.answer(block_size=(32, 64))
    assert session.page.trials == [] and session.advice == []


def test_cards_keep_their_place_while_their_figures_change(session: Session) -> None:
    session.run(40, **WASTING)
    card = session.page.cards[0]
    card.preview_button.setFocus()
    session.run(10, **WASTING | {"tokens": 12_000})
    assert session.page.cards[0] is card and card.preview_button.hasFocus()
    session.run(30, **WASTING | {"tokens": 12_000})
    assert "25 % of the slots" in texts(card)


def test_the_page_speaks_both_languages(session: Session, languages: Languages) -> None:
    session.run(40, **WASTING)
    card = session.follow()
    languages.switch(Language.CHINESE)
    session.qtbot.waitUntil(lambda: "没有 token 的槽位" in texts(card))
    session.run(60, **FRUGAL)
    assert card.rows[0][2].text() == "变好"


def test_the_window_counts_advice_and_leads_to_its_preview(
    window: MainWindow, link: ScriptedLink, qtbot: QtBot
) -> None:
    told = Told()
    link.view.begin(EPOCH)
    link.become_ready()
    for _ in range(40):
        link.tell(told.second(**WASTING))
    assert window.rail.button("advice").badge == 1
    window.rail.choose("advice")
    window.grab()
    qtbot.mouseClick(window.advice_page.cards[0].preview_button, Qt.MouseButton.LeftButton)
    assert window.rail.current == "settings"
    assert window.settings_panel.staged == {"block_size": 8}
    window.rail.choose("advice")
    qtbot.mouseClick(window.advice_page.cards[0].dismiss_button, Qt.MouseButton.LeftButton)
    assert window.rail.button("advice").badge == 0


def test_a_low_window_shows_all_pages_without_words(window: MainWindow, qtbot: QtBot) -> None:
    rail = window.rail
    style = Qt.ToolButtonStyle
    window.resize(1280, 1000)
    qtbot.waitUntil(lambda: rail.button("map").toolButtonStyle() == style.ToolButtonTextUnderIcon)
    window.resize(1024, 560)
    qtbot.waitUntil(lambda: rail.button("map").toolButtonStyle() == style.ToolButtonIconOnly)
    qtbot.waitUntil(lambda: rail.file_button.geometry().bottom() <= rail.height())


def test_nothing_of_it_is_left_in_english(session: Session, languages: Languages) -> None:
    session.run(40, **WASTING | {"preemptions": 1, "redone": 100, "parked": 24_000})
    session.follow()
    session.run(70, **FRUGAL | {"preemptions": 1, "redone": 100, "parked": 24_000})
    session.advisor.dismiss(Finding("idle_host", {}, {}))
    languages.switch(Language.CHINESE)
    session.qtbot.waitUntil(lambda: "建议" in texts(session.page))
    assert session.page.cards and session.page.trials and session.page.restore_button.isVisible()
    assert [text for _, text in visible_texts(session.page) if foreign(text)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_every_rule_has_words_for_its_figures(rule: Rule, languages: Languages) -> None:
    load, settings, _ = CASES[rule.key]
    evidence = Evidenced().run(rule.seconds + 1, **load)
    finding = evidence.found(**settings)[rule.key]
    for language in Language:
        languages.switch(language)
        said = [advice_words.title(rule.key), advice_words.why(finding), advice_words.quantity(rule.quantity)]
        assert all(said) and "%" not in said[1].replace("\u00a0%", "")
        assert language is Language.ENGLISH or [text for text in said if foreign(text)] == []
