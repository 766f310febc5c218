"""Connections that are refused, since there are too many; and those that are given up: of who sends no request, and of
who reads no answer."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .errors import HttpError

#: Connections at once; whoever comes beyond is told so, and beyond twice as many there is no answer.
MAX_CONNECTIONS = 1000

#: Seconds in which the head of a connection's first request has to be there, or of a later one that was begun.
HEAD_S = 30.0

#: Seconds for which a client may leave what was sent unread, once that is more than its connection holds.
UNREAD_S = 60.0

#: Seconds in which one that is refused has to have sent its request.
REFUSED_S = 5.0


class Door(H11Protocol):
    """uvicorn's connection, which itself limits only how long one may idle between two requests. How long a body may
    take is for who reads it to say."""

    _silence: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        surplus = len(self.connections) - MAX_CONNECTIONS
        if surplus > MAX_CONNECTIONS:
            transport.abort()
            return
        if surplus > 0:
            self.app = _no_room
        self._silence = self.loop.call_later(REFUSED_S if surplus > 0 else HEAD_S, transport.abort)

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


async def _no_room(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer once the request is here: whoever still writes might not read."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REFUSED_S):
            while (await receive()).get("more_body"):
                pass
    text = f"There are {MAX_CONNECTIONS:,} connections already; close some, or try again later."
    error = HttpError(503, text, code="too_many_connections", headers={"Connection": "close"})
    await error.response(scope, receive, send)
