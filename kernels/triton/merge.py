"""Partial results of attention, one for each segment of a context, and their merge.

A segment leaves the sum of its weighted values, the sum of its weights and its largest score. Dao et al.,
"Flash-Decoding for long-context inference" (2023).
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .softmax import weigh
from .tilings import next_power_of_two

PIECES = 16  # partial results that a program holds at once


class Partial(NamedTuple):
    """For each query row and head, ``segments`` results: float32 [rows, Hq, segments, D] and twice
    [rows, Hq, segments]. A segment without positions has a largest score of -inf, and nothing else of it is read."""

    weighted: Tensor
    largest: Tensor
    total: Tensor

    @classmethod
    def of(cls, rows: int, heads: int, segments: int, head_dim: int, device: torch.device) -> Partial:
        """Room for the results; none is needed where contexts are not cut."""
        shape = (rows, heads, segments) if segments > 1 else (0, heads, segments)
        weighted = torch.empty((*shape, head_dim), dtype=torch.float32, device=device)
        largest, total = torch.empty((2, *shape), dtype=torch.float32, device=device)
        return cls(weighted, largest, total)

    def merge(self, out: Tensor) -> None:
        """Write the results to ``out`` [rows, Hq, D], contiguous."""
        rows, heads, segments, head_dim = self.weighted.shape
        if segments > 1:
            merge_kernel[(rows * heads,)](
                *self, out, segments, HEAD_DIM=head_dim, WIDTH=next_power_of_two(head_dim), PIECES=PIECES, num_warps=4
            )


@triton.jit(do_not_specialize=["segments"])
def merge_kernel(
    partial, largest_in, total_in, out, segments, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, PIECES: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    weighted = tl.zeros([1, WIDTH], tl.float32)
    for first in range(0, segments, PIECES):
        piece = first + tl.arange(0, PIECES)
        place = row * segments + piece
        peaks = tl.load(largest_in + place, mask=piece < segments, other=float("-inf"))
        exists = peaks > float("-inf")
        weights, rescale, largest = weigh(peaks[None, :], largest)
        totals = tl.load(total_in + place, mask=exists, other=0.0)
        total = total * rescale + tl.sum(weights * totals[None, :], 1)
        present = exists[:, None] & (column[None, :] < HEAD_DIM)
        parts = tl.load(partial + place[:, None] * HEAD_DIM + column[None, :], mask=present, other=0.0)
        summed = tl.sum(parts * tl.trans(weights), 0)
        weighted = weighted * rescale[:, None] + summed[None, :]
    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    target = out + row * HEAD_DIM + column
    tl.store(target[None, :], result.to(out.dtype.element_ty), mask=(column < HEAD_DIM)[None, :])
