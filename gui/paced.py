"""What need not happen more often than the eye reads."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer


class Paced(QObject):
    """Calling it calls ``act``, at most once in ``ms`` milliseconds: at once, else when they are over, once for all."""

    def __init__(self, act: Callable[[], None], ms: int, parent: QObject) -> None:
        super().__init__(parent)
        self._act = act
        self._due = False
        self._rest = QTimer(self, interval=ms, singleShot=True)
        self._rest.timeout.connect(self._rested)

    def __call__(self) -> None:
        self._due = True
        if not self._rest.isActive():
            self._rested()

    def _rested(self) -> None:
        if self._due:
            self._due = False
            self._rest.start()
            self._act()
