"""A measurement under way: what it is doing, how far it is, and a way to end it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from .. import engine_texts, theme
from ..i18n import Translated
from .command import INTERRUPTED, MeasureCommand

#: What does not end by itself so long after it was asked to is killed.
PATIENCE_MS = 30_000

#: The window waits so long for it when it closes.
CLOSING_MS = 3_000


class MeasureRun(Translated, QWidget):
    """One run at a time, hidden when there is none. ``ended``: whether it came to its end, and else why not (empty
    where it was cancelled)."""

    ended = Signal(bool, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.command: MeasureCommand | None = None
        self.doing = QLabel()
        self.doing.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.progress = QProgressBar(maximum=1000, textVisible=False)
        self.cancel_button = QPushButton()
        self.cancel_button.clicked.connect(self.cancel)
        self._patience = QTimer(self, interval=PATIENCE_MS, singleShot=True)
        self._patience.timeout.connect(self._kill)
        told = QVBoxLayout()
        told.setSpacing(theme.GRID // 2)
        told.addWidget(self.doing)
        told.addWidget(self.progress)
        row = QHBoxLayout(self)
        row.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        row.setSpacing(2 * theme.GRID)
        row.addLayout(told, 1)
        row.addWidget(self.cancel_button)
        self.hide()
        self.retranslate()

    @property
    def running(self) -> bool:
        return self.command is not None

    def begin(self, arguments: Sequence[str]) -> None:
        self.command = MeasureCommand(arguments, self)
        self.command.progressed.connect(self._progressed)
        self.command.ended.connect(self._ended)
        self.cancel_button.setEnabled(True)
        self._progressed(self.tr("Starting …"), None)
        self.show()

    def cancel(self) -> None:
        """Interrupt it; what was measured is kept."""
        if self.command is not None:
            self.cancel_button.setEnabled(False)
            self._progressed(self.tr("Ending …"), None)
            self._patience.start()
            self.command.interrupt()

    def stop(self) -> None:
        """End it without a word, as the window closes."""
        command, self.command = self.command, None
        if command is None:
            return
        command.ended.disconnect(self._ended)
        command.interrupt()
        if not command.waitForFinished(CLOSING_MS):
            command.stop()

    def _kill(self) -> None:
        if self.command is not None:
            self.command.kill()

    def _progressed(self, text: str, share: float | None) -> None:
        if self.command is not None and self.command.interrupted:
            return
        self.doing.setText(engine_texts.say(text))
        self.doing.setToolTip(self.doing.text())
        self.progress.setMaximum(0 if share is None else 1000)
        if share is not None:
            self.progress.setValue(round(1000 * share))

    def _ended(self, code: int, _output: str, problem: str) -> None:
        self._patience.stop()
        command, self.command = self.command, None
        self.hide()
        cancelled = command is not None and command.interrupted
        self.ended.emit(code == 0, "" if cancelled or code == INTERRUPTED else problem)

    def retranslate(self) -> None:
        self.cancel_button.setText(self.tr("Cancel"))
        self.cancel_button.setToolTip(self.tr("End it; what was measured is kept"))
        self.progress.setAccessibleName(self.tr("How much was measured"))
