"""The slots of blocks that are seen from so near that each has room: full or empty, and the text of its token."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import count, groupby

from PySide6.QtCore import QLineF, QObject, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from ...ipc.protocol import BlockDetail, DescribeBlock, EngineMessage
from .. import theme
from ..link import EngineLink

#: Cells from this size on (device pixels) are divided into their slots.
SLOT_CELL = 96.0
#: The least width and height of a slot that has room for text.
TEXT_WIDTH, TEXT_HEIGHT = 26.0, 13.0
#: A slot of this size shows most tokens whole.
LEGIBLE_WIDTH, LEGIBLE_HEIGHT = 48.0, 16.0
#: With more slots than this in view, text would be a carpet, and drawing it would take a frame's time.
TEXTS = 1500
#: The engine is asked at most so often.
ASK_MS = 200

_WIDER_THAN_HIGH = 3.5  # a slot, for a word to fit
_LARGEST_FONT = 15
#: What stands for bytes that are no character, and in the slot of a token that goes on with one.
_BROKEN, _GOES_ON = "\ufffd", "⋯"
_MARKS = str.maketrans({"\n": "↵", "\r": "↵", "\t": "⇥", " ": "·"})


def slot_grid(block_size: int, width: float, height: float) -> tuple[int, int]:
    """Columns and rows of a block's slots in a cell of ``width`` × ``height``: each has about a word's proportions."""

    def misfit(columns: int) -> float:
        rows = math.ceil(block_size / columns)
        return abs(math.log(width / columns / (height / rows) / _WIDER_THAN_HIGH))

    columns = min((n for n in range(1, block_size + 1) if block_size % n == 0), key=misfit)
    return columns, block_size // columns


def legible_cell(block_size: int) -> float:
    """The least side of a cell whose slots show most tokens whole."""
    sides = count(SLOT_CELL, theme.GRID)
    grids = ((side, *slot_grid(block_size, side, side)) for side in sides)
    return next(s for s, columns, rows in grids if s >= columns * LEGIBLE_WIDTH and s >= rows * LEGIBLE_HEIGHT)


def seen(text: str) -> str:
    """A token's text, with what is not seen of it made visible: line breaks, tabs, the space before a word."""
    word = text.strip(" \n\r\t")
    if not word:
        return text.translate(_MARKS)
    before, after = text.split(word, 1)
    return before.translate(_MARKS) + word + after.translate(_MARKS)


def in_characters(texts: list[str], text: str) -> list[str]:
    """Token texts with characters that several tokens make up together, from the ``text`` of all: at the first of these
    tokens; the others go on with it. A character that begins before or ends after ``text`` is not known."""
    if texts and texts[0].startswith(" ") and not text.startswith(" "):
        text = " " + text  # some tokenizers leave it out at the beginning
    result: list[str] = []
    runs = [(broken, [*run]) for broken, run in groupby(texts, lambda piece: _BROKEN in piece)]
    end = 0
    for place, (broken, run) in enumerate(runs):
        if not broken:
            whole = "".join(run)
            if not text.startswith(whole, end):
                return texts  # all of them are written in another way than each
            end += len(whole)
            result += run
            continue
        following = "".join(runs[place + 1][1]) if place + 1 < len(runs) else ""
        start, end = end, text.find(following, end + 1) if following else len(text)
        if end < 0:
            return texts
        made = text[start:end].replace(_BROKEN, "")
        result += [made or _GOES_ON] + [_GOES_ON] * (len(run) - 1)
    return result


