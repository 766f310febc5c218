"""What is selected, in full: a request with its block tables and text, a block with its owners and tokens."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from ...ipc.protocol import (
    BlockDetail,
    DescribeBlock,
    DescribeRequest,
    EngineMessage,
    Failed,
    RequestDetail,
    SetPriority,
)
from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import PRIORITIES, BlockState, RequestState, priority_name
from .. import quantities, theme, words
from ..choice import Choice
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..quantities import NBSP
from ..scroll import Column, plain_scroll
from ..selection import Selection
from . import model as request_model
from .block_chips import BlockChips
from .prefix_tree import PrefixTree

#: The engine is asked at most so often: three times a second.
POLL_MS = 334
#: How wide it is at first, whatever it shows.
WIDTH = 34 * theme.GRID
#: So many of those who share blocks are named.
SHARERS = 4


class Facts(QWidget):
    """Named figures in two columns; a fact without a text is not shown."""

    def __init__(self, count: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setHorizontalSpacing(2 * theme.GRID)
        form.setVerticalSpacing(theme.GRID // 2)
        form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        self._form = form
        plain = Qt.TextFormat.PlainText
        self._rows = [(QLabel(), QLabel(wordWrap=True, textFormat=plain)) for _ in range(count)]
        for name, value in self._rows:
            name.setProperty("role", "muted")
            name.setAlignment(Qt.AlignmentFlag.AlignTop)
            value.setFont(theme.number_font(value.font()))
            value.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            form.addRow(name, value)

    def show_facts(self, facts: list[tuple[str, str]]) -> None:
        for row, (name, value) in enumerate(self._rows):
            title, text = facts[row] if row < len(facts) else ("", "")
            if value.text() != text:
                value.setText(text)
            name.setText(title)
            self._form.setRowVisible(row, bool(text))


def _text_view(lines: int) -> QPlainTextEdit:
    view = QPlainTextEdit(readOnly=True, tabChangesFocus=True)
    view.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
    view.setMinimumHeight(lines * view.fontMetrics().lineSpacing() + 3 * theme.GRID)
    return view


def _show_text(view: QPlainTextEdit, text: str) -> None:
    """Replace the text; what grew at its end is appended, so that selection and scroll position stay."""
    shown = view.toPlainText()
    if text == shown:
        return
    if shown and text.startswith(shown):
        cursor = view.textCursor()
        at_end = view.verticalScrollBar().value() >= view.verticalScrollBar().maximum()
        cursor.movePosition(cursor.MoveOperation.End)
        cursor.insertText(text[len(shown) :])
        if at_end:
            view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
    else:
        view.setPlainText(text)


class RequestSection(QWidget):
    """The selected request."""

    def __init__(self, link: EngineLink, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._selection = selection
        self.row: RequestRow | None = None
        self.detail: RequestDetail | None = None
        self.answered = False  # whether the engine has said what it knows of the row

        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.state = QLabel()
        self.facts = Facts(14)
        self.cancel_button = QPushButton()
        self.priority = QComboBox()
        for name in PRIORITIES:
            self.priority.addItem("", name)
        self._table_title, self._output_title, self._prompt_title = QLabel(), QLabel(), QLabel()
        for label in (self._table_title, self._output_title, self._prompt_title):
            label.setProperty("role", "muted")
        self._table_title.setWordWrap(True)  # beside the choice of a sample
        self.sample = Choice()
        self.chips = BlockChips(self._describe_chip)
        self._chips_scroll = plain_scroll(self.chips)
        self._chips_scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.output, self.prompt = _text_view(5), _text_view(3)

        head = QHBoxLayout()
        head.addWidget(self.title)
        head.addWidget(self.state, 1)
        verbs = QHBoxLayout()
        verbs.addWidget(self.cancel_button)
        verbs.addWidget(self.priority, 1)
        table_head = QHBoxLayout()
        table_head.addWidget(self._table_title, 1)
        table_head.addWidget(self.sample)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID)
        layout.addLayout(head)
        layout.addLayout(verbs)
        layout.addWidget(self.facts)
        layout.addLayout(table_head)
        layout.addWidget(self._chips_scroll)
        layout.addWidget(self._output_title)
        layout.addWidget(self.output, 2)
        layout.addWidget(self._prompt_title)
        layout.addWidget(self.prompt, 1)

        self.cancel_button.clicked.connect(self._cancel)
        self.priority.activated.connect(self._set_priority)
        self.sample.currentIndexChanged.connect(self.show_detail)
        self.chips.chosen.connect(self._chip_chosen)

    def ask(self) -> None:
        """What another user's request is about is not told: it comes without an id."""
        if self.row is not None and self.row.id:
            number = self.row.number
            self._link.request(
                DescribeRequest(request=self.row.id, group=self._link.view.group),
                lambda reply: self._described(number, reply),
            )

    def turn_to(self, row: RequestRow | None) -> None:
        """Show another request, or none."""
        if row is None or self.row is None or row.number != self.row.number:
            self.detail, self.answered = None, False
            self.output.clear()
            self.prompt.clear()
        self.row = row
        if row is not None:
            self.show_detail()

    def _described(self, number: int, reply: EngineMessage) -> None:
        if self.row is None or self.row.number != number:
            return
        self.answered = True
        if isinstance(reply, RequestDetail) and (reply.row is None or reply.row.number == number):  # ids come again
            self.detail = reply
            self.row = reply.row or self.row
            self.show_detail()

    def show_detail(self) -> None:
        row = self.row
        if row is None:
            return
        self.title.setText(fill_in(self.tr("Request %1"), f"#{row.number}"))
        colour = request_model.state_colour(row.state).name()
        self.state.setText(f'<span style="color:{colour}">●</span> {words.request_state(row.state)}')
        live = bool(row.id) and not RequestState(row.state).ended and not self._link.replaying
        self.cancel_button.setEnabled(live)
        self.priority.setEnabled(live)
        if not self.priority.view().isVisible():
            self.priority.setCurrentIndex(self.priority.findData(priority_name(row.priority)))
        self.facts.show_facts(self._facts(row))
        self._show_tables(row)

    def _facts(self, row: RequestRow) -> list[tuple[str, str]]:
        output = f"{quantities.count(row.output_tokens)} / {quantities.count(row.max_tokens * row.samples)}"
        cached = fill_in(self.tr(" (%1 from the cache)"), quantities.count(row.cached_tokens))
        blocks = quantities.count(row.blocks)
        if row.shared_blocks:
            blocks += fill_in(self.tr(", %1 of them shared"), quantities.count(row.shared_blocks))
        rate = f"{quantities.number(row.tokens_per_s)}{NBSP}{self.tr('tok/s')}" if row.tokens_per_s else ""

        mean_run = f"{quantities.short(row.mean_run)}{NBSP}{words.unit('blocks')}" if row.mean_run else ""

        def seconds(value: float | None) -> str:
            return quantities.duration(value) if value is not None else ""

        return [
            (self.tr("Prompt tokens"), quantities.count(row.prompt_tokens) + (cached if row.cached_tokens else "")),
            (self.tr("Output tokens"), output),
            (self.tr("Blocks"), blocks),
            (self.tr("On the host"), quantities.count(row.host_blocks) if row.host_blocks else ""),
            (self.tr("Shares with"), self._shared_with()),
            (self.tr("Saved by sharing"), words.counted.blocks(row.saved_blocks) if row.saved_blocks else ""),
            (self.tr("Mean run"), mean_run),
            (self.tr("Queued"), seconds(row.queue_s)),
            (self.tr("TTFT"), seconds(row.ttft_s)),
            (self.tr("Rate"), rate),
            (self.tr("Age"), quantities.duration(request_model.age(row, self._link.now()))),
            (self.tr("Preempted"), words.counted.times(row.preemptions) if row.preemptions else ""),
            (self.tr("Client"), row.client),
            (self.tr("Error"), row.error),
        ]

    def _shared_with(self) -> str:
        """Who holds some of its blocks too, and how many."""
        others = self.detail.shared_with if self.detail is not None else []
        parts = [f"#{other.request}{NBSP}({words.counted.blocks(other.blocks)})" for other in others[:SHARERS]]
        if len(others) > SHARERS:
            parts.append("…")
        return ", ".join(parts)

    def _show_tables(self, row: RequestRow) -> None:
        detail = self.detail
        tables = detail.block_tables if detail is not None else []
        if self.sample.count() != len(tables):
            self.sample.blockSignals(True)
            self.sample.clear()
            self.sample.addItems([self._sample_name(place) for place in range(len(tables))])
            self.sample.blockSignals(False)
        self.sample.setVisible(len(tables) > 1)
        place = max(0, self.sample.currentIndex())
        blocks = np.array(tables[place] if place < len(tables) else [], np.int64)
        tier = self._link.view.tier(self._tier)
        known = blocks < len(tier.state)
        states = np.full(len(blocks), BlockState.ACTIVE, np.uint8)
        states[known] = tier.state[blocks[known]]
        selected = self._selection.block
        marked = selected[1] if selected is not None and selected[0] == self._tier else None
        self.chips.show_table(blocks, states, marked)
        self._chips_scroll.setVisible(bool(len(blocks)))
        self._chips_scroll.setFixedHeight(min(self.chips.heightForWidth(self._chips_scroll.viewport().width()), 160))
        title = self.tr("Block table, %Ln block(s)", "", len(blocks))
        self._table_title.setText(f"{title} · {words.tier(self._tier)}" if self._tier == "host" else title)
        self._table_title.setVisible(bool(len(blocks)))
        text = detail.text if detail is not None else []
        self._invite(row)
        _show_text(self.output, text[place] if place < len(text) else "")
        _show_text(self.prompt, detail.prompt_text if detail is not None else "")

    def _invite(self, row: RequestRow) -> None:
        """Say why there is no text, or when there will be."""
        if row.id:
            text = self.tr("Its text appears here as it is generated.")
        else:
            text = self.tr("This request is another user's: what it is about is not told.")
        if self.output.placeholderText() != text:
            self.output.setPlaceholderText(text)

    @property
    def _tier(self) -> str:
        return self.detail.tier if self.detail is not None else "device"

    def _sample_name(self, place: int) -> str:
        return fill_in(self.tr("Sample %1"), str(place + 1))

    def _describe_chip(self, position: int) -> str:
        block = int(self.chips.blocks[position])
        tier = self._link.view.tier(self._tier)
        text = fill_in(self.tr("Position %1 → block %2"), str(position), str(block))
        if block >= len(tier.state):
            return text
        fill = f"{tier.fill[block]}/{tier.block_size} {words.unit('tokens')}"
        return f"{text}\n{words.block_state(int(tier.state[block]))} · {fill} · ref {tier.ref[block]}"

    def _chip_chosen(self, position: int) -> None:
        if self.row is not None:
            self._selection.select_block(self._tier, int(self.chips.blocks[position]), self.row.number)

    def _cancel(self) -> None:
        if self.row is not None:
            self._link.cancel(self.row.id)

    def _set_priority(self) -> None:
        if self.row is not None:
            message = SetPriority(request=self.row.id, priority=self.priority.currentData())
            self._link.request(message, lambda reply: self.ask())

    def retranslate(self) -> None:
        self.cancel_button.setText(self.tr("Cancel"))
        self.cancel_button.setToolTip(self.tr("End this request and free its blocks"))
        self.priority.setAccessibleName(self.tr("Class"))
        self.priority.setToolTip(self.tr("How urgent this request is"))
        for place, name in enumerate(PRIORITIES):
            self.priority.setItemText(place, words.class_name(name))
        self.sample.setAccessibleName(self.tr("Sample"))
        for place in range(self.sample.count()):
            self.sample.setItemText(place, self._sample_name(place))
        self.chips.setAccessibleName(self.tr("Block table"))
        self._output_title.setText(self.tr("Text so far"))
        self._prompt_title.setText(self.tr("Prompt"))
        self.output.setAccessibleName(self.tr("Text so far"))
        self.prompt.setAccessibleName(self.tr("Prompt"))
        self.show_detail()


