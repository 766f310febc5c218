"""What requests change of the model's logits before a token is chosen: biases, penalties, and what must not come.

Rows whose requests ask for none of it cost nothing. Biases, penalties and ``min_tokens`` need no token of the host, so
they go along with steps in flight. Words of several tokens and documents do: their requests wait until each step has
landed (``Request.looks_back``).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..placement import to_device
from ..request import Sequence
from .counts import TokenCounts


class Edits:
    """Changes the logits of many sequences at once."""

    def __init__(self) -> None:
        self._counts = TokenCounts()

    def apply(self, logits: Tensor, sequences: list[Sequence], positions: list[int], newest: Tensor | None) -> Tensor:
        """``logits`` [R, V] as the requests want them, in float32 at least; they are changed in place where they are.

        ``positions`` [R] is where the next tokens will stand, ``newest`` (int64 [R]) the tokens before them, which
        only penalties need.
        """
        asking = [row for row, sequence in enumerate(sequences) if sequence.request.edits]
        if not asking:
            return logits
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        self._bias(logits, sequences, asking)
        penalised = [row for row in asking if sequences[row].request.sampling.penalises]
        if penalised:
            assert newest is not None
            self._penalise(logits, sequences, positions, newest, penalised)
        self._ban(logits, sequences, positions, asking)
        writing = [row for row in asking if sequences[row].document is not None]
        if writing:
            self._keep_to_documents(logits, sequences, writing)
        return logits

    def forget(self, seq: int) -> None:
        self._counts.forget(seq)

    @staticmethod
    def _bias(logits: Tensor, sequences: list[Sequence], asking: list[int]) -> None:
        rows: list[int] = []
        ids: list[int] = []
        values: list[float] = []
        for row in asking:
            bias = sequences[row].request.sampling.logit_bias
            rows += [row] * len(bias)
            ids += bias.keys()
            values += bias.values()
        if rows:
            added = to_device(torch.tensor(values, dtype=logits.dtype), logits.device)
            logits.index_put_(_places(rows, ids, logits.device), added, accumulate=True)

    def _penalise(
        self, logits: Tensor, sequences: list[Sequence], positions: list[int], newest: Tensor, penalised: list[int]
    ) -> None:
        """Repetition: "CTRL" (Keskar et al., 2019) as transformers has it; frequency and presence: OpenAI's API."""
        rows = to_device(torch.tensor(penalised), logits.device)
        theirs = [sequences[row] for row in penalised]
        tokens, counts = self._counts.of(theirs, [positions[row] for row in penalised], newest[rows], logits.shape[1])
        settings = [sequence.request.sampling for sequence in theirs]

        def column(values: list[float]) -> Tensor:
            return to_device(torch.tensor(values, dtype=logits.dtype), logits.device).unsqueeze(1)

        places = rows.unsqueeze(1), tokens
        values = logits[places]
        if any(s.repetition_penalty != 1 for s in settings):
            repetition = column([s.repetition_penalty for s in settings])
            values = torch.where(values > 0, values / repetition, values * repetition)
        if any(s.frequency_penalty or s.presence_penalty for s in settings):
            output = counts >> 1
            values -= column([s.frequency_penalty for s in settings]) * output
            values -= column([s.presence_penalty for s in settings]) * (output > 0)
        logits[places] = values  # the same for a token that is there twice

    @staticmethod
    def _ban(logits: Tensor, sequences: list[Sequence], positions: list[int], asking: list[int]) -> None:
        rows: list[int] = []
        ids: list[int] = []
        for row in asking:
            banned = _banned(sequences[row], positions[row])
            rows += [row] * len(banned)
            ids += banned
        if rows:
            logits[_places(rows, ids, logits.device)] = -math.inf

    @staticmethod
    def _keep_to_documents(logits: Tensor, sequences: list[Sequence], writing: list[int]) -> None:
        vocabulary = logits.shape[1]
        mask = np.zeros((len(writing), -(-vocabulary // 32)), np.int32)
        for bits, row in zip(mask, writing, strict=True):
            document = sequences[row].document
            assert document is not None
            document.allow(bits)
        words = to_device(torch.from_numpy(mask), logits.device)
        bit = torch.arange(32, dtype=torch.int32, device=logits.device)
        allowed = (words.unsqueeze(2) >> bit & 1).bool().view(len(writing), -1)[:, :vocabulary]
        rows = to_device(torch.tensor(writing), logits.device)
        logits[rows] = logits[rows].masked_fill_(~allowed, -math.inf)


def _banned(sequence: Sequence, position: int) -> list[int]:
    """Tokens that must not stand at ``position``: ends that come too early, and the last ones of bad words."""
    request = sequence.request
    early = position - request.prompt_length < request.sampling.min_tokens
    banned = list(request.ends) if early else []
    for *before, last in request.rules.bad_words:
        if not before or (len(before) <= position and sequence.tokens[position - len(before) : position] == before):
            banned.append(last)
    return banned


def _places(rows: list[int], ids: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    both = to_device(torch.tensor([rows, ids]), device)
    return both[0], both[1]
