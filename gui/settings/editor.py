"""One live setting as a field: what it is, what it may be, what it does, what is staged, why it was refused."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from ...ipc.protocol import SettingInfo
from .. import theme, words
from ..i18n import fill_in

_EDITOR_WIDTH = 18 * theme.GRID

#: Whole numbers from here on have no place in a message.
_UNSPEAKABLE = 2**63


class SettingEditor(QWidget):
    """One live setting: title, field with unit, what it may be, what it does; what is staged; why it was refused; and
    why a preset has the value that stands there.

    Numbers are typed freely: it is the engine that knows what it accepts, and its refusal appears beside the field.
    """

    edited = Signal()

    def __init__(self, info: SettingInfo, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.info = info
        self._known = info.value  # what the engine last said
        self._title = QLabel()
        self._mark = QLabel()
        self._mark.setProperty("role", "warning")
        self._field: QComboBox | QLineEdit = self._make_field()
        self._title.setBuddy(self._field)
        self._unit = QLabel()
        self._unit.setProperty("role", "muted")
        self._range = QLabel()
        self._range.setProperty("role", "muted")
        self._meaning = QLabel(wordWrap=True)
        self._meaning.setProperty("role", "muted")
        self._refusal = QLabel(wordWrap=True)
        self._refusal.setProperty("role", "error")
        self._refusal.hide()
        self._reason = QLabel(wordWrap=True)
        self._reason.hide()

        head = QHBoxLayout()
        head.setSpacing(theme.GRID)
        head.addWidget(self._title)
        head.addWidget(self._mark)
        head.addStretch(1)
        line = QHBoxLayout()
        line.setSpacing(theme.GRID)
        line.addWidget(self._field)
        line.addWidget(self._unit)
        line.addWidget(self._range)
        line.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, theme.GRID, 0, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        layout.addLayout(head)
        layout.addLayout(line)
        layout.addWidget(self._refusal)
        layout.addWidget(self._reason)
        layout.addWidget(self._meaning)
        self.stage(info.value)
        self.retranslate()

    @property
    def field(self) -> QComboBox | QLineEdit:
        return self._field

    @property
    def value(self) -> Any:
        """What the field holds: of the setting's own type where it can be read so, else the text, for the engine to
        refuse."""
        if isinstance(self._field, QComboBox):
            return self._field.currentData()
        text = self._field.text().strip()
        if isinstance(self.info.value, str):
            return text
        text = text.replace(",", "")
        try:
            number = float(text) if isinstance(self.info.value, float) else int(text)
        except ValueError:
            return text
        return number if abs(number) < _UNSPEAKABLE or isinstance(number, float) else text

    @property
    def known(self) -> Any:
        """The setting's value as the engine last said it."""
        return self._known

    @property
    def staged(self) -> bool:
        return bool(self.value != self._known)

    def show_info(self, info: SettingInfo) -> None:
        """Take the engine's state of the setting; a staged edit stays staged."""
        staged = self.value != self._known
        self.info, self._known = info, info.value
        if not staged:
            self.stage(info.value)
        self._show_mark()

    def stage(self, value: Any) -> None:
        """Put a value into the field."""
        if isinstance(self._field, QComboBox):
            self._field.setCurrentIndex(max(0, self._field.findData(value)))
        else:
            self._field.setText(_written(value))

    def settle(self, value: Any) -> None:
        """The engine took this value."""
        self._known = value
        self.stage(value)
        self._show_mark()

    def refuse(self, why: str) -> None:
        """Say why the value was refused; the empty text takes it back."""
        self._refusal.setText(why)
        self._refusal.setVisible(bool(why))

    @property
    def refusal(self) -> str:
        return self._refusal.text() if self._refusal.isVisibleTo(self) else ""

    def explain(self, reason: str) -> None:
        """Say why the value that stands in the field is a good one; the empty text takes it back."""
        self._reason.setText(reason)
        self._reason.setVisible(bool(reason))

    @property
    def reason(self) -> str:
        return self._reason.text()

    def _make_field(self) -> QComboBox | QLineEdit:
        if self.info.choices is not None:
            box = QComboBox()
            for choice in self.info.choices:
                box.addItem("", choice)
            box.currentIndexChanged.connect(self._changed)
            box.setMinimumWidth(_EDITOR_WIDTH)
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
            return box
        line = QLineEdit()
        line.setFont(theme.number_font(line.font()))
        line.textChanged.connect(self._changed)
        line.setFixedWidth(_EDITOR_WIDTH * (2 if isinstance(self.info.value, str) else 1))  # names and paths are long
        return line

    def _changed(self) -> None:
        self.refuse("")
        self._show_mark()
        self.edited.emit()

    def _show_mark(self) -> None:
        self._mark.setVisible(self.staged)
        self._mark.setText(fill_in(self.tr("● not applied; now %1"), words.value(self._known)))

    def retranslate(self) -> None:
        self._title.setText(words.title(self.info.name))
        self._title.setToolTip(self.info.name)
        self._unit.setText(words.unit(self.info.unit))
        self._unit.setVisible(bool(self.info.unit))
        self._meaning.setText(words.meaning(self.info))
        self._field.setAccessibleName(words.title(self.info.name))
        self._field.setAccessibleDescription(words.meaning(self.info))
        if isinstance(self._field, QComboBox):
            for place, choice in enumerate(self.info.choices or []):
                self._field.setItemText(place, words.value(choice))
            self._range.clear()
        else:
            bounds = words.bounds(self.info)
            self._range.setText(f"({bounds})" if bounds else "")
        self._show_mark()


def _written(value: Any) -> str:
    """A value as the field shows it: in as few digits as give the same value when they are read back."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
