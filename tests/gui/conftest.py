"""A scripted engine for widgets; settings, language and theme that no test leaves behind."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pagedeck.gui import i18n, theme
from pagedeck.gui.engines import process as engine_process
from pagedeck.gui.link import EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.selection import Selection
from pagedeck.gui.session import EngineSession
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from ..nursery import Nursery
from .scripted_link import ScriptedLink

OpenWindow = Callable[[Sequence[str]], MainWindow]


@pytest.fixture(scope="session", autouse=True)
def _windows_engines_from_the_nursery(nursery: Nursery) -> Iterator[None]:
    """Those that the window starts; ``fresh_engines`` has them start as they do elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_process, "subprocess", nursery)
        yield


@pytest.fixture
def fresh_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_process, "subprocess", subprocess)


@pytest.fixture
def link(qapp: QApplication) -> ScriptedLink:
    made = ScriptedLink()
    made.become_ready()
    return made


@pytest.fixture
def selection(qapp: QApplication) -> Selection:
    return Selection()


@pytest.fixture
def languages(qapp: QApplication) -> Iterator[i18n.Languages]:
    made = i18n.Languages()
    made.switch(i18n.Language.ENGLISH)
    yield made
    made.switch(i18n.Language.ENGLISH)


@pytest.fixture(autouse=True)
def _light(qapp: QApplication) -> None:
    theme.current().set_mode("light")


@pytest.fixture
def window(
    link: ScriptedLink, languages: i18n.Languages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> MainWindow:
    """The whole window over a scripted engine, its stored layout in a file of the test's own. No other engine is
    known."""
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    settings = QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat)
    made = MainWindow(EngineSession(link), languages, settings)
    qtbot.addWidget(made)
    made.resize(1280, 800)
    made.show()
    return made


@pytest.fixture
def open_window(
    languages: i18n.Languages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> Iterator[OpenWindow]:
    """The whole window for real engines, of which it knows the test's own alone; it is told with which arguments it is
    to start one."""
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    windows: list[MainWindow] = []

    def opened(arguments: Sequence[str]) -> MainWindow:
        settings = QSettings(str(tmp_path / "app.ini"), QSettings.Format.IniFormat)
        made = MainWindow(EngineSession(EngineLink(), arguments), languages, settings)
        windows.append(made)
        qtbot.addWidget(made)
        made.resize(1280, 900)
        made.show()
        return made

    yield opened
    for window in windows:
        window.session.close()
        window.engines.close()
