"""Answers in parts, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..line import EngineError
from .errors import HttpError
from .running import Disconnected, attended

_DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


class EventStream(Response):
    """Sends each struct of ``parts`` as an event; ends them when the client goes.

    ``first`` was taken from ``parts`` already: what is refused is refused before there is a response.
    """

    media_type = "text/event-stream"

    def __init__(self, first: msgspec.Struct, parts: AsyncGenerator[msgspec.Struct, None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._first = first
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await attended(receive, self._send(send))
        except Disconnected:
            pass
        finally:
            await self._parts.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _put(send, event(msgspec.json.encode(self._first)))
        try:
            async for part in self._parts:
                await _put(send, event(msgspec.json.encode(part)))
        except EngineError as error:
            await _put(send, event(HttpError.of(error).body))
        await send({"type": "http.response.body", "body": _DONE})


async def _put(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
