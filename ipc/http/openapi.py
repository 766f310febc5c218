"""The OpenAPI document: the same structs that decode requests and encode answers, described."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from .schema import (
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    ErrorAnswer,
    Health,
    Model,
    ModelList,
)

_STRUCTS = (
    ChatChunk, ChatCompletion, ChatRequest, Completion, CompletionRequest, ErrorAnswer, Health, Model, ModelList
)  # fmt: skip

#: What may go wrong with any request, and with those that carry a body or need an engine.
_ANY = {401: "The key is missing or wrong", 403: "The host or the page's origin is not allowed"}
_ENGINE = {503: "No engine that serves (it loads, is about to stop, or is gone), or too many connections"}
_BODY = {
    400: "The request cannot be served as it stands",
    404: "There is no such model",
    408: "The body took too long",
    413: "The body is too large",
    429: "The queue is full; Retry-After is as long as half of its requests waited of late",
    500: "The engine failed",
}


@cache
def document() -> bytes:
    """As JSON."""
    from ... import __version__

    _, components = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    paths = {
        "/v1/models": {"get": _get("List the model that is served", ModelList, _ANY | _ENGINE)},
        "/v1/models/{model}": {
            "get": _get("Tell about the model", Model, _ANY | _ENGINE | {404: "There is no such model"})
            | {"parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]}
        },
        "/v1/completions": {"post": _post("Continue prompts", CompletionRequest, Completion, Completion)},
        "/v1/chat/completions": {"post": _post("Answer a conversation", ChatRequest, ChatCompletion, ChatChunk)},
        "/health": {"get": _get("Tell whether the engine serves", Health, {403: _ANY[403]}) | {"security": []}},
        "/metrics": {
            "get": {
                "summary": "Figures for Prometheus",
                "responses": {"200": _content("Figures", "text/plain", {"type": "string"}), **_errors(_ANY)},
            }
        },
    }
    paths["/health"]["get"]["responses"]["503"] = _json("It does not serve", Health)
    described = {
        "openapi": "3.1.0",
        "info": {"title": "Pagedeck", "version": __version__, "description": "OpenAI's API for a Pagedeck engine."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
    return msgspec.json.encode(described)


def _get(summary: str, answer: type[msgspec.Struct], errors: dict[int, str]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": _json("Answer", answer), **_errors(errors)}}


def _post(
    summary: str, request: type[msgspec.Struct], answer: type[msgspec.Struct], part: type[msgspec.Struct]
) -> dict[str, Any]:
    whole = _json("Whole, or with `stream` as server-sent events, each a part, the last one `[DONE]`", answer)
    whole["content"]["text/event-stream"] = {"schema": {"type": "string"}, "x-event": _reference(part)}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _reference(request)}}},
        "responses": {"200": whole, **_errors(_ANY | _BODY | _ENGINE)},
    }


def _errors(meanings: dict[int, str]) -> dict[str, Any]:
    return {str(status): _json(meaning, ErrorAnswer) for status, meaning in meanings.items()}


def _json(meaning: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    return _content(meaning, "application/json", _reference(kind))


def _content(meaning: str, media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": meaning, "content": {media_type: {"schema": schema}}}


def _reference(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
