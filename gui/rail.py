"""The rail on the left: one button a page."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QButtonGroup, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from . import theme
from .i18n import QT_TRANSLATE_NOOP, Translated
from .icons import icon


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
    Page("log", QT_TRANSLATE_NOOP("Rail", "Log")),
)


class Rail(Translated, QWidget):
    """Pages by button, by Ctrl+1 … Ctrl+6, and by the arrow keys."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._group = QButtonGroup(self)
        self._buttons: dict[str, QToolButton] = {}
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.GRID // 2, theme.GRID, theme.GRID // 2, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        for place, page in enumerate(PAGES, 1):
            button = QToolButton()
            button.setCheckable(True)
            button.setProperty("role", "rail")
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
            button.setIconSize(QSize(22, 22))
            button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
            button.clicked.connect(lambda _=False, key=page.key: self.choose(key))
            self._group.addButton(button)
            self._buttons[page.key] = button
            QShortcut(QKeySequence(f"Ctrl+{place}"), self, lambda key=page.key: self.choose(key))
            layout.addWidget(button)
        layout.addStretch(1)
        self.file_button = QToolButton()
        self.file_button.setProperty("role", "rail")
        self.file_button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
        self.file_button.setIconSize(QSize(22, 22))
        self.file_button.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
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

    def button(self, key: str) -> QToolButton:
        return self._buttons[key]

    def choose(self, key: str) -> None:
        """Turn to a page; an unknown key is the first page."""
        key = key if key in self._buttons else PAGES[0].key
        self._buttons[key].setChecked(True)
        self.chosen.emit(key)

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
            button.setToolTip(f"{title} (Ctrl+{place})")
            button.setAccessibleName(title)
        self.file_button.setText(self.tr("Files"))
        self.file_button.setToolTip(self.tr("Recordings and export"))
        self.file_button.setAccessibleName(self.tr("Files"))
