"""How long things took, as a histogram on a logarithmic scale: bars by class, with the percentiles marked."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QEvent, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QToolTip, QVBoxLayout, QWidget

from .. import quantities, theme, words
from ..batch.timeline import kind_colour
from ..calm_scale import CalmScale
from ..card import QuietLabel
from ..chart import Series, Values
from ..durations import EDGES, percentiles
from ..i18n import Translated, fill_in

QUANTILES = (("P50", 0.5), ("P95", 0.95), ("P99", 0.99))
GUTTER = 7 * theme.GRID  # left of the bars, for the scale
BAR = 6  # a bar's width at least, in pixels
BARS = 72  # at most: more would show chance


class Histogram(Translated, QWidget):
    """Title, how many, and the bars."""

    def __init__(self) -> None:
        super().__init__()
        self._title = QLabel()
        self.told = QuietLabel()
        self.key = Values()
        self.bars = _Bars()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        for part in (self._title, self.told, self.key, self.bars):
            layout.addWidget(part)
        self.setMinimumSize(24 * theme.GRID, 12 * theme.GRID)

    def set_title(self, title: str, meaning: str) -> None:
        self._title.setText(title)
        self._title.setToolTip(meaning)
        self.bars.setAccessibleName(title)

    def show_counts(self, counts: dict[str, np.ndarray]) -> None:
        """``counts``: by class, int64 for each bucket of the wire."""
        self.bars.show_counts(counts)
        self._write()

    def _write(self) -> None:
        total = self.bars.total
        parts = []
        if total:
            named = zip(QUANTILES, self.bars.marks, strict=True)
            parts = [f"{name} {quantities.duration(value)}" for (name, _), value in named]
        parts.append(self.tr("%Ln measurement(s)", "", total))
        self.told.setText(" · ".join(parts))
        self.bars.setAccessibleDescription(self.told.text())
        palette, counts = theme.current().palette, self.bars.counts
        series = [Series(words.class_name(kind), kind_colour(palette, "decode", kind), 1.0) for kind in counts]
        self.key.show_values(series, [quantities.count(int(counts[kind].sum())) for kind in counts])

    def retranslate(self) -> None:
        self.key.retranslate()
        self._write()
        self.bars.update()


class _Bars(QWidget):
    """The bars. The scale of times widens when it must and else stays, so that nothing jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, np.ndarray] = {}
        self._whole = np.zeros(len(EDGES) - 1, np.int64)
        self._scale = CalmScale(2, patience=10)
        self._decades: tuple[int, int] | None = None  # exponents of ten at both ends
        self.marks: list[float] = []
        self.setFont(theme.number_font(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumHeight(8 * theme.GRID)

    def sizeHint(self) -> QSize:
        return QSize(40 * theme.GRID, 16 * theme.GRID)

    @property
    def total(self) -> int:
        return int(self._whole.sum())

    def show_counts(self, counts: dict[str, np.ndarray]) -> None:
        self.counts = counts
        self._whole = np.sum([*counts.values()], axis=0) if counts else np.zeros(len(EDGES) - 1, np.int64)
        self.marks = percentiles(self._whole, [share for _, share in QUANTILES])
        filled = np.flatnonzero(self._whole)
        if not len(filled):
            self._decades = None
        else:
            low = math.floor(math.log10(EDGES[filled[0]]) + 1e-9)
            high = math.ceil(math.log10(EDGES[filled[-1] + 1]) - 1e-9)
            known = self._decades or (low, high)
            self._decades = min(low, known[0]), max(high, known[1], low + 1)
        self.update()

    # --- where things are -----------------------------------------------------------------------------------------

    @property
    def _plot(self) -> QRect:
        line = theme.line_height(self.fontMetrics())
        head, foot = line + 2, line + 4  # for the percentiles' names and the times
        return QRect(GUTTER, head, max(1, self.width() - GUTTER - theme.GRID), max(1, self.height() - head - foot))

    def _across(self, seconds: float) -> float:
        assert self._decades is not None
        low, high = self._decades
        return self._plot.left() + self._plot.width() * (math.log10(seconds) - low) / (high - low)

    def groups(self) -> list[tuple[int, int]]:
        """First and last (exclusive) bucket of each bar: as many to a bar as make it wide enough to be seen."""
        if self._decades is None:
            return []
        low, high = self._decades
        first, last = (int(np.argmin(np.abs(np.log10(EDGES) - end))) for end in (low, high))
        size = max(1, math.ceil((last - first) / min(BARS, self._plot.width() / BAR)))
        return [(at, min(at + size, len(self._whole))) for at in range(first, min(last, len(self._whole)), size)]

    # --- drawing --------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._scale = CalmScale(2, patience=10)  # other bars are of another height

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, palette = QPainter(self), theme.current().palette
        if self._decades is None:
            painter.setPen(QColor(palette.muted))
            text = self.tr("Nothing was measured in this time.")
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, text)
            return
        groups = self.groups()
        tallest = max(int(self._whole[first:last].sum()) for first, last in groups)
        top = self._scale.update(float(tallest))
        self._paint_axes(painter, palette, top)
        self._paint_bars(painter, palette, groups, top)
        self._paint_marks(painter, palette)

    def _paint_axes(self, painter: QPainter, palette: theme.Palette, top: float) -> None:
        plot, line = self._plot, theme.line_height(self.fontMetrics())
        for part in range(3):
            y = plot.bottom() + 1 - round(plot.height() * part / 2)
            painter.setPen(QColor(palette.line))
            painter.drawLine(plot.left(), y, plot.right(), y)
            painter.setPen(QColor(palette.muted))
            place = QRect(0, y - line // 2, GUTTER - theme.GRID, line)
            flags = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(place, flags, quantities.count(top * part / 2))
        assert self._decades is not None
        low, high = self._decades
        for exponent in range(low, high + 1):
            x = round(self._across(10.0**exponent))
            painter.setPen(QColor(palette.line))
            painter.drawLine(x, plot.bottom() + 1, x, plot.bottom() + 4)
            painter.setPen(QColor(palette.muted))
            place = QRect(min(x - 40, self.width() - 80), plot.bottom() + 5, 80, line)
            side = Qt.AlignmentFlag.AlignRight if x + 40 > self.width() else Qt.AlignmentFlag.AlignHCenter
            painter.drawText(place, side | Qt.AlignmentFlag.AlignVCenter, _decade(exponent))

    def _paint_bars(self, painter: QPainter, palette: theme.Palette, groups: list[tuple[int, int]], top: float) -> None:
        plot = self._plot
        for first, last in groups:
            left, right = self._across(EDGES[first]), self._across(EDGES[last])
            base = float(plot.bottom() + 1)
            for kind, counts in self.counts.items():
                height = plot.height() * int(counts[first:last].sum()) / top
                colour = QColor(kind_colour(palette, "decode", kind))
                painter.fillRect(QRectF(left, base - height, max(1.0, right - left - 1), height), colour)
                base -= height

    def _paint_marks(self, painter: QPainter, palette: theme.Palette) -> None:
        """A line at each percentile; names that would overlap give way to the one before."""
        plot, free = self._plot, 0
        for (name, _), value in zip(QUANTILES, self.marks, strict=True):
            x = round(self._across(value))
            painter.setPen(QPen(QColor(palette.ink), 1, Qt.PenStyle.DashLine))
            painter.drawLine(x, plot.top() - 3, x, plot.bottom())
            width = painter.fontMetrics().horizontalAdvance(name)
            left = min(x - width // 2, self.width() - width)
            if left >= free:
                painter.drawText(left, 0, width + 2, plot.top() - 3, Qt.AlignmentFlag.AlignVCenter, name)
                free = left + width + theme.GRID // 2

    # --- asked ----------------------------------------------------------------------------------------------------

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent):
            told = self.told_at(event.pos().x())
            QToolTip.showText(event.globalPos(), told, self) if told else QToolTip.hideText()
            return True
        return super().event(event)

    def told_at(self, x: float) -> str:
        """What the bar at ``x`` stands for; empty where there is none."""
        for first, last in self.groups():
            if self._across(EDGES[first]) <= x < self._across(EDGES[last]):
                return self._story(first, last)
        return ""

    def _story(self, first: int, last: int) -> str:
        count = int(self._whole[first:last].sum())
        if not count:
            return ""
        ends = quantities.duration(EDGES[first]), quantities.duration(EDGES[last])
        share = quantities.percent(count / self.total)
        lines = [fill_in(self.tr("%1 to %2: %3 (%4 of all)"), *ends, quantities.count(count), share)]
        classes = {kind: int(counts[first:last].sum()) for kind, counts in self.counts.items()}
        if len(self.counts) > 1:
            lines += [f"{words.class_name(k)} {quantities.count(n)}" for k, n in classes.items() if n]
        return "\n".join(lines)


def _decade(exponent: int) -> str:
    """``0.1 ms``, ``10 ms``, ``1 s``, ``100 s``."""
    milliseconds = exponent < 0
    value = 10.0 ** (exponent + 3 if milliseconds else exponent)
    number = quantities.count(value) if value >= 1 else quantities.number(value).rstrip("0")
    return f"{number}{quantities.NBSP}{'ms' if milliseconds else 's'}"
