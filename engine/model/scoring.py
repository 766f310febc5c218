"""Log-probabilities of a step's tokens, computed on the device and read when the step has landed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..placement import to_device, to_host
from ..request import Work
from ..scores import Scores


class Scoring:
    """The scores that some works of a step want, from ``logits`` [R, V] before anything changes these."""

    def __init__(self, logits: Tensor, works: list[Work]) -> None:
        self._works = works
        self._asking = [row for row, work in enumerate(works) if work.scored]
        self._wanted = [_alternatives(works[row]) for row in self._asking]
        self._rows = to_device(torch.tensor(self._asking), logits.device)
        self._logits = logits[self._rows].to(torch.promote_types(logits.dtype, torch.float32))

    def choose(self, tokens: Tensor) -> None:
        """Look up what is wanted, ``tokens`` (int64 [R]) having been chosen; the host does not wait."""
        chosen = tokens[self._rows].clamp(min=0).unsqueeze(1)
        total = self._logits.logsumexp(dim=1, keepdim=True)
        best = self._logits.topk(min(max(self._wanted), self._logits.shape[1]), dim=1)
        found = ((self._logits.gather(1, chosen) - total)[:, 0], best.indices, best.values - total)
        self._found = [to_host(tensor) for tensor in found]
        del self._logits

    def deliver(self, tokens: list[int]) -> None:
        """Give each work its scores, unless it has no token; the device has come so far. Log-probabilities of -inf
        are left out."""
        chosen, ids, values = (t.tolist() for t in self._found)
        for place, (row, wanted) in enumerate(zip(self._asking, self._wanted, strict=True)):
            if tokens[row] >= 0:
                finite = [p for p in values[place][:wanted] if p > -math.inf]
                self._works[row].scores = Scores(chosen[place], ids[place][: len(finite)], finite)


def _alternatives(work: Work) -> int:
    request = work.sequence.request
    return request.search.candidates if request.search is not None else request.sampling.logprobs or 0
