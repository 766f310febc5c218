"""How often each token stands in the sequences that are penalised for it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..placement import to_device
from ..request import Sequence


class TokenCounts:
    """Counts on the device, one row a sequence, each brought up to date with one token a step.

    A count is twice the times that a token stands in the output, plus 1 if it stands in the prompt. A row serves its
    sequence until another one needs it; whoever comes back, or is sampled again at a place where it was before, is
    counted anew from the tokens that the host knows.
    """

    def __init__(self) -> None:
        self._table = torch.zeros((0, 0), dtype=torch.int32)  # [rows, V]
        self._rows: dict[int, int] = {}  # sequence number -> row; who was sampled last comes last
        self._counted: dict[int, int] = {}  # sequence number -> tokens that its row counts
        self._free: list[int] = []

    def rows(self, sequences: list[Sequence], positions: list[int], newest: Tensor, vocabulary: int) -> Tensor:
        """Counts [R, V] of each sequence's tokens before its position [R], of which the device has the ``newest``
        (int64 [R]); the host need not."""
        self._make_room(len(sequences), vocabulary, newest.device)
        busy = {sequence.number for sequence in sequences}
        rows = [self._row(sequence.number, busy) for sequence in sequences]
        added = []
        for row, sequence, position in zip(rows, sequences, positions, strict=True):
            begins = position == sequence.prompt_length  # the prompt's last token is no output
            if begins or self._counted.get(sequence.number) != position - 1:
                self._count(row, sequence, position if begins else position - 1)
            added.append(0 if begins else 2)
            self._counted[sequence.number] = position
        there = to_device(torch.tensor(rows), newest.device)
        steps = to_device(torch.tensor(added, dtype=torch.int32), newest.device)
        self._table.index_put_((there, newest), steps, accumulate=True)
        return self._table[there]

    def forget(self, seq: int) -> None:
        if seq in self._rows:
            self._free.append(self._rows.pop(seq))
            del self._counted[seq]

    def _make_room(self, needed: int, vocabulary: int, device: torch.device) -> None:
        held = len(self._table)
        if needed > held:
            more = torch.zeros((max(needed - held, held), vocabulary), dtype=torch.int32, device=device)
            self._table = torch.cat([self._table, more]) if held else more
            self._free += range(held, len(self._table))

    def _row(self, seq: int, busy: set[int]) -> int:
        row = self._rows.pop(seq, None)
        if row is None and self._free:
            row = self._free.pop()
        elif row is None:
            idle = next(other for other in self._rows if other not in busy)
            row = self._rows.pop(idle)
            del self._counted[idle]
        self._rows[seq] = row
        return row

    def _count(self, row: int, sequence: Sequence, count: int) -> None:
        tokens, prompt = sequence.tokens[:count], sequence.prompt_length
        counts = 2 * np.bincount(tokens[prompt:], minlength=self._table.shape[1])
        counts[tokens[:prompt]] |= 1
        self._table[row] = to_device(torch.from_numpy(counts.astype(np.int32)), self._table.device)
