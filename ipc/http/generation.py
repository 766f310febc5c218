"""What completions and chat completions have in common: sampling, the model's name, usage, ends."""

from __future__ import annotations

import time
import uuid
from typing import Any, cast

import msgspec

from ..protocol import EngineStatus, Finished
from ..vocabulary import Refused, SamplingParams
from .errors import HttpError
from .schema import FinishReason, Generation, PromptDetails, Usage

#: Fields that mean the same to an engine.
_SAME = (
    "max_tokens", "temperature", "top_p", "n", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "top_k",
    "min_p", "repetition_penalty", "min_tokens", "ignore_eos",
)  # fmt: skip


def check_model(request: Generation, status: EngineStatus) -> None:
    """Raises :class:`HttpError` (404) for a model that is not the engine's; one that is not stated is."""
    if request.model is not None and request.model != status.model:
        raise no_such_model(request.model, status)


def no_such_model(name: str, status: EngineStatus) -> HttpError:
    text = f"There is no model {name!r} here; this engine serves {status.model!r}."
    return HttpError(404, text, param="model", code="model_not_found")


def sampling_of(request: Generation, **more: Any) -> SamplingParams:
    """Raises :class:`Refused` for what no engine accepts."""
    if request.stream_options is not None and not request.stream:
        raise Refused("stream_options is stated without stream; state both or none.", field="stream_options")
    stated = {name: getattr(request, name) for name in _SAME}
    stated |= {"stop": _several(request.stop), "bad_words": _several(request.bad_words)} | more
    sampling = SamplingParams(**{name: value for name, value in stated.items() if value is not None})
    sampling.check()
    return sampling


def schema_of(request: Generation) -> str:
    """The JSON schema that answers keep to; empty for none."""
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return "{}"
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise Refused("response_format is of type json_schema without json_schema.schema; state it.",
                      field="response_format")  # fmt: skip
    return msgspec.json.encode(wanted.json_schema.schema).decode()


def _several(value: str | list[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def wants_usage(request: Generation) -> bool:
    """Whether a stream ends with its usage."""
    return bool(request.stream_options and request.stream_options.include_usage)


def priority_of(request: Generation) -> str | int:
    return "normal" if request.priority is None else request.priority


def usage_of(finished: list[Finished]) -> Usage:
    """Of all prompts of a request."""
    prompt, output, cached = (
        sum(getattr(each, name) for each in finished) for name in ("prompt_tokens", "output_tokens", "cached_tokens")
    )
    return Usage(prompt, output, prompt + output, PromptDetails(cached))


def reason_of(finish_reason: str) -> FinishReason:
    return cast("FinishReason", finish_reason)  # an engine's "stop" and "length" are OpenAI's; else it failed


def head(kind: str, model: str) -> dict[str, Any]:
    """What every part of an answer repeats; ``kind`` is how its id begins."""
    return {"id": f"{kind}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
