"""Figures that change several times a second leave the layout around them alone: to lay a window out takes longer than
to draw the map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pagedeck.gui.card import QuietLabel, Still
from pagedeck.gui.map.legend import Legend
from pagedeck.gui.state import TierView
from pagedeck.ipc.telemetry import TierBlocks
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtCore import QCoreApplication, QEvent, QObject
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget
from pytestqt.qtbot import QtBot


class Layouts(QObject):
    """Counts how often a window is to be laid out anew."""

    def __init__(self, inside: QWidget, qtbot: QtBot) -> None:
        super().__init__()
        self._window = QWidget()
        qtbot.addWidget(self._window)
        QHBoxLayout(self._window).addWidget(inside, 1)
        self._window.resize(800, 100)
        self._window.show()
        QCoreApplication.sendPostedEvents()
        self._count = 0
        self._window.installEventFilter(self)

    def after(self, change: Callable[[], None]) -> int:
        self._count = 0
        change()
        QCoreApplication.sendPostedEvents()
        return self._count

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self._count += event.type() == QEvent.Type.LayoutRequest
        return False


def test_what_counts_is_a_layout(qtbot: QtBot) -> None:
    label = QLabel("short")
    around = Layouts(label, qtbot)
    assert around.after(lambda: label.setText("much longer")) > 0


def test_a_quiet_label_changes_its_text_and_nothing_else(qtbot: QtBot) -> None:
    label = QuietLabel()
    around = Layouts(label, qtbot)
    assert around.after(lambda: label.setText("63 % allocated")) == 0
    assert label.text() == label.accessibleName() == "63 % allocated"
    assert 0 < label.sizeHint().height() <= label.height()


def test_what_is_in_a_still_room_changes_nothing_around_it(qtbot: QtBot) -> None:
    label = QLabel("short")
    room = Still(label)
    around = Layouts(room, qtbot)
    assert around.after(lambda: label.setText("much longer " * 50)) == 0
    assert label.size() == room.size() and room.width() > 700


def test_counts_in_the_legend_change_nothing_around_it(qtbot: QtBot) -> None:
    legend, tier, nothing = Legend(), TierView(), TierView()

    def hold(active: int) -> None:
        state = np.full(100, BlockState.FREE, np.uint8)
        state[:active] = BlockState.ACTIVE
        tier.replace(TierBlocks(100, 16, 16, state=state.tobytes()))
        legend.refresh(tier, nothing)

    hold(1)
    around = Layouts(legend, qtbot)
    assert around.after(lambda: hold(42)) == 0
    assert legend._chips[BlockState.ACTIVE].text().endswith("42")
