"""Bodies to requests: bounded, and what is wrong with one is said by place, value and what is accepted."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request as HttpRequest

from ..vocabulary import Refused
from .errors import HttpError
from .schema import Request

R = TypeVar("R", bound=Request)

#: The largest body that is read.
MAX_BODY_BYTES = 16 * 1024 * 1024

#: How long a client may take to send it.
BODY_S = 60.0

#: What fields that are refused ask for, or should be instead.
_REFUSED = {
    "suffix": "text in the middle is not offered; leave suffix out",
    "audio": "models here write text; leave audio out",
    "web_search_options": "models here search nothing; leave web_search_options out",
    "functions": "functions are called tools now; state tools",
    "function_call": "functions are called tools now; state tool_choice",
}

_PLACE = re.compile(r" - at `(key` in `)?\$\.?(.*)`$")


async def read(request: HttpRequest, kind: type[R], limit: int = MAX_BODY_BYTES) -> R:
    """The request in a body.

    Raises:
        HttpError: it is too large (413), too slow (408) or not such a request (400).
    """
    stated = request.headers.get("content-length", "")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            if stated.isdecimal() and int(stated) > limit:
                raise _too_large(limit)
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise HttpError(408, f"The body did not come within {BODY_S:.0f} s.", code="timeout") from None
    return decode(bytes(body), kind)


def decode(body: bytes, kind: type[R]) -> R:
    """Raises :class:`HttpError` (400) for what is not such a request."""
    try:
        return _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(body, kind, str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        text = str(error) if isinstance(error, msgspec.DecodeError) else "it is nested too deeply"
        raise HttpError(400, f"The body is no JSON: {text}.", code="invalid_json") from None


@cache
def _decoder(kind: type[R]) -> msgspec.json.Decoder[R]:
    return msgspec.json.Decoder(kind)


def _too_large(limit: int) -> HttpError:
    return HttpError.of(Refused(f"The body is larger than {limit:,} bytes.", code="body_too_large"))


def _invalid(body: bytes, kind: type[Request], said: str) -> HttpError:
    """What msgspec says, as a sentence with the field and its value."""
    found = _PLACE.search(said)
    place, said = (found[2], said[: found.start()]) if found else ("", said)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", said, re.DOTALL)
    if unknown:
        field = f"{place}.{unknown[1]}" if place else unknown[1]
        return HttpError(400, f"There is no field {field!r} in this request.", param=field, code="unknown_parameter")
    missing = re.fullmatch(r"Object missing required field `(.*)`", said)
    if missing:
        field = f"{place}.{missing[1]}" if place else missing[1]
        return HttpError(400, f"{field} is missing.", param=field, code="missing_required_parameter")
    if place in _REFUSED:
        return HttpError(400, f"{place} is stated: {_REFUSED[place]}.", param=place, code="unsupported_parameter")
    if not place:
        return HttpError(400, f"The body is no such request: {said}.", code="invalid_value")
    if found and found[1]:
        return HttpError(400, f"A key in {place} is none: {said}.", param=place, code="invalid_value")
    place = place.removesuffix("[...]")  # a key that is not told: the map itself stands for its value
    accepted = said.removeprefix("Expected ").partition(", got")[0]
    if said.startswith("Invalid enum value"):
        accepted = _choices(kind, place)
    try:
        return HttpError.of(Refused.value(place, _value(body, place), accepted))
    except (ValueError, RecursionError, msgspec.DecodeError):  # it cannot be read, or not be written out
        return HttpError(400, f"{place} is not acceptable: {said}.", param=place, code="invalid_value")


def _steps(place: str) -> list[str | int]:
    """The keys and indices that lead to a place such as ``messages[0].role``."""
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", place)
    return [name or int(index) for name, index in found]


def _value(body: bytes, place: str) -> Any:
    """What stands at a place in the body."""
    value: Any = msgspec.json.decode(body)
    for step in _steps(place):
        value = value[step]
    return value


def _choices(kind: type[Request], place: str) -> str:
    """What may stand at a place, by the schema of the request."""
    [schema], components = msgspec.json.schema_components([kind], ref_template="{name}")
    for step in _steps(place):
        schema = next(
            form["items"] if isinstance(step, int) else form["properties"][step]
            for form in _forms(schema, components)
            if ("items" if isinstance(step, int) else "properties") in form
        )
    return " or ".join(repr(value) for form in _forms(schema, components) for value in form.get("enum", ()))


def _forms(schema: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    """The schemas that a schema stands for."""
    if "$ref" in schema:
        return _forms(components[schema["$ref"]], components)
    alternatives = schema.get("anyOf", ())
    return [form for one in alternatives for form in _forms(one, components)] or [schema]
