"""Latency and throughput over time: percentiles, rates, and where a step's time goes."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QButtonGroup, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from . import quantities, theme
from .card import QuietLabel
from .chart import Chart, Series
from .i18n import Translated, fill_in
from .link import EngineLink
from .state import LATENCIES, LatencyHistory, StepHistory
from .step_split import PARTS, split_by_second

SPANS_S = (120, 900, 7200)
QUANTILES = ("p50", "p95", "p99")


class LatencyView(Translated, QWidget):
    """Six charts over one span of time, drawn once a second while visible."""

    def __init__(self, link: EngineLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._span = SPANS_S[0]
        self.charts = {name: Chart(unit="s") for name in LATENCIES}
        self.charts["throughput"] = Chart(unit="tok/s")
        self.charts["split"] = Chart(unit="s", stacked=True)
        self._grid = QWidget()
        self._empty = QLabel()
        self._empty.setProperty("role", "muted")
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self._redone = QuietLabel()
        self._spans = QButtonGroup(self)
        self._span_buttons = [self._span_button(span) for span in SPANS_S]
        self._lay_out()
        link.statsChanged.connect(self.refresh)
        link.connectionChanged.connect(self.refresh)
        theme.current().changed.connect(self._restyle)
        self.retranslate()

    def _span_button(self, span: int) -> QPushButton:
        button = QPushButton()
        button.setCheckable(True)
        button.setChecked(span == self._span)
        button.setProperty("role", "chip")
        button.clicked.connect(lambda: self.set_span(span))
        self._spans.addButton(button)
        return button

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(theme.GRID // 2)
        head.addWidget(self._title)
        head.addSpacing(theme.GRID)
        head.addWidget(self._redone, 1)
        for button in self._span_buttons:
            head.addWidget(button)
        grid = QGridLayout(self._grid)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(3 * theme.GRID)
        grid.setVerticalSpacing(2 * theme.GRID)
        for index, chart in enumerate(self.charts.values()):
            grid.addWidget(chart, index // 2, index % 2)
            grid.setColumnStretch(index % 2, 1)
            grid.setRowStretch(index // 2, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addLayout(head)
        layout.addWidget(self._empty, 1)
        layout.addWidget(self._grid, 1)

    def set_span(self, seconds: int) -> None:
        """Show the last ``seconds``."""
        self._span = seconds
        self._span_buttons[SPANS_S.index(seconds)].setChecked(True)
        self.refresh()

    # --- drawing ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        if not self.isVisible():
            return
        latency, steps = self._link.view.latency, self._link.view.steps
        self._empty.setVisible(not len(latency))
        self._grid.setVisible(len(latency) > 0)
        now = self._newest(latency, steps)
        for name in LATENCIES:
            self._draw_percentiles(name, latency, now)
        self._draw_throughput(latency, now)
        self._draw_split(steps, now)
        self._write_redone()

    @staticmethod
    def _newest(latency: LatencyHistory, steps: StepHistory) -> float:
        return max((float(history.column("time")[-1]) for history in (latency, steps) if len(history)), default=0.0)

    def _draw_percentiles(self, name: str, latency: LatencyHistory, now: float) -> None:
        ago = latency.column("time") - now
        columns = [latency.column(f"{name}_{quantile}") for quantile in QUANTILES]
        self.charts[name].draw(self._span, ago, columns)

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
            Series("p50", palette.decode, 2.0),
            Series("p95", theme.mix(palette.decode, palette.window, 0.16), 1.5),
            Series("p99", theme.mix(palette.decode, palette.window, 0.32), 1.0),
        )
        for name in LATENCIES:
            self.charts[name].set_series(percentiles)
        prompt = theme.mix(palette.prefill, palette.ink, 0.3)  # a thin line needs more contrast than a bar
        self.charts["throughput"].set_series(
            (Series(self.tr("output"), palette.decode, 2.0), Series(self.tr("prompt"), prompt, 2.0))
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
        texts = (self.tr("2 min"), self.tr("15 min"), self.tr("2 h"))
        for button, text in zip(self._span_buttons, texts, strict=True):
            button.setText(text)
            button.setToolTip(self.tr("Show the last %1").replace("%1", text))
        self._restyle()
