"""Bodies to requests: bounded, and what is wrong with one is said by place, value and what is accepted."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request as HttpRequest

from ..vocabulary import Refused
from .accepted import accepted, similar, steps
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

#: What fields of other servers are called here, or why they are not here.
_ELSEWHERE = dict.fromkeys(("n_predict", "num_predict", "max_new_tokens"), "state max_tokens.")
_ELSEWHERE |= dict.fromkeys(("repeat_penalty",), "state repetition_penalty.")
_ELSEWHERE |= dict.fromkeys(("stop_token_ids",), "state stop, as text.")
_ELSEWHERE |= dict.fromkeys(
    ("grammar", "json_schema", "guided_json", "guided_choice", "guided_regex", "guided_grammar", "structured_outputs"),
    "state response_format, with a JSON schema.",
)
_ELSEWHERE |= dict.fromkeys(
    ("chat_template", "chat_template_kwargs"), "prompts are made by the model's own chat template; leave it out."
)
_ELSEWHERE |= dict.fromkeys(
    ("mirostat", "typical_p", "typ_p", "tfs_z", "top_a", "dynatemp_range", "xtc_probability", "dry_multiplier"),
    "tokens are drawn by temperature, top_k, top_p and min_p; leave it out.",
)

#: What the keys of the only map whose keys are no texts are.
_KEYS = "token ids, whole numbers from 0 to 2,147,483,647"

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
        return _unknown(kind, place, unknown[1])
    missing = re.fullmatch(r"Object missing required field `(.*)`", said)
    if missing:
        field = f"{place}.{missing[1]}" if place else missing[1]
        return HttpError(400, f"{field} is missing.", param=field, code="missing_required_parameter")
    if place in _REFUSED:
        return HttpError(400, f"{place} is stated: {_REFUSED[place]}.", param=place, code="unsupported_parameter")
    if not place:
        return HttpError(400, "The body is no JSON object, which a request is.", code="invalid_value")
    if found and found[1]:
        text = f"A key of {place} is not accepted; accepted are {_KEYS}."
        return HttpError(400, text, param=place, code="invalid_value")
    place = place.removesuffix("[...]")  # a key that is not told: the map itself stands for its value
    try:
        return HttpError.of(Refused.value(place, _value(body, place), accepted(kind, place)))
    except (ValueError, RecursionError, msgspec.DecodeError):  # it cannot be read, or not be written out
        text = f"{place} is not accepted; accepted is {accepted(kind, place)}."
        return HttpError(400, text, param=place, code="invalid_value")


def _unknown(kind: type[Request], place: str, name: str) -> HttpError:
    """There is no such field; perhaps another one is meant."""
    field = f"{place}.{name}" if place else name
    meant = similar(kind, place, name)
    advice = _ELSEWHERE.get(name) or (f"did you mean {meant}?" if meant else "leave it out.")
    text = f"There is no field {field!r} in this request; {advice}"
    return HttpError(400, text, param=field, code="unknown_parameter")


def _value(body: bytes, place: str) -> Any:
    """What stands at a place in the body."""
    value: Any = msgspec.json.decode(body)
    for step in steps(place):
        value = value[step]
    return value
