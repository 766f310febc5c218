"""The one-glance figures: where the memory is, who is in the batch, how fast."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from ..ipc.telemetry import Stats, TierStats
from . import quantities, theme, words
from .i18n import Translated, fill_in
from .link import EngineLink
from .quantities import NBSP
from .state import ConnectionState


class Figure(QLabel):
    """A figure with its name or unit, as wide as its widest usual text, so that its neighbours stay where they are."""

    def __init__(self, widest: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.RichText)
        self.setFont(theme.number_font(self.font()))
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self._widest = widest

    def show_figure(self, number: str, before: str = "", after: str = "") -> None:
        muted = theme.current().palette.muted
        parts = [
            f'<span style="color:{muted}">{before}{NBSP}</span>' if before else "",
            f"<b>{number}</b>",
            f'<span style="color:{muted}">{NBSP}{after}</span>' if after else "",
        ]
        text = "".join(parts)
        if text != self.text():
            self.setText(text)
        bold = QFont(self.font())
        bold.setBold(True)
        names = QFontMetrics(self.font()).horizontalAdvance(f"{before}{NBSP}{after}")
        self.setMinimumWidth(QFontMetrics(bold).horizontalAdvance(self._widest) + names)
        self.setAccessibleName(f"{before} {number} {after}".strip())


class Glance(Translated, QWidget):
    """KV 63 % · 12 running · 4 waiting · 148 tok/s · P95 TTFT 0.31 s."""

    def __init__(self, link: EngineLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self.memory, self.running, self.waiting = Figure("100 %"), Figure("000"), Figure("000")
        self.rate, self.ttft = Figure("0,000"), Figure("00.0 ms")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(round(1.5 * theme.GRID))
        for figure in (self.memory, self.running, self.waiting, self.rate, self.ttft):
            layout.addWidget(figure)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        link.statsChanged.connect(self.show_stats)
        link.connectionChanged.connect(self.show_stats)
        theme.current().changed.connect(self.show_stats)
        self.show_stats()

    def show_stats(self) -> None:
        known = self._link.view.connection in (ConnectionState.READY, ConnectionState.DRAINING)
        stats = self._link.view.stats if known else None
        share = _held(stats.device) / max(stats.device.num_blocks, 1) if stats is not None else 0.0
        ttft = stats.latency.get("ttft") if stats is not None else None
        nothing = "–"
        self.memory.show_figure(quantities.percent(share) if stats else nothing, before="KV")
        self.running.show_figure(quantities.count(stats.running) if stats else nothing, after=self.tr("running"))
        self.waiting.show_figure(quantities.count(stats.waiting) if stats else nothing, after=self.tr("waiting"))
        rate = quantities.number(stats.output_tokens_per_s) if stats else nothing
        self.rate.show_figure(rate, after=self.tr("tok/s"))
        measured = ttft is not None and ttft.count > 0
        p95 = quantities.duration(ttft.p95) if ttft is not None and measured else nothing
        self.ttft.show_figure(p95, before=self.tr("P95 TTFT"))
        self._show_tips(stats)

    def _show_tips(self, stats: Stats | None) -> None:
        if stats is None:
            for figure in (self.memory, self.running, self.waiting, self.rate, self.ttft):
                figure.setToolTip(self.tr("Shown when an engine is ready"))
            return
        self.memory.setToolTip(self._memory_story(stats))
        self.running.setToolTip(self.tr("Sequences in the batch"))
        swapped = quantities.count(stats.swapped)
        self.waiting.setToolTip(fill_in(self.tr("Requests in the queue, and %1 swapped out"), swapped))
        prompt = quantities.number(stats.prompt_tokens_per_s)
        self.rate.setToolTip(fill_in(self.tr("Output tokens per second; prompt tokens: %1 per second"), prompt))
        self.ttft.setToolTip(self.tr("Time to first token: 95 of 100 requests of the last minute had it sooner"))

    def _memory_story(self, stats: Stats) -> str:
        tier = stats.device
        held = _held(tier)
        filled = tier.tokens / (held * tier.block_size) if held else 0.0
        text = self.tr("%1 of %2 blocks · %3 · %4 tokens (%5 filled)")
        figures = (
            quantities.count(held),
            quantities.count(tier.num_blocks),
            quantities.size(held * tier.block_bytes),
            quantities.count(tier.tokens),
            quantities.percent(filled),
        )
        for place, figure in enumerate(figures, 1):
            text = text.replace(f"%{place}", figure)
        cached = words.counted.cached_blocks(tier.cached)
        return f"{text}\n{cached}"

    def retranslate(self) -> None:
        self.show_stats()


def _held(tier: TierStats) -> int:
    """Blocks that sequences hold or keep for their growth."""
    return tier.used + tier.reserved
