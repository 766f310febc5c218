"""Texts follow at the pace of the eye: at once, then one for many, and the last one for sure."""

from __future__ import annotations

import pytest
from pagedeck.gui.batch.view import BatchView
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.paced import Paced
from pagedeck.gui.selection import Selection
from pagedeck.ipc.telemetry import Event, RequestRow
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink


def test_calls_in_between_are_one_call(qtbot: QtBot, qapp: QApplication) -> None:
    calls: list[int] = []
    paced = Paced(lambda: calls.append(1), 20, qapp)
    for _ in range(10):
        paced()
    assert len(calls) == 1
    qtbot.waitUntil(lambda: len(calls) == 2)
    qtbot.waitUntil(lambda: not paced._rest.isActive())
    assert len(calls) == 2


def test_the_figures_of_the_batch_change_less_often_than_its_columns(
    qtbot: QtBot, link: ScriptedLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeder = Feeder()
    link.view.begin(feeder.epoch)
    shown = BatchView(link, Selection())
    qtbot.addWidget(shown)
    with qtbot.waitExposed(shown):
        shown.show()
    written: list[str] = []
    monkeypatch.setattr(shown._now, "setText", written.append)
    for _ in range(12):
        link.tell(feeder.advance(1))  # without a turn of the event loop: no time passes for the window
    assert len(written) <= 1
    assert shown.timeline._end == link.view.steps.total
    qtbot.waitUntil(lambda: not shown._figures._due)
    assert written


def test_of_many_events_the_status_bar_says_the_last(window: MainWindow, link: ScriptedLink, qtbot: QtBot) -> None:
    shown: list[str] = []
    for number in range(1, 21):
        row = RequestRow(number, f"id-{number}", "finished", 10, output_tokens=64, e2e_s=2.0)
        link.tell([(b"event", number, Event("", 0.0, "finished", "raw", "info", row))])
        shown.append(window.said.text())
    assert len(set(shown)) == 1 and "#1 " in shown[0]
    qtbot.waitUntil(lambda: "#20 " in window.said.text())
