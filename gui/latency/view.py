"""Latency and throughput over time and as histograms, where a step's time goes, and what the machine does."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from ...ipc.vocabulary import PRIORITIES
from .. import quantities, theme, words
from ..card import QuietLabel
from ..chart import Chart, Series, in_pairs
from ..choice import Choice
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..state import LATENCIES, LatencyHistory, StepHistory
from .histogram import Histogram
from .machine import MachineView
from .step_split import PARTS, split_by_second

SPANS_S = (120, 900, 7200)
QUANTILES = ("p50", "p95", "p99")
SHEETS = ("over_time", "histograms", "machine")


class LatencyView(Translated, QWidget):
    """Charts over one span of time, of all classes or one, on three sheets; the one shown is drawn once a second."""

    def __init__(self, link: EngineLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._span = SPANS_S[0]
        self.charts = {name: Chart(unit="s") for name in LATENCIES}
        self.charts["throughput"] = Chart(unit="tok/s")
        self.charts["split"] = Chart(unit="s", stacked=True)
        self.histograms = {name: Histogram() for name in LATENCIES}
        self.machine = MachineView()
        self.sheets = QStackedWidget()
        self.classes = Choice()
        for kind in ("", *PRIORITIES):
            self.classes.addItem("", kind)
        self.classes.currentIndexChanged.connect(self._choose_class)
        self._empty = QLabel()
        self._empty.setProperty("role", "muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self._redone = QuietLabel()
        self._spans, self._sheet_group = QButtonGroup(self), QButtonGroup(self)
        self._span_buttons = [
            self._chip(self._spans, span == self._span, lambda _=False, span=span: self.set_span(span))
            for span in SPANS_S
        ]
        self.sheet_buttons = [
            self._chip(self._sheet_group, not place, lambda _=False, place=place: self._turn_to(place))
            for place in range(len(SHEETS))
        ]
        self._lay_out()
        link.statsChanged.connect(self.refresh)
        link.connectionChanged.connect(self.refresh)
        theme.current().changed.connect(self._restyle)
        self.retranslate()

    @staticmethod
    def _chip(group: QButtonGroup, checked: bool, clicked: Callable[..., None]) -> QPushButton:
        button = QPushButton()
        button.setCheckable(True)
        button.setChecked(checked)
        button.setProperty("role", "chip")
        button.clicked.connect(clicked)
        group.addButton(button)
        return button

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(theme.GRID // 2)
        head.addWidget(self._title)
        head.addSpacing(theme.GRID)
        head.addWidget(self._redone, 1)
        choices = QHBoxLayout()
        choices.setSpacing(theme.GRID // 2)
        for button in self.sheet_buttons:
            choices.addWidget(button)
        choices.addSpacing(theme.GRID)
        choices.addWidget(self.classes)
        choices.addStretch(1)
        for button in self._span_buttons:
            choices.addWidget(button)
        for sheet in (in_pairs(self.charts.values()), in_pairs(self.histograms.values()), self.machine):
            self.sheets.addWidget(sheet)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addLayout(head)
        layout.addLayout(choices)
        layout.addWidget(self._empty, 1)
        layout.addWidget(self.sheets, 1)

    def set_span(self, seconds: int) -> None:
        """Show the last ``seconds``."""
        self._span = seconds
        self._span_buttons[SPANS_S.index(seconds)].setChecked(True)
        self.refresh()

    def show_sheet(self, name: str) -> None:
        """Turn to one of :data:`SHEETS`."""
        self.sheet_buttons[SHEETS.index(name)].setChecked(True)
        self._turn_to(SHEETS.index(name))

    def _choose_class(self) -> None:
        for name in LATENCIES:
            self.charts[name].rescale()
        self.refresh()

    def _turn_to(self, place: int) -> None:
        self.sheets.setCurrentIndex(place)
        self.classes.setVisible(SHEETS[place] != "machine")  # which has none
        self.refresh()

    # --- drawing ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        if not self.isVisible():
            return
        latency, steps = self._link.view.latency, self._link.view.steps
        self._empty.setVisible(not len(latency))
        self.sheets.setVisible(len(latency) > 0)
        now = self._newest(latency, steps)
        sheet = SHEETS[self.sheets.currentIndex()]
        if sheet == "over_time":
            for name in LATENCIES:
                self._draw_percentiles(name, latency, now)
            self._draw_throughput(latency, now)
            self._draw_split(steps, now)
        elif sheet == "histograms":
            self._draw_histograms(now)
        else:
            self.machine.draw(self._link.view, self._span, now)
        self._write_redone()

    @staticmethod
    def _newest(latency: LatencyHistory, steps: StepHistory) -> float:
        return max((float(history.column("time")[-1]) for history in (latency, steps) if len(history)), default=0.0)

    def _draw_percentiles(self, name: str, latency: LatencyHistory, now: float) -> None:
        kind = self.classes.currentData()
        history = self._link.view.durations.over_time if kind else latency
        columns = [history.column(f"{kind}_{name}_{q}" if kind else f"{name}_{q}") for q in QUANTILES]
        self.charts[name].draw(self._span, history.column("time") - now, columns)

    def _draw_histograms(self, now: float) -> None:
        chosen = self.classes.currentData()
        durations, start = self._link.view.durations, now - self._span
        for name, histogram in self.histograms.items():
            counts = {kind: durations.counts(name, [kind], start) for kind in ([chosen] if chosen else PRIORITIES)}
            histogram.show_counts(counts)

    def _draw_throughput(self, latency: LatencyHistory, now: float) -> None:
        columns = [latency.column("output_tokens_per_s"), latency.column("prompt_tokens_per_s")]
        self.charts["throughput"].draw(self._span, latency.column("time") - now, columns)

    def _draw_split(self, steps: StepHistory, now: float) -> None:
        seconds, parts = split_by_second(steps, now - self._span)
        self.charts["split"].draw(self._span, seconds - now, parts)

    def _write_redone(self) -> None:
        """How much of the work was done again because a request had lost its blocks."""
        stats = self._link.view.stats
        if stats is None or not stats.computed_tokens:
            self._redone.setText("")
            return
        lately = stats.redone_last_minute / max(stats.computed_last_minute, 1)
        self._redone.setText(
            fill_in(
                self.tr("Redone after preemption: %1 (last minute), %2 (since the start)"),
                quantities.percent(lately),
                quantities.percent(stats.redone_tokens / stats.computed_tokens),
            )
        )

    # --- words and colours ----------------------------------------------------------------------------------------

    def _restyle(self) -> None:
        palette = theme.current().palette
        percentiles = (
            Series("P50", palette.decode, 2.0),
            Series("P95", theme.mix(palette.decode, palette.window, 0.16), 1.5, dash=(4, 3)),
            Series("P99", theme.mix(palette.decode, palette.window, 0.24), 1.5, dash=(1, 3)),
        )
        for name in LATENCIES:
            self.charts[name].set_series(percentiles)
        prompt = theme.mix(palette.prefill, palette.ink, 0.3)  # a thin line needs more contrast than a bar
        self.charts["throughput"].set_series(
            (Series(self.tr("output"), palette.decode, 2.0), Series(self.tr("prompt"), prompt, 2.0, dash=(4, 3)))
        )
        words = {
            "forward_ms": self.tr("forward"),
            "sample_ms": self.tr("sample"),
            "schedule_ms": self.tr("schedule"),
            "other_ms": self.tr("other"),
        }
        colours = [theme.mix(palette.decode, palette.window, share) for share in (0.1, 0.4, 0.6)] + [palette.muted]
        self.charts["split"].set_series(
            tuple(Series(words[part], colour, 1.0) for part, colour in zip(PARTS, colours, strict=True))
        )
        self.machine.restyle()
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def retranslate(self) -> None:
        self._title.setText(self.tr("Latency and throughput"))
        self._empty.setText(self.tr("Nothing measured yet: times appear here once requests run."))
        titles = {
            "ttft": (self.tr("Time to first token"), self.tr("From arrival to the first token of the answer")),
            "itl": (self.tr("Inter-token latency"), self.tr("Between two tokens of an answer")),
            "queue": (self.tr("Queue time"), self.tr("From arrival until the request first runs")),
            "e2e": (self.tr("End to end"), self.tr("From arrival to the end of the answer")),
            "throughput": (self.tr("Throughput"), self.tr("Tokens of all requests in a second")),
            "split": (self.tr("Step time"), self.tr("Where the time of a step goes, on average over a second")),
        }
        for name, (title, meaning) in titles.items():
            self.charts[name].set_title(title, meaning)
            if name in self.histograms:
                self.histograms[name].set_title(title, meaning)
        sheets = (
            (self.tr("Over time"), self.tr("Percentiles, throughput and step time over time")),
            (self.tr("Histograms"), self.tr("How often each latency was how long")),
            (self.tr("Machine"), self.tr("Processors, memory and power, where the driver tells")),
        )
        for button, (text, meaning) in zip(self.sheet_buttons, sheets, strict=True):
            button.setText(text)
            button.setToolTip(meaning)
        self.classes.setItemText(0, self.tr("All classes"))
        for place, kind in enumerate(PRIORITIES, 1):
            self.classes.setItemText(place, words.class_name(kind))
        self.classes.setAccessibleName(self.tr("Class"))
        self.classes.setToolTip(self.tr("Whose latency is shown"))
        self.machine.retranslate()
        texts = (self.tr("2 min"), self.tr("15 min"), self.tr("2 h"))
        for button, text in zip(self._span_buttons, texts, strict=True):
            button.setText(text)
            button.setToolTip(self.tr("Show the last %1").replace("%1", text))
        self._restyle()
