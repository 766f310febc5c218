"""The overview of keys: what can be pressed where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from . import theme
from .i18n import QT_TRANSLATE_NOOP, Translated
from .rail import PAGES, key_of
from .scroll import plain_scroll

#: Keys that are known by their signs, whatever they are called.
_SIGNS = {"Left": "←", "Right": "→", "Up": "↑", "Down": "↓"}


@dataclass(frozen=True)
class Key:
    """Keys that do the same, or one of a kind each, and what that is. Of many, the first and the last are shown."""

    sequences: tuple[str, ...]
    meaning: str

    def shown(self) -> str:
        named = QKeySequence.SequenceFormat.NativeText
        native = [_SIGNS.get(keys) or QKeySequence(keys).toString(named) for keys in self.sequences]
        return f"{native[0]} … {native[-1]}" if len(native) > 4 else "   ".join(native)


GROUPS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    (
        QT_TRANSLATE_NOOP("Shortcuts", "Everywhere"),
        (
            Key(tuple(key_of(n + 1) for n in range(len(PAGES))), QT_TRANSLATE_NOOP("Shortcuts", "Turn to a page")),
            Key(("Tab", "Shift+Tab"), QT_TRANSLATE_NOOP("Shortcuts", "To the next control, or the one before")),
            Key(("Ctrl+R",), QT_TRANSLATE_NOOP("Shortcuts", "Record, or stop recording")),
            Key(("Ctrl+O",), QT_TRANSLATE_NOOP("Shortcuts", "Open a recording")),
            Key(("Ctrl+Shift+A",), QT_TRANSLATE_NOOP("Shortcuts", "Select nothing")),
            Key(("F1", "?"), QT_TRANSLATE_NOOP("Shortcuts", "This overview")),
            Key(("Ctrl+Q",), QT_TRANSLATE_NOOP("Shortcuts", "Quit")),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Shortcuts", "Map"),
        (
            Key(("Left", "Right", "Up", "Down"), QT_TRANSLATE_NOOP("Shortcuts", "To the block beside")),
            Key(("+", "-"), QT_TRANSLATE_NOOP("Shortcuts", "Closer, or farther away")),
            Key(("Z",), QT_TRANSLATE_NOOP("Shortcuts", "The slots of the chosen block, and their tokens")),
            Key(("F",), QT_TRANSLATE_NOOP("Shortcuts", "Show the whole pool")),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Shortcuts", "Timeline"),
        (
            Key(("Left", "Right"), QT_TRANSLATE_NOOP("Shortcuts", "To the step before or after")),
            Key(("PgUp", "PgDown"), QT_TRANSLATE_NOOP("Shortcuts", "Page through the past")),
            Key(("Home", "End"), QT_TRANSLATE_NOOP("Shortcuts", "To the oldest step, or to the newest")),
            Key(("+", "-"), QT_TRANSLATE_NOOP("Shortcuts", "Wider columns, or narrower ones")),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Shortcuts", "Tables"),
        (
            Key(("Return",), QT_TRANSLATE_NOOP("Shortcuts", "Show the chosen engine")),
            Key(("Del",), QT_TRANSLATE_NOOP("Shortcuts", "Cancel the chosen requests; forget the chosen engine")),
            Key(("Ctrl+C",), QT_TRANSLATE_NOOP("Shortcuts", "Copy the chosen lines of the log")),
            Key(("Ctrl+F",), QT_TRANSLATE_NOOP("Shortcuts", "Search the log")),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Shortcuts", "Playground"),
        (
            Key(("Return",), QT_TRANSLATE_NOOP("Shortcuts", "Send")),
            Key(("Shift+Return",), QT_TRANSLATE_NOOP("Shortcuts", "New line")),
            Key(("Esc",), QT_TRANSLATE_NOOP("Shortcuts", "Stop the answer")),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Shortcuts", "Recording"),
        (
            Key(("Space",), QT_TRANSLATE_NOOP("Shortcuts", "Play, or pause")),
            Key(("Left", "Right"), QT_TRANSLATE_NOOP("Shortcuts", "5 seconds back, or on")),
            Key(("Esc",), QT_TRANSLATE_NOOP("Shortcuts", "Back to the engine")),
        ),
    ),
)

#: So many groups stand in the left column, about half of all lines.
_LEFT = 3


def known() -> Iterator[QKeySequence]:
    """Every key that the overview names."""
    for _, keys in GROUPS:
        for key in keys:
            yield from (QKeySequence(sequence) for sequence in key.sequences)


class Shortcuts(Translated, QDialog):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self._texts: list[tuple[QLabel, str]] = []
        content = QWidget()
        columns = QHBoxLayout(content)
        columns.setContentsMargins(*[2 * theme.GRID] * 4)
        columns.setSpacing(5 * theme.GRID)
        for groups in (GROUPS[:_LEFT], GROUPS[_LEFT:]):
            columns.addLayout(self._column(groups))
        area = plain_scroll(content)
        area.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # nothing in it takes the keys that scroll
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(area)
        self.retranslate()
        columns.activate()  # what is inside measured itself before there was text
        wanted = content.sizeHint()
        self.resize(wanted.width() + 4 * theme.GRID, min(wanted.height() + 2, parent.height() - 4 * theme.GRID))

    def _column(self, groups: tuple[tuple[str, tuple[Key, ...]], ...]) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * theme.GRID)
        grid.setVerticalSpacing(theme.GRID // 2)
        for title, keys in groups:
            head = grid.rowCount()
            grid.addWidget(self._label(title, "title"), head, 0, 1, 2)
            for row, key in enumerate(keys, head + 1):
                pressed = QLabel(key.shown())
                pressed.setProperty("role", "muted")
                grid.addWidget(pressed, row, 0)
                grid.addWidget(self._label(key.meaning), row, 1)
            grid.setRowMinimumHeight(grid.rowCount(), theme.GRID)
        grid.setColumnStretch(1, 1)
        grid.setRowStretch(grid.rowCount(), 1)
        return grid

    def _label(self, text: str, role: str = "") -> QLabel:
        label = QLabel()
        label.setProperty("role", role)
        self._texts.append((label, text))
        return label

    def retranslate(self) -> None:
        self.setWindowTitle(self.tr("Keyboard shortcuts"))
        for label, text in self._texts:
            label.setText(self.tr(text))
