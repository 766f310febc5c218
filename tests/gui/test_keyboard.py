"""Keyboard and screen reader: on every page and in every dialog, what takes focus is reached by Tab, has a name, and
shows the focus."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pagedeck.gui import shortcuts
from pagedeck.gui.attached.dialog import AttachDialog
from pagedeck.gui.engines.start_dialog import StartDialog
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.leave_dialog import LeaveDialog
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.rail import PAGES
from pagedeck.gui.welcome import Welcome
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QAction, QImage, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QDialog,
    QGraphicsScene,
    QLabel,
    QScrollArea,
    QWidget,
)
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink
from .test_i18n import make_everything_visible


@pytest.fixture
def filled(window: MainWindow, link: ScriptedLink, qtbot: QtBot) -> MainWindow:
    """A window with something in every view, which stands still."""
    make_everything_visible(window, link)
    link._frame.stop()
    with qtbot.waitActive(window):
        window.activateWindow()
    return window


def focusable(window: QWidget) -> list[QWidget]:
    """What can be seen, used and reached by Tab. Proxies hand their focus on; what is inside a view is the view's; of
    buttons that exclude each other Tab reaches the pressed one, and arrow keys the others."""
    return [
        widget
        for widget in window.findChildren(QWidget)
        if widget.isVisible()
        and widget.isEnabled()
        and widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.focusProxy() is None
        and widget.window() is window
        and not isinstance(widget.parent(), QAbstractScrollArea)
        and not widget.objectName().startswith("qt_")
        and not (isinstance(widget, QAbstractButton) and widget.group() is not None and not widget.isChecked())
    ]


def told(window: QWidget, widget: QWidget) -> str:
    """What a screen reader says of a widget."""
    labels = [label.text() for label in window.findChildren(QLabel) if label.buddy() is widget]
    return widget.accessibleName() or str(getattr(widget, "text", lambda: "")()) or " ".join(labels)


def place(widget: QWidget) -> str:
    name = widget.accessibleName() or str(getattr(widget, "text", lambda: "")())
    return f"{type(widget.parent()).__name__} / {type(widget).__name__} {name!r}"


def pixels(window: QWidget, widget: QWidget) -> np.ndarray:
    """What is drawn where a widget is, and two pixels around it."""
    QApplication.processEvents()
    area = QRect(widget.mapTo(window, QPoint(0, 0)), widget.size()).adjusted(-2, -2, 2, 2) & window.rect()
    image = window.grab(area).toImage().convertToFormat(QImage.Format.Format_RGB32)
    rows = np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), -1)
    return rows[:, : image.width()].copy()


def walk(window: QWidget, first: QWidget, wanted: dict[QWidget, str], qtbot: QtBot) -> tuple[list[str], list[str]]:
    """Press Tab from ``first`` until it comes round: what of ``wanted`` was not reached, and what does not show that it
    has the focus."""
    first.setFocus(Qt.FocusReason.TabFocusReason)
    before = {widget: pixels(window, widget) for widget in wanted if widget is not first}
    reached, unseen = {first}, []
    for _ in range(2 * len(wanted)):
        qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        now = QApplication.focusWidget()
        if now is first:
            break
        if now in before and np.array_equal(before[now], pixels(window, now)):
            unseen.append(place(now))
        reached.add(now)
    return [name for widget, name in wanted.items() if widget not in reached], unseen


@pytest.mark.parametrize("page", [*(page.key for page in PAGES), "measure load", "measure tune", "measure compare"])
def test_all_that_takes_focus_is_reached_named_and_seen(filled: MainWindow, page: str, qtbot: QtBot) -> None:
    window = filled
    page, _, tab = page.partition(" ")
    window.rail.choose(page)
    if tab:
        window.measure.turn_to(tab)
    QApplication.processEvents()
    wanted = {widget: place(widget) for widget in focusable(window)}
    assert len(wanted) > 10 and window.rail.button(page) in wanted
    assert [name for widget, name in wanted.items() if not told(window, widget)] == [], "no name"
    assert walk(window, window.rail.button(page), wanted, qtbot) == ([], []), "not reached by Tab; focus not seen"


DIALOGS: dict[str, Callable[[MainWindow], QDialog]] = {
    "welcome": lambda window: Welcome(window._languages, window.session.link, window),
    "start": lambda window: StartDialog(window.engines, window.session, window),
    "attach": AttachDialog,
    "leave": LeaveDialog,
}


@pytest.mark.parametrize("name", DIALOGS)
def test_so_is_all_of_a_dialog(filled: MainWindow, name: str, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> None:
    monkeypatch.setattr("pagedeck.gui.welcome.Welcome.look", lambda self: self._show())
    dialog = DIALOGS[name](filled)
    with qtbot.waitActive(dialog):
        dialog.open()
    wanted = {widget: place(widget) for widget in focusable(dialog)}
    assert len(wanted) > 2
    assert [name for widget, name in wanted.items() if not told(dialog, widget)] == [], "no name"
    assert walk(dialog, next(iter(wanted)), wanted, qtbot) == ([], []), "not reached by Tab; focus not seen"
    dialog.close()


def test_the_overview_names_every_key(filled: MainWindow, qtbot: QtBot) -> None:
    actions = [a for a in filled.findChildren(QAction) if not isinstance(a.parent(), QGraphicsScene)]
    keys = {keys.toString() for action in actions for keys in action.shortcuts()}
    keys |= {shortcut.key().toString() for shortcut in filled.findChildren(QShortcut)}
    named = {keys.toString() for keys in shortcuts.known()}
    assert len(keys) > 10
    assert keys - named == set()


@pytest.mark.parametrize("language", Language)
def test_the_overview_is_seen_whole(filled: MainWindow, languages: Languages, language: Language) -> None:
    languages.switch(language)
    overview = shortcuts.Shortcuts(filled)
    overview.show()
    QApplication.processEvents()
    area = overview.findChild(QScrollArea)
    assert area is not None and area.verticalScrollBar().maximum() == 0
    assert area.widget().minimumSizeHint().width() <= area.viewport().width()


def test_the_overview_opens_by_its_key_but_not_while_text_is_typed(filled: MainWindow, qtbot: QtBot) -> None:
    window = filled
    window.rail.choose("log")
    window.log.search.setFocus()
    qtbot.keyClick(window.log.search, Qt.Key.Key_Question, Qt.KeyboardModifier.ShiftModifier)
    assert window.log.search.text() == "?" and window.findChild(shortcuts.Shortcuts) is None
    qtbot.keyClick(window.log.search, Qt.Key.Key_F1)
    overview = window.findChild(shortcuts.Shortcuts)
    assert overview is not None and overview.isVisible()
    texts = [label.text() for label in overview.findChildren(QLabel)]
    assert QKeySequence("Ctrl+R").toString(QKeySequence.SequenceFormat.NativeText) in texts
    qtbot.keyClick(overview, Qt.Key.Key_Escape)
    assert not overview.isVisible()