class BlockSection(QWidget):
    """The selected block."""

    def __init__(self, link: EngineLink, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._selection = selection
        self._block: tuple[str, int] | None = None
        self.detail: BlockDetail | None = None
        self.problem: Failed | None = None

        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.facts = Facts(8)
        self._owners_title = QLabel()
        self._owners_title.setProperty("role", "muted")
        self.owners = QLabel(wordWrap=True, textFormat=Qt.TextFormat.RichText)
        self.owners.setTextInteractionFlags(
            Qt.TextInteractionFlag.LinksAccessibleByMouse | Qt.TextInteractionFlag.LinksAccessibleByKeyboard
        )
        self.owners.linkActivated.connect(lambda number: self._selection.select_request(int(number)))
        self.tree = PrefixTree()
        self.tree.chosen.connect(self._choose)
        self._tokens_title = QLabel()
        self._tokens_title.setProperty("role", "muted")
        self.tokens = _text_view(4)
        self.tokens.setFont(theme.mono_font())
        self.tokens.setFixedHeight(self.tokens.minimumHeight())
        self.tokens.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID)
        layout.addWidget(self.title)
        layout.addWidget(self.facts)
        layout.addWidget(self._owners_title)
        layout.addWidget(self.owners)
        layout.addWidget(self.tree)
        layout.addWidget(self._tokens_title)
        layout.addWidget(self.tokens)

    def turn_to(self, block: tuple[str, int] | None) -> None:
        if block != self._block:
            self.detail, self.problem = None, None
        self._block = block
        if block is not None:
            self.show_detail()

    def ask(self) -> None:
        if self._block is not None:
            block = self._block
            self._link.request(
                DescribeBlock(tier=block[0], block=block[1], group=self._link.view.group),
                lambda reply: self._described(block, reply),
            )

    def _described(self, block: tuple[str, int], reply: EngineMessage) -> None:
        if block != self._block:
            return
        if isinstance(reply, BlockDetail):
            self.detail, self.problem = reply, None
        elif isinstance(reply, Failed):
            self.detail, self.problem = None, reply
        self.show_detail()

    def show_detail(self) -> None:
        if self._block is None:
            return
        tier_name, block = self._block
        self.title.setText(fill_in(self.tr("Block %1"), str(block)))
        detail = self.detail
        self.facts.show_facts(self._facts(tier_name, detail))
        owners = detail.owners if detail is not None else []
        self._owners_title.setVisible(bool(owners))
        self.owners.setVisible(bool(owners))
        self.owners.setText("<br>".join(self._owner(o.request, o.sample, o.position) for o in owners[:50]))
        self.tree.show_detail(detail)
        self._tokens_title.setVisible(detail is not None and bool(detail.token_ids))
        self.tokens.setVisible(detail is not None and bool(detail.token_ids))
        _show_text(self.tokens, detail.text if detail is not None else "")

    def _facts(self, tier_name: str, detail: BlockDetail | None) -> list[tuple[str, str]]:
        if detail is None:
            return [(self.tr("Problem"), words.failure(self.problem))] if self.problem is not None else []
        size = self._link.view.tier(tier_name).block_size
        fill = f"{quantities.count(detail.fill)} / {quantities.count(size)} {words.unit('tokens')}"
        return [
            (self.tr("State"), words.block_state(detail.state)),
            (self.tr("Tier"), words.tier(tier_name)),
            (self.tr("Fill"), fill),
            (self.tr("References"), quantities.count(detail.ref_count)),
            (self.tr("Last used"), fill_in(self.tr("step %1"), quantities.count(detail.last_used))),
            (self.tr("Slots"), words.slots(detail.block, size)),
            (self.tr("Copy"), words.copy_of(detail)),
            (self.tr("Prefix hash"), detail.prefix_hash[:16]),
        ]

    def _choose(self, tier: str, block: int) -> None:
        owner = int(self._link.view.tier(tier).owner[block])
        self._selection.select_block(tier, block, owner or None)

    def _owner(self, request: int, sample: int, position: int) -> str:
        return f'<a href="{request}">{words.holder(request, sample, position)}</a>'

    def retranslate(self) -> None:
        self._owners_title.setText(self.tr("Held by"))
        self._tokens_title.setText(self.tr("Tokens as text"))
        self.tokens.setAccessibleName(self.tr("Tokens as text"))
        self.tree.retranslate()
        self.show_detail()


