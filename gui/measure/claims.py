"""Starting the claims: which rows, and how often each."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QPushButton, QSpinBox, QVBoxLayout, QWidget

from .. import engine_texts, theme
from .command import MeasureCommand, ask
from .form import MeasureForm


class ClaimsForm(MeasureForm):
    """The rows are the command's own; they are asked for when the form is first seen."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows_of: dict[str, QCheckBox] = {}
        self._listed: list[dict[str, Any]] = []
        self._asking: MeasureCommand | None = None
        self.all_button = QPushButton()
        self.all_button.setProperty("role", "flat")
        self.all_button.clicked.connect(self._choose_all)
        self.repeat = QSpinBox(minimum=1, maximum=20, value=2)
        chosen = QWidget()
        self._boxes = QVBoxLayout(chosen)
        self._boxes.setContentsMargins(0, 0, 0, 0)
        self._boxes.setSpacing(theme.GRID // 2)
        self._rows_label = self.add_row(chosen, tall=True)
        self.rows.addWidget(self.all_button, self.rows.rowCount(), 1, Qt.AlignmentFlag.AlignLeft)
        self._repeat_label = self.add_row(self.repeat)
        self.retranslate()

    def look(self) -> None:
        """Ask which rows there are, unless that is known."""
        if not self._listed and self._asking is None:
            self._asking = ask(["bench", "claims", "--list", "--json"], self._take, self)

    def chosen(self) -> list[str]:
        return [key for key, box in self.rows_of.items() if box.isChecked()]

    def arguments(self) -> list[str]:
        some = self.chosen()
        only = ["--only", ",".join(some)] if len(some) < len(self.rows_of) else []
        return ["bench", "claims", *only, "--repeat", str(self.repeat.value())]

    def key(self) -> str:
        return "claims"

    def _take(self, answer: Any, problem: str) -> None:
        self._asking = None
        self.refuse(engine_texts.say(problem))
        self._listed = answer or []
        for row in self._listed:
            box = self.rows_of[row["key"]] = QCheckBox()
            box.setChecked(True)
            box.toggled.connect(self._show)
            self._boxes.addWidget(box)
        self.retranslate()

    def _choose_all(self) -> None:
        some = len(self.chosen()) < len(self.rows_of)
        for box in self.rows_of.values():
            box.setChecked(some)

    def _show(self) -> None:
        every = len(self.chosen()) == len(self.rows_of)
        self.all_button.setText(self.tr("Choose none") if every else self.tr("Choose all"))
        self.start_button.setEnabled(bool(self.chosen()))

    def retranslate(self) -> None:
        self.title.setText(self.tr("Claims"))
        self.about.setText(
            self.tr(
                "What is said of paging and continuous batching, measured on this machine with engines of its own. "
                "All rows take about half an hour on two cores; each is kept as soon as it is known."
            )
        )
        self._rows_label.setText(self.tr("Rows"))
        self._repeat_label.setText(self.tr("Runs of each"))
        self.start_button.setText(self.tr("Measure the claims"))
        for row in self._listed:
            box = self.rows_of[row["key"]]
            box.setText(engine_texts.say(row["name"]))
            box.setToolTip(f"{engine_texts.say(row['claimed'])}\n{engine_texts.say(row['how'])}")
        self._show()
