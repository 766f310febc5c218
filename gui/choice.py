"""A field to choose from that stays as wide as its texts, in whatever language they are."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QWidget


class Choice(QComboBox):
    """Qt's own asks for its texts' width only once, when it is first shown."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
