"""The ground of every long form: scrolls up and down only, without a frame."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget


class Column(QWidget):
    """Never lower than its layout needs at its width. A scroll area asks for the minimum height alone, which knows
    nothing of wrapped text, and would squeeze it."""

    def event(self, event: QEvent) -> bool:
        layout = self.layout()
        if layout is not None and event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            self.setMinimumHeight(max(0, layout.totalMinimumHeightForWidth(self.width())))
        return super().event(event)


def plain_scroll(inner: QWidget) -> QScrollArea:
    scroll = QScrollArea()
    scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)  # it follows the focus of what it holds
    scroll.setWidgetResizable(True)
    scroll.setFrameShape(QFrame.Shape.NoFrame)
    scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    scroll.setWidget(inner)
    return scroll
