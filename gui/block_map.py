"""The block map: both tiers' pools as they live, how full they are, and what each colour means."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QIcon, QLinearGradient, QPainter, QPaintEvent, QPixmap, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QComboBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from ..ipc.protocol import BlockDetail, DescribeBlock, DescribeRequest, EngineMessage, RequestDetail
from ..ipc.telemetry import RequestRow
from ..ipc.vocabulary import BlockState
from . import quantities, theme, words
from .block_image import BlockImage, Colouring
from .link import EngineLink
from .pool_canvas import PoolCanvas
from .selection import Selection
from .state import ConnectionState, TierView

TIERS = ("device", "host")
DWELL_MS = 200  # hovering this long asks the engine for a block's tokens and owners
DESCRIBE_S = 0.5  # between two questions for the selected request's block table
WIDE = 2.4  # from this ratio of width to height on, the pools stand side by side
_DISCONNECTED = (ConnectionState.DISCONNECTED, ConnectionState.CONNECTING, ConnectionState.LOADING)


class BlockMap(QWidget):
    """Device and host pools, their headers, and one legend for both."""

    sampleRequested = Signal()

    def __init__(self, link: EngineLink, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._selection = selection
        self._table: RequestDetail | None = None  # of the selected request
        self._described = 0.0  # monotonic; when its table was last asked for
        self.pools = {name: PoolView(name, link, selection) for name in TIERS}
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.setHandleWidth(2 * theme.GRID)
        self._splitter.setProperty("role", "quiet")
        for pool in self.pools.values():
            self._splitter.addWidget(pool)
        self._colouring_label = QLabel()
        self._colouring = QComboBox()
        for colouring in Colouring:
            self._colouring.addItem("", colouring)
        self._fit = QPushButton()
        self._fit.setProperty("role", "flat")
        self.legend = Legend()
        self._lay_out()
        self._connect()
        self._retranslate()

    def _lay_out(self) -> None:
        controls = QHBoxLayout()
        controls.setSpacing(theme.GRID)
        controls.addWidget(self._colouring_label)
        controls.addWidget(self._colouring)
        controls.addWidget(self._fit)
        self.pools["device"].add_controls(controls)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addWidget(self._splitter, 1)
        layout.addWidget(self.legend)
        self._colouring_label.setBuddy(self._colouring)

    def _connect(self) -> None:
        self._link.blocksChanged.connect(self.refresh)
        self._link.requestsChanged.connect(self._follow_request)
        self._link.connectionChanged.connect(self.refresh)
        self._selection.changed.connect(self._selected)
        self._colouring.currentIndexChanged.connect(self._recolour)
        self._fit.clicked.connect(self.fit)
        self.legend.shownChanged.connect(self._filter)
        self.pools["device"].sampleRequested.connect(self.sampleRequested)
        theme.current().changed.connect(self._restyle)

    # --- drawing ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Draw what changed; nothing while hidden."""
        if not self.isVisible():
            return
        has_host = self._link.view.host.num_blocks > 0
        if has_host == self.pools["host"].isHidden():
            self.pools["host"].setVisible(has_host)
            self._arrange()
        self._trace()
        for pool in self.pools.values():
            pool.refresh()
        self.legend.refresh(self._link.view.device, self._link.view.host)

    def fit(self) -> None:
        for pool in self.pools.values():
            pool.canvas.fit()

    def set_colouring(self, colouring: Colouring) -> None:
        self._colouring.setCurrentIndex(list(Colouring).index(colouring))

    def _recolour(self) -> None:
        colouring = self._colouring.currentData()
        for pool in self.pools.values():
            pool.canvas.image.set_colouring(Colouring(colouring))
        self.legend.set_colouring(Colouring(colouring), self._link.view.device.block_size)
        self.refresh()

    def _filter(self, states: frozenset[BlockState]) -> None:
        for pool in self.pools.values():
            pool.canvas.image.set_shown(states)
        self.refresh()

    def _restyle(self) -> None:
        for pool in self.pools.values():
            pool.restyle()
        self.legend.restyle()

    def _arrange(self) -> None:
        """Side by side in a flat view, above each other in a tall one; the host gets its share but never the most."""
        wide = self.width() > WIDE * max(self.height(), 1)
        orientation = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        device, host = self._link.view.device.num_blocks, self._link.view.host.num_blocks
        if orientation != self._splitter.orientation() or self._splitter.sizes()[1] == 0:
            self._splitter.setOrientation(orientation)
            share = min(0.5, max(0.25, host / max(device + host, 1)))
            whole = self._splitter.width() if wide else self._splitter.height()
            self._splitter.setSizes([round(whole * (1 - share)), round(whole * share)])

    # --- the selected request ------------------------------------------------------------------------------------

    def _selected(self) -> None:
        request = self._selection.request
        if self._table is None or self._table.row is None or self._table.row.number != request:
            self._table = None
        for name, pool in self.pools.items():
            block = self._selection.block
            pool.canvas.mark(block[1] if block is not None and block[0] == name else None)
        self._described = 0.0
        self._follow_request()
        self.refresh()

    def _follow_request(self) -> None:
        """Ask for the selected request's block table, again while it grows."""
        row = self._selected_row()
        if row is None or not self.isVisible() or time.monotonic() - self._described < DESCRIBE_S:
            return
        self._described = time.monotonic()
        self._link.request(DescribeRequest(request=row.id), self._take_table)

    def _take_table(self, reply: EngineMessage) -> None:
        is_selected = (
            isinstance(reply, RequestDetail) and reply.row is not None and reply.row.number == self._selection.request
        )
        self._table = reply if is_selected and isinstance(reply, RequestDetail) else None
        self.refresh()

    def _selected_row(self) -> RequestRow | None:
        number = self._selection.request
        return None if number is None else self._link.view.requests.get(number)

    def _trace(self) -> None:
        """Outline the selected request's blocks: in order once its table is known, by owner until then."""
        number = self._selection.request
        for name, pool in self.pools.items():
            if number is None:
                pool.canvas.trace(np.zeros(0, np.uint32), ordered=False)
            elif self._table is not None:
                tables = self._table.block_tables if self._table.tier == name else []
                blocks = np.array([block for table in tables for block in table], np.uint32)
                pool.canvas.trace(blocks, ordered=len(tables) == 1)
            else:
                owned = np.flatnonzero(self._link.view.tier(name).owner == number).astype(np.uint32)
                pool.canvas.trace(owned, ordered=False)

    # --- events -------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LanguageChange:
            self._retranslate()

    def _retranslate(self) -> None:
        self._colouring_label.setText(self.tr("Colour by"))
        texts = {
            Colouring.STATE: self.tr("state"),
            Colouring.REQUEST: self.tr("request"),
            Colouring.REF: self.tr("reference count"),
            Colouring.AGE: self.tr("last use"),
            Colouring.FILL: self.tr("fill"),
        }
        for index, colouring in enumerate(Colouring):
            self._colouring.setItemText(index, texts[colouring])
        self._fit.setText(self.tr("Fit"))
        self._fit.setToolTip(self.tr("Show the whole pool (F)"))


