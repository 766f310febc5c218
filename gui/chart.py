"""A small chart over time: title, present values, curves or a stack, calm axes with units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QCoreApplication, QPoint, Qt
from PySide6.QtGui import QColor, QHideEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from . import quantities, theme
from .calm_scale import CalmScale
from .i18n import Translated

POINTS = 1_500  # a curve of more is thinned out, keeping its peaks
LABEL_WIDTH, LABEL_HEIGHT = 56, 20  # of an axis' ticks, in pixels
GAP_S = 5.0  # a longer silence interrupts the curve
_LOWEST = {"s": 0.001, "%": 0.01, "B": 1024.0}  # where a scale ends at least, by unit; else at 1


@dataclass(frozen=True)
class Series:
    name: str
    colour: str
    width: float
    dash: tuple[float, ...] = ()  # lengths of strokes and gaps, in widths of the line; none is a whole line


class Chart(QWidget):
    """Values over the last ``span`` seconds. ``unit`` is ``s`` (shown as ms or s), ``%`` (of shares from 0 to 1), ``B``
    (bytes), or stands behind the number as it is."""

    def __init__(self, *, unit: str, stacked: bool = False) -> None:
        super().__init__()
        self._unit = unit
        self._stacked = stacked
        self._series: Sequence[Series] = ()
        self._scale = CalmScale(_LOWEST.get(unit, 1.0), patience=10)
        self._title = QLabel()
        self._values = Values(lines=not stacked)
        self._plot = pg.PlotWidget(background=None)
        self._bottom, self._left = _AgoAxis(), _ValueAxis(unit)
        self._plot.setAxisItems({"bottom": self._bottom, "left": self._left})
        self._plot.setMouseEnabled(x=False, y=False)
        self._plot.hideButtons()
        self._plot.setMenuEnabled(False)
        self._plot.showGrid(x=False, y=True, alpha=0.15)
        self._plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._curves: list[pg.PlotDataItem] = []
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        for part in (self._title, self._values, self._plot):
            layout.addWidget(part)
        self.setMinimumSize(24 * theme.GRID, 12 * theme.GRID)

    def set_title(self, title: str, meaning: str) -> None:
        self._title.setText(title)
        self._title.setToolTip(meaning)
        self._plot.setAccessibleName(title)

    def set_series(self, series: Sequence[Series]) -> None:
        """The curves' names and colours, in the order of :meth:`draw`'s columns; a stack's lowest first."""
        palette = theme.current().palette
        self._series = series
        for curve in self._curves:
            self._plot.removeItem(curve)
        self._curves = [self._curve(one) for one in series]
        for layer, curve in enumerate(self._curves):
            curve.setZValue(len(series) - layer)
            self._plot.addItem(curve)
        for axis in (self._bottom, self._left):
            axis.setPen(palette.window if axis is self._left else palette.line)
            axis.setTextPen(palette.muted)

    def _curve(self, series: Series) -> pg.PlotDataItem:
        if self._stacked:
            return pg.PlotDataItem(pen=None, brush=QColor(series.colour), fillLevel=0.0, connect="finite")
        return pg.PlotDataItem(pen=_pen(series), connect="finite")

    def draw(self, span: int, ago: np.ndarray, columns: Sequence[np.ndarray], *, top: float = 0.0) -> None:
        """``ago`` is negative seconds, ascending; each column is as long. ``top`` is where the scale ends, if that is
        not to follow the values."""
        if span != self._bottom.span:
            self._scale.restart()
        first = int(np.searchsorted(ago, -span))
        ago, columns = ago[first:], [column[first:] for column in columns]
        self._values.show_values(
            self._series, [self._text(float(column[-1])) if len(column) else "–" for column in columns]
        )
        drawn = np.cumsum(columns, axis=0) if self._stacked else np.asarray(columns)
        finite = drawn[np.isfinite(drawn)]
        top = top or self._scale.update(float(finite.max()) if len(finite) else 0.0)
        for curve, column in zip(self._curves, drawn, strict=True):
            curve.setData(*_broken(*_thinned(ago, column)))
        self._bottom.span, self._left.top, self._left.known = span, top, len(finite) > 0
        self._left.picture = None  # its labels may change while its range does not
        self._frame()

    def _frame(self) -> None:
        """A little beyond the outermost ticks, whose labels would be cut otherwise."""
        size, span, top = self._plot.getViewBox().size(), self._bottom.span, self._left.top
        across = LABEL_WIDTH / 2 * span / max(size.width() - LABEL_WIDTH, LABEL_WIDTH)
        down = LABEL_HEIGHT / 2 * top / max(size.height() - LABEL_HEIGHT, LABEL_HEIGHT)
        self._plot.setXRange(-span - across, across, padding=0)
        self._plot.setYRange(-down, top + down, padding=0)

    def rescale(self) -> None:
        """Values of something else come next."""
        self._scale.restart()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.rescale()  # a scale is calm for who looks at it: the values may be others by then

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._frame()

    def _text(self, value: float) -> str:
        return format_value(value, self._unit)


def _pen(series: Series) -> QPen:
    return pg.mkPen(series.colour, width=series.width, dash=series.dash or None)


