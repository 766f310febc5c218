"""The request table: order, filter, selection, verbs, and its pace with many rows."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from pagedeck.gui.i18n import Languages
from pagedeck.gui.requests.as_code import as_code
from pagedeck.gui.requests.model import COLUMNS, NUMBER, Grouping, RequestModel
from pagedeck.gui.requests.table import RequestTable
from pagedeck.gui.selection import Selection
from pagedeck.ipc.protocol import DescribeRequest, Failed, RequestDetail, SetPriority
from pagedeck.ipc.telemetry import RequestRow
from pagedeck.ipc.vocabulary import SamplingParams
from PySide6.QtCore import QItemSelectionModel, QPersistentModelIndex, Qt
from PySide6.QtGui import QGuiApplication
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


def test_a_filter_that_nothing_matches_says_so(link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    link.view.requests |= {1: row(1, "waiting", 0)}
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    table.resize(800, 400)
    with qtbot.waitExposed(table):
        table.show()

    def middle() -> set[int]:
        place = table.view.viewport().rect()
        image = table.view.viewport().grab(place.adjusted(0, place.height() // 2 - 10, 0, 10 - place.height() // 2))
        picture = image.toImage()
        return {picture.pixel(x, y) for x in range(picture.width()) for y in range(picture.height())}

    assert len(middle()) == 1
    table.filter.setText("no such request")
    assert table.view.isVisible() and len(middle()) > 1
    table.filter.clear()
    assert len(middle()) == 1


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


def test_another_users_requests_can_only_be_looked_at(link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    link.view.requests.update({1: replace(row(1), id=""), 2: row(2)})
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    table.show()
    selection.select_request(1)
    assert not any(button.isEnabled() for button in (table.cancel_button, table.class_button, table.copy_button))
    table.view.selectAll()
    table.cancel()
    assert link.cancelled == ["id-2"]


def test_a_request_that_is_not_known_any_more_is_not_copied(
    link: ScriptedLink, selection: Selection, qtbot: QtBot
) -> None:
    link.view.requests[1] = row(1, "finished")
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    table.show()
    selection.select_request(1)
    table.copy_as_code()
    link.answer(DescribeRequest, Failed(code="unknown_request"))
    assert table.copy_button.text() == "Not known any more"


def test_ten_thousand_rows_cost_no_more_than_linear(requests: dict[int, RequestRow]) -> None:
    def cost(amount: int) -> float:
        many = {n: row(n, ttft_s=(n * 7919 % amount) / amount) for n in range(amount)}
        model = RequestModel(many)
        model.sort(TTFT, Qt.SortOrder.AscendingOrder)
        best = float("inf")
        for turn in range(5):
            many[amount + turn] = row(amount + turn, ttft_s=0.5)
            started = time.thread_time()
            model.refresh(range(40))
            best = min(best, time.thread_time() - started)
        return best

    assert cost(10_000) < 60 * cost(1_000)  # in processor time; if it were quadratic, it would be 100


def test_many_selected_rows_are_not_asked_for_one_by_one(
    link: ScriptedLink, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot
) -> None:
    amount = 3_000
    link.view.requests.update({n: row(n, output_tokens=n) for n in range(amount)})
    table = RequestTable(link, Selection())
    qtbot.addWidget(table)
    table.resize(1000, 500)
    table.show()
    asked = [0]
    for name in ("flags", "index", "rowCount"):
        unpatched = getattr(RequestModel, name)

        def count(model: RequestModel, *arguments: Any, unpatched: Any = unpatched) -> Any:
            asked[0] += 1
            return unpatched(model, *arguments)

        monkeypatch.setattr(RequestModel, name, count)

    def cost(act: Callable[[], object]) -> int:
        asked[0] = 0
        act()
        table.view.viewport().repaint()
        table.view.horizontalHeader().viewport().repaint()
        return asked[0]

    def end_some() -> None:
        for n in range(0, amount, 10):
            del link.view.requests[n]
        table.refresh()

    assert cost(table.view.selectAll) < amount
    assert cost(table.refresh) < amount
    assert cost(lambda: table.view.sortByColumn(4, Qt.SortOrder.AscendingOrder)) < amount
    assert cost(end_some) < 4 * amount, "three hundred gaps, and as many pieces of what is selected"
    assert len(table.chosen()) == amount - amount // 10


def test_what_is_selected_stays_so_while_rows_come_go_and_move(
    link: ScriptedLink, requests: dict[int, RequestRow], qtbot: QtBot
) -> None:
    link.view.requests.update(requests)
    table = RequestTable(link, Selection())
    qtbot.addWidget(table)
    table.show()
    chosen = (2, 3, 7, 9)
    flags = QItemSelectionModel.SelectionFlag
    for number in chosen:
        at = table.model.row_of(number)
        assert at is not None
        table.view.selectionModel().select(table.model.index(at, 0), flags.Select | flags.Rows)
    for column in (TTFT, NUMBER):
        for order in Qt.SortOrder:
            table.view.sortByColumn(column, order)
            assert {request.number for request in table.chosen()} == {*chosen}
            assert len(table.view.selectionModel().selectedRows()) == 4
    del link.view.requests[3]
    link.view.requests[11] = row(11)
    table.refresh()
    assert {request.number for request in table.chosen()} == {2, 7, 9}
    del link.view.requests[2], link.view.requests[7], link.view.requests[9]
    table.refresh()
    assert not table.chosen() and not table.cancel_button.isEnabled()


def test_of_many_requests_all_are_cancelled(link: ScriptedLink, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> None:
    monkeypatch.setattr("pagedeck.gui.requests.table.AT_ONCE", 3)
    link.view.requests.update({n: row(n) for n in range(10)})
    table = RequestTable(link, Selection())
    qtbot.addWidget(table)
    table.show()
    table.view.selectAll()
    table.cancel()
    assert len(link.cancelled) == 3
    link.view.requests.clear()
    qtbot.waitUntil(lambda: len(link.cancelled) == 10)
    assert {*link.cancelled} == {f"id-{n}" for n in range(10)}


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


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed() -> dict[int, RequestRow]:
    rows = [
        row(1, "running", 0, client="a", blocks=3, tokens_per_s=10.0),
        row(2, "waiting", 10, client="b"),
        row(3, "running", 10, client="a", blocks=4, host_blocks=1, tokens_per_s=5.0),
        row(4, "finished", 20, client="b", tokens_per_s=99.0),
    ]
    return {r.number: r for r in rows}


def shown_in_groups(model: RequestModel) -> list[int | str]:
    """Numbers of requests, and the first word of each heading."""
    return [
        number if number > 0 else str(model.index(at, 0).data()).split(" · ")[0]
        for at, number in enumerate(shown(model))
    ]


def test_groups_have_headings_with_their_totals(mixed: dict[int, RequestRow], languages: Languages) -> None:
    model = RequestModel(mixed)
    model.set_grouping(Grouping.STATE)
    assert shown_in_groups(model) == ["▾ waiting", 2, "▾ running", 3, 1, "▾ finished", 4]
    heading = str(model.index(2, 0).data()).replace("\u00a0", " ")
    assert heading == "▾ running · 2 requests · 8 blocks · 15.0 tok/s"
    model.set_grouping(Grouping.CLASS)
    assert shown_in_groups(model) == ["▾ interactive", 1, "▾ normal", 3, 2, "▾ batch", 4]
    model.set_grouping(Grouping.CLIENT)
    assert shown_in_groups(model) == ["▾ a", 3, 1, "▾ b", 4, 2]
    model.set_grouping(Grouping.NONE)
    assert shown(model) == [4, 3, 2, 1]


def test_within_a_group_the_order_is_that_of_the_column(mixed: dict[int, RequestRow]) -> None:
    model = RequestModel(mixed)
    model.set_grouping(Grouping.CLIENT)
    model.sort(NUMBER, Qt.SortOrder.AscendingOrder)
    assert shown_in_groups(model) == ["▾ a", 1, 3, "▾ b", 2, 4]


def test_groups_keep_qts_rules(mixed: dict[int, RequestRow], qtmodeltester: object) -> None:
    model = RequestModel(mixed)
    model.set_grouping(Grouping.STATE)
    qtmodeltester.check(model)  # type: ignore[attr-defined]
    generator = random.Random(2)
    for step in range(60):
        mixed[100 + step] = row(100 + step, generator.choice(["running", "waiting", "finished"]))
        if generator.random() < 0.5:
            del mixed[generator.choice(list(mixed))]
        if generator.random() < 0.3:
            model.fold(generator.choice(model.heading_rows()))
        model.refresh()
        assert len(model.heading_rows()) == len({r.state for r in mixed.values()})
        assert model.shown == len(mixed)


def test_a_group_is_folded_by_a_click_and_its_heading_is_no_request(
    link: ScriptedLink, selection: Selection, mixed: dict[int, RequestRow], qtbot: QtBot
) -> None:
    link.view.requests |= mixed
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    table.resize(900, 500)
    with qtbot.waitExposed(table):
        table.show()
    table.grouping.setCurrentIndex(list(Grouping).index(Grouping.CLASS))
    assert table.view.columnSpan(0, 0) == len(COLUMNS)
    heading = table.view.visualRect(table.model.index(0, 0)).center()
    qtbot.mouseClick(table.view.viewport(), Qt.MouseButton.LeftButton, pos=heading)
    assert shown_in_groups(table.model) == ["▸ interactive", "▾ normal", 3, 2, "▾ batch", 4]
    assert selection.request is None and table.count.text() == "4 of 4"
    assert [table.view.columnSpan(at, 0) > 1 for at in range(6)] == [True, True, False, False, True, False]
    qtbot.mouseClick(table.view.viewport(), Qt.MouseButton.LeftButton, pos=heading)
    assert shown_in_groups(table.model)[:2] == ["▾ interactive", 1]
    table.view.selectAll()
    assert sorted(r.number for r in table.chosen()) == [1, 2, 3]
    table.grab()


# --- as code --------------------------------------------------------------------------------------------------------


class Asked:
    """Stands in for the package: what a program asks of an engine."""

    def __init__(self) -> None:
        self.name, self.prompt, self.more = "", "", dict[str, Any]()

    def connect(self, name: str = "") -> Any:
        self.name = name
        return contextlib.nullcontext(self)

    def submit(self, prompt: str, **more: Any) -> list[Any]:
        self.prompt, self.more = prompt, more
        return []


def run_code(code: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    monkeypatch.setitem(sys.modules, "pagedeck", asked)  # type: ignore[arg-type]
    exec(compile(code, "copied", "exec"), {})
    return asked


def test_a_request_as_code_asks_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = SamplingParams(max_tokens=30, temperature=0.7, stop=('"', "\n"), n=2, seed=5)
    detail = RequestDetail(row=row(1, priority=20), prompt_text='He said:\n"""\\ no', sampling=sampling)
    asked = run_code(as_code(detail, "pagedeck"), monkeypatch)
    assert (asked.name, asked.prompt) == ("pagedeck", detail.prompt_text)
    assert asked.more.pop("priority") == "batch"
    assert SamplingParams(**asked.more) == sampling
    assert "top_p" not in as_code(detail, "pagedeck")


def test_code_of_an_older_engines_request_has_what_its_row_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    detail = RequestDetail(row=row(1, priority=7, max_tokens=9, samples=3), prompt_text="x")
    asked = run_code(as_code(detail, ""), monkeypatch)
    assert (asked.name, asked.more) == ("", {"priority": 7, "max_tokens": 9, "n": 3})


def test_the_selected_request_is_copied(link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    link.view.requests |= {1: row(1, "finished"), 2: row(2)}
    table = RequestTable(link, selection)
    qtbot.addWidget(table)
    assert not table.copy_button.isEnabled()
    table.view.selectRow(1)
    qtbot.mouseClick(table.copy_button, Qt.MouseButton.LeftButton)
    message = link.last(DescribeRequest)[0]
    assert isinstance(message, DescribeRequest) and message.request == "id-1"
    link.answer(DescribeRequest, RequestDetail(row=row(1, "finished"), prompt_text="Tell me."))
    assert "'Tell me.'" in QGuiApplication.clipboard().text()
    assert table.copy_button.text() == "Copied"
    qtbot.waitUntil(lambda: table.copy_button.text() == "Copy as code", timeout=30_000)
