"""Two files of results: what changed between them beyond noise."""

from __future__ import annotations

from typing import Any

from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QLineEdit, QPushButton, QWidget

from .. import engine_texts
from . import wording as measure_words
from .command import MeasureCommand, ask
from .form import MeasureForm
from .table import Cell, Table


class CompareForm(MeasureForm):
    """Both files, and below them the answer of ``pagedeck bench compare``."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._asking: MeasureCommand | None = None
        self._changes: list[dict[str, Any]] | None = None
        self.files = [QLineEdit(), QLineEdit()]
        self.browse_buttons = [QPushButton(), QPushButton()]
        self._row_labels: list[QLabel] = []
        for field, button in zip(self.files, self.browse_buttons, strict=True):
            both = QWidget()
            line = QHBoxLayout(both)
            line.setContentsMargins(0, 0, 0, 0)
            line.addWidget(field, 1)
            line.addWidget(button)
            label = self.add_row(both)
            label.setBuddy(field)
            self._row_labels.append(label)
            field.textChanged.connect(self._show)
            button.clicked.connect(lambda _=False, field=field: self._browse(field))
        self.outcome = QLabel(wordWrap=True)
        self.table = Table()
        self.add_below(self.outcome, self.table)
        self.started.connect(self.compare)
        self.retranslate()

    def compare(self) -> None:
        paths = [field.text().strip() for field in self.files]
        self.start_button.setEnabled(False)
        self.refuse("")
        self._asking = ask(["bench", "compare", *paths, "--json"], self._take, self)

    def _take(self, answer: Any, problem: str) -> None:
        self._asking = None
        self._changes = answer
        self.refuse(engine_texts.say(problem))
        self.retranslate()

    def _browse(self, field: QLineEdit) -> None:
        name, _ = QFileDialog.getOpenFileName(self, self.tr("A file of results"), "", "*.json")
        if name:
            field.setText(name)

    def _show(self) -> None:
        self.start_button.setEnabled(self._asking is None and all(field.text().strip() for field in self.files))

    def _show_changes(self) -> None:
        changes = self._changes or []
        roles = {True: "good", False: "error", None: "muted"}
        rows = [
            [
                Cell(measure_words.system(change["name"])),
                Cell(measure_words.figure(change["figure"])),
                Cell(measure_words.ratio([change["ratio"][end] for end in ("value", "low", "high")]), "", True),
                Cell(measure_words.verdict(change["better"]), roles[change["better"]]),
            ]
            for change in changes
        ]
        worse = sum(change["better"] is False for change in changes)
        self.outcome.setText(self.tr("%Ln figure(s) are worse beyond noise.", "", worse) if changes else "")
        self.outcome.setVisible(bool(changes))
        self.table.show_rows((self.tr("System"), self.tr("Figure"), self.tr("After ÷ before"), ""), rows)
        self.table.setVisible(bool(rows))

    def retranslate(self) -> None:
        self.title.setText(self.tr("Compare"))
        self.about.setText(self.tr("Two files of results of the same load: what changed beyond noise."))
        for label, title in zip(self._row_labels, (self.tr("Before"), self.tr("After")), strict=True):
            label.setText(title)
        for button in self.browse_buttons:
            button.setText(self.tr("Browse …"))
        self.start_button.setText(self.tr("Compare them"))
        self._show_changes()
        self._show()
