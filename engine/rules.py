"""What a request's words mean in tokens: those that must not come, and the documents that it may write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..ipc.vocabulary import Refused, SamplingParams


class Document(Protocol):
    """A document that one sequence is writing."""

    def begin(self) -> Document:
        """Another one of the same kind, of which nothing is written yet."""

    def take(self, token: int) -> bool:
        """Write a token; whether the document ends with it, so that nothing may follow.

        Raises:
            Refused: the document cannot be followed any further, for the reason stated.
        """

    def allow(self, mask: Any) -> None:
        """Set the bits (int32, 32 tokens a word, the lowest bit first) of the tokens that may come next."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What must hold for the tokens of a request. ``bad_words``: none of these may be completed."""

    bad_words: tuple[tuple[int, ...], ...] = ()
    document: Document | None = None  # not begun

    @property
    def look_back(self) -> bool:
        """Whether the host has to know each token before it can tell what must not come next."""
        return self.document is not None or any(len(word) > 1 for word in self.bad_words)


MakeRules = Callable[[SamplingParams], Rules]


def wordless(sampling: SamplingParams) -> Rules:
    """The rules of a model without a tokenizer, for which words mean nothing."""
    for field in ("bad_words", "json_schema"):
        if getattr(sampling, field):
            raise Refused(f"This model has no tokenizer; {field} is accepted only where there is one.", field=field)
    return Rules()
