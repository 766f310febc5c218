"""Who may ask: programs that know a key where there is one, and no web page that was not invited."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import HttpError

#: Answered without a key.
_OPEN_PATHS = frozenset({"/health"})


class Origins:
    """Refuses what a browser sends for a page of another origin, and names that a page had resolve to this machine.

    ``hosts``: the names by which this server is known; None is any. ``allowed``: origins of pages that may ask, or
    ``*``.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None, allowed: Iterable[str]) -> None:
        self._app = app
        self._hosts = hosts
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        await (error.response if error else self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> HttpError | None:
        host = headers.get("host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            text = f"This server is not called {host!r}; it answers to localhost."
            return HttpError(403, text, code="host_not_allowed")
        origin = headers.get("origin")
        if origin is not None and origin not in self._allowed and "*" not in self._allowed:
            text = f"Pages of {origin!r} may not ask this server; start it with --cors {origin} to allow it."
            return HttpError(403, text, code="origin_not_allowed")
        return None


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class Keys:
    """Wants ``Authorization: Bearer KEY`` with one of ``keys``, for everything but health; without keys, nothing."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._known(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        text = "A key is missing or wrong; send one of this server's as `Authorization: Bearer KEY`."
        error = HttpError(401, text, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        await error.response(scope, receive, send)

    def _known(self, headers: Headers) -> bool:
        if not self._digests:
            return True
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = _digest(key.strip().encode("latin-1"))
        # Every key is compared, and whole, so that the time tells nothing of any.
        same = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(same)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
