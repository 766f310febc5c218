"""A ghost in words: one line of figures, each after a swatch of what stands for it on the map."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from .. import quantities, theme, words
from ..i18n import Translated, fill_in
from ..state import TierView
from .ghost_layer import paint_hatched
from .ghosts import BEYOND, EMPTY, HELD, NOTHING, ContiguousGhost, Ghost, UnsharedGhost

_SWATCH = 2 * theme.GRID


class GhostLine(Translated, QLabel):
    """One line, or two where room is short, cut with an ellipsis where that is not enough. The tooltip says all of it,
    and what the ghost is."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[tuple[int, str]] = []
        self._ghost: Ghost | None = None
        self._tier: TierView | None = None
        self._tall = False  # of two lines
        self.setFont(theme.number_font(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.hide()

    def say(self, ghost: Ghost | None, tier: TierView) -> None:
        self._ghost, self._tier = ghost, tier
        self.setVisible(ghost is not None)
        if ghost is None:
            self._tall = False
            return
        self._parts = self._contiguous(ghost, tier) if isinstance(ghost, ContiguousGhost) else []
        if isinstance(ghost, UnsharedGhost):
            self._parts = self._unshared(ghost, tier)
        self._fit()
        text = " · ".join(part for _, part in self._parts)
        self.setText(text)
        self.setToolTip(f"{self._meaning()}\n{text}")

    def _meaning(self) -> str:
        if isinstance(self._ghost, ContiguousGhost):
            return self.tr(
                "What the running requests would take if each reserved its prompt and its longest output in one piece."
            )
        return self.tr("The blocks that there would be if each request had its own copy of what it shares.")

    def _contiguous(self, ghost: ContiguousGhost, tier: TierView) -> list[tuple[int, str]]:
        if not ghost.requests:
            return [(NOTHING, self.tr("No request runs that would take a piece"))]
        fit = self.tr("%1 of %Ln request(s) would fit", "", ghost.requests)
        taken = self.tr("%1 of %2 reserved")
        parts = [
            (HELD, fill_in(fit, _count(ghost.fitting))),
            (EMPTY, fill_in(self.tr("%1 of what they reserve would be empty"), quantities.percent(ghost.empty))),
            (NOTHING, fill_in(taken, _count(ghost.reserved), words.counted.blocks(tier.num_blocks))),
        ]
        if ghost.beyond:
            beyond = self.tr("%Ln would not (%1 too many)", "", ghost.requests - ghost.fitting)
            parts.insert(2, (BEYOND, fill_in(beyond, words.counted.blocks(ghost.beyond))))
        return parts

    def _unshared(self, ghost: UnsharedGhost, tier: TierView) -> list[tuple[int, str]]:
        if not ghost.copies:
            return [(NOTHING, self.tr("Nothing is shared now"))]
        text = self.tr("%1 more without sharing (%2)")
        size = quantities.size(ghost.copies * tier.block_bytes)
        parts = [(HELD, fill_in(text, words.counted.blocks(ghost.copies), size))]
        if ghost.evicting:
            parts.append((NOTHING, fill_in(self.tr("%1 of them in place of cached ones"), _count(ghost.evicting))))
        if ghost.beyond:
            parts.append((BEYOND, fill_in(self.tr("%1 beyond the pool's end"), words.counted.blocks(ghost.beyond))))
        whole = self.tr("%1 in all, of %2")
        parts.append((NOTHING, fill_in(whole, _count(ghost.needed), words.counted.blocks(tier.num_blocks))))
        return parts

    def sizeHint(self) -> QSize:
        return QSize(0, self._line)

    @property
    def _line(self) -> int:
        """Height of one line."""
        return self.fontMetrics().height() + theme.GRID // 2

    def places(self) -> list[QPoint]:
        """Where each part begins."""
        places, left, line = [], 0, 0
        for kind, text in self._parts:
            width = self.fontMetrics().horizontalAdvance(text) + (_SWATCH + theme.GRID // 2 if kind != NOTHING else 0)
            if left and not line and left + width > self.width():
                left, line = 0, 1
            places.append(QPoint(left, line * self._line))
            left += width + 2 * theme.GRID
        return places

    def _fit(self) -> None:
        """A second line stays once it was needed: the map below is not to jump with the figures."""
        places = self.places()
        self._tall = self._tall or bool(places and places[-1].y())
        self.setFixedHeight((1 + self._tall) * self._line)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._tall = False
            self._fit()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, palette = QPainter(self), theme.current().palette
        for (kind, text), place in zip(self._parts, self.places(), strict=True):
            left = place.x()
            if kind != NOTHING:
                top = place.y() + (self._line - _SWATCH * 0.75) / 2
                paint_hatched(painter, palette, kind, [QRectF(left + 0.5, top, _SWATCH, _SWATCH * 0.75)])
                left += _SWATCH + theme.GRID // 2
            painter.setPen(QColor(palette.error if kind == BEYOND else palette.ink))
            room = max(0, self.width() - left)
            shown = self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, room)
            painter.drawText(left, place.y(), room, self._line, Qt.AlignmentFlag.AlignVCenter, shown)

    def retranslate(self) -> None:
        if self._tier is not None:
            self.say(self._ghost, self._tier)


def _count(value: int) -> str:
    return quantities.count(value)
