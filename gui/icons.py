"""Icons from ``assets/icons``: black line drawings that take the palette's text colour when they are loaded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from .. import assets

FOLDER = Path(assets.__file__).parent / "icons"
_SIZES = (16, 24, 32, 48)


@cache
def _drawing(name: str) -> str:
    return (FOLDER / f"{name}.svg").read_text(encoding="utf-8")


def _pixmap(svg: str, size: int) -> QPixmap:
    pixmap = QPixmap(size, size)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    QSvgRenderer(QByteArray(svg.encode())).render(painter, QRectF(0, 0, size, size))
    painter.end()
    return pixmap


def icon(name: str, colour: QColor, disabled: QColor | None = None) -> QIcon:
    """The line drawing ``name`` in ``colour``, sharp at every size that the window uses, HiDPI included."""
    made = QIcon()
    faded = disabled or QColor(colour.red(), colour.green(), colour.blue(), 90)
    for mode, tint in ((QIcon.Mode.Normal, colour), (QIcon.Mode.Disabled, faded)):
        svg = _drawing(name).replace("#000", tint.name()).replace("<svg ", f'<svg opacity="{tint.alphaF():.2f}" ', 1)
        for size in _SIZES:
            made.addPixmap(_pixmap(svg, size), mode)
    return made


def app_icon() -> QIcon:
    """The application's own icon, in its own colours."""
    made = QIcon()
    for size in (*_SIZES, 128, 256):
        made.addPixmap(_pixmap(_drawing("pagedeck"), size))
    return made
