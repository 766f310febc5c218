"""What becomes of the window's engine when the window closes: asked once, where there is a tray, and kept."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QMessageBox, QWidget

from .i18n import Translated


class LeaveDialog(Translated, QMessageBox):
    """``chosen`` tells whether the engine shall go on serving. Cancel leaves all as it is."""

    chosen = Signal(bool)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.serve = self.addButton("", QMessageBox.ButtonRole.AcceptRole)
        self.stop = self.addButton("", QMessageBox.ButtonRole.DestructiveRole)
        self.cancel = self.addButton("", QMessageBox.ButtonRole.RejectRole)
        self.setDefaultButton(self.serve)
        self.setEscapeButton(self.cancel)
        self.serve.clicked.connect(lambda: self.chosen.emit(True))
        self.stop.clicked.connect(lambda: self.chosen.emit(False))
        self.retranslate()

    def retranslate(self) -> None:
        self.setText(self.tr("Keep serving when the window closes?"))
        self.setInformativeText(
            self.tr(
                "The engine can go on in the tray, where its icon brings the window back, or stop. The answer is kept; "
                "the engine's menu in the toolbar changes it."
            )
        )
        self.serve.setText(self.tr("Keep serving in the tray"))
        self.stop.setText(self.tr("Stop the engine and quit"))
        self.cancel.setText(self.tr("Cancel"))
