"""Starting another engine: its name, its model, its settings."""

from __future__ import annotations

import shlex

from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from ...ipc.presets import presets
from ...ipc.vocabulary import Refused
from .. import engine_texts, theme
from ..choice import Choice
from ..i18n import Translated
from ..session import DEFAULT_NAME, EngineSession
from ..settings.presets import said
from .engine_list import EngineList


class StartDialog(Translated, QDialog):
    def __init__(self, engines: EngineList, session: EngineSession, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        taken = {engine.name for engine in engines} | {session.name}
        names = (DEFAULT_NAME, *(f"{DEFAULT_NAME}-{number}" for number in range(2, len(taken) + 3)))
        self.name = QLineEdit(next(name for name in names if name not in taken))
        self.model, self.settings = QLineEdit(), QLineEdit()
        self.settings.setFont(theme.mono_font())
        self.browse = QPushButton()
        self.browse.clicked.connect(self._choose_folder)
        self.preset = Choice()
        self.preset.addItem("", "")
        for name in presets():
            self.preset.addItem("", name)
        self.refusal = QLabel(wordWrap=True)
        self.refusal.setProperty("role", "error")
        self.refusal.hide()
        self._buttons = QDialogButtonBox()
        self.start_button, self.cancel_button = QPushButton(), QPushButton()
        self.start_button.setProperty("role", "primary")
        self._buttons.addButton(self.start_button, QDialogButtonBox.ButtonRole.AcceptRole)
        self._buttons.addButton(self.cancel_button, QDialogButtonBox.ButtonRole.RejectRole)
        self._buttons.accepted.connect(self.accept)
        self._buttons.rejected.connect(self.reject)
        self._labels = [QLabel() for _ in range(4)]
        self._lay_out()
        self.setMinimumWidth(60 * theme.GRID)
        self.retranslate()

    @property
    def arguments(self) -> list[str]:
        """The engine's settings as options of ``pagedeck serve``. Raises :class:`Refused`."""
        chosen = []
        if self.model.text().strip():
            chosen += ["--model", self.model.text().strip()]
        if self.preset.currentData():
            chosen += ["--preset", self.preset.currentData()]
        try:
            return chosen + shlex.split(self.settings.text())
        except ValueError as error:
            raise Refused(f"The settings cannot be read: {error}.", field="settings") from error

    def accept(self) -> None:
        """Start it, or say beside the fields why that cannot be."""
        try:
            self._session.launch(self.name.text().strip(), self.arguments)
        except Refused as refused:
            self.refusal.setText(engine_texts.say(str(refused)))
            self.refusal.show()
        else:
            super().accept()

    def _choose_folder(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("Folder of a model"))
        if folder:
            self.model.setText(folder)

    def _lay_out(self) -> None:
        model = QWidget()
        row = QHBoxLayout(model)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.model, 1)
        row.addWidget(self.browse)
        form = QFormLayout()
        form.setSpacing(theme.GRID)
        fields: tuple[QWidget, ...] = (self.name, model, self.preset, self.settings)
        for label, field in zip(self._labels, fields, strict=True):
            form.addRow(label, field)
        for label, buddy in zip(self._labels, (self.name, self.model, self.preset, self.settings), strict=True):
            label.setBuddy(buddy)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*[2 * theme.GRID] * 4)
        layout.setSpacing(2 * theme.GRID)
        layout.addLayout(form)
        layout.addWidget(self.refusal)
        layout.addWidget(self._buttons)

    def retranslate(self) -> None:
        self.setWindowTitle(self.tr("Start another engine"))
        titles = (self.tr("Name"), self.tr("Model"), self.tr("Preset"), self.tr("Other settings"))
        for label, title in zip(self._labels, titles, strict=True):
            label.setText(title)
        self.model.setPlaceholderText(self.tr("default model; else a hub id, a folder, or a GGUF file"))
        self.settings.setPlaceholderText("--num-blocks 512 --block-size 32")
        self.settings.setToolTip(self.tr("Options as in `pagedeck serve`"))
        self.browse.setText(self.tr("Browse …"))
        self.preset.setItemText(0, self.tr("None"))
        for place, preset in enumerate(presets().values(), 1):
            self.preset.setItemText(place, said(preset.title))
        self.start_button.setText(self.tr("Start"))
        self.cancel_button.setText(self.tr("Cancel"))
