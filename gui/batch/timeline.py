"""The columns of the batch timeline: drawing, hover, scrubbing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QHideEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
    QStaticText,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from ...ipc.telemetry import StepRecord
from ...ipc.vocabulary import BlockState
from .. import quantities, theme
from ..calm_scale import CalmScale
from ..card import paint_focus
from ..kept_picture import KeptPicture
from ..link import EngineLink
from ..paced import Paced
from ..selection import Selection
from ..state import CLASSES, StepHistory
from .request_bars import stacked
from .step_card import StepCard

Mark = Callable[[QPainter, QPointF], None]

COLUMN_WIDTHS = (2, 3, 4, 6, 8, 12, 16, 24)
MOVE_MS = 60  # between two pictures of columns that go by: each is a new one, and they are read at rest
GUTTER = 6 * theme.GRID  # left of the columns, for the scale
MARKS = 12  # above them, for preemptions and swaps
_RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
_STACK = tuple((kind, name) for kind in ("decode", "prefill") for name in CLASSES)
_STACK_COLUMNS = tuple(f"{kind}_{name}" for kind, name in _STACK)


def kind_colour(palette: theme.Palette, kind: str, class_name: str) -> str:
    """The colour of prefill or decode tokens of a class."""
    return _shade(palette.decode if kind == "decode" else palette.prefill, palette.window, class_name)


@cache
def _shade(hue: str, window: str, class_name: str) -> str:
    return theme.mix(hue, window, theme.CLASS_SHADES[class_name])


class Timeline(QWidget):
    """The columns. ``end`` is the step (counted from the first ever seen) after the last visible one."""

    stepSelected = Signal(object)  # StepRecord
    liveChanged = Signal(bool)

    def __init__(self, link: EngineLink, selection: Selection) -> None:
        super().__init__()
        self._link = link
        self._selection = selection
        self._scale = CalmScale(8)
        self._column = 6
        self._live = True
        self.by_request = False  # a colour a request, else shades of classes
        self._epoch = ""  # of the engine whose steps these are
        self._end = 0
        self._hovered: int | None = None  # steps by absolute number
        self._chosen: int | None = None
        self._pressed: QPointF | None = None
        self._pressed_end = 0
        self._dragged = False
        self._card = StepCard(self)
        self._axis, self._budget = KeptPicture(self), KeptPicture(self)
        self._laid_out = lru_cache(maxsize=64)(self._lay_out)  # step numbers, which go by
        self._move = Paced(self.update, MOVE_MS, self)
        self.setFont(theme.number_font(self.font()))
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)  # else all that it lies on is painted with it
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumHeight(11 * theme.GRID)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        return QSize(80 * theme.GRID, 16 * theme.GRID)

    # --- what is visible ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        if self._link.view.epoch != self._epoch:  # another life's steps: what was chosen is not among them
            self._epoch = self._link.view.epoch
            self._hovered = self._chosen = None
            self.set_live(True)
        if self._live:
            self._end = self._steps.total
        self._clamp()
        self._write_card()
        self._move()

    def set_live(self, live: bool) -> None:
        if live != self._live:
            self._live = live
            self.liveChanged.emit(live)
            self.refresh()

    @property
    def visible_steps(self) -> tuple[int, int]:
        """First and last (exclusive) visible step, counted from the first ever seen."""
        steps = self._steps
        first = max(self._end - self._capacity, steps.total - len(steps))
        return first, max(first, self._end)

    @property
    def _steps(self) -> StepHistory:
        return self._link.view.steps

    @property
    def _capacity(self) -> int:
        return max(1, (self.width() - GUTTER) // self._column)

    @property
    def _plot(self) -> QRect:
        foot = theme.line_height(self.fontMetrics()) + 2  # for step numbers
        return QRect(GUTTER, MARKS, self.width() - GUTTER, max(1, self.height() - MARKS - foot))

    def _clamp(self) -> None:
        steps = self._steps
        oldest = steps.total - len(steps)
        self._end = max(min(self._end, steps.total), min(steps.total, oldest + self._capacity))

    def _scroll_to(self, end: int) -> None:
        self._end = end
        self._clamp()
        self.set_live(self._end == self._steps.total)
        self.refresh()

    def _left(self, step: int) -> float:
        """The left edge of a step's column: the newest visible one touches the right edge."""
        return self.width() - (self._end - step) * self._column

    def _step_at(self, x: float) -> int | None:
        step = self._end - math.ceil((self.width() - x) / self._column)
        first, end = self.visible_steps
        return step if x >= GUTTER and first <= step < end else None

    # --- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, palette = QPainter(self), theme.current().palette
        painter.fillRect(self.rect(), QColor(palette.window))
        first, end = self.visible_steps
        if first == end:
            painter.setPen(QColor(palette.muted))
            text = self.tr("Each step of the engine appears here as a column, once a request runs.")
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, text)
            painter.end()
            paint_focus(self)
            return
        offset = self._steps.total - len(self._steps)
        part = slice(first - offset, end - offset)
        ends = np.cumsum(self._steps.table(_STACK_COLUMNS, part.start, part.stop), axis=0)
        top = self._scale.update(float(ends[-1].max()))
        marks = self._axis_marks(top)
        self._axis.draw(painter, (palette, marks), lambda picture: self._paint_axis(picture, palette, marks))
        if self.by_request:
            self._paint_requests(painter, palette, part, first, top)
        else:
            self._paint_columns(painter, palette, ends / top, first)
        budget = float(self._steps.column("budget")[part.stop - 1])
        limit = budget / top, self.tr("budget %1").replace("%1", quantities.count(budget))
        self._budget.draw(painter, (palette, limit), lambda picture: self._paint_budget(picture, palette, *limit))
        self._paint_marks(painter, palette, part, first)
        self._paint_feet(painter, palette, part, first)
        for step, colour in ((self._hovered, palette.muted), (self._chosen, palette.ink)):
            if step is not None and first <= step < end:
                painter.setPen(QPen(QColor(colour), 1))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                plot = self._plot
                painter.drawRect(QRectF(self._left(step) - 0.5, plot.top() - 0.5, self._column, plot.height()))
        painter.end()
        paint_focus(self)

    def _axis_marks(self, top: float) -> tuple[tuple[float, str], ...]:
        """Where the scale has marks, in shares of the plot's height, and what they say."""
        divisions = 2 if self._plot.height() >= 48 else 1
        marks = [(part / divisions, top * part / divisions) for part in range(divisions + 1)]
        return tuple((share, quantities.count(n) if n == int(n) else quantities.number(n)) for share, n in marks)

    def _paint_axis(self, painter: QPainter, palette: theme.Palette, marks: Iterable[tuple[float, str]]) -> None:
        plot = self._plot
        for share, text in marks:
            y = plot.bottom() + 1 - round(plot.height() * share)
            painter.setPen(QColor(palette.line))
            painter.drawLine(GUTTER, y, self.width(), y)
            painter.setPen(QColor(palette.muted))
            line = theme.line_height(painter.fontMetrics())
            painter.drawText(QRect(0, y - line // 2, GUTTER - theme.GRID, line), _RIGHT, text)

    def _paint_columns(self, painter: QPainter, palette: theme.Palette, ends: np.ndarray, first: int) -> None:
        """``ends[layer, column]`` is where each kind and class ends, in shares of the plot's height."""
        colours = [QColor(kind_colour(palette, kind, name)).rgb() for kind, name in _STACK]
        pixels = _stacked(ends, round(self._plot.height() * self.devicePixelRatioF()), colours)
        self._draw_columns(painter, pixels, first)

    def _paint_requests(self, painter: QPainter, palette: theme.Palette, part: slice, first: int, top: float) -> None:
        """A colour a request, as one image: a step may have hundreds of them. The selected one stands out."""
        plot = self._plot
        records, entries = self._steps.shares(part.start, part.stop)
        requests, which = np.unique(entries["request"], return_inverse=True)
        drawn = np.array([self._request_colour(palette, n) for n in requests.tolist()], np.uint32)[which]
        height = round(plot.height() * self.devicePixelRatioF())
        pixels = stacked(records, entries["tokens"], drawn, part.stop - part.start, height, height / top)
        self._draw_columns(painter, pixels, first)

    def _draw_columns(self, painter: QPainter, pixels: np.ndarray, first: int) -> None:
        """Uint32 ``[pixels of the plot's height, steps]``, from the step ``first`` on."""
        plot, ratio = self._plot, self.devicePixelRatioF()
        across = round(self._column * ratio)
        wide = np.repeat(pixels, across, axis=1)
        if self._column >= 3:  # else there is no room for gaps
            wide.reshape(len(wide), -1, across)[:, :, -max(1, round(ratio)) :] = 0
        image = QImage(wide.data, wide.shape[1], len(wide), QImage.Format.Format_ARGB32_Premultiplied)
        place = QRectF(self._left(first), plot.top(), pixels.shape[1] * self._column, plot.height())
        painter.drawImage(place, image)

    def _request_colour(self, palette: theme.Palette, number: int) -> int:
        colour = theme.request_colour(palette, number)
        other = self._selection.request not in (None, number)
        return QColor(theme.mix(colour, palette.window, 0.7) if other else colour).rgb()

    def _paint_budget(self, painter: QPainter, palette: theme.Palette, share: float, text: str) -> None:
        """A dashed line at a share of the plot's height, or where that is above it a word about where it is."""
        plot = self._plot
        above = share > 1
        y = plot.top() if above else plot.bottom() + 1 - round(plot.height() * share)
        if not above:
            painter.setPen(QPen(QColor(palette.warning), 1, Qt.PenStyle.DashLine))
            painter.drawLine(GUTTER, y, self.width(), y)
        painter.setPen(QColor(palette.warning))
        room = painter.fontMetrics().horizontalAdvance(text + "↑ ") + theme.GRID
        place = QRect(GUTTER + theme.GRID, y + 2, room, theme.line_height(painter.fontMetrics()))
        painter.fillRect(place.adjusted(-2, 0, 2, 0), QColor(palette.window))
        painter.drawText(place, _LEFT, text + (" ↑" if above else ""))

    def _paint_marks(self, painter: QPainter, palette: theme.Palette, part: slice, first: int) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)
        painter.setPen(Qt.PenStyle.NoPen)
        for name, draw, colour in marks_of(palette):
            painter.setBrush(QColor(colour))
            for index in np.flatnonzero(self._steps.column(name)[part]).tolist():
                draw(painter, QPointF(self._left(first + index) + (self._column - 1) / 2, MARKS / 2))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

    def _lay_out(self, text: str) -> QStaticText:
        made = QStaticText(text)
        made.setTextFormat(Qt.TextFormat.PlainText)
        made.prepare(font=self.font())
        return made

    def _paint_feet(self, painter: QPainter, palette: theme.Palette, part: slice, first: int) -> None:
        """Step numbers, and a bar under the steps in which the selected request had a share."""
        plot = self._plot
        numbers = self._steps.column("step")[part]
        every = max(1, _round_up(100 / self._column))
        painter.setPen(QColor(palette.muted))
        for index in np.flatnonzero(numbers % every == 0).tolist():
            x = round(self._left(first + index))
            middle = x + self._column // 2
            if GUTTER + 26 <= middle <= self.width() - 26:
                text = self._laid_out(quantities.count(numbers[index]))
                painter.drawStaticText(middle - round(text.size().width() / 2), plot.bottom() + 4, text)
        if self._selection.request is not None:
            for index in self._steps.including(self._selection.request, part.start, part.stop):
                left = self._left(first + index - part.start)
                painter.fillRect(QRectF(left, plot.bottom() + 2, self._column, 3), QColor(palette.ink))

    # --- events ---------------------------------------------------------------------------------------------------

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed, self._pressed_end, self._dragged = event.position(), self._end, False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed is not None:
            moved = event.position().x() - self._pressed.x()
            self._dragged = self._dragged or abs(moved) > 4
            if self._dragged:
                self._scroll_to(self._pressed_end - round(moved / self._column))
        self._hover(self._step_at(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._pressed is not None and not self._dragged:
            step = self._step_at(event.position().x())
            self._choose(step if step != self._chosen else None)
            if self._chosen is not None:
                self.set_live(False)  # it stays where it can be read
        self._pressed = None

    def hideEvent(self, event: QHideEvent) -> None:
        self._card.hide()

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(None)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """The wheel goes back and forth in time; with Ctrl it widens and narrows the columns."""
        turns = (event.angleDelta().y() or event.angleDelta().x()) / 120
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self._zoom(1 if turns > 0 else -1)
        else:
            self._scroll_to(self._end - round(turns * max(1, self._capacity // 8)))
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        page = max(1, self._capacity * 3 // 4)
        moves = {
            Qt.Key.Key_PageUp: -page,
            Qt.Key.Key_PageDown: page,
            Qt.Key.Key_Home: -self._steps.total,
            Qt.Key.Key_End: self._steps.total,
        }
        key = Qt.Key(event.key())
        if key in moves:
            self._scroll_to(self._end + moves[key])
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right) and len(self._steps):
            self._walk(-1 if key == Qt.Key.Key_Left else 1)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal, Qt.Key.Key_Minus):
            self._zoom(-1 if key == Qt.Key.Key_Minus else 1)
        elif key == Qt.Key.Key_Escape and self._chosen is not None:
            self._choose(None)
        else:
            event.ignore()

    def _walk(self, by: int) -> None:
        """Choose the step before or after the chosen one, and keep it in view."""
        first, end = self.visible_steps
        step = end - 1 if self._chosen is None else self._chosen + by
        oldest = self._steps.total - len(self._steps)
        if oldest <= step < self._steps.total:
            if not first <= step < end:
                self._scroll_to(self._end + by)
            self.set_live(False)
            self._choose(step)

    def _zoom(self, by: int) -> None:
        index = COLUMN_WIDTHS.index(self._column) + by
        self._column = COLUMN_WIDTHS[max(0, min(index, len(COLUMN_WIDTHS) - 1))]
        self.refresh()

    def _choose(self, step: int | None) -> None:
        self._chosen = step
        record = self._record(step)
        if record is not None:
            self.stepSelected.emit(record)
        self._write_card()
        self.update()

    def _hover(self, step: int | None) -> None:
        if step != self._hovered:
            self._hovered = step
            self._write_card()
            self.update()

    def _record(self, step: int | None) -> StepRecord | None:
        index = -1 if step is None else step - (self._steps.total - len(self._steps))
        return self._steps.record(index) if 0 <= index < len(self._steps) else None

    def _write_card(self) -> None:
        """Tell of the step under the pointer, else of the one that was chosen, while it can be seen."""
        step = self._hovered if self._hovered is not None else self._chosen
        record = self._record(step)
        first, end = self.visible_steps
        if record is None or step is None or not first <= step < end:
            self._card.hide()
            return
        self._card.write(record, self._link)
        plot = self._plot
        self._card.show_over(self, QRect(round(self._left(step)), plot.top(), self._column, 1))


def _stacked(tops: np.ndarray, height: int, colours: Sequence[int]) -> np.ndarray:
    """uint32 ``[height, columns]`` pixels of stacks, 0 where there is nothing. ``tops[layer, column]`` is where each
    layer ends, in shares of the height."""
    layers, columns = tops.shape
    ends = np.full((columns, layers + 2), height, np.int64)
    ends[:, 0] = 0
    ends[:, 1:-1] = np.minimum(np.rint(tops * height), height).T
    upwards = np.repeat(np.tile(np.array([*colours, 0], np.uint32), columns), np.diff(ends, axis=1).ravel())
    return upwards.reshape(columns, height).T[::-1]


def _round_up(value: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 …"""
    power = 10 ** math.floor(math.log10(max(value, 1)))
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= value))


def _triangle(painter: QPainter, at: QPointF, *, up: bool) -> None:
    tip = -4 if up else 4
    painter.drawPolygon(QPolygonF([at + QPointF(-4, -tip), at + QPointF(4, -tip), at + QPointF(0, tip)]))


def draw_preempted(painter: QPainter, at: QPointF) -> None:
    _triangle(painter, at, up=False)


def draw_resumed(painter: QPainter, at: QPointF) -> None:
    _triangle(painter, at, up=True)


def draw_swapped(painter: QPainter, at: QPointF) -> None:
    painter.drawPolygon(QPolygonF([at + QPointF(*corner) for corner in ((0, -5), (5, 0), (0, 5), (-5, 0))]))


def marks_of(palette: theme.Palette) -> tuple[tuple[str, Mark, str], ...]:
    """Column of the history, drawing and colour of each mark above the columns."""
    return (
        ("resumed_count", draw_resumed, palette.good),
        ("swapped_out_count", draw_swapped, palette.states[BlockState.SWAPPED]),
        ("preempted_count", draw_preempted, palette.error),
    )
