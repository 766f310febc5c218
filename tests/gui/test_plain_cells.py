"""Cells that are painted without the style look as if it had painted them."""

from __future__ import annotations

from functools import partial

import numpy as np
from pagedeck.gui import theme
from pagedeck.gui.log_view import LogView
from pagedeck.gui.requests.table import RequestTable, StateDelegate
from pagedeck.gui.selection import Selection
from pagedeck.ipc.telemetry import RequestRow
from PySide6.QtCore import QModelIndex, QPersistentModelIndex
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem, QTableView
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink


class Counting(QStyledItemDelegate):
    """The style's cells."""

    def __init__(self, view: QTableView) -> None:
        super().__init__(view)
        self.rows: set[int] = set()

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        self.rows.add(index.row())
        super().paint(painter, option, index)


def ink(view: QTableView) -> np.ndarray:
    """What is no background, a pixel each."""
    image = view.viewport().grab().toImage().convertToFormat(QImage.Format.Format_RGB32)
    pixels = np.frombuffer(image.constBits(), np.uint32).reshape(image.height(), image.width())
    return pixels != pixels[-1, -1]


def table(link: ScriptedLink, qtbot: QtBot) -> RequestTable:
    states = ("running", "swapped", "finished", "failed")
    link.view.requests.update(
        {n: RequestRow(n, f"id-{n}", states[n % 4], 10, arrival=1.0, e2e_s=2.0, ttft_s=0.1 * n) for n in range(1, 9)}
    )
    made = RequestTable(link, Selection())
    qtbot.addWidget(made)
    made.resize(1100, 500)
    made.show()
    return made


def same(quick: np.ndarray, styled: np.ndarray) -> None:
    """Apart from the smoothing of edges: every line and column begins and ends where it does, to a pixel."""
    assert styled.any()
    for axis in (0, 1):
        one, other = quick.any(axis), styled.any(axis)
        grown = np.convolve(one, [1, 1, 1], "same") > 0, np.convolve(other, [1, 1, 1], "same") > 0
        assert not (one & ~grown[1]).any() and not (other & ~grown[0]).any()


def test_requests_look_as_the_style_paints_them(link: ScriptedLink, qtbot: QtBot) -> None:
    for mode in ("light", "dark"):
        theme.current().set_mode(mode)
        view = table(link, qtbot).view
        quick = ink(view)
        view.setItemDelegate(QStyledItemDelegate(view))
        view.setItemDelegateForColumn(1, StateDelegate(view))
        same(quick, ink(view))


def test_the_log_looks_as_the_style_paints_it(link: ScriptedLink, qtbot: QtBot) -> None:
    log = LogView(link)
    qtbot.addWidget(log)
    for level in ("info", "warning", "error"):
        log.add(partial("What is said of {}".format, level), level)
    log.resize(1100, 500)
    log.show()
    quick = ink(log.view)
    log.view.setItemDelegate(QStyledItemDelegate(log.view))
    same(quick, ink(log.view))


def test_only_what_is_selected_is_left_to_the_style(link: ScriptedLink, qtbot: QtBot) -> None:
    requests = table(link, qtbot)
    styled = Counting(requests.view)
    for column in range(requests.model.columnCount()):
        delegate = requests.view.itemDelegateForColumn(column) or requests.view.itemDelegate()
        delegate._other = styled
    ink(requests.view)
    assert styled.rows == set()
    requests.view.selectRow(2)
    ink(requests.view)
    assert styled.rows == {2}
