"""A scripted engine for widgets; settings, language and theme that no test leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pagedeck.gui import i18n, theme
from pagedeck.gui.selection import Selection
from PySide6.QtWidgets import QApplication

from .scripted_link import ScriptedLink


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
def _light(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theme.current().set_mode("light")
