"""Logits to tokens: greedy, temperature, top-k, top-p and min-p, each row with settings of its own.

Every filter is a threshold on the logit, so a step needs no sort of the vocabulary, and the draw is by inversion in
the order of token ids: it takes one uniform number, which is a hash of the row's seed, sample index and position. A
row's token is therefore a function of its own logits and seed, whatever else is in the batch. What requests change of
their logits first is in :mod:`.edits`.
"""

from __future__ import annotations

import math
import secrets

import numpy as np
import torch
from torch import Tensor, nn

from ...ipc.vocabulary import SamplingParams
from ..placement import to_device
from ..request import Sequence
from .edits import Edits

#: Largest logits looked at first to find a top-k or top-p threshold; eight times as many when they do not suffice.
CANDIDATES = 128
#: Neighbouring token ids that are summed together when a token is drawn.
RUN = 256


class Sampler:
    """Chooses the next token of many sequences at once."""

    def __init__(self) -> None:
        self._seeds: dict[int, int] = {}
        self._edits = Edits()

    def sample(
        self, logits: Tensor, sequences: list[Sequence], positions: list[int], newest: Tensor | None = None
    ) -> Tensor:
        """The next token (int64 [R]) of each row of ``logits`` [R, V], which may be changed; ``positions`` [R] is where
        it will stand. ``newest`` (int64 [R]) are the tokens before them; only penalties need these. It stays on the
        device.

        -1 for a row with a NaN or +inf, or without any finite logit. A logit of -inf is never chosen.
        """
        logits = self._edits.apply(logits, sequences, positions, newest)
        best, tokens = logits.max(dim=-1)
        drawn = [row for row, sequence in enumerate(sequences) if sequence.request.sampling.temperature > 0]
        if drawn:
            rows = to_device(torch.tensor(drawn), logits.device)
            uniform = uniforms(
                [self._seed(sequences[row]) for row in drawn],
                [sequences[row].index for row in drawn],
                [positions[row] for row in drawn],
            )
            settings = [sequences[row].request.sampling for row in drawn]
            chosen = logits if len(drawn) == len(sequences) else logits[rows]
            tokens[rows] = _draw(chosen, best[rows], settings, uniform)
        return torch.where(best.isfinite(), tokens, -1)

    def forget(self, seq: int) -> None:
        """Drop what is kept for a sequence that ended."""
        self._seeds.pop(seq, None)
        self._edits.forget(seq)

    def _seed(self, sequence: Sequence) -> int:
        seed = sequence.request.sampling.seed
        return seed if seed is not None else self._seeds.setdefault(sequence.number, secrets.randbits(63))


def uniforms(seeds: list[int], indices: list[int], positions: list[int]) -> np.ndarray:
    """Float64 [R] in [0, 1): a SplitMix64 hash (Steele, Lea and Flood, 2014) of each (seed, sample index, position)."""
    state = np.zeros(len(seeds), np.uint64)
    for words in (seeds, indices, positions):
        state = _mix(state + np.array([word & 0xFFFF_FFFF_FFFF_FFFF for word in words], np.uint64))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E37_79B9_7F4A_7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return x ^ (x >> np.uint64(31))


