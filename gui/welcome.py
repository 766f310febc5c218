"""The first start: what Pagedeck is, in which language, with which model. The default model is starting meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QRadioButton,
    QVBoxLayout,
    QWidget,
)

from . import engine_texts, quantities, theme
from .choice import Choice
from .i18n import Language, Languages, Translated, fill_in
from .icons import app_icon
from .link import EngineLink
from .models.card import Estimate
from .models.command import ModelsCommand
from .state import ConnectionState

DEFAULT_MODEL = "SmolLM2-135M-Instruct"

_DEFAULT, _HUB, _LOCAL = range(3)


class Welcome(Translated, QDialog):
    """``languageChosen`` tells a language as soon as it is chosen; ``hubChosen`` a hub id and ``localChosen`` a folder
    or a file at the end, if not the default model is chosen."""

    languageChosen = Signal(str)
    hubChosen = Signal(str)
    localChosen = Signal(str)

    def __init__(self, languages: Languages, link: EngineLink, parent: QWidget | None = None) -> None:
        """``link``: to the engine that starts meanwhile."""
        super().__init__(parent)
        self._languages, self._link = languages, link
        self._default: dict[str, Any] | None = None  # what `pagedeck models list` says of the default model
        self._asked: ModelsCommand | None = None
        self._problem = ""
        self._icon, self.title, self.sentence = QLabel(), QLabel(), QLabel(wordWrap=True)
        self._icon.setPixmap(app_icon().pixmap(48, 48))
        self.title.setProperty("role", "title")
        self.language_label, self.model_label = QLabel(), QLabel()
        self.language = Choice()
        for language in Language:
            self.language.addItem(language.own_name, language)
        self.language.setCurrentIndex(self.language.findData(languages.current))
        self.language.currentIndexChanged.connect(self._switch)
        self.language_label.setBuddy(self.language)
        self.choices = [QRadioButton() for _ in range(3)]
        self._group = QButtonGroup(self)
        for place, choice in enumerate(self.choices):
            self._group.addButton(choice, place)
        self.choices[_DEFAULT].setChecked(True)
        self.hub_field, self.path_field = QLineEdit(), QLineEdit()
        self.browse_button, self.look_button, self.start_button = QPushButton(), QPushButton(), QPushButton()
        self.start_button.setProperty("role", "primary")
        self.start_button.setDefault(True)
        self.facts = QLabel(wordWrap=True)
        self.facts.setProperty("role", "muted")
        self.facts.setFont(theme.number_font(self.facts.font()))
        self.estimate = Estimate()
        self.estimate.setProperty("role", "muted")
        self.problem = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.hint = QLabel(wordWrap=True)
        self.hint.setProperty("role", "muted")
        self._lay_out()

        self._group.idToggled.connect(lambda _, on: self._chosen() if on else None)
        self.hub_field.textEdited.connect(lambda: self._edited(_HUB))
        self.path_field.textEdited.connect(lambda: self._edited(_LOCAL))
        self.browse_button.clicked.connect(self._browse)
        self.look_button.clicked.connect(self.look)
        self.start_button.clicked.connect(self.accept)
        self.finished.connect(lambda _: self._forget())  # who is asked ends before the dialog does
        link.connectionChanged.connect(self._engine_changed)
        link.blocksChanged.connect(self._show_facts)
        self._was_ready = self._ready
        self.estimate.show_look(None)
        self.retranslate()
        self.look()

    def _lay_out(self) -> None:
        head, words = QHBoxLayout(), QVBoxLayout()
        words.addWidget(self.title)
        words.addWidget(self.sentence)
        head.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignTop)
        head.addLayout(words, 1)
        grid = QGridLayout()
        grid.setHorizontalSpacing(2 * theme.GRID)
        grid.setVerticalSpacing(theme.GRID)
        grid.addWidget(self.language_label, 0, 0)
        grid.addWidget(self.language, 0, 1, Qt.AlignmentFlag.AlignLeft)
        grid.addWidget(self.model_label, 1, 0)
        grid.addWidget(self.choices[_DEFAULT], 1, 1, 1, 2)
        for row, choice, field in ((2, _HUB, self.hub_field), (4, _LOCAL, self.path_field)):
            grid.addWidget(self.choices[choice], row, 1, 1, 2)
            grid.addWidget(field, row + 1, 1)
        grid.addWidget(self.browse_button, 5, 2)
        grid.setColumnStretch(1, 1)
        foot = QHBoxLayout()
        foot.addWidget(self.look_button)
        foot.addStretch(1)
        foot.addWidget(self.start_button)
        self._column = layout = QVBoxLayout(self)
        layout.setContentsMargins(*[3 * theme.GRID] * 4)
        layout.setSpacing(2 * theme.GRID)
        layout.addLayout(head)
        layout.addLayout(grid)
        for part in (self.facts, self.estimate, self.problem, self.hint):
            layout.addWidget(part)
        layout.addStretch(1)
        layout.addLayout(foot)
        self.setMinimumWidth(72 * theme.GRID)

    # --- what can be done ---------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """What is chosen, as the setting ``model`` takes it; empty where a field is."""
        texts = (DEFAULT_MODEL, self.hub_field.text().strip(), self.path_field.text().strip())
        return texts[self._group.checkedId()]

    def look(self) -> None:
        """Ask what the chosen model takes. Of the default one it is enough to know whether it is there, which takes no
        time: the engine that starts tells the rest."""
        self._forget()
        if self._group.checkedId() == _DEFAULT:
            self._asked = ModelsCommand(["list"], self._listed, parent=self)
        elif self.model:
            self._asked = ModelsCommand(["show", self.model], self._looked, parent=self)
        self._show()

    def accept(self) -> None:
        model, choice = self.model, self._group.checkedId()
        if not model:
            (self.hub_field if choice == _HUB else self.path_field).setFocus()
            return
        super().accept()
        if choice == _HUB:
            self.hubChosen.emit(model)
        elif choice == _LOCAL:
            self.localChosen.emit(model)

    # --- inner --------------------------------------------------------------------------------------------------

    def _switch(self) -> None:
        language = Language(self.language.currentData())
        self._languages.switch(language)
        self.languageChosen.emit(str(language))

    def _chosen(self) -> None:
        self._forget()
        field = {_HUB: self.hub_field, _LOCAL: self.path_field}.get(self._group.checkedId())
        if field is None:
            self.look()
        else:
            field.setFocus()
        self._show()

    def _edited(self, choice: int) -> None:
        self.choices[choice].setChecked(True)
        self._forget()
        self._show()

    def _browse(self) -> None:
        start = self.path_field.text() or str(Path.home())
        file, _ = QFileDialog.getOpenFileName(self, self.tr("A folder or a GGUF file"), start, "*.gguf config.json")
        if file:
            path = Path(file)
            self.path_field.setText(str(path.parent if path.name == "config.json" else path))
            self._edited(_LOCAL)
            self.look()

    def _listed(self, models: Any, problem: str) -> None:
        self._asked, self._problem = None, problem
        self._default = next((one for one in models or () if one["kind"] == "default"), None)
        self._show()

    @property
    def _ready(self) -> bool:
        """Whether the engine runs the default model."""
        live = self._link.live
        runs = live.status is not None and live.status.model == DEFAULT_MODEL
        return runs and live.connection == ConnectionState.READY

    def _engine_changed(self) -> None:
        """An engine that got ready has brought its model here."""
        if self._ready and not self._was_ready and self._group.checkedId() == _DEFAULT:
            self.look()
        self._was_ready = self._ready
        self._show_facts()

    def _show_facts(self) -> None:
        """What is known of the default model: what it takes on the disk, and what its engine made of the memory."""
        chosen = self._group.checkedId() == _DEFAULT
        self.facts.setVisible(chosen)
        self.facts.setText("\n".join(self._fact_sentences()) if chosen else "")

    def _fact_sentences(self) -> list[str]:
        texts, facts = [], self._default
        if facts is not None and facts["complete"]:
            text = self.tr("On this machine: %1, %2 million parameters, a context of %3 tokens.")
            figures = quantities.count(facts["parameters"] / 1e6), quantities.count(facts["context_length"])
            texts.append(fill_in(text, quantities.size(facts["bytes"]), *figures))
        elif facts is not None:
            missing = max(0, facts["expected"] - facts["bytes"])
            texts.append(fill_in(self.tr("To download: %1."), quantities.size(missing)))
        pool = self._link.live.device
        if not self._ready:
            texts.append(self.tr("What fits into its cache is measured when it has started."))
        elif pool.num_blocks:
            text = self.tr("It is running: %1 tokens fit into its cache of %2.")
            tokens, size = pool.num_blocks * pool.block_size, pool.num_blocks * pool.block_bytes
            texts.append(fill_in(text, quantities.count(tokens), quantities.size(size)))
        return texts

    def _looked(self, look: Any, problem: str) -> None:
        self._asked, self._problem = None, problem
        self.estimate.show_look(look)
        self._show()

    def _forget(self) -> None:
        if self._asked is not None:
            self._asked.stop()
            self._asked = None
        self._problem = ""
        self.estimate.show_look(None)

    def _show(self) -> None:
        self._show_facts()
        default = self._group.checkedId() == _DEFAULT
        asking = self._asked is not None and not default
        self.problem.setText(self.tr("Asking what it takes …") if asking else engine_texts.say(self._problem))
        self.problem.setProperty("role", "muted" if asking else "error")
        self.problem.style().unpolish(self.problem)
        self.problem.style().polish(self.problem)
        self.problem.setVisible(bool(self.problem.text()))
        self.look_button.setVisible(not default)
        self.look_button.setEnabled(bool(self.model) and not asking)
        self.start_button.setEnabled(bool(self.model))
        needed = self._column.totalHeightForWidth(self.width())
        if needed > self.height():  # grows with what is told, and never shrinks under the pointer
            self.resize(self.width(), needed)

    def retranslate(self) -> None:
        self.setWindowTitle(self.tr("Welcome"))
        self.title.setText(self.tr("Welcome to Pagedeck"))
        self.sentence.setText(
            self.tr("Pagedeck runs a language model on this machine and shows you its memory at work.")
        )
        self.language_label.setText(self.tr("Language"))
        self.language.setAccessibleName(self.tr("Language"))
        self.model_label.setText(self.tr("Model"))
        default = self.tr("The default model")
        self.choices[_DEFAULT].setText(f"{default} · {DEFAULT_MODEL}")
        self.choices[_DEFAULT].setToolTip(self.tr("A small model to begin with; it is starting already."))
        self.choices[_HUB].setText(self.tr("A model of the hub"))
        self.choices[_LOCAL].setText(self.tr("A folder or a GGUF file"))
        self.hub_field.setPlaceholderText(self.tr("Hub ID of a model, such as owner/name"))
        self.hub_field.setAccessibleName(self.tr("A model of the hub"))
        self.path_field.setPlaceholderText(self.tr("Path of a folder or a GGUF file"))
        self.path_field.setAccessibleName(self.tr("A folder or a GGUF file"))
        self.browse_button.setText(self.tr("Choose …"))
        self.look_button.setText(self.tr("See what it takes"))
        self.start_button.setText(self.tr("Start"))
        self.hint.setText(self.tr("You find other models, and what each takes, on the page “Models”."))
        self._show()
