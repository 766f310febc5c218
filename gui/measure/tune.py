"""Starting a search for settings: your load, what is to be best, and how long it may take."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QDoubleSpinBox, QLabel, QSpinBox, QWidget

from . import wording as measure_words
from .form import MeasureForm
from .load import LoadChoice


class TuneForm(MeasureForm):
    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.load = LoadChoice()
        self.requests = QSpinBox(minimum=5, maximum=100_000, value=40)
        self.objective = QComboBox()
        for name in measure_words.OBJECTIVES:
            self.objective.addItem("", name)
        self.ttft_limit, self.itl_limit = (
            QDoubleSpinBox(minimum=0.0, maximum=600.0, singleStep=0.1, decimals=2, suffix=" s") for _ in range(2)
        )
        self.ttft_limit.setValue(1.0)
        self.minutes = QSpinBox(minimum=1, maximum=1_440, value=15, suffix=" min")
        fields = (self.load, self.requests, self.objective, self.ttft_limit, self.itl_limit, self.minutes)
        self._row_labels: list[QLabel] = [self.add_row(field) for field in fields]
        for changed in (
            self.load.changed,
            self.objective.currentIndexChanged,
            self.ttft_limit.valueChanged,
            self.itl_limit.valueChanged,
        ):
            changed.connect(self._show)
        self.retranslate()

    def arguments(self) -> list[str]:
        limits = (("--ttft-limit", self.ttft_limit), ("--itl-limit", self.itl_limit)) if self._limited else ()
        return [
            "tune",
            *self.load.arguments(),
            *("--requests", str(self.requests.value())),
            *("--objective", self.objective.currentData()),
            *(part for name, field in limits if field.value() for part in (name, str(field.value()))),
            *("--minutes", str(self.minutes.value())),
        ]

    def same_search(self) -> list[str]:
        """What makes a search the same one: it goes on where it was, whatever it is to make best."""
        return [*self.load.arguments(), str(self.requests.value())]

    def key(self) -> str:
        return "tune"

    @property
    def _limited(self) -> bool:
        return bool(self.objective.currentData() == "goodput")

    def _show(self) -> None:
        for field in (self.ttft_limit, self.itl_limit):
            field.setVisible(self._limited)
        for label in self._row_labels[3:5]:
            label.setVisible(self._limited)
        limited = bool(self.ttft_limit.value() or self.itl_limit.value())
        self.start_button.setEnabled(self.load.complete and (limited or not self._limited))

    def retranslate(self) -> None:
        self.title.setText(self.tr("Tune"))
        self.about.setText(
            self.tr(
                "Searches the settings that suit your load best, on an engine of its own: a simulator discards what "
                "cannot win, the rest is measured. A search that is interrupted goes on where it was when you start "
                "it again. Nothing of your engine changes before you apply it."
            )
        )
        titles = (
            self.tr("Your load"),
            self.tr("Requests"),
            self.tr("What is to be best"),
            self.tr("First token within"),
            self.tr("Tokens at most apart"),
            self.tr("Longest search"),
        )
        for label, title in zip(self._row_labels, titles, strict=True):
            label.setText(title)
        for place, name in enumerate(measure_words.OBJECTIVES):
            self.objective.setItemText(place, measure_words.objective(name))
        for field in (self.ttft_limit, self.itl_limit):
            field.setSpecialValueText(self.tr("no limit"))
        self.start_button.setText(self.tr("Start the search"))
        self._show()