# --- one pool ---------------------------------------------------------------------------------------------------


class PoolView(QWidget):
    """One tier: what it can hold, how much it holds, its blocks, and the card of the block under the pointer."""

    sampleRequested = Signal()

    def __init__(self, name: str, link: EngineLink, selection: Selection) -> None:
        super().__init__()
        self.name = name
        self._link = link
        self._selection = selection
        self._tier: TierView = link.view.tier(name)
        self.canvas = PoolCanvas(BlockImage(self._tier))
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self._capacity = QuietLabel()
        self._usage = QuietLabel()
        self._bar = UsageBar(self._tier)
        self._card = BlockCard(self)
        self._invitation = Invitation(self.canvas)
        self._dwell = QTimer(self, interval=DWELL_MS, singleShot=True)
        self._dwell.timeout.connect(self._describe)
        self._detail: BlockDetail | None = None
        self._head = QHBoxLayout()
        self._lay_out()
        self.canvas.blockHovered.connect(self._hovered)
        self.canvas.blockClicked.connect(self._clicked)
        self._invitation.accepted.connect(self.sampleRequested)
        self._retranslate()

    def add_controls(self, controls: QBoxLayout) -> None:
        self._head.addLayout(controls)

    def _lay_out(self) -> None:
        self._head.setContentsMargins(0, 0, 0, 0)
        self._head.setSpacing(theme.GRID)
        self._head.addWidget(self._title)
        self._head.addWidget(self._capacity, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        head = QWidget()
        head.setLayout(self._head)
        head.setFixedHeight(4 * theme.GRID)
        layout.addWidget(head)
        layout.addWidget(self._usage)
        layout.addWidget(self._bar)
        layout.addSpacing(theme.GRID // 2)
        layout.addWidget(self.canvas, 1)
        self.setMinimumSize(20 * theme.GRID, 14 * theme.GRID)

    def refresh(self) -> None:
        self.canvas.refresh(self._link.view.step)
        self._write_header()
        self._bar.update()
        self._invite()
        if self._card.isVisible() and self.canvas.hovered is not None:
            self._write_card(self.canvas.hovered)

    def restyle(self) -> None:
        self.canvas.restyle()
        self._card.update()
        self._bar.update()

    def _write_header(self) -> None:
        tier = self._tier
        if not tier.num_blocks:
            self._capacity.setText("")
            self._usage.setText("")
            return
        size = quantities.size(tier.num_blocks * tier.block_bytes)
        self._capacity.setText(
            self.tr("%1 blocks × %2 tokens = %3")
            .replace("%1", quantities.count(tier.num_blocks))
            .replace("%2", quantities.count(tier.block_size))
            .replace("%3", size)
        )
        self._usage.setText(
            self.tr("%1 in use · %2 blocks · %3 · %4 tokens (waste %5)")
            .replace("%1", quantities.percent(tier.used / tier.num_blocks))
            .replace("%2", quantities.count(tier.used))
            .replace("%3", quantities.size(tier.used * tier.block_bytes))
            .replace("%4", quantities.count(tier.held))
            .replace("%5", quantities.percent(tier.waste))
        )

    def _invite(self) -> None:
        """Say what will be seen here while there is nothing to see."""
        view, tier = self._link.view, self._tier
        nothing = tier.counts[BlockState.FREE] == tier.num_blocks and not view.live()
        if self.name != "device" or not nothing:
            self._invitation.hide()
        elif not view.known:
            text = (
                self.tr("The pool's blocks appear here once the engine is ready.")
                if view.connection in _DISCONNECTED
                else ""
            )
            self._invitation.say(text, button=False)
        else:
            tokens = quantities.count(tier.num_blocks * tier.block_size)
            text = self.tr("No request yet. The pool holds %1 tokens; send a prompt and its blocks appear here.")
            self._invitation.say(text.replace("%1", tokens), button=True)

    # --- one block ----------------------------------------------------------------------------------------------

    def _hovered(self, block: int | None) -> None:
        self._detail = None
        if block is None:
            self._dwell.stop()
            self._card.hide()
            return
        self._dwell.start()
        self._write_card(block)
        self._place_card(block)

    def _clicked(self, block: int | None) -> None:
        if block is None:
            self._selection.clear()
            return
        owner = int(self._tier.owner[block])
        self._selection.select_block(self.name, block, owner or None)

    def _describe(self) -> None:
        block = self.canvas.hovered
        if block is not None:
            self._link.request(DescribeBlock(tier=self.name, block=block), self._described)

    def _described(self, reply: EngineMessage) -> None:
        if isinstance(reply, BlockDetail) and reply.block == self.canvas.hovered and reply.tier == self.name:
            self._detail = reply
            self._write_card(reply.block)
            self._place_card(reply.block)

    def _write_card(self, block: int) -> None:
        tier = self._tier
        if block < tier.num_blocks:
            self._card.write(
                BlockFacts(
                    tier=self.name,
                    block=block,
                    state=BlockState(int(tier.state[block])),
                    owner=int(tier.owner[block]),
                    row=self._link.view.requests.get(int(tier.owner[block])),
                    fill=int(tier.fill[block]),
                    block_size=tier.block_size,
                    references=int(tier.ref[block]),
                    last_used=int(tier.last_used[block]),
                    step=self._link.view.step,
                    detail=self._detail,
                )
            )

    def _place_card(self, block: int) -> None:
        """Beside the cell, inside of the view."""
        cell = self.canvas.cell_rect(block).toRect()
        corner = self.canvas.mapTo(self, cell.bottomRight()) + QPoint(theme.GRID, theme.GRID)
        self._card.adjustSize()
        size = self._card.size()
        if corner.x() + size.width() > self.width():
            corner.setX(self.canvas.mapTo(self, cell.topLeft()).x() - theme.GRID - size.width())
        if corner.y() + size.height() > self.height():
            corner.setY(self.canvas.mapTo(self, cell.topLeft()).y() - theme.GRID - size.height())
        self._card.move(max(0, corner.x()), max(0, corner.y()))
        self._card.show()
        self._card.raise_()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LanguageChange:
            self._retranslate()
            self.refresh()

    def _retranslate(self) -> None:
        device = self.name == "device"
        self._title.setText(self.tr("Device pool") if device else self.tr("Host pool"))
        self.canvas.setAccessibleName(
            self.tr("Blocks of the device pool") if device else self.tr("Blocks of the host pool")
        )


class QuietLabel(QLabel):
    """One line of secondary text that is cut with an ellipsis where room is short, instead of widening the window."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "muted")
        self.setFont(theme.number_font(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        shown = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        self.setToolTip(self.text() if shown != self.text() else "")
        painter.setPen(QColor(theme.current().palette.muted))
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter, shown)


class UsageBar(QWidget):
    """A tier's blocks by state as one thin bar, the busiest first."""

    def __init__(self, tier: TierView) -> None:
        super().__init__()
        self._tier = tier
        self.setFixedHeight(theme.GRID // 2)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        palette, left = theme.current().palette, 0.0
        painter.fillRect(self.rect(), QColor(palette.states[BlockState.FREE]))
        for state in reversed(BlockState):
            width = self.width() * float(self._tier.counts[state]) / max(self._tier.num_blocks, 1)
            if width > 0 and state is not BlockState.FREE:
                painter.fillRect(QRectF(left, 0, max(width, 1.0), self.height()), QColor(palette.states[state]))
                left += max(width, 1.0)


class Invitation(QFrame):
    """One line over an empty pool, and a button to fill it."""

    accepted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._text = QLabel()
        self._text.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._text.setWordWrap(True)
        self._button = QPushButton()
        self._button.setProperty("role", "primary")
        self._button.clicked.connect(self.accepted)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*4 * [3 * theme.GRID])
        layout.setSpacing(2 * theme.GRID)
        layout.addWidget(self._text)
        layout.addWidget(self._button, 0, Qt.AlignmentFlag.AlignHCenter)
        self._room = parent
        parent.installEventFilter(self)
        self.hide()
        self._retranslate()

    def say(self, text: str, *, button: bool) -> None:
        self._text.setText(text)
        self._button.setVisible(button)
        self.setVisible(bool(text))
        self._centre()

    def _centre(self) -> None:
        room = self._room.size()
        width = min(52 * theme.GRID, room.width() - 4 * theme.GRID)
        height = self.heightForWidth(width) if self.hasHeightForWidth() else self.sizeHint().height()
        self.setGeometry((room.width() - width) // 2, max(0, (room.height() - height) // 2), width, height)

    def paintEvent(self, event: QPaintEvent) -> None:
        _paint_card(self)

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._centre()
        return False

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LanguageChange:
            self._retranslate()

    def _retranslate(self) -> None:
        self._button.setText(self.tr("Send a sample"))


def _paint_card(widget: QWidget) -> None:
    """A raised surface with a hairline, for what floats over the map."""
    palette = theme.current().palette
    painter = QPainter(widget)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(QColor(palette.raised))
    painter.setPen(QColor(palette.line))
    painter.drawRoundedRect(QRectF(widget.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)


# --- the card of a block ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockFacts:
    tier: str
    block: int
    state: BlockState
    owner: int
    row: RequestRow | None
    fill: int
    block_size: int
    references: int
    last_used: int
    step: int
    detail: BlockDetail | None


class BlockCard(QFrame):
    """A block's story beside the pointer: what the telemetry tells at once, what the engine adds when asked."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._head = QLabel()
        self._body = QLabel()
        self._body.setProperty("role", "muted")
        self._body.setFont(theme.number_font(self._body.font()))
        self._text = QLabel()
        self._text.setFont(theme.mono_font(-1))
        self._text.setWordWrap(True)
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setFixedWidth(36 * theme.GRID)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, theme.GRID, 12, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        for label in (self._head, self._body, self._text):
            layout.addWidget(label)
        self.hide()

    def write(self, facts: BlockFacts) -> None:
        colour = theme.current().palette.states[facts.state]
        name = self.tr("Block %1").replace("%1", quantities.count(facts.block))
        self._head.setText(f'<span style="color:{colour}">■</span> <b>{name}</b> · {words.block_state(facts.state)}')
        self._body.setText("\n".join(self._lines(facts)))
        text = facts.detail.text if facts.detail is not None else ""
        self._text.setText(text)
        self._text.setVisible(bool(text))

    def _lines(self, facts: BlockFacts) -> list[str]:
        lines = []
        if facts.owner:
            lines.append(self._owner(facts))
        if facts.state > BlockState.RESERVED:
            lines.append(
                self.tr("%1 of %2 tokens · reference count %3")
                .replace("%1", quantities.count(facts.fill))
                .replace("%2", quantities.count(facts.block_size))
                .replace("%3", quantities.count(facts.references))
            )
        if facts.last_used:
            lines.append(
                self.tr("last used in step %1 (%2 ago)")
                .replace("%1", quantities.count(facts.last_used))
                .replace("%2", quantities.count(max(0, facts.step - facts.last_used)))
            )
        return lines + self._described(facts.detail)

    def _owner(self, facts: BlockFacts) -> str:
        text = self.tr("request #%1").replace("%1", str(facts.owner))
        if facts.row is None:
            return text
        return f"{text} · {facts.row.id[:24]} · {words.priority(facts.row.priority)}"

    def _described(self, detail: BlockDetail | None) -> list[str]:
        if detail is None:
            return []
        lines = [
            self.tr("position %1 in the table of #%2")
            .replace("%1", quantities.count(owner.position))
            .replace("%2", f"{owner.request}" + (f".{owner.sample}" if owner.sample else ""))
            for owner in detail.owners[:4]
        ]
        if len(detail.owners) > 4:
            lines.append(self.tr("and %1 more").replace("%1", quantities.count(len(detail.owners) - 4)))
        if detail.prefix_hash:
            lines.append(self.tr("prefix hash %1").replace("%1", detail.prefix_hash[:12]))
        return lines

    def paintEvent(self, event: QPaintEvent) -> None:
        _paint_card(self)


# --- the legend -------------------------------------------------------------------------------------------------


class Legend(QWidget):
    """What the colours mean, with live counts. Clicking states singles them out; clicking them again shows all."""

    shownChanged = Signal(object)  # frozenset[BlockState]; empty is all

    def __init__(self) -> None:
        super().__init__()
        self._counts = np.zeros((2, len(BlockState)), np.int64)
        self._chips = {state: self._chip() for state in BlockState}
        self._colouring = Colouring.STATE
        self._scale = Scale()
        self._layout = QGridLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setHorizontalSpacing(theme.GRID // 2)
        self._layout.setVerticalSpacing(0)
        self._columns = 0
        self._place(len(BlockState))
        self.restyle()

    @property
    def shown(self) -> frozenset[BlockState]:
        return frozenset(state for state, chip in self._chips.items() if chip.isChecked())

    def refresh(self, device: TierView, host: TierView) -> None:
        self._counts[0], self._counts[1] = device.counts, host.counts
        self._write_chips()
        self._flow()

    def set_colouring(self, colouring: Colouring, block_size: int) -> None:
        self._colouring = colouring
        self._scale.set_colouring(colouring, block_size)
        self.restyle()
        self._flow()

    def restyle(self) -> None:
        filled = self._colouring is Colouring.STATE
        for state, chip in self._chips.items():
            chip.setIcon(_swatch(theme.current().palette.states[state], filled=filled))
        self._scale.update()

    def _chip(self) -> QPushButton:
        chip = QPushButton()
        chip.setCheckable(True)
        chip.setProperty("role", "chip")
        chip.setFont(theme.number_font(chip.font()))
        chip.toggled.connect(lambda: self.shownChanged.emit(self.shown))
        return chip

    def _write_chips(self) -> None:
        # As wide as the largest count, so that the row stands still.
        largest = quantities.count(int(self._counts.sum()))
        tip = self.tr("%1 in the device pool, %2 in the host pool. Click to single them out.")
        for state, chip in self._chips.items():
            on_device, on_host = (int(count) for count in self._counts[:, state])
            name = words.block_state(state)
            chip.setText(f"{name} {quantities.count(on_device + on_host)}")
            chip.setMinimumWidth(chip.fontMetrics().horizontalAdvance(f"{name} {largest}") + 5 * theme.GRID)
            chip.setVisible(state is not BlockState.SWAPPED or bool(self._counts[1].sum()))
            chip.setToolTip(tip.replace("%1", quantities.count(on_device)).replace("%2", quantities.count(on_host)))

    def _flow(self) -> None:
        """One row where there is room for all, else two."""
        visible = [chip for chip in self._chips.values() if not chip.isHidden()]
        whole = sum(chip.minimumWidth() + self._layout.horizontalSpacing() for chip in visible)
        if not self._scale.isHidden():
            whole += self._scale.sizeHint().width()
        self._place(len(BlockState) if whole <= self.width() else len(BlockState) // 2)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _place(self, columns: int) -> None:
        if columns == self._columns:
            return
        self._columns = columns
        for index, chip in enumerate(self._chips.values()):
            self._layout.addWidget(chip, index // columns, index % columns)
        self._layout.addWidget(self._scale, 0, len(BlockState) + 1)
        self._layout.setColumnStretch(len(BlockState), 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._flow()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LanguageChange:
            self._write_chips()
            self._scale.retranslate()


def _swatch(colour: str, *, filled: bool) -> QIcon:
    """A square of a state's colour; only its outline where the map shows something else than states."""
    pixmap = QPixmap(QSize(24, 24))
    pixmap.setDevicePixelRatio(2.0)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(QColor(colour) if filled else Qt.BrushStyle.NoBrush)
    painter.setPen(QColor(colour))
    painter.drawRoundedRect(QRectF(1.5, 1.5, 9, 9), 2, 2)
    painter.end()
    return QIcon(pixmap)


class Scale(QWidget):
    """The scale of an ordered colouring: a strip of its colours between its lowest and its highest value."""

    def __init__(self) -> None:
        super().__init__()
        self._colouring = Colouring.STATE
        self._block_size = 0
        self._low, self._high = QLabel(), QLabel()
        self._strip = _Strip()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID)
        for part in (self._low, self._strip, self._high):
            part.setProperty("role", "muted")
            layout.addWidget(part)
        self.hide()

    def set_colouring(self, colouring: Colouring, block_size: int) -> None:
        self._colouring, self._block_size = colouring, block_size
        self.retranslate()

    def retranslate(self) -> None:
        ends = {
            Colouring.REF: (self.tr("1 use"), self.tr("64 or more")),
            Colouring.AGE: (self.tr("long ago"), self.tr("just now")),
            Colouring.FILL: (
                self.tr("empty"),
                self.tr("%1 tokens").replace("%1", quantities.count(self._block_size)),
            ),
            Colouring.REQUEST: (self.tr("a colour a request"), ""),
        }
        low, high = ends.get(self._colouring, ("", ""))
        self._low.setText(low)
        self._high.setText(high)
        self._strip.set_request(self._colouring is Colouring.REQUEST)
        self.setVisible(bool(low))


class _Strip(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._request = False
        self.setFixedSize(12 * theme.GRID, theme.GRID)

    def set_request(self, request: bool) -> None:
        self._request = request
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        palette, painter = theme.current().palette, QPainter(self)
        if self._request:
            cells = 12
            for n in range(cells):
                left = n * self.width() / cells
                painter.fillRect(
                    QRectF(left, 0, self.width() / cells - 1, self.height()),
                    QColor(theme.request_colour(palette, n)),
                )
            return
        gradient = QLinearGradient(0, 0, self.width(), 0)
        for step in range(9):
            gradient.setColorAt(step / 8, QColor(theme.ramp_colour(palette, step / 8)))
        painter.fillRect(self.rect(), gradient)