def _draw(logits: Tensor, best: Tensor, settings: list[SamplingParams], uniform: np.ndarray) -> Tensor:
    """One token id a row [R] of ``logits`` [R, V], whose maxima are ``best`` [R]."""
    precision = torch.promote_types(logits.dtype, torch.float32)

    def column(values: list[float]) -> Tensor:
        return to_device(torch.tensor(values, dtype=precision), logits.device).unsqueeze(1)

    # Subtracting the maximum first keeps a tiny temperature from overflowing.
    scaled = (logits.to(precision) - best.unsqueeze(1)).div_(column([s.temperature for s in settings]))
    thresholds = column([math.log(s.min_p) if s.min_p > 0 else -math.inf for s in settings])
    weights = scaled.exp()
    vocabulary = logits.shape[1]
    ranked = [row for row, s in enumerate(settings) if 0 < s.top_k < vocabulary or s.top_p < 1]
    if ranked:
        rows = to_device(torch.tensor(ranked), logits.device)
        kept = [min(settings[row].top_k, vocabulary) or vocabulary for row in ranked]
        top_p = column([settings[row].top_p for row in ranked])[:, 0]
        chosen = scaled if len(ranked) == len(settings) else scaled[rows]
        # On a GPU one look has to do: which rows need another, the host would have to wait to be told.
        candidates = CANDIDATES if logits.device.type == "cpu" else max(kept)
        totals = weights.sum(dim=1)[rows]
        smallest = _thresholds(
            chosen, totals, to_device(torch.tensor(kept), logits.device), max(kept), top_p, candidates
        )
        thresholds[rows, 0] = torch.maximum(thresholds[rows, 0], smallest)
    if ranked or any(s.min_p > 0 for s in settings):
        # A scaled maximum is 0; rounding must never filter it out.
        weights.masked_fill_(scaled < thresholds.clamp_(max=0), 0)
    return _invert(weights, to_device(torch.from_numpy(uniform), logits.device))


def _invert(weights: Tensor, uniform: Tensor) -> Tensor:
    """For each row of ``weights`` [R, V] the first id at which the running sum passes the share ``uniform`` [R].

    Sums over runs of ids first, then looks into one run only: a running sum over the vocabulary would cost more than
    all the rest.
    """
    rows, vocabulary = weights.shape
    if vocabulary % RUN:
        weights = nn.functional.pad(weights, (0, -vocabulary % RUN))
    runs = weights.view(rows, -1, RUN)
    sums = runs.sum(dim=2).double()
    cumulative = sums.cumsum(dim=1)
    target = uniform * cumulative[:, -1]
    run = _first_beyond(cumulative, target)
    row = torch.arange(rows, device=weights.device)
    inside = runs[row, run].double().cumsum(dim=1)
    return run * RUN + _first_beyond(inside, target - (cumulative - sums)[row, run])


def _first_beyond(cumulative: Tensor, target: Tensor) -> Tensor:
    """The first index where ``cumulative`` [R, N] exceeds ``target`` [R]; where rounding leaves none, its last rise.
    Rows with a NaN give any index."""
    beyond = torch.searchsorted(cumulative, target[:, None], right=True)
    last = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous())
    return torch.minimum(beyond, last)[:, 0].clamp_(max=cumulative.shape[1] - 1)


def _thresholds(scaled: Tensor, totals: Tensor, kept: Tensor, most: int, top_p: Tensor, candidates: int) -> Tensor:
    """The smallest value of each row of ``scaled`` [R, V] that top-k (``kept`` [R]), then top-p of what it left, keep.

    ``totals`` [R] is the mass of all values; ``most`` bounds ``kept``. Looks at the ``candidates`` largest, and at more
    only for the rows where the answer lies deeper. Values equal to the smallest are kept too, so that the choice does
    not depend on how ties are ordered.
    """
    count = min(candidates, scaled.shape[1])
    values = scaled.topk(count).values
    mass = values.exp().masked_fill_(torch.arange(count, device=values.device) >= kept[:, None], 0).cumsum_(dim=1)
    total = torch.where(kept <= count, mass[:, -1], totals)
    last = torch.where(top_p < 1, (mass < (top_p * total)[:, None]).sum(dim=1), kept - 1).minimum(kept - 1)
    result = values.gather(1, last.clamp(max=count - 1)[:, None])[:, 0]
    if count >= most:
        return result
    unranked = (kept > count) & (kept < scaled.shape[1])  # the mass of its top-k is not known yet
    deeper = ((last >= count) | unranked).nonzero()[:, 0]
    if len(deeper):
        result[deeper] = _thresholds(scaled[deeper], totals[deeper], kept[deeper], most, top_p[deeper], count * 8)
    return result
