"""Choosing a preset: settings for a way to use the engine, staged together, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QLocale, Signal
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from ...ipc.presets import Preset, Text, presets
from .. import theme
from ..choice import Choice


def matching(values: Mapping[str, Any]) -> Preset | None:
    """The preset that ``values`` are the settings of."""
    return next((p for p in presets().values() if p.values.items() <= values.items()), None)


def differing(preset: Preset, values: Mapping[str, Any]) -> list[str]:
    """The preset's settings that have another value."""
    return [name for name, value in preset.values.items() if name in values and values[name] != value]


def said(text: Text) -> str:
    """A preset's text in the window's language."""
    return text.said_in(QLocale().name())


class PresetChooser(QWidget):
    """Which preset the settings are those of, and when to use it. ``chosen`` tells what the user picks: a
    :class:`Preset`, or None for the settings as the engine has them."""

    chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.preset: Preset | None = None
        self._own = 0  # settings of it that have another value
        self._title, self._when = QLabel(), QLabel(wordWrap=True)
        self._when.setProperty("role", "muted")
        self.box = Choice()
        self.box.setFixedWidth(22 * theme.GRID)
        self.box.addItem("", "")
        for name in presets():
            self.box.addItem("", name)
        self._title.setBuddy(self.box)
        self.box.activated.connect(lambda _: self.chosen.emit(presets().get(self.box.currentData())))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, theme.GRID, 0, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        for part in (self._title, self.box, self._when):
            layout.addWidget(part)
        self.retranslate()

    def show_preset(self, preset: Preset | None, own: int) -> None:
        """``own`` of its settings have another value."""
        self.preset, self._own = preset, own
        self.box.setCurrentIndex(self.box.findData(preset.name if preset is not None else ""))
        self._write()

    def retranslate(self) -> None:
        self._title.setText(self.tr("Preset"))
        self.box.setAccessibleName(self.tr("Preset"))
        self.box.setItemText(0, self.tr("Own settings"))
        for place, preset in enumerate(presets().values(), 1):
            self.box.setItemText(place, said(preset.title))
        self._write()

    def _write(self) -> None:
        if self.preset is None:
            text = self.tr("Settings for a way to use the engine. A choice is previewed like any other edit.")
        else:
            text = said(self.preset.when)
            if self._own:
                text += "\n" + self.tr("%Ln setting(s) of your own", "", self._own)
        self._when.setText(text)
        self.box.setAccessibleDescription(text)
