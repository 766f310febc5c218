"""The inspector: follows the selection, asks at a bounded rate, shows tables and owners, acts."""

from __future__ import annotations

import re

import pytest
from pagedeck.gui.i18n import Languages
from pagedeck.gui.requests.inspector import POLL_MS, Inspector
from pagedeck.gui.selection import Selection
from pagedeck.ipc.protocol import (
    BlockDetail,
    BlockOwner,
    DescribeBlock,
    DescribeRequest,
    Failed,
    PrefixBlock,
    RequestDetail,
    SetPriority,
    SharedWith,
)
from pagedeck.ipc.telemetry import RequestRow
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink


@pytest.fixture
def inspector(link: ScriptedLink, selection: Selection, languages: object, qtbot: QtBot) -> Inspector:
    feeder = Feeder(num_blocks=64)
    link.view.begin(feeder.epoch)
    link.view.apply_snapshot(feeder.snapshot())
    link.view.requests[7] = RequestRow(7, "chat-7", "running", 10, prompt_tokens=90, output_tokens=12, max_tokens=64)
    made = Inspector(link, selection)
    qtbot.addWidget(made)
    made.resize(300, 700)
    made.show()
    return made


def detail(**facts: object) -> RequestDetail:
    row = RequestRow(7, "chat-7", "running", 10, prompt_tokens=90, output_tokens=13, max_tokens=64, blocks=3,
                     shared_blocks=2, saved_blocks=1, mean_run=1.5)  # fmt: skip
    facts = {"block_tables": [[3, 9, 4]], "text": ["Hello wor"], "prompt_text": "Say hello"} | facts
    return RequestDetail(row=row, **facts)  # type: ignore[arg-type]


def texts(widget: Inspector) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible()).replace("\u00a0", " ")


def test_empty_says_what_will_appear(inspector: Inspector, link: ScriptedLink) -> None:
    assert inspector.empty.isVisible()
    assert link.sent == []


def test_a_request_is_shown_in_full(inspector: Inspector, link: ScriptedLink, selection: Selection) -> None:
    selection.select_request(7)
    link.answer(DescribeRequest, detail())
    shown = texts(inspector)
    for text in ("Request #7", "running", "13 / 64", "3, 2 of them shared", "Block table, 3 blocks", "1 block",
                 "1.5 blocks"):  # fmt: skip
        assert text in shown
    assert [*inspector.request.chips.blocks] == [3, 9, 4]
    assert inspector.request.output.toPlainText() == "Hello wor"
    assert inspector.request.prompt.toPlainText() == "Say hello"
    link.answer(DescribeRequest, detail(text=["Hello world"]))
    assert inspector.request.output.toPlainText() == "Hello world"


def test_an_answer_about_an_older_selection_is_ignored(
    inspector: Inspector, link: ScriptedLink, selection: Selection
) -> None:
    link.view.requests[8] = RequestRow(8, "chat-8", "waiting", 0)
    selection.select_request(7)
    late = link.last(DescribeRequest)[1]
    selection.select_request(8)
    late(detail())
    assert inspector.request.detail is None
    assert "Request #8" in texts(inspector)


def test_it_asks_again_at_the_polls_pace_and_rests_when_nothing_is_selected(
    inspector: Inspector, link: ScriptedLink, selection: Selection, qtbot: QtBot
) -> None:
    selection.select_request(7)
    link.answer(DescribeRequest, detail())
    for _ in range(50):
        link.requestsChanged.emit()
    assert link.count(DescribeRequest) == 1
    qtbot.waitUntil(lambda: link.count(DescribeRequest) >= 2)
    assert inspector._poll.interval() == POLL_MS >= 333
    selection.clear()
    qtbot.waitUntil(lambda: not inspector._poll.isActive())


def test_a_chip_selects_its_block_and_the_block_tells_its_story(
    inspector: Inspector, link: ScriptedLink, selection: Selection, qtbot: QtBot
) -> None:
    selection.select_request(7)
    link.answer(DescribeRequest, detail())
    chips = inspector.request.chips
    chips.setFocus()
    qtbot.keyClick(chips, Qt.Key.Key_Right)
    qtbot.keyClick(chips, Qt.Key.Key_Return)
    assert (selection.block, selection.request) == (("device", 9), 7)
    message = link.last(DescribeBlock)[0]
    assert isinstance(message, DescribeBlock)
    assert (message.tier, message.block) == ("device", 9)
    link.answer(
        DescribeBlock,
        BlockDetail(
            tier="device", block=9, state=5, ref_count=2, fill=32, last_used=40, prefix_hash="ab" * 16,
            owners=[BlockOwner(7, 0, 1), BlockOwner(8, 1, 1)], token_ids=[1, 2], text="some text",
        ),
    )  # fmt: skip
    shown = texts(inspector)
    for text in ("Block 9", "shared", "32 / 32 tokens", "abababababababab", "#8, sample 2, position 1", "288 – 319"):
        assert text in shown
    assert not inspector.block.tree.isVisible()  # the prefix index does not know the block
    assert inspector.block.tokens.toPlainText() == "some text"
    inspector.block.owners.linkActivated.emit("8")
    assert selection.request == 8


