"""The strip above the pages while a recording is shown: what it is, where in it, how fast, and the way back."""

from __future__ import annotations

import time

from PySide6.QtCore import QSignalBlocker, QSize, Qt, QTimer
from PySide6.QtGui import QColor, QMouseEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSlider,
    QStyle,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from .. import quantities, theme
from ..card import QuietLabel
from ..i18n import Translated, fill_in
from ..icons import icon
from ..link import FRAME_MS
from .player import SPEEDS, Player

STEP_MS = 1_000  # of an arrow key on the slider
PAGE_MS = 10_000


class TimeSlider(QSlider):
    """A slider whose handle comes to where it is clicked."""

    def __init__(self) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setSingleStep(STEP_MS)
        self.setPageStep(PAGE_MS)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            x = round(event.position().x())
            self.setValue(QStyle.sliderValueFromPosition(self.minimum(), self.maximum(), x, self.width()))
        super().mousePressEvent(event)


class ReplayBar(Translated, QFrame):
    def __init__(self, player: Player, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._player = player
        self._was_ready = False
        self.setProperty("role", "banner")
        self.title, self.story = QLabel(), QuietLabel()
        self.title.setProperty("role", "title")
        self.back_button = QPushButton()
        self.back_button.clicked.connect(player.close)
        self.play_button = QToolButton()
        self.play_button.setProperty("role", "flat")
        self.play_button.setIconSize(QSize(20, 20))
        self.play_button.clicked.connect(player.toggle)
        self.slider = TimeSlider()
        self.slider.valueChanged.connect(self._slid)
        self.place = QLabel()
        self.place.setFont(theme.number_font(self.place.font()))
        self.place.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.speed = QComboBox()
        for speed in SPEEDS:
            self.speed.addItem(f"{speed:g}×", speed)
        self.speed.activated.connect(lambda _: player.set_speed(self.speed.currentData()))
        # Dragging asks for more moments than can be shown.
        self._seek = QTimer(self, interval=FRAME_MS, singleShot=True)
        self._seek.timeout.connect(lambda: player.seek(self.slider.value()))
        self._lay_out()
        player.changed.connect(self.show_state)
        theme.current().changed.connect(self._draw)
        self.retranslate()

    def _lay_out(self) -> None:
        above, below = QHBoxLayout(), QHBoxLayout()
        for row in (above, below):
            row.setSpacing(2 * theme.GRID)
        above.addWidget(self.title)
        above.addWidget(self.story, 1)
        above.addWidget(self.back_button)
        below.addWidget(self.play_button)
        below.addWidget(self.slider, 1)
        below.addWidget(self.place)
        below.addWidget(self.speed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID // 2)
        layout.addLayout(above)
        layout.addLayout(below)

    def show_state(self) -> None:
        player, replay = self._player, self._player.replay
        opened = replay is not None and self.isHidden()
        self.setVisible(replay is not None)
        if replay is None:
            self._was_ready = False
            return
        for part in (self.play_button, self.slider, self.speed):
            part.setEnabled(player.ready)
        if opened:
            self._describe()
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, replay.end)
            if not self.slider.isSliderDown() and not self._seek.isActive():
                self.slider.setValue(replay.at)
        if player.ready and not self._was_ready:
            self.slider.setFocus()
        self._was_ready = player.ready
        self.speed.setCurrentIndex(SPEEDS.index(player.speed))
        self._write_place()
        self._draw()

    def _write_place(self) -> None:
        replay, share = self._player.replay, self._player.read_share
        if replay is None:
            return
        if share is not None:
            self.place.setText(fill_in(self.tr("reading: %1"), quantities.percent(share)))
            return
        clock = time.strftime("%H:%M:%S", time.localtime(replay.now))
        whole = played(replay.end)
        self.place.setText(f"{clock} · {played(replay.at)} / {whole}")
        self.place.setMinimumWidth(self.place.fontMetrics().horizontalAdvance(f"00:00:00 · {whole} / {whole}"))

    def _describe(self) -> None:
        replay = self._player.replay
        if replay is None:
            return
        header = replay.recording.header
        begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.started))
        parts = [fill_in(self.tr("engine %1, recorded %2"), header.name, begun), replay.recording.path.name]
        if replay.recording.torn:
            parts.append(self.tr("its end was cut off"))
        self.story.setText(" · ".join(parts))

    def _slid(self) -> None:
        if not self._seek.isActive():
            self._seek.start()

    def _draw(self) -> None:
        playing = self._player.playing
        self.play_button.setIcon(icon("pause" if playing else "start", QColor(theme.current().palette.ink)))
        text = self.tr("Pause (Space)") if playing else self.tr("Play (Space)")
        self.play_button.setToolTip(text)
        self.play_button.setAccessibleName(text)

    def retranslate(self) -> None:
        self.title.setText(self.tr("Recording"))
        self.back_button.setText(self.tr("Back to live"))
        self.back_button.setToolTip(self.tr("Close the recording and show the engine (Esc)"))
        self.slider.setAccessibleName(self.tr("Time"))
        self.slider.setToolTip(self.tr("Moment shown (arrow keys: 1 second, Page Up and Page Down: 10 seconds)"))
        self.speed.setAccessibleName(self.tr("Speed"))
        self.speed.setToolTip(self.tr("Speed"))
        self._describe()
        self.show_state()


def played(ms: int) -> str:
    """A place in a recording: ``0:12``, ``1:02:03``."""
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
