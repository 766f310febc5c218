"""JSON documents: which tokens keep an output within a schema, by llguidance's parser.

A schema is compiled once and its parser copied for each sequence; other threads run meanwhile. What patterns a schema
combines can take the compiler for ever, and nothing stops it: a schema that could is first tried in a process of its
own, which can be stopped. The tokenizer's trie, which takes a few tenths of a second, is made when the first schema
comes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ipc.vocabulary import Refused
from ..rules import Document

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from transformers import PreTrainedTokenizerBase

#: A model must not be able to write white space for ever: between two parts of a document is one blank, or the
#: beginning of a line.
WHITE_SPACE = r"\x20|\r?\n[\x20\t]{0,64}"
#: Seconds that a compile may take.
PATIENCE_S = 10.0
#: What lets a schema take long: what has to be intersected with, or excluded from, something else; or mere length.
HARD = re.compile(r'"(pattern|patternProperties|allOf|multipleOf|format|unevaluatedProperties)"')
LONG = 10_000
#: Compiles the grammar that it reads, for nothing but to see whether that ends.
TRIAL = "import llguidance, sys; llguidance.LLMatcher.validate_grammar(sys.stdin.read())"
#: Schemas whose outcome is kept.
KEPT = 32


class Documents:
    """The schemas of one model. May be called from any thread.

    Args:
        vocabulary: the model's logits; more than the tokenizer has are never allowed.
        ends: the tokens that may end a document.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._ends = ends
        self._trie: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._compiled = lru_cache(KEPT)(self._outcome)

    def of(self, schema: str) -> Document:
        """A document, not begun, of a JSON ``schema``; ``{}`` is any object, and ``oneOf`` is ``anyOf``.

        Raises:
            Refused: it is no schema, or one that cannot be compiled, in the compiler's words.
        """
        with self._lock:
            found = self._compiled(schema)
        if isinstance(found, Refused):
            raise found.with_traceback(None)
        return found

    def _outcome(self, schema: str) -> Document | Refused:
        """A refusal is kept, too: what took the compiler long once is not tried again."""
        try:
            return self._compile(schema)
        except Refused as refused:
            return refused

    def _compile(self, schema: str) -> Document:
        from llguidance import LLMatcher, LLParserLimits

        trie = self._tokens()
        try:
            stated = json.loads(schema)
            if not isinstance(stated, dict):
                raise ValueError("it is no JSON object")
            options: Any = {"whitespace_pattern": WHITE_SPACE, "coerce_one_of": True}
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(stated or {"type": "object"}), overrides=options)
        except (ValueError, RecursionError) as error:
            raise _refused(schema, str(error)) from error
        if (HARD.search(schema) or len(schema) > LONG) and not _ends(grammar):
            raise _refused(schema, f"it takes more than {PATIENCE_S:g} s")
        matcher = LLMatcher(trie, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
        if matcher.is_error():
            raise _refused(schema, matcher.get_error())
        return _JsonDocument(matcher)

    def _tokens(self) -> LLTokenizer:
        if self._trie is None:
            from llguidance import LLTokenizer
            from llguidance.hf import from_tokenizer

            known = len(self._tokenizer)
            try:
                self._trie = from_tokenizer(
                    self._tokenizer,
                    n_vocab=max(self._vocabulary, known),
                    eos_token=[end for end in sorted(self._ends) if end < known] or None,
                    slices=LLTokenizer.json_slices(),
                )
            except Exception as error:  # whatever a tokenizer of another kind provokes
                text = f"json_schema cannot be served with this model's tokenizer: {_line(str(error))}."
                raise Refused(text, field="json_schema") from error
        return self._trie


class _JsonDocument:
    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def begin(self) -> _JsonDocument:
        return _JsonDocument(self._matcher.deep_copy())

    def take(self, token: int) -> bool:
        self._matcher.consume_token(token)
        if self._matcher.is_error():  # for which an end is the only way out, and taken
            reason = _line(self._matcher.get_error())
            raise Refused(f"The output cannot follow its json_schema any further: {reason}.", field="json_schema")
        return self._matcher.is_stopped()

    def allow(self, mask: Any) -> None:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.int32)[: len(mask)]
        mask[: len(bits)] = bits


def _ends(grammar: str) -> bool:
    """Whether a compile comes to its end in time, however it does."""
    trial = [sys.executable, "-c", TRIAL]
    try:
        subprocess.run(trial, input=grammar.encode(), timeout=PATIENCE_S, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return False
    return True


def _refused(schema: str, reason: str) -> Refused:
    given = schema if len(schema) <= 200 else schema[:200] + "…"
    return Refused(
        f"json_schema is {given}; accepted is a JSON schema that can be compiled, and this one cannot: "
        f"{_line(reason)}.",
        field="json_schema",
    )


def _line(text: str) -> str:
    """The words of an error, in one line."""
    return " ".join(text.replace("<non-verbose/>", "").split()).rstrip(".")
