"""One tier of the block map: header, usage, canvas, and what floats over it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from ...ipc.protocol import BlockDetail, DescribeBlock, EngineMessage
from ...ipc.vocabulary import BlockState
from .. import quantities, theme, words
from ..card import QuietLabel, paint_raised
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..quantities import NBSP
from ..selection import Selection
from ..state import ConnectionState, TierView
from .block_card import BlockCard, BlockFacts
from .block_image import BlockImage
from .ghost_line import GhostLine
from .ghosts import Ghost
from .pool_canvas import PoolCanvas
from .slot_layer import SlotTexts

DWELL_MS = 200  # hovering this long asks the engine for a block's tokens and owners
_DISCONNECTED = (ConnectionState.DISCONNECTED, ConnectionState.CONNECTING, ConnectionState.LOADING)


class PoolView(Translated, QWidget):
    """One tier: what it can hold, how much it holds, its blocks, and the card of the block under the pointer."""

    sampleRequested = Signal()
    blockOpened = Signal()  # the selected block is to be seen in full

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
        self._ghost = GhostLine()
        self._card = BlockCard(self)
        self._invitation = Invitation(self.canvas)
        self._slots = SlotTexts(name, link, self)
        self.canvas.texts_of = self._slots.of
        self._dwell = QTimer(self, interval=DWELL_MS, singleShot=True)
        self._dwell.timeout.connect(self._describe)
        self._detail: BlockDetail | None = None
        self._head = QHBoxLayout()
        self._lay_out()
        self.canvas.blockHovered.connect(self._hovered)
        self.canvas.blockClicked.connect(self._clicked)
        self.canvas.blockOpened.connect(self._opened)
        self.canvas.slotsSeen.connect(self._slots.want)
        self._slots.changed.connect(self.canvas.redraw)
        self._invitation.accepted.connect(self.sampleRequested)
        self.retranslate()

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
        head.setMinimumHeight(4 * theme.GRID)
        head.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        layout.addWidget(head)
        layout.addWidget(self._usage)
        layout.addWidget(self._bar)
        layout.addWidget(self._ghost)
        layout.addSpacing(theme.GRID // 2)
        layout.addWidget(self.canvas, 1)
        self.setMinimumSize(20 * theme.GRID, 14 * theme.GRID)

    def draw(self) -> None:
        """Draw the blocks that changed."""
        tier = self._link.view.tier(self.name)
        if tier is not self._tier:  # a recording's, or the engine's again
            self._tier = self._bar.tier = self.canvas.image.tier = tier
        self.canvas.refresh(self._link.view.step)
        self._invite()
        if self._card.isVisible() and self.canvas.hovered is not None:
            self._write_card(self.canvas.hovered)
            if self._card.outgrown:
                self._place_card(self.canvas.hovered)

    def show_ghost(self, ghost: Ghost | None) -> None:
        """Lay a ghost over the blocks and say it in words."""
        self._ghost.say(ghost, self._tier)
        self.canvas.show_ghost(ghost)

    def restyle(self) -> None:
        self.canvas.restyle()
        self._ghost.update()
        self._card.update()
        self._bar.update()

    def write_header(self) -> None:
        """Say what the pool can hold and what it holds."""
        self._bar.update()
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
        self._usage.setText(" · ".join(self._usage_parts(tier)))

    def _usage_parts(self, tier: TierView) -> list[str]:
        """How much of the pool is allocated, how much of that is put to use, and what sharing and runs achieve."""
        parts = [] if self._link.view.present else [words.last_known()]
        parts.append(fill_in(self.tr("%1 allocated"), quantities.percent(tier.allocated / tier.num_blocks)))
        if tier.allocated:
            parts.append(fill_in(self.tr("%1 of it filled"), quantities.percent(tier.filled)))
        parts += [
            f"{quantities.count(tier.allocated)}{NBSP}{words.unit('blocks')}",
            quantities.size(tier.allocated * tier.block_bytes),
            f"{quantities.count(tier.held)}{NBSP}{words.unit('tokens')}",
        ]
        cached = int(tier.counts[BlockState.CACHED])
        if cached:
            parts.append(fill_in(self.tr("%1 more cached"), quantities.count(cached)))
        stats = self._link.view.group_stats()
        facts = None if stats is None else stats[self.name == "host"]
        if facts is not None and facts.saved:
            parts.append(fill_in(self.tr("sharing saves %1"), quantities.count(facts.saved)))
        if facts is not None and facts.mean_run:
            parts.append(fill_in(self.tr("mean run %1"), quantities.short(facts.mean_run)))
        return parts

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

    def _opened(self, block: int) -> None:
        self._clicked(block)
        self.blockOpened.emit()

    def _describe(self) -> None:
        block = self.canvas.hovered
        if block is not None:
            self._link.request(DescribeBlock(tier=self.name, block=block, group=self._link.view.group), self._described)

    def _described(self, reply: EngineMessage) -> None:
        asked = (self.canvas.hovered, self.name, self._link.view.group)
        if isinstance(reply, BlockDetail) and (reply.block, reply.tier, reply.group) == asked:
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
        cell = self.canvas.cell_rect(block).toRect()
        self._card.show_beside(QRect(self.canvas.mapTo(self, cell.topLeft()), cell.size()))

    def retranslate(self) -> None:
        device = self.name == "device"
        self._title.setText(self.tr("Device pool") if device else self.tr("Host pool"))
        self.canvas.setAccessibleName(
            self.tr("Blocks of the device pool") if device else self.tr("Blocks of the host pool")
        )
        self.write_header()
        self._invite()


class UsageBar(QWidget):
    """A tier's blocks by state as one thin bar, the busiest first."""

    def __init__(self, tier: TierView) -> None:
        super().__init__()
        self.tier = tier
        self.setFixedHeight(theme.GRID // 2)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        palette, left = theme.current().palette, 0.0
        painter.fillRect(self.rect(), QColor(palette.states[BlockState.FREE]))
        for state in reversed(BlockState):
            width = self.width() * float(self.tier.counts[state]) / max(self.tier.num_blocks, 1)
            if width > 0 and state is not BlockState.FREE:
                painter.fillRect(QRectF(left, 0, max(width, 1.0), self.height()), QColor(palette.states[state]))
                left += max(width, 1.0)


class Invitation(Translated, QFrame):
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
        self.retranslate()

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
        paint_raised(self)

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._centre()
        return False

    def retranslate(self) -> None:
        self._button.setText(self.tr("Send a sample"))
