"""The request table: order, filter, selection, verbs, and its pace with many rows."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from pagedeck.gui.request_model import COLUMNS, NUMBER, RequestModel
from pagedeck.gui.request_table import RequestTable
from pagedeck.gui.selection import Selection
from pagedeck.ipc.protocol import SetPriority
from pagedeck.ipc.telemetry import RequestRow
from PySide6.QtCore import QPersistentModelIndex, Qt
from pytestqt.qtbot import QtBot

from .scripted_link import ScriptedLink

TTFT = [column.title for column in COLUMNS].index("TTFT")


def row(number: int, state: str = "running", priority: int = 10, **facts: object) -> RequestRow:
    return RequestRow(number, f"id-{number}", state, priority, arrival=time.time(), **facts)  # type: ignore[arg-type]


def shown(model: RequestModel) -> list[int]:
    return [model.number_at(at) for at in range(model.rowCount())]


@pytest.fixture
def requests() -> dict[int, RequestRow]:
    return {n: row(n, ttft_s=0.1 * (n % 3) if n % 4 else None) for n in range(1, 11)}


def test_columns_share_the_width_until_one_is_dragged(
    link: ScriptedLink, requests: dict[int, RequestRow], qtbot: QtBot
) -> None:
    link.view.requests.update(requests)
    table = RequestTable(link, Selection())
    qtbot.addWidget(table)
    table.resize(1000, 500)
    table.show()
    header, room = table.view.horizontalHeader(), lambda: table.view.viewport().width()
    for width in (1200, 2000, 1100):
        table.resize(width, 500)
        qtbot.waitUntil(lambda: room() - len(COLUMNS) <= header.length() <= room())
    header.resizeSection(3, 200)
    table.resize(1500, 500)
    qtbot.waitUntil(lambda: room() > 1400)
    assert header.sectionSize(3) == 200


def test_model_keeps_qt_rules(requests: dict[int, RequestRow], qtmodeltester: object) -> None:
    model = RequestModel(requests)
    model.refresh()
    qtmodeltester.check(model)  # type: ignore[attr-defined]
    generator = random.Random(1)
    for step in range(60):
        if generator.random() < 0.5:
            requests[100 + step] = row(100 + step, ttft_s=generator.random())
        if generator.random() < 0.5 and requests:
            del requests[generator.choice(list(requests))]
        if generator.random() < 0.3:
            model.sort(generator.randrange(len(COLUMNS)), generator.choice(list(Qt.SortOrder)))
        model.refresh()
        assert sorted(shown(model)) == sorted(requests)


def test_order_newest_first_then_by_any_column_ties_by_arrival(requests: dict[int, RequestRow]) -> None:
    model = RequestModel(requests)
    model.refresh()
    assert shown(model) == [*range(10, 0, -1)]
    model.sort(TTFT, Qt.SortOrder.AscendingOrder)
    assert shown(model) == [8, 4, 9, 6, 3, 10, 7, 1, 5, 2]
    model.sort(TTFT, Qt.SortOrder.DescendingOrder)
    assert shown(model) == [5, 2, 10, 7, 1, 9, 6, 3, 8, 4]


def test_persistent_indexes_follow_their_request(requests: dict[int, RequestRow]) -> None:
    model = RequestModel(requests)
    model.refresh()
    kept = QPersistentModelIndex(model.index(shown(model).index(6), 0))
    gone = QPersistentModelIndex(model.index(shown(model).index(2), 0))
    del requests[2], requests[9]
    requests[20] = row(20)
    model.sort(TTFT, Qt.SortOrder.AscendingOrder)
    assert model.number_at(kept.row()) == 6
    assert not gone.isValid()
    assert model.row_of(6) == kept.row()


def test_filter_by_text_and_state(link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    link.view.requests |= {1: row(1, "waiting", 0), 2: row(2, "running", 20), 3: row(3, "finished", 20)}
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    assert shown(table.model) == [3, 2, 1]
    table.filter.setText("batch")
    assert shown(table.model) == [3, 2]
    table.which.setCurrentIndex(1)
    assert shown(table.model) == [2]
    table.filter.setText("#1")
    assert shown(table.model) == [1]
    assert table.count.text() == "1 of 3"


def test_selection_goes_both_ways_and_survives_updates(link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    link.view.requests |= {n: row(n) for n in range(1, 6)}
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    table.show()
    table.view.selectRow(1)
    assert selection.request == 4
    selection.select_request(2)
    assert [table.model.number_at(i.row()) for i in table.view.selectionModel().selectedRows()] == [2]
    link.view.requests[6] = row(6)
    table.refresh()
    assert [table.model.number_at(i.row()) for i in table.view.selectionModel().selectedRows()] == [2]
    assert selection.request == 2


def test_a_selected_row_is_painted_without_a_complaint(
    link: ScriptedLink, selection: Selection, qtbot: QtBot, qtlog: Any
) -> None:
    link.view.requests |= {n: row(n) for n in range(1, 6)}
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    with qtbot.waitExposed(table):
        table.show()
    table.view.selectRow(2)
    table.grab()
    assert [record.message for record in qtlog.records if "QPainter" in record.message] == []


def test_verbs_reach_live_requests_only(link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    link.view.requests |= {1: row(1), 2: row(2, "finished"), 3: row(3, "waiting")}
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    assert not table.cancel_button.isEnabled()
    table.view.selectAll()
    assert table.cancel_button.isEnabled()
    qtbot.mouseClick(table.cancel_button, Qt.MouseButton.LeftButton)
    assert sorted(link.cancelled) == ["id-1", "id-3"]
    table.set_class("batch")
    changed = {m.request: m.priority for m, _ in link.sent if isinstance(m, SetPriority)}
    assert changed == {"id-1": "batch", "id-3": "batch"}


def test_ten_thousand_rows_cost_no_more_than_linear(requests: dict[int, RequestRow]) -> None:
    def cost(amount: int) -> float:
        many = {n: row(n, ttft_s=(n * 7919 % amount) / amount) for n in range(amount)}
        model = RequestModel(many)
        model.sort(TTFT, Qt.SortOrder.AscendingOrder)
        best = float("inf")
        for turn in range(5):
            many[amount + turn] = row(amount + turn, ttft_s=0.5)
            started = time.perf_counter()
            model.refresh(range(40))
            best = min(best, time.perf_counter() - started)
        return best

    assert cost(10_000) < 40 * cost(1_000)


def test_only_visible_rows_are_told(requests: dict[int, RequestRow], qtbot: QtBot) -> None:
    model = RequestModel(requests)
    model.refresh()
    with qtbot.waitSignal(model.dataChanged) as told:
        model.refresh(range(2, 5))
    first, last = told.args[0], told.args[1]
    assert (first.row(), last.row(), last.column()) == (2, 4, len(COLUMNS) - 1)


def test_a_row_without_measurements_shows_dashes() -> None:
    model = RequestModel({1: row(1)})
    model.refresh()
    texts = [model.index(0, column).data() for column in range(len(COLUMNS))]
    assert texts[NUMBER] == "1"
    assert texts[TTFT] == "–"
