"""The models: those on this machine, which one runs, another one from the hub, and what each would take."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from .. import engine_texts, theme
from ..i18n import Translated, fill_in
from ..scroll import Column, plain_scroll
from ..session import EngineSession
from ..state import ConnectionState
from .card import Model, ModelCard
from .command import ModelsCommand

#: Wider cards are hard to read, narrower ones cramped.
_WIDTH, _NARROWEST = 110 * theme.GRID, 56 * theme.GRID

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class ModelsPage(Translated, QWidget):
    """``used`` asks for an engine with a model (its name, a folder or a file), ``said`` carries a sentence for the
    status bar and its level."""

    used = Signal(str)
    said = Signal(object, str)  # Said

    def __init__(self, session: EngineSession, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.models: dict[str, Model] = {}
        self.cards: dict[str, ModelCard] = {}
        self._wanted = ""  # the model that is to be used when it is there
        self._running: dict[str, ModelsCommand] = {}  # what is asked or downloaded, by what it is about
        self.heading, self.get_heading = QLabel(), QLabel()
        for heading in (self.heading, self.get_heading):
            heading.setProperty("role", "title")
        self.id_field = QLineEdit(clearButtonEnabled=True)
        self.look_button, self.folder_button, self.file_button = QPushButton(), QPushButton(), QPushButton()
        self.state = QLabel(wordWrap=True)
        self.state.setProperty("role", "muted")
        self.id_field.returnPressed.connect(self.look_up)
        self.id_field.textChanged.connect(lambda: self._say(""))
        self.look_button.clicked.connect(self.look_up)
        self.folder_button.clicked.connect(self.choose_folder)
        self.file_button.clicked.connect(self.choose_file)
        session.changed.connect(self._session_changed)
        self._lay_out()
        self.retranslate()

    def _lay_out(self) -> None:
        get = QHBoxLayout()
        get.addWidget(self.id_field, 1)
        for button in (self.look_button, self.folder_button, self.file_button):
            get.addWidget(button)
        another = QWidget()
        another.setMaximumWidth(_WIDTH)
        above = QVBoxLayout(another)
        above.setContentsMargins(0, 0, 0, 0)
        above.setSpacing(2 * theme.GRID)
        above.addWidget(self.get_heading)
        above.addLayout(get)
        above.addWidget(self.state)
        row = QHBoxLayout()
        row.addWidget(another, 1000)
        row.addStretch(1)
        self._grid = QGridLayout()
        self._grid.setSpacing(2 * theme.GRID)
        inner = Column()
        column = QVBoxLayout(inner)
        column.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        column.setSpacing(2 * theme.GRID)
        column.addLayout(row)
        column.addWidget(self.heading)
        column.addLayout(self._grid)
        column.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(plain_scroll(inner))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Cards side by side, as many as have room."""
        columns = max(1, self.width() // _NARROWEST)
        columns = min(columns, max(len(self.cards), math.ceil(self.width() / _WIDTH)))
        for place, card in enumerate(self.cards.values()):
            self._grid.addWidget(card, *divmod(place, columns), Qt.AlignmentFlag.AlignTop)
        for place in range(max(columns, self._grid.columnCount())):
            self._grid.setColumnStretch(place, 1 if place < columns else 0)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    # --- what can be done ---------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read again what is on this machine."""
        self._run("list", ["list"], self._listed)

    def look_up(self) -> None:
        """Ask what the model of the written hub id is and takes."""
        name = self.id_field.text().strip()
        if not name:
            self.id_field.setFocus()
        elif not _HUB_ID.fullmatch(name):
            text = self.tr("A hub id has the form owner/name; for files of your own there are the buttons.")
            self._say(text, "error")
        else:
            self.look(name)

    def look(self, name: str) -> None:
        self._say(fill_in(self.tr("Looking at %1 …"), name))
        replaces = ["--replaces", self._session.name] if self._session.state == ConnectionState.READY else []
        self._run(f"show {name}", ["show", name, *replaces], lambda look, problem: self._looked(name, look, problem))

    def fetch(self, name: str) -> None:
        """Download a model, or go on with it."""
        model = self.models.setdefault(name, Model(name, {}))
        model.downloading, model.problem = True, ""
        self._show(model)
        self._run(f"fetch {name}", ["fetch", name], lambda _, problem: self._fetched(name, problem), self._progressed)

    def get(self, name: str) -> None:
        """Use a model of the hub, once it is on this machine: download it, if it is not."""
        self._wanted = name
        self.fetch(name)
        self.said.emit(lambda: fill_in(self.tr("The engine uses %1 as soon as it is downloaded."), name), "info")

    def pause(self, name: str) -> None:
        """End the download for now; what there is of it stays."""
        self._stop(f"fetch {name}")
        self.models[name].downloading = False
        self._show(self.models[name])
        self.refresh()

    def drop(self, name: str) -> None:
        """End the download for good."""
        if self._wanted == name:
            self._wanted = ""
        self._stop(f"fetch {name}")
        self.models[name].downloading = False
        self.remove(name)

    def remove(self, name: str) -> None:
        self._run(f"remove {name}", ["remove", name], lambda _, problem: self._removed(name, problem))

    def choose_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("A folder with config.json and safetensors"))
        if folder:
            self.look(folder)

    def choose_file(self) -> None:
        file, _ = QFileDialog.getOpenFileName(self, self.tr("A GGUF file"), "", "*.gguf")
        if file:
            self.look(file)

    # --- what happens -------------------------------------------------------------------------------------------

    def _session_changed(self) -> None:
        if self.isVisible() and self._session.state in (ConnectionState.READY, ConnectionState.STOPPED):
            self.refresh()

    def _listed(self, answer: Any, problem: str) -> None:
        if answer is None:
            self._say(engine_texts.say(problem), "error")
            return
        found = {facts["model"]: facts for facts in answer}
        for name, facts in found.items():
            model = self.models.setdefault(name, Model(name, {}))
            model.facts = facts
            if not model.downloading:
                model.have, model.total = facts["bytes"], facts["expected"]
        for name, model in [*self.models.items()]:
            if name not in found:
                model.facts = {}
                if model.look is None and not model.downloading and not model.problem:
                    self._forget(name)
        for model in self.models.values():
            self._show(model)

    def _looked(self, name: str, look: Any, problem: str) -> None:
        if look is None:
            if name in self.models:
                self.models[name].problem = problem
                self._show(self.models[name])
            self._say("" if name in self.models else engine_texts.say(problem), "error")
            return
        self._say("")
        model = self.models.setdefault(name, Model(name, look["installed"] or {}))
        model.look, model.problem = look, ""
        model.local = not look["to_download"] and not model.facts
        self._show(model)
        self.cards[name].use_button.setFocus()

    def _progressed(self, line: dict[str, Any]) -> None:
        if "total" in line:
            model = self.models[line["model"]]
            model.have, model.total = line["bytes"], line["total"]
            self._show(model)

    def _fetched(self, name: str, problem: str) -> None:
        model = self.models[name]
        model.downloading, model.problem = False, problem
        if problem:
            self.said.emit(lambda: fill_in(self.tr("%1 was not downloaded"), name), "error")
        else:
            model.look = None
            self.said.emit(lambda: fill_in(self.tr("%1 is on this machine"), name), "info")
        self._show(model)
        self.refresh()
        if self._wanted == name and not problem:
            self._wanted = ""
            self.used.emit(name)

    def _removed(self, name: str, problem: str) -> None:
        model = self.models.get(name)
        if model is not None:
            model.problem, model.look = problem, None
            self._show(model)
        if not problem:
            self.said.emit(lambda: fill_in(self.tr("%1 is deleted"), name), "info")
        self.refresh()

    # --- inner --------------------------------------------------------------------------------------------------

    def _run(
        self,
        about: str,
        arguments: list[str],
        on_done: Callable[[Any, str], None],
        on_line: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._stop(about)

        def done(answer: Any, problem: str) -> None:
            del self._running[about]
            on_done(answer, problem)

        self._running[about] = ModelsCommand(arguments, done, on_line, self)

    def _stop(self, about: str) -> None:
        command = self._running.pop(about, None)
        if command is not None:
            command.stop()

    def _show(self, model: Model) -> None:
        card = self.cards.get(model.name)
        if card is not None:
            card.show_model(model)
            return
        card = self.cards[model.name] = ModelCard(model)
        card.used.connect(self.used)
        card.looked.connect(self.look)
        card.fetched.connect(self.fetch)
        card.paused.connect(self.pause)
        card.dropped.connect(self.drop)
        card.removed.connect(self.remove)
        self._arrange()

    def _forget(self, name: str) -> None:
        del self.models[name]
        card = self.cards.pop(name, None)
        if card is not None:
            card.hide()
            card.deleteLater()
            self._grid.removeWidget(card)
            self._arrange()

    def _say(self, text: str, role: str = "muted") -> None:
        self.state.setProperty("role", role)
        self.state.style().unpolish(self.state)
        self.state.style().polish(self.state)
        self.state.setText(text or self.tr("Before anything is downloaded, you see what it takes."))

    def retranslate(self) -> None:
        self.get_heading.setText(self.tr("Another model"))
        self.heading.setText(self.tr("On this machine"))
        self.id_field.setPlaceholderText(self.tr("Hub ID of a model, such as owner/name"))
        self.id_field.setAccessibleName(self.tr("Hub ID"))
        self.look_button.setText(self.tr("Look at it"))
        self.folder_button.setText(self.tr("Folder …"))
        self.folder_button.setToolTip(self.tr("Use a folder with config.json and safetensors"))
        self.file_button.setText(self.tr("GGUF file …"))
        self.file_button.setToolTip(self.tr("Use a GGUF file; it is converted once"))
        self._say("")
