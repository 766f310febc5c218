"""Tokens to text as they come: no half characters, no part of a stop string.

A token is no piece of text: a character may span several byte tokens, and a word's space depends on its neighbour. So
the text of a token is the difference of two decodes of a short window, one with it and one without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ipc.vocabulary import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Decode = Callable[[Sequence[int]], str]

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
#: Bytes that are no text yet: up to three of a character and, where a tokenizer decodes a run of byte tokens as one,
#: the four of the character before it. More than these is no text at all.
MOST_UNDECIDED = 7


class TextStream:
    """The text of one sequence, token by token. The pushes and the flush add up to the decode of all its tokens.

    Strings of ``stop`` count in what follows the first ``unstopped`` tokens; those in ``silent`` have no text.
    """

    def __init__(
        self, decode: Decode, stop: tuple[str, ...] = (), silent: frozenset[int] = frozenset(), unstopped: int = 0
    ) -> None:
        self._decode = decode
        self._stop = stop
        self._silent = silent
        self._unstopped = unstopped + 1  # pushes until one may end it
        self._window: list[int] = []  # tokens of the last piece of text and those after it
        self._settled = 0  # of them, how many end on a whole character
        self._given = 0  # characters of the window's text passed on already
        self._held = ""  # text that may turn out to be a stop string's beginning
        self._stopped = False

    def push(self, token: int) -> tuple[str, bool]:
        """The text that became certain with ``token``, and whether a stop string ended the sequence.

        The stop string and what follows it are not part of the text.
        """
        if self._stopped:
            return "", True
        self._unstopped -= self._unstopped > 0
        if token in self._silent:
            return "", False
        self._window.append(token)
        text = self._decode(self._window)
        undecided = min(len(text) - len(text.rstrip(REPLACEMENT)), MOST_UNDECIDED)
        piece = text[self._given : len(text) - undecided]
        self._given += len(piece)
        if not undecided and piece:
            self._window = self._window[self._settled :]
            self._settled = len(self._window)
            self._given = len(self._decode(self._window))
        return self._release(piece)

    def flush(self) -> str:
        """What was held back, an incomplete character as U+FFFD. Nothing after a stop string."""
        if self._stopped:
            return ""
        text = self._decode(self._window)
        rest, stopped = self._release(text[self._given :])
        self._given = len(text)
        if stopped:
            return rest
        held, self._held = self._held, ""
        return rest + held

    def _release(self, piece: str) -> tuple[str, bool]:
        if not self._stop or self._unstopped:
            return piece, False
        text = self._held + piece
        found = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if found:
            self._stopped = True
            return text[: min(found)], True
        keep = len(text) - max(_overlap(text, stop) for stop in self._stop)
        self._held = text[keep:]
        return text[:keep], False


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a beginning, but not all, of ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def make_text_stream(tokenizer: PreTrainedTokenizerBase | None) -> Callable[[SamplingParams], TextStream]:
    """A factory of text streams. Special tokens have no text; without a tokenizer nothing has."""
    if tokenizer is None:
        return lambda sampling: TextStream(lambda tokens: "", ())
    decode = _decoder(tokenizer)
    added = getattr(tokenizer, "added_tokens_decoder", {})
    silent = frozenset(tokenizer.all_special_ids) | {id for id, token in added.items() if token.special}
    return lambda sampling: TextStream(decode, tuple(sampling.stop), silent, sampling.min_tokens)


def _decoder(tokenizer: PreTrainedTokenizerBase) -> Decode:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:  # without the Python layers above it, a decode takes a tenth of the time
        return lambda tokens: backend.decode(tokens, skip_special_tokens=True)
    return lambda tokens: str(
        tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    )