class Inspector(Translated, QWidget):
    """Follows the selection; asks the engine for details while it can be seen, at most three times a second."""

    def __init__(self, link: EngineLink, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._selection = selection
        self.request = RequestSection(link, selection)
        self.block = BlockSection(link, selection)
        self.empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self.empty.setProperty("role", "muted")

        inner = Column()
        column = QVBoxLayout(inner)
        column.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        column.setSpacing(2 * theme.GRID)
        column.addWidget(self.block)
        column.addWidget(self.request, 1)
        column.addWidget(self.empty, 1)
        column.addStretch(0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(plain_scroll(inner))

        self._poll = QTimer(self, interval=POLL_MS)
        self._poll.timeout.connect(self._ask)
        selection.changed.connect(self.show_selection)
        link.requestsChanged.connect(self._follow)
        self.retranslate()
        self.show_selection()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH, super().sizeHint().height())

    def show_selection(self) -> None:
        number, block = self._selection.request, self._selection.block
        row = self._link.view.requests.get(number) if number is not None else None
        self.request.turn_to(row)
        self.block.turn_to(block)
        self.request.setVisible(row is not None)
        self.block.setVisible(block is not None)
        self.empty.setVisible(row is None and block is None)
        self._ask()

    def _ask(self) -> None:
        wanted = self.isVisible() and (self._selection.request is not None or self._selection.block is not None)
        if not wanted:
            self._poll.stop()
            return
        if not self._poll.isActive():
            self._poll.start()
        ended = self.request.row is not None and RequestState(self.request.row.state).ended
        if not ended or not self.request.answered:
            self.request.ask()
        self.block.ask()

    def _follow(self) -> None:
        """Take the request's new row at once; its details follow by the poll."""
        number = self._selection.request
        row = self._link.view.requests.get(number) if number is not None else None
        if row is None:
            return
        if self.request.row is None:
            self.show_selection()
            return
        just_ended = RequestState(row.state).ended and not RequestState(self.request.row.state).ended
        self.request.turn_to(row)
        if just_ended:
            self.request.ask()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._ask()

    def retranslate(self) -> None:
        self.empty.setText(self.tr("Click a block on the map or a request in the table to see it here in full."))
        self.request.retranslate()
        self.block.retranslate()
