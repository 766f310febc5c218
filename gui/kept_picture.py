"""What is painted over and over while it looks the same: kept as a picture, which is quicker than many strokes."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPixmap
from PySide6.QtWidgets import QWidget


class KeptPicture:
    """A transparent picture as large as a widget, painted anew when what it depends on changed."""

    def __init__(self, widget: QWidget) -> None:
        self._widget = widget
        self._asked: object = None
        self._pixmap = QPixmap()

    def draw(self, painter: QPainter, depends: object, paint: Callable[[QPainter], None]) -> None:
        """Draw it at the widget's corner; ``paint`` makes it, from ``depends`` alone."""
        size, ratio = self._widget.size(), self._widget.devicePixelRatioF()
        asked = depends, size, ratio
        if asked != self._asked:
            self._asked = asked
            self._pixmap = QPixmap(size * ratio)
            self._pixmap.setDevicePixelRatio(ratio)
            self._pixmap.fill(Qt.GlobalColor.transparent)
            picture = QPainter(self._pixmap)
            picture.setFont(self._widget.font())
            paint(picture)
            picture.end()
        painter.drawPixmap(0, 0, self._pixmap)