def in_pairs(charts: Iterable[QWidget]) -> QWidget:
    """Charts two beside each other, of one size."""
    sheet = QWidget()
    grid = QGridLayout(sheet)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(3 * theme.GRID)
    grid.setVerticalSpacing(2 * theme.GRID)
    for index, chart in enumerate(charts):
        grid.addWidget(chart, index // 2, index % 2)
        grid.setColumnStretch(index % 2, 1)
        grid.setRowStretch(index // 2, 1)
    return sheet


def format_value(value: float, unit: str) -> str:
    if not np.isfinite(value):
        return "–"
    if unit == "s":
        return quantities.duration(float(value))
    if unit == "%":
        return quantities.percent(float(value))
    if unit == "B":
        return quantities.size(float(value))
    return f"{quantities.number(float(value))}{quantities.NBSP}{unit}"


def _thinned(ago: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most about ``POINTS`` points: of each group the largest, for peaks are what a viewer looks for."""
    size = -(-len(ago) // POINTS)
    if size <= 1:
        return ago, values
    whole = len(ago) // size * size
    groups = np.where(np.isfinite(values[:whole]), values[:whole], -np.inf).reshape(-1, size)
    peaks = groups.max(axis=1)
    return ago[:whole].reshape(-1, size)[:, -1], np.where(np.isfinite(peaks), peaks, np.nan)


def _broken(ago: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NaN where nothing was heard for long, so that a curve does not bridge it."""
    gaps = np.flatnonzero(np.diff(ago) > max(GAP_S, 3 * float(np.median(np.diff(ago))) if len(ago) > 1 else 0.0)) + 1
    return np.insert(ago, gaps, ago[gaps]), np.insert(values.astype(float), gaps, np.nan)


class _AgoAxis(pg.AxisItem):
    """Time before now: ``−60 s``, ``−10 min``, ``now``."""

    def __init__(self) -> None:
        super().__init__("bottom")
        self.span = 120
        self.setStyle(tickLength=4, hideOverlappingLabels=False)

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        parts = 3 if self.span % 900 == 0 and self.span < 3600 else 4  # whole minutes
        if size < (parts + 1) * LABEL_WIDTH:
            parts = 2 if parts == 4 else 1
        return [(self.span / parts, [-self.span * n / parts for n in range(parts + 1)])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [self._text(-value) for value in values]

    def _text(self, ago: float) -> str:
        nbsp = quantities.NBSP
        if ago < 0.5:
            return QCoreApplication.translate("Chart", "now")
        if ago <= 120:
            return f"−{quantities.count(ago)}{nbsp}s"
        return f"−{quantities.count(ago / 60)}{nbsp}min"


class _ValueAxis(pg.AxisItem):
    """Three ticks with units, or two where three would touch, in a gutter of fixed width: charts line up and do not
    shift."""

    def __init__(self, unit: str) -> None:
        super().__init__("left")
        self._unit = unit
        self.top = 1.0
        self.known = False  # whether any value gives the scale a meaning
        self.setWidth(11 * theme.GRID)
        self.setStyle(tickLength=0, hideOverlappingLabels=False)

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        return [(self.top, [0.0, self.top]), (self.top / 2, [self.top / 2])]  # the second where it has room

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        unit = self._unit
        return ["0" if not value else format_value(value, unit) if self.known else "" for value in values]


class Values(Translated, QWidget):
    """Names and present values beside their colours, on a second line where one is too short."""

    def __init__(self, *, lines: bool = False) -> None:
        """Beside ``lines`` a piece of each, as it is drawn; else a square of its colour."""
        super().__init__()
        self._lines = lines
        self._sample = 2 * theme.GRID if lines else theme.GRID
        self._shown: list[tuple[Series, str]] = []
        self._widths: list[int] = []  # they grow only, so that nothing jumps
        self.setFont(theme.number_font(self.font()))
        self._line = theme.line_height(self.fontMetrics())
        self.setFixedHeight(self._line)

    def show_values(self, series: Sequence[Series], values: Sequence[str]) -> None:
        self._shown = list(zip(series, values, strict=True))
        measure = self.fontMetrics().horizontalAdvance
        wanted = [measure(f"{one.name} {value}") + self._sample + 2 * theme.GRID for one, value in self._shown]
        kept = self._widths if len(self._widths) == len(wanted) else wanted
        self._widths = [max(pair) for pair in zip(kept, wanted, strict=True)]
        self._fit()
        self.update()

    def places(self) -> list[QPoint]:
        """Where each name begins."""
        places, left, line = [], 0, 0
        for width in self._widths:
            if left and left + width - theme.GRID > self.width():
                left, line = 0, line + 1
            places.append(QPoint(left, line * self._line))
            left += width
        return places

    def _fit(self) -> None:
        places = self.places()
        if places:
            self.setFixedHeight(places[-1].y() + self._line)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, palette = QPainter(self), theme.current().palette
        measure = self.fontMetrics().horizontalAdvance
        for (series, value), place, width in zip(self._shown, self.places(), self._widths, strict=True):
            middle = place.y() + self._line // 2
            if self._lines:
                painter.setPen(_pen(series))
                painter.drawLine(place.x(), middle, place.x() + self._sample, middle)
            else:
                painter.fillRect(place.x(), middle - 4, self._sample, 8, QColor(series.colour))
            x = place.x() + self._sample + theme.GRID // 2
            for text, colour in ((f"{series.name} ", palette.muted), (value, palette.ink)):
                painter.setPen(QColor(colour))
                painter.drawText(x, place.y(), width, self._line, Qt.AlignmentFlag.AlignVCenter, text)
                x += measure(text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def retranslate(self) -> None:
        self._widths = []  # a language may be shorter
        self.show_values([series for series, _ in self._shown], [value for _, value in self._shown])
