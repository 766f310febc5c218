"""The window as a whole: pages, figures, states of the engine, what is said, layout kept, keys, smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.gui import i18n, theme
from pagedeck.gui.app import parser, stored_theme
from pagedeck.gui.banner import brief
from pagedeck.gui.choice import Choice
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.rail import PAGES
from pagedeck.gui.session import EngineSession
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.protocol import Reconfigure, Reconfigured, ReconfigureReport, Submit
from pagedeck.ipc.telemetry import Event, RequestRow
from PySide6.QtCore import QEvent, QPoint, QSettings, Qt
from PySide6.QtWidgets import (
    QAbstractScrollArea,
    QApplication,
    QLabel,
    QScrollArea,
    QToolButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def figures(window: MainWindow) -> list[str]:
    glance = window.toolbar.glance
    shown = (glance.memory, glance.running, glance.waiting, glance.rate, glance.ttft)
    return [plain(figure.accessibleName()) for figure in shown]


def feed(link: ScriptedLink) -> Feeder:
    feeder = Feeder(num_blocks=512, host_blocks=128)
    link.view.begin(feeder.epoch)
    link.become_ready(feeder.status())
    link.view.apply_snapshot(feeder.snapshot())
    for _ in range(4):
        link.tell(feeder.advance(20, arrivals=0.3, stats=True))
    return feeder


@pytest.mark.parametrize("stored", ["nonsense", 12, ["a", "b"]])
def test_a_layout_of_another_version_is_as_good_as_none(
    stored: object, link: ScriptedLink, languages: i18n.Languages, tmp_path: Path, qtbot: QtBot
) -> None:
    settings = QSettings(str(tmp_path / "other.ini"), QSettings.Format.IniFormat)
    for part in ("geometry", "state", "splitter", "page", "theme"):
        settings.setValue(f"window/{part}", stored)
    window = MainWindow(EngineSession(link), languages, settings)
    qtbot.addWidget(window)
    assert (window.width(), window.height()) == (1280, 800) and window.rail.current == PAGES[0].key
    assert stored_theme(settings) == "system"


def test_every_page_by_key_and_by_rail(window: MainWindow, qtbot: QtBot) -> None:
    with qtbot.waitActive(window):
        window.activateWindow()
    pages = []
    for place, page in enumerate(PAGES, 1):
        qtbot.keyClick(window, Qt.Key(Qt.Key.Key_0 + place % 10), Qt.KeyboardModifier.ControlModifier)
        assert window.rail.current == page.key
        pages.append(window.pages.currentWidget())
    assert len({*pages}) == len(PAGES)
    window.rail.button("map").setFocus()
    window.rail.choose("map")
    qtbot.keyClick(window.rail, Qt.Key.Key_Down)
    assert window.pages.currentWidget() is pages[1]


def test_the_figures_at_a_glance(window: MainWindow, link: ScriptedLink) -> None:
    assert figures(window) == ["KV –", "– running", "– waiting", "– tok/s", "P95 TTFT –"]
    feed(link)
    stats = link.view.stats
    assert stats is not None
    share = round(100 * stats.device.used / stats.device.num_blocks)
    memory, running, waiting, rate, ttft = figures(window)
    assert memory == f"KV {share} %"
    assert running == f"{stats.running} running"
    assert waiting == f"{stats.waiting} waiting"
    assert rate == f"{round(stats.output_tokens_per_s)} tok/s"
    assert ttft.startswith("P95 TTFT 0.")
    tip = plain(window.toolbar.glance.memory.toolTip())
    assert f"{stats.device.used} of {stats.device.num_blocks} blocks" in tip
    assert "tokens (98 % filled)" in tip


def test_figures_keep_their_places(window: MainWindow, link: ScriptedLink) -> None:
    feeder = feed(link)
    glance = window.toolbar.glance
    before = [figure.minimumWidth() for figure in (glance.memory, glance.running, glance.rate)]
    link.tell(feeder.advance(40, arrivals=0.9, stats=True))
    assert [figure.minimumWidth() for figure in (glance.memory, glance.running, glance.rate)] == before


@pytest.mark.parametrize(
    ("state", "title", "button"),
    [
        (ConnectionState.READY, "", ""),
        (ConnectionState.CONNECTING, "Connecting", ""),
        (ConnectionState.LOADING, "Loading the model", ""),
        (ConnectionState.DRAINING, "takes nothing new", ""),
        (ConnectionState.NOT_ANSWERING, "has not answered for", "Restart"),
        (ConnectionState.DIED, "died", "Restart"),
        (ConnectionState.STOPPED, "stopped", "Start"),
        (ConnectionState.DISCONNECTED, "No engine", "Start"),
    ],
)
def test_states_are_honest(
    window: MainWindow, link: ScriptedLink, state: ConnectionState, title: str, button: str
) -> None:
    link.say_connection(state)
    banner = window.banner
    assert banner.isVisible() == bool(title)
    assert title in banner.title.text()
    assert banner.action.isVisible() == bool(button)
    assert not button or banner.action.text() == button
    alive = state not in (ConnectionState.DIED, ConnectionState.STOPPED, ConnectionState.DISCONNECTED)
    assert window.toolbar.stop_button.isEnabled() == alive
    assert window.toolbar.start_button.isEnabled() == (not alive)


def test_loading_says_what_and_how_far(window: MainWindow, link: ScriptedLink) -> None:
    link.say_connection(ConnectionState.LOADING, "Downloading the model: 12.0 of 92.9 MB", 0.13)
    assert "Downloading the model: 12.0 of 92.9 MB · 13 %" in plain(window.banner.detail.text())
    assert (window.banner.progress.value(), window.banner.progress.maximum()) == (130, 1000)
    link.say_connection(ConnectionState.LOADING, "Warming up the kernels", None)
    assert window.banner.progress.maximum() == 0


def test_a_change_is_said_in_words(window: MainWindow, link: ScriptedLink, qtbot: QtBot) -> None:
    panel = window.settings_panel
    field = panel.editors["block_size"].field
    field.setCurrentIndex(field.findData(64))  # type: ignore[union-attr]
    panel.apply()
    report = ReconfigureReport(False, {"block_size": (32, 64)}, 38.0, 212, 41 << 20)
    link.answer(Reconfigure, Reconfigured(report=report))
    sentence = "Block size 32 → 64: 212 blocks moved, 41 MiB copied, 38 ms pause"
    assert plain(window.said.text()) == sentence
    link.tell([(b"event", 1, event("finished", 3))])
    assert plain(window.said.text()) == sentence, "an event must not wipe away what was just done"
    window.log.show_pending()
    assert sentence in plain(window.log.model.text_of(0))


def event(kind: str, number: int, level: str = "info") -> Event:
    row = RequestRow(number, f"r{number}", kind, 10, output_tokens=64, e2e_s=2.0, error="out of luck")
    return Event("", 0.0, kind, "raw", level, row)


def test_events_are_said_and_logged(window: MainWindow, link: ScriptedLink) -> None:
    link.tell([(b"event", 1, event("finished", 3))])
    assert plain(window.said.text()) == "Request #3 finished: 64 output tokens in 2.0 s"
    link.tell([(b"event", 2, event("failed", 4, "error"))])
    assert plain(window.said.text()) == "Request #4 failed: out of luck"
    link.tell([(b"event", 3, Event("", 0.0, "log", "a detail", "debug"))])
    window.log.show_pending()
    assert window.log.model.rowCount() == 2
    window.log.level.setCurrentIndex(0)
    assert window.log.model.rowCount() == 3
    window.log.search.setText("luck")
    assert window.log.model.rowCount() == 1


def test_one_selection_for_all_views(window: MainWindow, link: ScriptedLink) -> None:
    feed(link)
    number = next(row.number for row in link.view.live() if row.state == "running")
    window.show_on_map(number)
    assert window.rail.current == "map"
    assert window.inspector.request.row is not None
    assert window.inspector.request.row.number == number
    window.rail.choose("requests")
    rows = window.requests.view.selectionModel().selectedRows()
    assert [window.requests.model.number_at(index.row()) for index in rows] == [number]


def test_the_empty_maps_invitation_sends_a_load(window: MainWindow, link: ScriptedLink) -> None:
    window.map.sampleRequested.emit()
    assert link.count(Submit) == 8


def test_theme_and_language_switch_live(window: MainWindow, languages: i18n.Languages, qtbot: QtBot) -> None:
    with qtbot.waitSignal(window.toolbar.languageChosen) as chosen:
        qtbot.mouseClick(window.toolbar.language_button, Qt.MouseButton.LeftButton)
    assert chosen.args == ["zh_CN"]
    qtbot.waitUntil(lambda: window.rail.button("map").text() == "块图")
    assert window.toolbar.language_button.text() == "EN"
    qtbot.mouseClick(window.toolbar.language_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: window.rail.button("map").text() == "Map")
    with qtbot.waitSignal(window.toolbar.themeChosen) as chosen:
        qtbot.mouseClick(window.toolbar.theme_button, Qt.MouseButton.LeftButton)
    assert chosen.args == ["dark"]
    assert theme.current().palette.dark


def test_layout_is_kept_between_starts(
    link: ScriptedLink, languages: i18n.Languages, tmp_path: Path, qtbot: QtBot
) -> None:
    def open_window() -> MainWindow:
        settings = QSettings(str(tmp_path / "kept.ini"), QSettings.Format.IniFormat)
        made = MainWindow(EngineSession(link), languages, settings)
        qtbot.addWidget(made)
        made.show()
        return made

    first = open_window()
    first.resize(first.minimumWidth(), 610)
    first.rail.choose("log")
    first.dock.hide()
    first.close()
    second = open_window()
    assert second.height() == 610
    assert second.rail.current == "log"
    assert not second.dock.isVisible()
    assert not second.toolbar.inspector_button.isChecked()


@pytest.mark.parametrize("language", list(i18n.Language))
def test_a_small_window_shows_every_primary_control(
    window: MainWindow, link: ScriptedLink, languages: i18n.Languages, language: i18n.Language
) -> None:
    feed(link)
    languages.switch(language)
    window.resize(1024, 640)
    QApplication.processEvents()
    assert (window.width(), window.height()) == (1024, 640)
    bar = window.toolbar
    primary: list[tuple[str, QWidget]] = [("map", w) for w in bar.findChildren(QToolButton) if w.menu() or w.icon()]
    primary += [("map", bar.glance.ttft), ("map", bar.language_button)]
    primary += [(page.key, window.rail.button(page.key)) for page in PAGES]
    primary += [("requests", window.requests.cancel_button), ("requests", window.requests.class_button)]
    panel, play = window.settings_panel, window.playground
    primary += [("settings", panel.apply_button), ("settings", panel.discard_button)]
    primary += [("playground", w) for w in (play.send_button, play.stop_button, play.fill_button, play.clear_button)]
    primary += [("log", window.log.copy_button)]
    for page, widget in primary:
        if widget.objectName() == "qt_toolbar_ext_button":
            assert not widget.isVisible()
            continue
        window.rail.choose(page)
        QApplication.processEvents()
        assert widget.isVisible(), (page, widget)
        corner = widget.mapTo(window, QPoint(widget.width(), widget.height()))
        assert corner.x() <= window.width() and corner.y() <= window.height(), (page, widget)
        assert widget.width() >= widget.minimumSizeHint().width(), (page, widget, widget.size())


def test_everything_that_takes_focus_shows_it_and_has_a_name(window: MainWindow, link: ScriptedLink) -> None:
    feed(link)
    named = {label.buddy() for label in window.findChildren(QLabel)}
    nameless = []
    for page in PAGES:
        window.rail.choose(page.key)
        QApplication.processEvents()
        for widget in window.centralWidget().findChildren(QWidget):
            takes_focus = widget.focusPolicy() & Qt.FocusPolicy.TabFocus
            said = getattr(widget, "text", "")
            text = said() if callable(said) else ""
            inner = widget.objectName().startswith("qt_") or isinstance(widget.parent(), QAbstractScrollArea)
            ours = not inner and type(widget) is not QScrollArea
            if takes_focus and widget.isVisible() and ours and not (widget.accessibleName() or text or widget in named):
                nameless.append((page.key, type(widget).__name__, type(widget.parent()).__name__))
    assert nameless == []


def test_closing_ends_the_session(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(window.session, "close", lambda: closed.append(True))
    window.close()
    assert closed == [True]


def test_hidden_pages_stay_quiet(window: MainWindow, link: ScriptedLink) -> None:
    """Telemetry costs nothing in pages that nobody sees."""
    window.rail.choose("log")
    told: list[object] = []
    window.requests.model.dataChanged.connect(lambda *args: told.append(args))
    feed(link)
    assert told == []
    assert not window.requests._timer.isActive()


def test_a_changed_palette_redraws_the_icons(window: MainWindow) -> None:
    before = window.rail.button("map").icon().cacheKey()
    theme.current().set_mode("dark")
    assert window.rail.button("map").icon().cacheKey() != before
    QApplication.sendEvent(window, QEvent(QEvent.Type.LanguageChange))


def test_an_engines_death_is_explained_briefly_and_logged_in_full(window: MainWindow, link: ScriptedLink) -> None:
    traceback = "\n".join([f"line {number}" for number in range(10)])
    assert brief(traceback) == "\n".join(f"line {number}" for number in range(5, 10))
    assert brief(f"pagedeck: The disk is full.\n{traceback}") == "The disk is full."
    window.session.last_words = traceback
    link.say_connection(ConnectionState.DIED)
    assert window.banner.detail.text() == brief(traceback)
    assert window.said.text() == "Engine pagedeck: died"
    window.log.show_pending()
    assert traceback in window.log.model.text_of(window.log.model.rowCount() - 1)


@pytest.mark.parametrize(
    ("killed_by", "title", "detail"),
    [(9, "was killed", "memory runs out"), (11, "crashed (signal 11)", "Fatal"), (15, "(signal 15)", "Fatal")],
)
def test_a_signal_is_explained(window: MainWindow, link: ScriptedLink, killed_by: int, title: str, detail: str) -> None:
    window.session.last_words, window.session.killed_by = "Fatal Python error", killed_by
    link.say_connection(ConnectionState.DIED)
    assert title in window.banner.title.text()
    assert detail in window.banner.detail.text()
    assert window.banner.action.text() == "Restart"


def test_what_is_not_the_apps_own_goes_to_the_engine() -> None:
    options, rest = parser().parse_known_args(["--theme", "dark", "--model", "tiny", "-n", "x", "--block-size", "64"])
    assert (options.theme, options.name) == ("dark", "x")
    assert rest == ["--model", "tiny", "--block-size", "64"]


def test_a_choice_is_as_wide_as_its_texts_in_any_language(qtbot: QtBot) -> None:
    choice = Choice()
    qtbot.addWidget(choice)
    choice.addItem("样本 1")
    with qtbot.waitExposed(choice):
        choice.show()
    before = choice.sizeHint().width()
    choice.setItemText(0, "The first sample of them all")
    assert choice.sizeHint().width() > before + 40


def test_the_inspector_grows_with_the_window_until_it_is_dragged(window: MainWindow, qtbot: QtBot) -> None:
    narrow = window.dock.width()
    window.resize(2560, 1440)
    qtbot.waitUntil(lambda: 1.4 * narrow < window.dock.width() < 2560 / 5)
    window.resize(1280, 800)
    qtbot.waitUntil(lambda: window.dock.width() == narrow)
    window.resizeDocks([window.dock], [350], Qt.Orientation.Horizontal)
    qtbot.waitUntil(lambda: window.dock.width() == 350)
    window.resize(2560, 1440)
    qtbot.waitUntil(lambda: window.map.width() > 1800)
    assert window.dock.width() == 350
