"""Choosing a load, and starting it on one or several systems."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from .. import theme
from ..i18n import Translated
from . import wording as measure_words
from .form import MeasureForm

#: What can be measured beside each other: this engine, it with one thing off, and transformers.
SYSTEMS = ("pagedeck", "contiguous", "no-sharing", "no-swap", "fifo", "static", "one-by-one", "continuous")


class LoadChoice(Translated, QWidget):
    """One of the loads by name, or a trace in a file. ``changed`` tells another choice."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.named = QComboBox()
        for name in (*measure_words.LOADS, ""):
            self.named.addItem("", name)
        self.trace = QLineEdit()
        self.browse_button = QPushButton()
        self.browse_button.clicked.connect(self._browse)
        self.named.currentIndexChanged.connect(self._show)
        self.trace.textChanged.connect(self.changed)
        self._file = QWidget()
        line = QHBoxLayout(self._file)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self.trace, 1)
        line.addWidget(self.browse_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GRID)
        column.addWidget(self.named)
        column.addWidget(self._file)
        self.setFocusProxy(self.named)
        self.retranslate()
        self._show()

    def arguments(self) -> list[str]:
        name = self.named.currentData()
        return ["--load", name] if name else ["--trace", self.trace.text().strip()]

    @property
    def complete(self) -> bool:
        return bool(self.named.currentData() or self.trace.text().strip())

    def _show(self) -> None:
        self._file.setVisible(not self.named.currentData())
        self.changed.emit()

    def _browse(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, self.tr("A trace"))
        if name:
            self.trace.setText(name)

    def retranslate(self) -> None:
        for place, name in enumerate(measure_words.LOADS):
            self.named.setItemText(place, measure_words.load(name))
        self.named.setItemText(self.named.count() - 1, self.tr("A trace: what was asked before"))
        self.named.setAccessibleName(self.tr("Load"))
        self.trace.setPlaceholderText(self.tr("A file of Pagedeck, BurstGPT or Mooncake"))
        self.trace.setAccessibleName(self.tr("File of the trace"))
        self.browse_button.setText(self.tr("Browse …"))


class Arrivals(Translated, QWidget):
    """When requests come: as the load has it, all at once, by chance so many a second, or from so many clients that
    each wait for their answer."""

    def __init__(self) -> None:
        super().__init__()
        self.how = QComboBox()
        for kind in ("", "at-once", "poisson", "closed"):
            self.how.addItem("", kind)
        self.rate = QDoubleSpinBox(minimum=0.01, maximum=1_000.0, decimals=2, value=1.0)
        self.clients = QSpinBox(minimum=1, maximum=10_000, value=8)
        for field in (self.rate, self.clients):
            theme.pad(field)
            field.setMinimumWidth(10 * theme.GRID)
        self.how.currentIndexChanged.connect(self._show)
        line = QHBoxLayout(self)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(self.how, 1)
        line.addWidget(self.rate)
        line.addWidget(self.clients)
        self.setFocusProxy(self.how)
        self.retranslate()
        self._show()

    def arguments(self) -> list[str]:
        kind = self.how.currentData()
        amount = {"poisson": f":{self.rate.value():g}", "closed": f":{self.clients.value()}"}.get(kind, "")
        return ["--arrivals", kind + amount] if kind else []

    def _show(self) -> None:
        self.rate.setVisible(self.how.currentData() == "poisson")
        self.clients.setVisible(self.how.currentData() == "closed")

    def retranslate(self) -> None:
        texts = (
            self.tr("As the load has it"),
            self.tr("All at once"),
            self.tr("By chance, so many a second"),
            self.tr("From so many clients, one at a time each"),
        )
        for place, text in enumerate(texts):
            self.how.setItemText(place, text)
        self.how.setAccessibleName(self.tr("Arrivals"))
        self.rate.setAccessibleName(self.tr("Requests a second"))
        self.clients.setAccessibleName(self.tr("Clients"))


class LoadForm(MeasureForm):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.load = LoadChoice()
        self.requests = QSpinBox(minimum=1, maximum=100_000, value=40)
        self.repeat = QSpinBox(minimum=1, maximum=20, value=2)
        self.arrivals = Arrivals()
        self.systems = {name: QCheckBox() for name in SYSTEMS}
        self.systems["pagedeck"].setChecked(True)
        boxes = QWidget()
        column = QVBoxLayout(boxes)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GRID // 2)
        for box in self.systems.values():
            box.toggled.connect(self._show)
            column.addWidget(box)
        self.load.changed.connect(self._show)
        fields = (self.load, self.requests, self.arrivals, boxes, self.repeat)
        self._row_labels: list[QLabel] = [self.add_row(field, tall=field is boxes) for field in fields]
        self.retranslate()

    def arguments(self) -> list[str]:
        chosen = [name for name, box in self.systems.items() if box.isChecked()]
        return [
            "bench",
            "run",
            *self.load.arguments(),
            *("--requests", str(self.requests.value())),
            *self.arrivals.arguments(),
            *("--systems", ",".join(chosen)),
            *("--repeat", str(self.repeat.value())),
        ]

    def key(self) -> str:
        return "load"

    def _show(self) -> None:
        self.start_button.setEnabled(self.load.complete and any(box.isChecked() for box in self.systems.values()))

    def retranslate(self) -> None:
        self.title.setText(self.tr("A load"))
        self.about.setText(
            self.tr(
                "The same requests on each chosen system, in turns, with outputs of fixed length, so that all do the "
                "same work."
            )
        )
        titles = (
            self.tr("Load"),
            self.tr("Requests"),
            self.tr("Arrivals"),
            self.tr("Systems"),
            self.tr("Runs of each"),
        )
        for label, title in zip(self._row_labels, titles, strict=True):
            label.setText(title)
        for name, box in self.systems.items():
            box.setText(measure_words.system(name))
        self.start_button.setText(self.tr("Measure the load"))
        self._show()
