"""What requests must say, from a model alone: one sequence at a time, no blocks, no batches, no preemption."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
import torch
from pagedeck.engine.model.sampler import Sampler
from pagedeck.engine.request import Request, Sequence
from pagedeck.engine.scores import Scores
from pagedeck.ipc.vocabulary import FinishReason, SamplingParams
from transformers import PreTrainedModel

from . import token_memory

Tokens = tuple[int, ...]


class Oracle(Protocol):
    """A model and how tokens are chosen from it."""

    def token(self, tokens: Tokens, index: int, request: Request) -> int:
        """What follows ``tokens`` in sample ``index`` of a request."""

    def logprob(self, tokens: Tokens, token: int) -> float:
        """That of ``token`` after ``tokens``."""

    def offer(self, tokens: Tokens, count: int) -> Scores:
        """The ``count`` most probable tokens after ``tokens``."""


class Result(NamedTuple):
    tokens: list[int]
    reason: FinishReason
    score: float


def results(oracle: Oracle, request: Request, eos: frozenset[int], longest: int) -> list[Result]:
    """The samples of a request, in order, each of up to ``longest`` tokens with the prompt."""
    sampling = request.sampling
    ends = frozenset() if sampling.ignore_eos else eos
    length = min(sampling.max_tokens, longest - len(request.prompt))
    prompt = tuple(request.prompt)
    if sampling.beam_width:
        found = _search(oracle, prompt, length, ends, sampling)
    else:
        found = [_generate(oracle, prompt, length, ends, index, request) for index in range(sampling.width)]
        if sampling.ranked:
            found.sort(key=lambda result: -result.score)
    return found[: sampling.n]


def _generate(
    oracle: Oracle, prompt: Tokens, length: int, ends: frozenset[int], index: int, request: Request
) -> Result:
    output: Tokens = ()
    total = 0.0
    while len(output) < length:
        token = oracle.token(prompt + output, index, request)
        if request.sampling.ranked:
            total += oracle.logprob(prompt + output, token)
        output += (token,)
        if token in ends:
            return Result(list(output), FinishReason.STOP, total / len(output))
    return Result(list(output), FinishReason.LENGTH, total / len(output))


def _search(
    oracle: Oracle, prompt: Tokens, length: int, ends: frozenset[int], sampling: SamplingParams
) -> list[Result]:
    """Beam search as the textbooks have it, on whole outputs."""
    width = sampling.beam_width
    beams: list[tuple[float, Tokens]] = [(0.0, ())]
    found: list[Result] = []
    for size in range(1, length + 1):
        pool = []
        for total, output in beams:
            offer = oracle.offer(prompt + output, width + len(ends))
            pool += [(total + p, (*output, t)) for t, p in zip(offer.tokens, offer.logprobs, strict=True)]
        pool.sort(reverse=True)
        weight = size**sampling.length_penalty
        for total, output in pool[:width]:
            if output[-1] in ends:
                found.append(Result(list(output), FinishReason.STOP, total / weight))
            elif size == length:
                found.append(Result(list(output), FinishReason.LENGTH, total / weight))
        found = sorted(found, key=lambda result: -result.score)[:width]
        beams = [beam for beam in pool if beam[1][-1] not in ends][:width]
        full = len(found) == width
        if full and (sampling.early_stopping or beams[0][0] / weight <= found[-1].score):
            break
    return found


def edited(logits: torch.Tensor, tokens: Tokens, request: Request) -> torch.Tensor:
    """``logits`` after ``tokens`` as the request wants them changed, token by token."""
    logits, sampling, output = logits.clone(), request.sampling, tokens[request.prompt_length :]
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    for token in set(tokens):
        positive, penalty = logits[token] > 0, sampling.repetition_penalty
        logits[token] = logits[token] / penalty if positive else logits[token] * penalty
    for token, count in Counter(output).items():
        logits[token] -= count * sampling.frequency_penalty + sampling.presence_penalty
    banned = [word[-1] for word in request.rules.bad_words if tokens[len(tokens) + 1 - len(word) :] == word[:-1]]
    banned += request.ends if len(output) < sampling.min_tokens else ()
    for token in banned:
        logits[token] = -math.inf
    return logits


class NumberOracle:
    """The "model" of :class:`token_memory.TokenMemory`, with groups of layers that see so many tokens (0: all)."""

    def __init__(self, vocabulary: int, windows: tuple[int, ...] = (0,)) -> None:
        self.vocabulary = vocabulary
        self.windows = windows
        self._numbers = lru_cache(100_000)(self._compute)

    def token(self, tokens: Tokens, index: int, request: Request) -> int:
        return token_memory.next_token(self._views(tokens), self.vocabulary, index)

    def logprob(self, tokens: Tokens, token: int) -> float:
        return token_memory.logprob_of(self._views(tokens), token)

    def offer(self, tokens: Tokens, count: int) -> Scores:
        return token_memory.offer(self._views(tokens), self.vocabulary, count)

    def _views(self, tokens: Tokens) -> list[np.ndarray]:
        numbers = np.array(self._numbers(tokens), np.uint64)
        return [numbers[-window:] for window in self.windows]

    def _compute(self, tokens: Tokens) -> list[int]:
        if len(tokens) == 1:
            return token_memory.content(list(tokens))
        before = self._numbers(tokens[:-1])
        return before + token_memory.content([tokens[-1]], before[-1], len(tokens) - 1)


class ModelOracle:
    """A real model with transformers' own attention, without any cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._logits = lru_cache(100_000)(self._compute)

    def token(self, tokens: Tokens, index: int, request: Request) -> int:
        logits = edited(self._logits(tokens), tokens, request)
        alone = Request(0, "", list(tokens), SamplingParams(temperature=0.0), 0)  # for which nothing is changed again
        sampled = Sampler().sample(logits[None], [Sequence(0, alone, index, [])], [len(tokens)])
        return int(sampled.item())

    def logprob(self, tokens: Tokens, token: int) -> float:
        return float(torch.log_softmax(self._logits(tokens), 0)[token])

    def offer(self, tokens: Tokens, count: int) -> Scores:
        best = torch.log_softmax(self._logits(tokens), 0).topk(count)
        return Scores(0.0, best.indices.tolist(), best.values.tolist())

    @torch.inference_mode()
    def _compute(self, tokens: Tokens) -> torch.Tensor:
        logits: torch.Tensor = self._model(torch.tensor([tokens])).logits
        return logits[0, -1]
