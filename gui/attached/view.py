"""One medium of another server's prefix cache: its header, its canvas, and the card of the block under the pointer."""

from __future__ import annotations

import time

import numpy as np
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from ...ipc.kv_events import Hash
from .. import quantities, theme
from ..card import BlockStory, QuietLabel
from ..i18n import Translated, fill_in
from ..map.block_image import BlockImage, Colouring
from ..map.block_map import reduced_motion
from ..map.pool_canvas import PoolCanvas
from .pool import AttachedBlock, AttachedPool

# Token ids that the card lists.
TOKENS_SHOWN = 64


class AttachedView(Translated, QWidget):
    """A pool as its events make it. A click follows a block's prefix through the pool."""

    def __init__(self, medium: str, pool: AttachedPool, colouring: Colouring) -> None:
        super().__init__()
        self.medium = medium
        self._pool = pool
        self._usage: float | None = None
        image = BlockImage(pool.tier)
        image.set_colouring(colouring)
        self.canvas = PoolCanvas(image)
        self.canvas.set_moving(not reduced_motion(self))
        self._title = QLabel(medium)
        self._title.setProperty("role", "title")
        self._figures = QuietLabel()
        self._card = AttachedCard(self)
        self._lay_out()
        self.canvas.blockHovered.connect(self._hovered)
        self.canvas.blockClicked.connect(self.select)
        self.retranslate()

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(theme.GRID)
        head.addWidget(self._title)
        head.addWidget(self._figures, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        layout.addLayout(head)
        layout.addWidget(self.canvas, 1)
        self.setMinimumSize(20 * theme.GRID, 12 * theme.GRID)

    def draw(self, step: int, usage: float | None) -> None:
        """Draw what changed. ``step``: seconds since the window attached; ``usage``: what the server says of its
        cache."""
        selected = self.canvas.selected
        if selected is not None and selected not in self._pool.blocks:
            self.select(None)
        self.canvas.refresh(step)
        self._usage = usage
        self._write()
        if self._card.isVisible():
            self._hovered(self.canvas.hovered)

    def set_colouring(self, colouring: Colouring) -> None:
        """Shown with the next :meth:`draw`."""
        self.canvas.image.set_colouring(colouring)

    def select(self, slot: int | None) -> None:
        """Follow a block's prefix; None follows none."""
        known = slot if slot in self._pool.blocks else None
        self.canvas.mark(known)
        path = [] if known is None else self._pool.lineage(known)
        self.canvas.trace(np.array(path, np.uint32), ordered=True)

    def _write(self) -> None:
        pool, count = self._pool, quantities.count
        if not pool.tier.block_size:
            self._figures.setText("")
            return
        parts = [
            fill_in(
                self.tr("%1 blocks × %2 tokens = %3 tokens"),
                count(len(pool)), count(pool.tier.block_size), count(pool.tokens),
            )
        ]  # fmt: skip
        if pool.capacity:
            parts.append(
                fill_in(self.tr("%1 of %2 blocks"), quantities.percent(len(pool) / pool.capacity), count(pool.capacity))
            )
        if self._usage is not None:
            parts.append(fill_in(self.tr("in use by requests, says the server: %1"), quantities.percent(self._usage)))
        parts.append(fill_in(self.tr("%1 stored, %2 removed"), count(pool.stored), count(pool.removed)))
        self._figures.setText(" · ".join(parts))

    def _hovered(self, slot: int | None) -> None:
        block = None if slot is None else self._pool.blocks.get(slot)
        if slot is None or block is None:
            self._card.hide()
            return
        self._card.write(block, self._pool.tier.block_size)
        cell = self.canvas.cell_rect(slot).toRect()
        self._card.show_beside(QRect(self.canvas.mapTo(self, cell.topLeft()), cell.size()))

    def retranslate(self) -> None:
        self.canvas.setAccessibleName(fill_in(self.tr("Cached blocks in %1"), self.medium))
        self._write()
        if self._card.isVisible():
            self._hovered(self.canvas.hovered)


class AttachedCard(BlockStory):
    """What a server told of one block."""

    def write(self, block: AttachedBlock, block_size: int) -> None:
        name = fill_in(self.tr("Block %1"), hash_text(block.hash))
        self._head.setText(f"<b>{name}</b>")
        self._body.setText("\n".join(self._lines(block)))
        shown = " ".join(map(str, block.token_ids[:TOKENS_SHOWN]))
        more = len(block.token_ids) - TOKENS_SHOWN
        self._text.setText(f"{shown} … +{more}" if more > 0 else shown or self.tr("The server did not say its tokens."))

    def _lines(self, block: AttachedBlock) -> list[str]:
        lines = []
        if block.depth:
            place = self.tr("block %1 of its prefix, continued by %2")
            lines.append(fill_in(place, quantities.count(block.depth), quantities.count(block.children)))
        else:
            lines.append(self.tr("the beginning of its prefix was stored before the window attached"))
        if block.parent is not None:
            lines.append(fill_in(self.tr("continues %1"), hash_text(block.parent)))
        if block.group:
            lines.append(fill_in(self.tr("group of layers %1"), str(block.group)))
        lines.append(fill_in(self.tr("stored %1 ago"), quantities.duration(max(0.0, time.time() - block.time))))
        return lines


def hash_text(hash: Hash) -> str:
    """A hash as people compare it: its last digits."""
    return hash.hex()[-12:] if isinstance(hash, bytes) else f"{hash:016x}"[-12:]
