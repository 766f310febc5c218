"""Pictures of results: how durations are distributed, and throughput against latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from ...ipc.vocabulary import BlockState
from .. import quantities, theme
from ..chart import Series, Values
from . import wording as measure_words

HEIGHT = 26 * theme.GRID

#: Shapes tell the stages of a search apart, beside their colours.
_SHAPES = ("o", "t", "s", "d")


def hues(palette: theme.Palette) -> list[str]:
    """Colours for systems, those that differ most first."""
    states = palette.states
    return [
        states[BlockState.ACTIVE],
        states[BlockState.SHARED],
        states[BlockState.CACHED],
        states[BlockState.SWAPPED],
        palette.accent,
        palette.muted,
    ]


class Picture(QWidget):
    """A title, what the colours mean, and a plot that stands still."""

    def __init__(self) -> None:
        super().__init__()
        self._title = QLabel()
        self.key = Values()
        self.plot = pg.PlotWidget(background=None)
        self.plot.setMouseEnabled(x=False, y=False)
        self.plot.hideButtons()
        self.plot.setMenuEnabled(False)
        self.plot.showGrid(x=True, y=True, alpha=0.15)
        self.plot.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.plot.setFixedHeight(HEIGHT)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        for part in (self._title, self.key, self.plot):
            layout.addWidget(part)

    def clear(self, title: str, across: str, up: str) -> None:
        """Empty it, and say what it will show along its axes."""
        palette = theme.current().palette
        self._title.setText(title)
        self.plot.setAccessibleName(title)
        self.plot.clear()
        for name, text in (("bottom", across), ("left", up)):
            axis = self.plot.getAxis(name)
            axis.setPen(palette.line)
            axis.setTextPen(palette.muted)
            axis.setLabel(text, color=palette.muted)
            axis.enableAutoSIPrefix(False)


class Distribution(Picture):
    """The share of all requests, or tokens, that took no longer than so long: a curve for each system."""

    def show_curves(self, key: str, systems: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
        self.clear(
            measure_words.figure(key),
            QCoreApplication.translate("Measure", "seconds"),
            QCoreApplication.translate("Measure", "share of all"),
        )
        palette, series, medians = theme.current().palette, [], []
        longest = max((system["curves"][key][0][-1] for system in systems if system["curves"][key][0]), default=1.0)
        for system, name, colour in zip(systems, names, hues(palette) * 9, strict=False):
            times, shares = system["curves"][key]
            if times:
                pen = pg.mkPen(colour, width=2)
                self.plot.addItem(pg.PlotDataItem([times[0], *times], [0.0, *shares], pen=pen, stepMode="right"))
            middle = next((time for time, share in zip(times, shares, strict=True) if share >= 0.5), None)
            series.append(Series(name, colour, 2.0))
            medians.append("–" if middle is None else f"P50 {quantities.duration(middle)}")
        self.key.show_values(series, medians)
        self.plot.setYRange(0, 1.06, padding=0)
        self.plot.setXRange(0, 1.03 * longest, padding=0)


class Pareto(Picture):
    """Each trial as a point; a line joins those that no other beats in both; a ring marks the chosen one."""

    def show_trials(self, trials: Sequence[dict[str, Any]], front: Sequence[Sequence[float]]) -> None:
        translate = QCoreApplication.translate
        self.clear(
            translate("Measure", "Throughput against latency"),
            translate("Measure", "latency, P95, seconds"),
            translate("Measure", "output tokens a second"),
        )
        palette = theme.current().palette
        stages = list(dict.fromkeys(trial["stage"] for trial in trials))
        series, counts = [], []
        self.plot.addItem(
            pg.PlotDataItem([at for at, _ in front], [up for _, up in front], pen=pg.mkPen(palette.muted, width=1))
        )
        for stage, colour, shape in zip(stages, hues(palette), _SHAPES * 2, strict=False):
            mine = [_place(trial) for trial in trials if trial["stage"] == stage]
            self._dots(mine, symbol=shape, size=9, brush=QColor(colour), pen=None)
            series.append(Series(measure_words.stage(stage), colour, 2.0))
            counts.append(quantities.count(len(mine)))
        chosen = [_place(trial) for trial in trials if trial["chosen"]]
        self._dots(chosen, symbol="o", size=18, brush=None, pen=pg.mkPen(palette.ink, width=2))
        for at, up in chosen:
            text = pg.TextItem(translate("Measure", "chosen"), color=palette.ink, anchor=(0.5, 1.6))
            text.setPos(at, up)
            self.plot.addItem(text, ignoreBounds=True)
        self.key.show_values(series, counts)
        self.plot.enableAutoRange()

    def _dots(self, places: Sequence[tuple[float, float]], **look: Any) -> None:
        self.plot.addItem(pg.ScatterPlotItem([at for at, _ in places], [up for _, up in places], **look))


def _place(trial: dict[str, Any]) -> tuple[float, float]:
    return trial["figures"]["e2e_p95"][0], trial["figures"]["tokens_per_s"][0]