class SlotTexts(QObject):
    """The token texts of the blocks in view. A block is asked for again when its owner or its fill has changed."""

    changed = Signal()

    def __init__(self, tier: str, link: EngineLink, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = tier
        self._link = link
        self._texts: dict[int, list[str]] = {}
        self._asked: dict[int, tuple[object, ...]] = {}  # block -> what it was when it was asked for
        self._wanted: list[int] = []
        self._pause = QTimer(self, interval=ASK_MS, singleShot=True)
        self._pause.timeout.connect(self._ask)

    def of(self, block: int) -> list[str]:
        """One a token, as far as they are known."""
        return self._texts.get(block, [])

    def want(self, blocks: Iterable[int]) -> None:
        """Ask for the texts of these blocks, and forget all others."""
        self._wanted = list(blocks)
        if self._wanted and not self._pause.isActive():
            self._ask()

    def _ask(self) -> None:
        tier, group = self._link.view.tier(self._name), self._link.view.group
        shape = (self._link.replaying, self._link.view.epoch, group, tier.num_blocks, tier.block_size)
        asked: dict[int, tuple[object, ...]] = {
            block: (*shape, int(tier.owner[block]), int(tier.fill[block]))
            for block in self._wanted
            if block < tier.num_blocks and tier.fill[block]
        }
        stale = [block for block, state in asked.items() if self._asked.get(block) != state]
        self._texts = {block: texts for block, texts in self._texts.items() if block in asked}
        self._asked = asked
        for block in stale:
            message = DescribeBlock(tier=self._name, block=block, group=group)
            self._link.request(message, partial(self._take, asked[block]))
        if stale:
            self._pause.start()

    def _take(self, state: tuple[object, ...], reply: EngineMessage) -> None:
        if isinstance(reply, BlockDetail) and self._asked.get(reply.block) == state:
            texts = in_characters(reply.token_texts, reply.text)
            self._texts[reply.block] = texts or [str(token) for token in reply.token_ids]
            self.changed.emit()


class SlotPainter:
    """Draws the slots of one block after the other; all cells of a frame are equally large."""

    def __init__(self, painter: QPainter, block_size: int, cell: QRectF, cells: int) -> None:
        """``cell``: any of the ``cells`` in view, in the painter's own pixels."""
        self._painter = painter
        self._size = block_size
        self._columns, rows = slot_grid(block_size, cell.width(), cell.height())
        self._wide, self._high = cell.width() / self._columns, cell.height() / rows
        self._view = QRectF(painter.viewport())
        room = self._view.width() * self._view.height() / (self._wide * self._high)
        few = min(cells * block_size, room) <= TEXTS
        self._written = self._wide >= TEXT_WIDTH and self._high >= TEXT_HEIGHT and few
        font = theme.mono_font()
        font.setPixelSize(max(8, min(_LARGEST_FONT, round(0.7 * self._high))))
        painter.setFont(font)
        self._metrics = QFontMetricsF(font)
        window = QColor(theme.current().palette.window)
        self._line, self._veil = QColor(window), QColor(window)
        self._line.setAlphaF(0.5)
        self._veil.setAlphaF(0.72)

    def paint(self, cell: QRectF, colour: str, fill: int, texts: list[str]) -> None:
        """A block that is drawn in ``colour`` and has ``fill`` tokens."""
        painter = self._painter
        slots = [
            QRectF(cell.left() + column * self._wide, cell.top() + row * self._high, self._wide, self._high)
            for row, column in (divmod(slot, self._columns) for slot in range(self._size))
        ]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._veil)
        painter.drawRects(slots[fill:])
        painter.setPen(QPen(self._line, 1))
        edges = {round(slot.left(), 3) for slot in slots} - {round(cell.left(), 3)}
        painter.drawLines([QLineF(x, cell.top(), x, cell.bottom()) for x in edges])
        edges = {round(slot.top(), 3) for slot in slots} - {round(cell.top(), 3)}
        painter.drawLines([QLineF(cell.left(), y, cell.right(), y) for y in edges])
        if self._written:
            painter.setPen(QColor(max("#000000", "#ffffff", key=lambda ink: theme.contrast(ink, colour))))
            for slot, text in zip(slots[:fill], texts, strict=False):
                if not slot.intersects(self._view):
                    continue
                room = slot.adjusted(3, 0, -3, 0)
                short = self._metrics.elidedText(seen(text), Qt.TextElideMode.ElideRight, room.width())
                painter.drawText(room, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, short)
