"""What is selected, shared by all views: a request, and perhaps one block."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal


class Selection(QObject):
    """At most one request (by number) and one block (tier and id)."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._request: int | None = None
        self._block: tuple[str, int] | None = None

    @property
    def request(self) -> int | None:
        return self._request

    @property
    def block(self) -> tuple[str, int] | None:
        return self._block

    def select_request(self, number: int | None) -> None:
        """Select a request; a block that was selected no longer is."""
        self._set(number, None)

    def select_block(self, tier: str, block: int, request: int | None = None) -> None:
        """Select a block of a tier (``device`` or ``host``) and the request that holds it, if one does."""
        self._set(request, (tier, block))

    def clear(self) -> None:
        self._set(None, None)

    def _set(self, request: int | None, block: tuple[str, int] | None) -> None:
        if (request, block) != (self._request, self._block):
            self._request, self._block = request, block
            self.changed.emit()
