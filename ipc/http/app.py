"""The gateway's routes, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from ..line import EngineError
from ..protocol import EngineStatus
from ..vocabulary import Refused
from .chat import Conversation
from .completions import Prompts
from .decoding import MAX_BODY_BYTES, read
from .errors import HttpError
from .generation import no_such_model
from .guard import Keys, Origins
from .link import EngineLink
from .metrics import Counted, RequestCounts, exposition
from .openapi import document
from .running import Disconnected, attended
from .schema import ChatRequest, CompletionRequest, Generation, Model, ModelList
from .sse import EventStream


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask: ``hosts`` in a Host header (None for any), ``origins`` of web pages, who has one of ``keys``."""

    hosts: frozenset[str] | None = None
    origins: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def application(link: EngineLink, access: Access, max_body: int = MAX_BODY_BYTES) -> Starlette:
    """The gateway of the engine that ``link`` finds; it keeps the link while it runs."""
    gateway = _Gateway(link, max_body)
    counts = RequestCounts()

    async def metrics(_request: HttpRequest) -> Response:
        return Response(exposition(await link.look(), counts), media_type=CONTENT_TYPE_LATEST)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        linking = asyncio.create_task(link.run())
        try:
            yield
        finally:
            linking.cancel()
            await asyncio.wait([linking])

    routes = [
        Route("/v1/models", gateway.models),
        Route("/v1/models/{model:path}", gateway.model),
        Route("/v1/completions", gateway.completions, methods=["POST"]),
        Route("/v1/chat/completions", gateway.chat, methods=["POST"]),
        Route("/health", gateway.health),
        Route("/metrics", metrics),
        Route("/openapi.json", gateway.openapi),
    ]
    cors = Middleware(CORSMiddleware, allow_origins=access.origins, allow_methods=["GET", "POST"], allow_headers=["*"])
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Counted, counts, [route.path for route in routes]),
            Middleware(Origins, access.hosts, access.origins),
            *([cors] if access.origins else []),
            Middleware(Keys, access.keys),
        ],
        exception_handlers=_HANDLERS,
        lifespan=lifespan,
    )
    app.state.link = link
    return app


class _Gateway:
    def __init__(self, link: EngineLink, max_body: int) -> None:
        self._link = link
        self._max_body = max_body

    async def completions(self, request: HttpRequest) -> Response:
        return await self._generate(request, CompletionRequest, Prompts)

    async def chat(self, request: HttpRequest) -> Response:
        return await self._generate(request, ChatRequest, Conversation)

    async def _generate(
        self,
        request: HttpRequest,
        kind: type[Any],
        job: Callable[[Any, EngineStatus], Prompts | Conversation],
    ) -> Response:
        wanted: Generation = await read(request, kind, self._max_body)
        client = self._link.client()
        asked = job(wanted, self._link.status())
        if not wanted.stream:
            return _json(await attended(request.receive, asked.whole(client)))
        parts: Any = asked.parts(client)
        return EventStream(await attended(request.receive, anext(parts)), parts)

    async def models(self, _request: HttpRequest) -> Response:
        return _json(ModelList([_model(self._link.status())]))

    async def model(self, request: HttpRequest) -> Response:
        status = self._link.status()
        if request.path_params["model"] != status.model:
            raise no_such_model(request.path_params["model"], status)
        return _json(_model(status))

    async def health(self, _request: HttpRequest) -> Response:
        health = await self._link.health()
        return _json(health, 200 if health.status == "ready" else 503)

    async def openapi(self, _request: HttpRequest) -> Response:
        return Response(document(), media_type="application/json")


def _model(status: EngineStatus) -> Model:
    return Model(status.model, int(status.started), status.context_length)


def _json(body: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


# --- what goes wrong --------------------------------------------------------------------------------------------


async def _refused(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, EngineError | Refused)
    found = HttpError.of(error)
    link: EngineLink = request.app.state.link
    wait = link.queue_wait() if found.status == 429 else link.loading_wait() if error.code == "loading" else None
    if wait is not None:
        found.headers["Retry-After"] = str(wait)
    return found.response


async def _stated(_request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error.response


async def _no_route(request: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        text = f"{path} takes no {request.method}."
        return HttpError(405, text, code="method_not_allowed", headers=dict(error.headers or {})).response
    if path == "/v1/embeddings":
        return HttpError(404, "This server offers no embeddings; its models generate text.", code="not_found").response
    return HttpError(error.status_code, f"There is no {path} here.", code="not_found").response


async def _left(_request: HttpRequest, _error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it


async def _broken(_request: HttpRequest, error: Exception) -> Response:
    text = f"The gateway failed: {type(error).__name__}. Its log says more."
    return HttpError(500, text, code="internal").response


_HANDLERS: Mapping[Any, Callable[[HttpRequest, Exception], Awaitable[Response]]] = {
    Refused: _refused,
    EngineError: _refused,
    HttpError: _stated,
    HTTPException: _no_route,
    Disconnected: _left,
    Exception: _broken,
}
