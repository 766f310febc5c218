"""What went wrong, in OpenAI's words: a status, and a body that its client libraries understand."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ..line import EngineError
from ..vocabulary import Refused
from .schema import ErrorAnswer, ErrorDetail

#: HTTP status and OpenAI's code for what an engine answers; whatever else it answers is its own fault.
_OF_ENGINE: dict[str, tuple[int, str]] = {
    "invalid": (400, "invalid_value"),
    "too_long": (400, "context_length_exceeded"),
    "too_large": (400, "too_large"),
    "body_too_large": (413, "too_large"),
    "queue_full": (429, "rate_limit_exceeded"),
    "too_many_requests": (429, "rate_limit_exceeded"),
    "too_many_clients": (503, "too_many_clients"),
    "forbidden": (403, "forbidden"),
    "loading": (503, "loading"),
    "draining": (503, "draining"),
    "shutdown": (503, "shutdown"),
    "gone": (503, "engine_gone"),
    "key": (503, "engine_gone"),
    "lost": (503, "engine_gone"),
    "slow_client": (503, "engine_gone"),
    "timeout": (503, "engine_gone"),
    "closed": (503, "engine_gone"),
    "cancelled": (503, "cancelled"),
}

#: Seconds after which to ask again, where nothing better is known.
_RETRY_AFTER_S = {429: 1, 503: 5}

#: What requests call what the wire calls otherwise.
_PARAMS = {"token_ids": "prompt", "json_schema": "response_format"}


class HttpError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, message: str, *, param: str = "", code: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        if status in _RETRY_AFTER_S:
            self.headers.setdefault("Retry-After", str(_RETRY_AFTER_S[status]))
        self.detail = ErrorDetail(message, _type(status), param or None, code or None)

    @classmethod
    def of(cls, error: EngineError | Refused) -> HttpError:
        """What an engine answered, or would."""
        status, code = _OF_ENGINE.get(error.code, (500, error.code))
        return cls(status, str(error), param=_PARAMS.get(error.field, error.field), code=code)

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(ErrorAnswer(self.detail))

    @property
    def response(self) -> Response:
        return Response(self.body, self.status, self.headers, "application/json")


def _type(status: int) -> str:
    if status >= 500:
        return "server_error"
    return "rate_limit_error" if status == 429 else "invalid_request_error"
