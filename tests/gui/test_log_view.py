"""The log: levels, search, following the newest line, copying, and words in the language of the moment."""

from __future__ import annotations

import pytest
from pagedeck.engine.serving.control import describe
from pagedeck.gui import i18n, words
from pagedeck.gui.log_view import LEVELS, TEXT, LogView
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.state import EVENTS_KEPT, ConnectionState
from pagedeck.ipc.protocol import ReconfigureReport
from pagedeck.ipc.telemetry import Event, RequestRow
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink
from .test_i18n import foreign


@pytest.fixture
def log(link: ScriptedLink, languages: i18n.Languages, qtbot: QtBot) -> LogView:
    made = LogView(link)
    qtbot.addWidget(made)
    made.resize(800, 400)
    made.show()
    return made


def add(log: LogView, text: str, level: str = "info") -> None:
    log.add(lambda: text, level)


def texts(log: LogView) -> list[str]:
    log.show_pending()
    return [log.model.index(row, TEXT).data() for row in range(log.model.rowCount())]


def test_an_empty_log_says_what_will_stand_there(log: LogView) -> None:
    assert log.empty.isVisible() and log.empty.text() and not log.view.isVisible()
    add(log, "The engine has started")
    assert texts(log) == ["The engine has started"]
    assert log.view.isVisible() and not log.empty.isVisible()


def test_lines_below_the_chosen_level_are_left_out_and_kept(log: LogView) -> None:
    for level in LEVELS:
        add(log, f"a line of {level}", level)
    assert texts(log) == ["a line of info", "a line of warning", "a line of error"]
    log.level.setCurrentIndex(LEVELS.index("error"))
    assert texts(log) == ["a line of error"]
    log.level.setCurrentIndex(LEVELS.index("debug"))
    assert len(texts(log)) == len(LEVELS)


def test_search_finds_what_a_line_says_whatever_its_case(log: LogView, qtbot: QtBot) -> None:
    for text in ("Blocks of 32 tokens", "Blocks of 64 tokens", "No room"):
        add(log, text)
    texts(log)
    qtbot.keyClick(log.view, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(log.search.hasFocus)
    qtbot.keyClicks(log.search, "BLOCKS of 6")
    assert texts(log) == ["Blocks of 64 tokens"]
    log.search.setText("nowhere")
    assert texts(log) == [] and log.empty.isVisible()
    log.search.clear()
    assert len(texts(log)) == 3


def test_the_newest_line_is_followed_until_one_does_not_want_to(log: LogView, qtbot: QtBot) -> None:
    bar = log.view.verticalScrollBar()
    for number in range(200):
        add(log, f"line {number}")
    assert len(texts(log)) == 200
    qtbot.waitUntil(lambda: bar.value() == bar.maximum() > 0)
    log.follow.setChecked(False)
    bar.setValue(0)
    add(log, "one more")
    assert len(texts(log)) == 201
    assert bar.value() == 0


@pytest.mark.parametrize("at_once", [1000, 2 * EVENTS_KEPT])
def test_the_oldest_lines_are_forgotten(log: LogView, at_once: int) -> None:
    for number in range(EVENTS_KEPT + 3):
        add(log, str(number))
        if number % at_once == 0:
            log.show_pending()
    assert texts(log) == [str(number) for number in range(3, EVENTS_KEPT + 3)]


def test_lines_can_be_copied(log: LogView, qtbot: QtBot) -> None:
    for text in ("first", "second", "third"):
        add(log, text, "error" if text == "second" else "info")
    texts(log)
    log.view.selectRow(1)
    log.view.setFocus()
    qtbot.keyClick(log.view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    copied = QGuiApplication.clipboard().text()
    assert copied.endswith("second") and "error" in copied and "first" not in copied
    log.view.clearSelection()
    qtbot.mouseClick(log.copy_button, Qt.MouseButton.LeftButton)
    assert [line.split()[-1] for line in QGuiApplication.clipboard().text().splitlines()] == [
        "first",
        "second",
        "third",
    ]


def test_an_event_is_worded_in_the_language_of_the_moment(
    log: LogView, link: ScriptedLink, languages: i18n.Languages
) -> None:
    row = RequestRow(4, "chat-4", "waiting", 10, "app", 20, 0, 50, arrival=1e9)
    link.eventReceived.emit(Event("e1", 1e9, "submitted", "Request 4 submitted", row=row))
    (english,) = texts(log)
    languages.switch(i18n.Language.CHINESE)
    (chinese,) = texts(log)
    assert english != chinese and "4" in english and "4" in chinese
    log.search.setText(chinese[:3])  # and is found by what it says
    assert texts(log) == [chinese]


def test_a_change_of_settings_is_told_in_the_words_of_the_settings_page(languages: i18n.Languages) -> None:
    changes = {"block_size": (16, 32), "token_budget": (1024, 8192), "class_limits": ("", "batch=4,normal=8")}
    text = describe(ReconfigureReport(False, changes, 105.0, 1133, 142_400_000, 2, 0))
    event = Event("e1", 1e9, "reconfigured", text)
    assert words.event(event).replace("\u00a0", " ") == (
        "Block size 16 → 32, Token budget 1,024 → 8,192, Class limits none → batch=4,normal=8: "
        "1,133 blocks moved, 136 MiB copied, 0.10 s pause"
    )
    event.text = describe(ReconfigureReport(False, {"prefix_caching": (True, False)}, 0.2))
    assert words.event(event).replace("\u00a0", " ") == "Prefix caching on → off: 0.20 ms pause"
    languages.switch(i18n.Language.CHINESE)
    assert foreign(words.event(event)) == []


def test_so_is_what_the_app_says_itself(
    window: MainWindow, link: ScriptedLink, languages: i18n.Languages, qtbot: QtBot
) -> None:
    link.say_connection(ConnectionState.NOT_ANSWERING)
    (english,) = texts(window.log)
    assert window.said.text() == english
    languages.switch(i18n.Language.CHINESE)
    (chinese,) = texts(window.log)
    assert foreign(english) and not foreign(chinese)
    qtbot.waitUntil(lambda: window.said.text() == chinese)
