"""What a request's words mean in the tokens of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ipc.vocabulary import Refused, SamplingParams
from ..rules import MakeRules, Rules, wordless
from .documents import Documents

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def make_rules(tokenizer: PreTrainedTokenizerBase | None, vocabulary: int, ends: frozenset[int]) -> MakeRules:
    """A function that tells a request's rules, from any thread. ``ends`` are the tokens that end an output."""
    if tokenizer is None:
        return wordless
    documents = Documents(tokenizer, vocabulary, ends)

    def rules(sampling: SamplingParams) -> Rules:
        found = (_spellings(tokenizer, word, vocabulary) for word in sampling.bad_words)
        bad_words = dict.fromkeys(spelling for spellings in found for spelling in spellings)
        return Rules(
            bad_words=tuple(word for word in bad_words if len(word) > 1 or word[0] not in ends),
            document=documents.of(sampling.json_schema) if sampling.json_schema else None,
        )

    return rules


def _spellings(tokenizer: PreTrainedTokenizerBase, word: str, vocabulary: int) -> list[tuple[int, ...]]:
    """A word's tokens, where it begins a text and after a blank; without those that the model cannot write."""
    spellings = [tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in (word, f" {word}")]
    if not all(spellings):
        raise Refused.value("bad_words", word, "words that the model's tokenizer can spell")
    return [tuple(tokens) for tokens in spellings if max(tokens) < vocabulary]
