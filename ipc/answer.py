"""What is known of the answer to one submitted request."""

from __future__ import annotations

from .line import EngineError
from .protocol import Accepted, EngineMessage, Failed, Finished, TokenLogprob, Tokens


class Answer:
    """Takes in the messages of one stream; how to wait for them is what its subclasses add."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._received: list[Tokens] = []
        self._accepted: Accepted | None = None
        self._finished: Finished | None = None
        self._error: EngineError | None = None

    @property
    def ended(self) -> bool:
        return self._finished is not None or self._error is not None

    def _note(self, answer: EngineMessage | EngineError) -> None:
        if isinstance(answer, Tokens):
            self._received.append(answer)
        elif isinstance(answer, Accepted):
            self._accepted = answer
        elif isinstance(answer, Finished):
            self._finished = answer
        elif isinstance(answer, EngineError):
            self._error = answer
        elif isinstance(answer, Failed):
            self._error = EngineError.of(answer)

    def _known_accepted(self) -> Accepted:
        if self._accepted is None and self._error:
            raise self._error
        assert self._accepted is not None
        return self._accepted

    def _not_ended(self, timeout: float | None) -> EngineError:
        return EngineError(f"The request {self.id!r} did not end within {timeout:g} s; it goes on.", code="timeout")

    def _known_finished(self) -> Finished:
        if self._error:
            raise self._error
        assert self._finished is not None
        return self._finished

    def _known_text(self, index: int) -> str:
        return "".join(t.text for t in self._received if t.index == index)

    def _known_tokens(self, index: int) -> list[int]:
        return [token for t in self._received if t.index == index for token in t.token_ids]

    def _known_logprobs(self, index: int) -> list[TokenLogprob]:
        return [entry for t in self._received if t.index == index for entry in t.logprobs]