def test_the_prefix_tree_leads_to_what_comes_before_and_after(
    inspector: Inspector, link: ScriptedLink, selection: Selection
) -> None:
    selection.select_block("device", 9)
    tree = inspector.block.tree
    nodes = [PrefixBlock("device", block, depth, "cd" * 16, ref) for depth, (block, ref) in enumerate(((3, 5), (4, 0)))]
    children = [PrefixBlock("device", block, 13, "ef" * 16, 1) for block in range(20, 34)]
    children[0].tier = "host"
    described = BlockDetail(
        tier="device", block=9, state=5, ref_count=2, depth=12, ancestors=nodes, ancestor_count=2, children=children,
        child_count=40, copy=6,
    )  # fmt: skip
    link.answer(DescribeBlock, described)
    shown = re.sub(r"<[^>]+>|&nbsp;", " ", texts(inspector))
    for text in (
        "block 12 of its prefix",
        "9 blocks before →",
        "Continued by 40 blocks",
        "and 28 more",
        "host block 6",
    ):
        assert text in shown
    path, continued = (re.sub(r"<[^>]+>", "", label.text()) for label in (tree.path, tree.continued))
    assert path.endswith("→ 3&nbsp;×5 → 4&nbsp;cached → 9&nbsp;×2")
    assert "host 20&nbsp;×1" in continued and "21&nbsp;×1" in continued
    tree.continued.linkActivated.emit("host 20")
    assert selection.block == ("host", 20)
    assert not tree.isVisible()


def test_a_request_tells_who_shares_its_blocks(inspector: Inspector, link: ScriptedLink, selection: Selection) -> None:
    selection.select_request(7)
    link.answer(DescribeRequest, detail(shared_with=[SharedWith(8, 2), SharedWith(5, 1)]))
    assert "#8 (2 blocks), #5 (1 block)" in texts(inspector)


def test_a_block_that_cannot_be_described_says_why(
    inspector: Inspector, link: ScriptedLink, selection: Selection
) -> None:
    selection.select_block("device", 2)
    link.answer(DescribeBlock, Failed(code="invalid", message="There is no block 2."))
    assert "There is no block 2." in texts(inspector)


def test_cancel_and_class(inspector: Inspector, link: ScriptedLink, selection: Selection, qtbot: QtBot) -> None:
    selection.select_request(7)
    qtbot.mouseClick(inspector.request.cancel_button, Qt.MouseButton.LeftButton)
    assert link.cancelled == ["chat-7"]
    box = inspector.request.priority
    box.setCurrentIndex(box.findData("batch"))
    box.activated.emit(box.currentIndex())
    message = link.last(SetPriority)[0]
    assert isinstance(message, SetPriority)
    assert (message.request, message.priority) == ("chat-7", "batch")


def test_an_ended_request_is_asked_about_once_more_and_cannot_be_cancelled(
    inspector: Inspector, link: ScriptedLink, selection: Selection
) -> None:
    selection.select_request(7)
    link.answer(DescribeRequest, detail())
    link.view.requests[7] = RequestRow(7, "chat-7", "finished", 10)
    link.requestsChanged.emit()
    assert link.count(DescribeRequest) == 2
    assert not inspector.request.cancel_button.isEnabled()


def test_what_the_engine_does_not_tell_is_not_asked_for_again(
    inspector: Inspector, link: ScriptedLink, selection: Selection, languages: Languages
) -> None:
    # Another user's request has no id here.
    link.view.requests[9] = RequestRow(9, "", "running", 10)
    selection.select_request(9)
    inspector._ask()
    assert link.count(DescribeRequest) == 0
    assert not inspector.request.cancel_button.isEnabled()
    assert inspector.request.output.placeholderText().startswith("This request is another user's")

    # One that ended long ago is not known any more.
    link.view.requests[7] = RequestRow(7, "chat-7", "finished", 10)
    selection.select_request(7)
    link.answer(DescribeRequest, Failed(code="unknown_request", message="There is no request 'chat-7'."))
    asked = link.count(DescribeRequest)
    inspector._ask()
    assert link.count(DescribeRequest) == asked


def test_of_two_requests_with_one_id_the_selected_one_stays(
    inspector: Inspector, link: ScriptedLink, selection: Selection
) -> None:
    link.view.requests[8] = RequestRow(8, "chat-7", "running", 10)
    link.view.requests[7] = RequestRow(7, "chat-7", "finished", 10)
    selection.select_request(7)
    link.answer(DescribeRequest, RequestDetail(row=link.view.requests[8], text=["Another answer"]))
    assert inspector.request.title.text() == "Request #7" and inspector.request.output.toPlainText() == ""


def test_what_programs_call_themselves_is_no_markup(
    inspector: Inspector, link: ScriptedLink, selection: Selection
) -> None:
    link.view.requests[7] = RequestRow(7, "chat-7", "failed", 10, client="<b>me</b>", error="<img src=x>")
    selection.select_request(7)
    shown = [label for label in inspector.findChildren(QLabel) if label.text() in ("<b>me</b>", "<img src=x>")]
    assert [label.textFormat() for label in shown] == 2 * [Qt.TextFormat.PlainText]


def test_many_blocks_cost_only_what_is_seen(
    inspector: Inspector, link: ScriptedLink, selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    selection.select_request(7)
    link.answer(DescribeRequest, detail(block_tables=[[*range(20_000)]]))
    painted: list[int] = []
    chips = inspector.request.chips
    monkeypatch.setattr(chips, "_paint_chip", lambda painter, palette, position: painted.append(position))
    inspector.grab()
    assert 0 < len(painted) < 500
