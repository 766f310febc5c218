"""What becomes of the window's engine when the window closes: asked once, where there is a tray, and kept."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from . import theme
from .i18n import Translated


class LeaveDialog(Translated, QDialog):
    """``chosen`` tells whether the engine shall go on serving. Cancel leaves all as it is."""

    chosen = Signal(bool)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._question, self._explanation = QLabel(wordWrap=True), QLabel(wordWrap=True)
        self._question.setProperty("role", "title")
        self._explanation.setProperty("role", "muted")
        self.serve, self.stop, self.cancel = QPushButton(), QPushButton(), QPushButton()
        self.serve.setProperty("role", "primary")
        self.serve.setDefault(True)
        self.serve.clicked.connect(lambda: self._choose(True))
        self.stop.clicked.connect(lambda: self._choose(False))
        self.cancel.clicked.connect(self.reject)
        buttons = QHBoxLayout()
        buttons.setSpacing(theme.GRID)
        buttons.addStretch(1)
        for button in (self.serve, self.stop, self.cancel):
            buttons.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*[2 * theme.GRID] * 4)
        layout.setSpacing(theme.GRID)
        layout.addWidget(self._question)
        layout.addWidget(self._explanation)
        layout.addSpacing(theme.GRID)
        layout.addLayout(buttons)
        self.setMinimumWidth(60 * theme.GRID)
        self.retranslate()

    def _choose(self, serve: bool) -> None:
        self.chosen.emit(serve)
        self.accept()

    def retranslate(self) -> None:
        self.setWindowTitle("Pagedeck")
        self._question.setText(self.tr("Keep serving when the window closes?"))
        self._explanation.setText(
            self.tr(
                "The engine can go on in the tray, where its icon brings the window back, or stop. The answer is kept; "
                "the engine's menu in the toolbar changes it."
            )
        )
        self.serve.setText(self.tr("Keep serving in the tray"))
        self.stop.setText(self.tr("Stop the engine and quit"))
        self.cancel.setText(self.tr("Cancel"))
