"""What the engine's machine does: processors, memory, and of a GPU load, memory and power, where its driver tells."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from .. import theme
from ..chart import Chart, Series, in_pairs
from ..i18n import fill_in
from ..state import EngineView, LatencyHistory

#: Chart -> unit of its values.
UNITS = {"cpu": "%", "memory": "B", "gpu_load": "%", "gpu_memory": "B", "power": "W", "heat": "°C"}

#: Charts of a GPU, and the column of the history without which there is nothing to draw.
GPU_CHARTS = {
    "gpu_load": "device_load",
    "gpu_memory": "device_memory_used",
    "power": "device_power_w",
    "heat": "device_temperature_c",
}


class MachineView(QWidget):
    """A chart for each figure that is told. What is not told is not drawn, and its absence is said."""

    def __init__(self) -> None:
        super().__init__()
        self.charts: dict[str, Chart] = {}  # made when they are first seen: making them takes as long as a window
        self.note = QLabel(wordWrap=True)
        self.note.setProperty("role", "muted")
        self._gpu = ""  # its name
        self._sheet = QWidget()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(theme.GRID)
        self._column.addWidget(self.note, 0, Qt.AlignmentFlag.AlignTop)

    def _make(self) -> None:
        self.charts = {name: Chart(unit=unit) for name, unit in UNITS.items()}
        self._sheet = in_pairs(self.charts.values())
        self._column.insertWidget(0, self._sheet, 1)
        self._sheet.show()
        self.retranslate()

    def draw(self, view: EngineView, span: int, now: float) -> None:
        """Show the last ``span`` seconds before ``now``."""
        history = view.latency
        if not len(history):
            return
        if not self.charts:
            self._make()
        ago = history.column("time") - now
        told = history.column("cpu_load")
        self.charts["cpu"].draw(span, ago, [_engine_load(history), told], top=1.0)
        memory = [history.column("memory_bytes"), history.column("memory_used")]
        self.charts["memory"].draw(span, ago, memory, top=_total(history, "memory_total"))
        self.charts["cpu"].setVisible(bool(np.isfinite(told).any()))
        for name, column in GPU_CHARTS.items():
            self.charts[name].setVisible(bool(np.isfinite(history.column(column)).any()))
        self.charts["gpu_load"].draw(span, ago, [history.column("device_load")], top=1.0)
        own = history.column("device_memory_bytes")
        columns = [np.where(own > 0, own, np.nan), history.column("device_memory_used")]
        self.charts["gpu_memory"].draw(span, ago, columns, top=_total(history, "device_memory_total"))
        power = history.column("device_power_w")
        self.charts["power"].draw(span, ago, [power], top=_total(history, "device_power_limit_w"))
        self.charts["heat"].draw(span, ago, [history.column("device_temperature_c")], top=100.0)
        self._fit(view)

    def _fit(self, view: EngineView) -> None:
        """Rows in which nothing is told take no room."""
        shown = [not chart.isHidden() for chart in self.charts.values()]
        grid = self._sheet.layout()
        for row in range(len(shown) // 2):
            grid.setRowStretch(row, int(any(shown[2 * row : 2 * row + 2])))  # type: ignore[union-attr]
        machine = view.stats.machine if view.stats is not None else None
        device = machine.device if machine is not None else None
        self._gpu = device.name if device is not None else ""
        self._write(machine is not None)

    def _write(self, told: bool) -> None:
        if not told:
            self.note.setText(self.tr("This engine does not tell how busy its machine is."))
        elif not self._gpu:
            self.note.setText(self.tr("The engine tells of no GPU: it runs on the CPU, or its driver cannot be asked."))
        else:
            self.note.setText("")
        self.note.setVisible(bool(self.note.text()))
        self._write_titles()

    def _write_titles(self) -> None:
        gpu = self._gpu or "GPU"
        titles = {
            "cpu": (self.tr("Processors"), self.tr("Share of the time of all processors")),
            "memory": (self.tr("Memory"), self.tr("Of the machine, and of it the engine's process")),
            "gpu_load": (fill_in(self.tr("%1: load"), gpu), self.tr("Share of the time in which it computed")),
            "gpu_memory": (fill_in(self.tr("%1: memory"), gpu), self.tr("Of all processes, and of it the engine's")),
            "power": (fill_in(self.tr("%1: power"), gpu), self.tr("What the board draws; the scale ends at its limit")),
            "heat": (fill_in(self.tr("%1: temperature"), gpu), self.tr("Of the chip")),
        }
        for name, (title, meaning) in titles.items():
            self.charts[name].set_title(title, meaning)

    def restyle(self) -> None:
        if not self.charts:
            return
        palette = theme.current().palette
        whole = theme.mix(palette.prefill, palette.ink, 0.3)
        shared = (Series(self.tr("engine"), palette.decode, 2.0), Series(self.tr("machine"), whole, 1.5, dash=(4, 3)))
        for name in ("cpu", "memory"):
            self.charts[name].set_series(shared)
        self.charts["gpu_memory"].set_series((shared[0], Series(self.tr("all processes"), whole, 1.5, dash=(4, 3))))
        for name in ("gpu_load", "power", "heat"):
            self.charts[name].set_series((Series(self.tr("device"), palette.decode, 2.0),))

    def retranslate(self) -> None:
        if self.charts:
            self._write_titles()
        self.restyle()


def _engine_load(history: LatencyHistory) -> np.ndarray:
    """The engine's share of the time of all processors; its own figure is in processors."""
    return history.column("cpu_percent") / 100 / history.column("cpus")


def _total(history: LatencyHistory, name: str) -> float:
    """The newest known capacity, or 0."""
    column = history.column(name)
    known = column[np.isfinite(column)]
    return float(known[-1]) if len(known) else 0.0
