"""What floats beside the pointer, and texts that leave the window as it is: small parts that several views share."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QLabel, QSizePolicy, QVBoxLayout, QWidget

from . import theme


class Card(QFrame):
    """A raised surface with a hairline, transparent for the mouse: it must not steal the hover that it explains."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._room = parent
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(12, theme.GRID, 12, theme.GRID)
        self.column.setSpacing(theme.GRID // 2)
        self.hide()

    def show_beside(self, place: QRect) -> None:
        """Show it at the lower right of ``place`` (in the parent), or where there is room."""
        self.adjustSize()
        room, size, gap = self._room.size(), self.size(), theme.GRID
        x, y = place.right() + gap, place.bottom() + gap
        if x + size.width() > room.width():
            x = place.left() - gap - size.width()
        if y + size.height() > room.height():
            y = place.top() - gap - size.height()
        self.move(QPoint(max(0, min(x, room.width() - size.width())), max(0, min(y, room.height() - size.height()))))
        self.show()
        self.raise_()

    @property
    def outgrown(self) -> bool:
        """Whether its texts no longer fit into it as it is shown."""
        wanted, high = self.column.totalSizeHint(), self.column.totalHeightForWidth(self.width())
        return wanted.width() > self.width() or max(high, wanted.height() if high < 0 else 0) > self.height()

    def show_over(self, widget: QWidget, place: QRect) -> None:
        """As :meth:`show_beside` of a place in ``widget``, with the whole window for room."""
        room = widget.window()
        if room is not self._room:
            self._room = room
            self.setParent(room)
        self.show_beside(QRect(widget.mapTo(room, place.topLeft()), place.size()))

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_raised(self)


class HeadedCard(Card):
    """A card in two parts: a head, and figures."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._head = QLabel()
        self._body = QLabel()
        self._body.setProperty("role", "muted")
        self._body.setFont(theme.number_font(self._body.font()))
        self.column.addWidget(self._head)
        self.column.addWidget(self._body)


class BlockStory(HeadedCard):
    """With a third part: the block's content, which has no markup."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._text = QLabel()
        self._text.setFont(theme.mono_font(-1))
        self._text.setWordWrap(True)
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setFixedWidth(36 * theme.GRID)
        self.column.addWidget(self._text)


def paint_raised(widget: QWidget) -> None:
    """The surface of whatever floats over a view."""
    palette = theme.current().palette
    painter = QPainter(widget)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(QColor(palette.raised))
    painter.setPen(QColor(palette.line))
    painter.drawRoundedRect(QRectF(widget.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)


def paint_focus(widget: QWidget, area: QWidget | None = None) -> None:
    """Frame what paints itself while it has the keyboard; ``area`` is where, if not the widget itself."""
    if widget.hasFocus():
        painter = QPainter(area or widget)
        painter.setPen(QColor(theme.current().palette.accent))
        painter.drawRect((area or widget).rect().adjusted(0, 0, -1, -1))


class QuietLabel(QLabel):
    """One line of secondary text that is cut with an ellipsis where room is short, instead of widening the window.

    The text is kept here: a QLabel has the whole window laid out anew for each text, which takes longer than a frame of
    the map.
    """

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self.setProperty("role", "muted")
        self.setFont(theme.number_font(self.font()))
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def text(self) -> str:
        return self._text

    def setText(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.setToolTip("")  # of the text before; painting says whether this one needs one
            self.setAccessibleName(text)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        shown = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        self.setToolTip(self.text() if shown != self.text() else "")
        painter.setPen(QColor(theme.current().palette.muted))
        painter.drawText(self.rect(), self.alignment() | Qt.AlignmentFlag.AlignVCenter, shown)


class Still(QWidget):
    """Room for a widget that is as wide as the room, whatever it shows: nothing around it is laid out anew for that."""

    def __init__(self, inside: QWidget) -> None:
        super().__init__()
        self._inside = inside
        inside.setParent(self)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def sizeHint(self) -> QSize:
        return QSize(0, self._inside.sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.LayoutRequest and self.sizeHint().height() > self.height():
            self.updateGeometry()  # of another language, letters are taller
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._inside.setGeometry(self.rect())
