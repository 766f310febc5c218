"""Which tokens stand in the sequences that are penalised for them, and how often."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ..placement import to_device
from ..request import Sequence


class TokenCounts:
    """Tokens and their counts on the device, one row a sequence, each brought up to date with one token a step.

    A count is twice the times that a token stands in the output, plus 1 if it stands in the prompt. A row serves its
    sequence until another one needs it; whoever comes back, or is sampled again at a place where it was before, is
    counted anew from the tokens that the host knows.
    """

    def __init__(self) -> None:
        self._tokens = torch.zeros((0, 0), dtype=torch.int64)  # [rows, positions]
        self._counts = torch.zeros((0, 0), dtype=torch.int32)  # [rows, V]
        self._rows: dict[int, int] = {}  # sequence number -> row; who was sampled last comes last
        self._counted: dict[int, int] = {}  # sequence number -> tokens that its row counts
        self._free: list[int] = []

    def of(
        self, sequences: list[Sequence], positions: list[int], newest: Tensor, vocabulary: int
    ) -> tuple[Tensor, Tensor]:
        """Each sequence's tokens (int64 [R, N]) before its position [R], some of them more than once, and their counts
        (int32 [R, N]). The device has the ``newest`` (int64 [R]); the host need not."""
        longest = max(positions)
        self._make_room(len(sequences), longest, vocabulary, newest.device)
        busy = {sequence.number for sequence in sequences}
        rows = [self._row(sequence.number, busy) for sequence in sequences]
        added = []
        for row, sequence, position in zip(rows, sequences, positions, strict=True):
            begins = position == sequence.prompt_length  # the prompt's last token is no output
            if begins or self._counted.get(sequence.number) != position - 1:
                self._count(row, sequence, position if begins else position - 1)
            added.append(0 if begins else 2)
            self._counted[sequence.number] = position
        there, ends, steps = to_device(torch.tensor([rows, positions, added]), newest.device)
        self._tokens[there, ends - 1] = newest
        self._counts.index_put_((there, newest), steps.int(), accumulate=True)
        known = torch.arange(longest, device=newest.device) < ends.unsqueeze(1)
        tokens = torch.where(known, self._tokens[there, :longest], newest.unsqueeze(1))
        return tokens, self._counts[there.unsqueeze(1), tokens]

    def forget(self, seq: int) -> None:
        if seq in self._rows:
            self._free.append(self._rows.pop(seq))
            del self._counted[seq]

    def _make_room(self, needed: int, longest: int, vocabulary: int, device: torch.device) -> None:
        held, width = self._tokens.shape
        if needed > held or longest > width:
            rows = max(needed, 2 * held) if needed > held else held
            columns = max(longest, 2 * width) if longest > width else width
            tokens, counts = self._tokens.to(device), self._counts.to(device)
            self._tokens = nn.functional.pad(tokens, (0, columns - width, 0, rows - held))
            self._counts = nn.functional.pad(counts, (0, vocabulary - counts.shape[1], 0, rows - held))
            self._free += range(held, rows)

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
        tokens, prompt = np.array(sequence.tokens[:count]), sequence.prompt_length
        counts = 2 * np.bincount(tokens[prompt:], minlength=self._counts.shape[1]).astype(np.int32)
        counts[tokens[:prompt]] |= 1
        self._tokens[row, :count] = to_device(torch.from_numpy(tokens), self._tokens.device)
        self._counts[row] = to_device(torch.from_numpy(counts), self._counts.device)
