"""The batch timeline: each step a column of prefill and decode tokens, with the budget, preemptions and swaps."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from .. import quantities, theme, words
from ..card import QuietLabel
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..paced import Paced
from ..selection import Selection
from ..state import CLASSES
from .timeline import Timeline, kind_colour, marks_of

FIGURES_MS = 200  # between two updates of the figures; the columns move with every delivery


class BatchView(Translated, QWidget):
    """The timeline with its header. Follows the newest step while live; dragging or scrolling goes back in time."""

    stepSelected = Signal(object)  # StepRecord

    def __init__(self, link: EngineLink, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self._now = QuietLabel()
        self._figures = Paced(self._write_now, FIGURES_MS, self)
        self._texts = "", ""  # the figures, in full and in brief
        self._widest = [0, 0]  # that they were so far
        self._key = _Key()
        self._live = QPushButton()
        self._live.setCheckable(True)
        self._live.setChecked(True)
        self._live.setProperty("role", "chip")
        self._by_request = QPushButton()
        self._by_request.setCheckable(True)
        self._by_request.setProperty("role", "chip")
        self.timeline = Timeline(link, selection)
        self._lay_out()
        link.stepsChanged.connect(self.refresh)
        link.connectionChanged.connect(self.refresh)
        selection.changed.connect(self.timeline.update)
        theme.current().changed.connect(self._restyle)
        self._by_request.toggled.connect(self._colour)
        self._live.toggled.connect(self.timeline.set_live)
        self.timeline.liveChanged.connect(self._live.setChecked)
        self.timeline.stepSelected.connect(self.stepSelected)
        self.retranslate()

    def _lay_out(self) -> None:
        self._head = head = QHBoxLayout()
        head.setSpacing(2 * theme.GRID)
        head.addWidget(self._title)
        head.addWidget(self._now, 1)
        head.addWidget(self._key)
        head.addWidget(self._by_request)
        head.addWidget(self._live)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        layout.addLayout(head)
        layout.addWidget(self.timeline, 1)

    def refresh(self) -> None:
        if self.isVisible():
            self._figures()
            self.timeline.refresh()

    def _write_now(self) -> None:
        steps = self._link.view.steps
        if not len(steps):
            self._texts = "", ""
            self._now.setText("")
            return
        last = {
            name: float(steps.column(name)[-1]) for name in ("prefill_tokens", "decode_tokens", "budget", "running")
        }
        brief = quantities.count(last["prefill_tokens"] + last["decode_tokens"]), quantities.count(last["budget"])
        parts = (quantities.count(last[name]) for name in ("prefill_tokens", "decode_tokens", "running"))
        before = "" if self._link.view.present else f"{words.last_known()} · "
        self._texts = (
            before + fill_in(self.tr("%1 of %2 tokens · %3 prefill, %4 decode · %5 running"), *brief, *parts),
            before + fill_in(self.tr("%1 of %2 tokens"), *brief),
        )
        self._make_room()

    def _make_room(self) -> None:
        """Where not all fits, the figures are brief; where these would be cut, the key gives way to all of them. What
        gave way stays away when the figures get shorter for a moment."""
        wide = self._now.fontMetrics().horizontalAdvance
        self._widest = [max(before, wide(text)) for before, text in zip(self._widest, self._texts, strict=True)]
        gaps = 4 * self._head.spacing() + 2 * (2 * theme.GRID)
        fixed = (self._title, self._by_request, self._live)
        others = sum(part.sizeHint().width() for part in fixed) + gaps
        full, brief = (self.width() >= others + widest + self._key.width() for widest in self._widest)
        self._key.setVisible(brief)
        self._now.setText(self._texts[1 if brief and not full else 0])

    def _colour(self, by_request: bool) -> None:
        self.timeline.by_request = self._key.by_request = by_request
        self._key.retranslate()
        self._restyle()
        self._make_room()

    def _restyle(self) -> None:
        self._key.update()
        self.timeline.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def retranslate(self) -> None:
        self._title.setText(self.tr("Batch"))
        self._live.setText(self.tr("Live"))
        self._live.setToolTip(self.tr("Follow the newest step"))
        self._by_request.setText(self.tr("By request"))
        self._by_request.setToolTip(self.tr("A colour a request, in place of shades of classes"))
        self.timeline.setAccessibleName(self.tr("Batch timeline, a column a step"))
        self._key.retranslate()
        self._widest = [0, 0]
        self._write_now()
        self.timeline.refresh()


class _Key(QWidget):
    """What the colours and marks of the timeline mean."""

    def __init__(self) -> None:
        super().__init__()
        self.by_request = False  # else by kind and class
        self._texts: list[str] = []
        self.setFixedHeight(theme.line_height(self.fontMetrics()))

    def retranslate(self) -> None:
        kinds = ["", self.tr("a colour a request")] if self.by_request else [self.tr("decode"), self.tr("prefill")]
        self._texts = [
            *kinds,
            self.tr("resumed"),
            self.tr("swapped out"),
            self.tr("preempted"),
        ]
        shades = " · ".join(words.class_name(name) for name in CLASSES)
        self.setToolTip("" if self.by_request else self.tr("Darkest to palest: %1").replace("%1", shades))
        self.setFixedWidth(sum(self._widths()))
        self.update()

    def _widths(self) -> list[int]:
        gap = 4 * theme.GRID
        return [self.fontMetrics().horizontalAdvance(text) + gap if text else 0 for text in self._texts]

    def _colours(self, palette: theme.Palette, kind: str) -> list[str]:
        if self.by_request:
            return [theme.request_colour(palette, n) for n in range(len(CLASSES))]
        return [kind_colour(palette, kind, name) for name in CLASSES]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, palette = QPainter(self), theme.current().palette
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left, middle = 0.0, self.height() / 2
        marks = marks_of(palette)
        for index, (text, width) in enumerate(zip(self._texts, self._widths(), strict=True)):
            if not text:
                continue
            painter.setPen(Qt.PenStyle.NoPen)
            if index < 2:
                for n, colour in enumerate(self._colours(palette, ("decode", "prefill")[index])):
                    painter.setBrush(QColor(colour))
                    painter.drawRect(QRectF(left + 5 * n, middle - 5, 4, 10))
            else:
                _, draw, colour = marks[index - 2]
                painter.setBrush(QColor(colour))
                draw(painter, QPointF(left + 9, middle))
            painter.setPen(QColor(palette.muted))
            place = QRectF(left + 20, 0, width, self.height())
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, text)
            left += width
