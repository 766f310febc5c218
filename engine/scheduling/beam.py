"""Beam search over sequences that something else computes: which beams go on, from which, and what they found.

Each step every beam offers its most probable next tokens; the best ``width`` continuations of all go on, and those
that end with an end token are set aside as hypotheses. The rules are those of transformers' beam search
(``num_beams``, without sampling), after "Google's Neural Machine Translation System" (Wu et al., 2016), so that the
same model gives the same tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import nlargest
from typing import NamedTuple

from ..scores import Scores


class Branch(NamedTuple):
    """A beam of the next step: ``token`` after all tokens of the beam at place ``parent``."""

    parent: int
    token: int


class Hypothesis(NamedTuple):
    """A finished output."""

    score: float  # the sum of its log-probabilities divided by its length to the power of the length penalty
    tokens: list[int]


class BeamSearch:
    """One request's search. ``max_tokens`` is the longest output; tokens in ``ends`` end one before that."""

    def __init__(
        self, width: int, *, ends: Collection[int], max_tokens: int, length_penalty: float, early_stopping: bool
    ) -> None:
        self.width = width
        self.ends = frozenset(ends)
        self.max_tokens = max_tokens
        self.length_penalty = length_penalty
        self.early_stopping = early_stopping
        self.length = 0  # output tokens of each running beam
        self.hypotheses: list[Hypothesis] = []  # the best first, at most `width`
        self.done = False
        self._sums = [0.0]  # log-probability of each running beam

    @property
    def candidates(self) -> int:
        """How many of its most probable tokens a beam must offer for the search to be exact."""
        return self.width + len(self.ends)

    def advance(self, outputs: Sequence[list[int]], offers: Sequence[Scores]) -> list[Branch]:
        """One token further. ``outputs`` are the output tokens of each running beam, ``offers`` what each may go on
        with. Returns the beams that run from here on, the best first; none once the search is done."""
        self.length += 1
        full = self.length >= self.max_tokens
        ranked = sorted(
            (-(total + logprob), parent, token)
            for parent, (total, offer) in enumerate(zip(self._sums, offers, strict=True))
            for token, logprob in zip(offer.tokens, offer.logprobs, strict=True)
        )
        for negative, parent, token in ranked[: self.width]:
            if full or token in self.ends:
                self._finish(-negative, [*outputs[parent], token])
        running = [] if full else [entry for entry in ranked if entry[2] not in self.ends][: self.width]
        self._sums = [-negative for negative, _, _ in running]
        self.done = not running or self._cannot_improve()
        return [] if self.done else [Branch(parent, token) for _, parent, token in running]

    def _finish(self, total: float, tokens: list[int]) -> None:
        hypothesis = Hypothesis(self._score(total), tokens)
        self.hypotheses = nlargest(self.width, [*self.hypotheses, hypothesis], key=lambda found: found.score)

    def _cannot_improve(self) -> bool:
        """With as many hypotheses as beams, the best running beam is judged as if it ended here."""
        if len(self.hypotheses) < self.width:
            return False
        return self.early_stopping or self._score(self._sums[0]) <= self.hypotheses[-1].score

    def _score(self, total: float) -> float:
        return float(total / self.length**self.length_penalty)
