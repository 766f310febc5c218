"""The rail on the left: one button a page."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QKeySequence, QPainter, QPaintEvent, QResizeEvent, QShortcut
from PySide6.QtWidgets import QButtonGroup, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from . import quantities, theme
from .i18n import QT_TRANSLATE_NOOP, Translated
from .icons import icon


def key_of(place: int) -> str:
    """The key that turns to a page, by its place from 1 to 10."""
    return f"Ctrl+{place % 10}"


_BADGE = 2 * theme.GRID  # pixels across


@dataclass(frozen=True)
class Page:
    key: str  # names the icon and the stored choice
    title: str


PAGES = (
    Page("map", QT_TRANSLATE_NOOP("Rail", "Map")),
    Page("requests", QT_TRANSLATE_NOOP("Rail", "Requests")),
    Page("latency", QT_TRANSLATE_NOOP("Rail", "Latency")),
    Page("playground", QT_TRANSLATE_NOOP("Rail", "Playground")),
    Page("settings", QT_TRANSLATE_NOOP("Rail", "Settings")),
    Page("advice", QT_TRANSLATE_NOOP("Rail", "Advice")),
    Page("measure", QT_TRANSLATE_NOOP("Rail", "Measure")),
    Page("models", QT_TRANSLATE_NOOP("Rail", "Models")),
    Page("engines", QT_TRANSLATE_NOOP("Rail", "Engines")),
    Page("log", QT_TRANSLATE_NOOP("Rail", "Log")),
)


class RailButton(QToolButton):
    """An icon over a word, and at its corner how much there is to see, if there is any."""

    def __init__(self) -> None:
        super().__init__()
        self.badge = 0
        self.setProperty("role", "rail")
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
        self.setIconSize(QSize(22, 22))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_badge(self, amount: int) -> None:
        if amount != self.badge:
            self.badge = amount
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.badge:
            return
        palette, painter = theme.current().palette, QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        place = QRectF(self.width() / 2 + 6, 3, _BADGE, _BADGE)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(palette.accent))
        painter.drawEllipse(place)
        font = self.font()
        font.setPixelSize(10)
        font.setBold(True)
        painter.setFont(font)
        painter.setPen(QColor(palette.on_accent))
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, quantities.count(min(self.badge, 9)))


class Rail(Translated, QWidget):
    """Pages by button, by Ctrl+1, Ctrl+2 …, and by the arrow keys."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._group = QButtonGroup(self)
        self._buttons: dict[str, RailButton] = {}
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.GRID // 2, theme.GRID, theme.GRID // 2, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        for place, page in enumerate(PAGES, 1):
            button = RailButton()
            button.setCheckable(True)
            button.clicked.connect(lambda _=False, key=page.key: self.choose(key))
            self._group.addButton(button)
            self._buttons[page.key] = button
            QShortcut(QKeySequence(key_of(place)), self, lambda key=page.key: self.choose(key))
            layout.addWidget(button)
        layout.addStretch(1)
        self.file_button = RailButton()
        self.file_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        layout.addWidget(self.file_button)
        self.setFixedWidth(12 * theme.GRID)
        self.setStyleSheet('QToolButton[role="rail"] { padding: 6px 0; } QToolButton::menu-indicator { image: none; }')
        theme.current().changed.connect(self._draw)
        self.retranslate()
        self._draw()

    @property
    def current(self) -> str:
        return next((key for key, button in self._buttons.items() if button.isChecked()), PAGES[0].key)

    def button(self, key: str) -> RailButton:
        return self._buttons[key]

    def choose(self, key: str) -> None:
        """Turn to a page; an unknown key is the first page."""
        key = key if key in self._buttons else PAGES[0].key
        self._buttons[key].setChecked(True)
        for button in self._buttons.values():  # Tab goes to the pressed one; Qt sees to it where it was clicked
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus if button.isChecked() else Qt.FocusPolicy.NoFocus)
        self.chosen.emit(key)

    def minimumSizeHint(self) -> QSize:
        """As low as icons alone are; words are shown where there is room for them."""
        return QSize(super().minimumSizeHint().width(), 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """Words under the icons, unless they would not all have room."""
        buttons = [*self._buttons.values(), self.file_button]
        height = self.fontMetrics().height() + 22 + 3 * theme.GRID
        words = len(buttons) * (height + theme.GRID // 2) + 2 * theme.GRID <= self.height()
        style = Qt.ToolButtonStyle.ToolButtonTextUnderIcon if words else Qt.ToolButtonStyle.ToolButtonIconOnly
        for button in buttons:
            button.setToolButtonStyle(style)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
            return
        keys = [*self._buttons]
        at = min(max(0, keys.index(self.current) + step), len(keys) - 1)
        self.choose(keys[at])
        self._buttons[keys[at]].setFocus()

    def _draw(self) -> None:
        for key, button in self._buttons.items():
            button.setIcon(icon(key, QColor(theme.current().palette.ink)))
        self.file_button.setIcon(icon("file", QColor(theme.current().palette.ink)))

    def retranslate(self) -> None:
        for place, page in enumerate(PAGES, 1):
            button, title = self._buttons[page.key], self.tr(page.title)
            button.setText(title)
            button.setToolTip(f"{title} ({key_of(place)})")
            button.setAccessibleName(title)
        self.file_button.setText(self.tr("Files"))
        self.file_button.setToolTip(self.tr("Recordings and export"))
        self.file_button.setAccessibleName(self.tr("Files"))
