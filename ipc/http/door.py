"""Connections that are given up: of who sends no request, and of who reads no answer."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds in which the head of a connection's first request has to be there, or of a later one that was begun.
HEAD_S = 30.0

#: Seconds for which a client may leave what was sent unread, once that is more than its connection holds.
UNREAD_S = 60.0


class Door(H11Protocol):
    """uvicorn's connection, which itself limits only how long one may idle between two requests. How long a body may
    take is for who reads it to say."""

    _silence: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silence = self.loop.call_later(HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._heard()
        elif self._silence is None:  # counted from its first letter, however many come one by one
            self._silence = self.loop.call_later(HEAD_S, self.transport.abort)

    def on_response_complete(self) -> None:
        self._heard()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._read()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        self._read()
        super().connection_lost(exc)

    def _heard(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
