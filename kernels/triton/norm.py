"""RMSNorm, with the addition to the residual stream that precedes it in a transformer layer."""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .tilings import next_power_of_two, row_warps


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None) -> Tensor:
    """``x`` [T, N] normalised and weighted; with ``residual`` [T, N], which ``x`` is added to, the sum is."""
    tokens, width = x.shape
    out = torch.empty((tokens, width), dtype=x.dtype, device=x.device)
    if tokens == 0:
        return out
    row = next_power_of_two(width)
    stride = 0 if residual is None else residual.stride(0)
    norm_kernel[(tokens,)](
        x, weight, residual, out, x.stride(0), stride, eps, N=width, ROW=row, num_warps=row_warps(row)
    )
    return out


@triton.jit
def norm_kernel(x, weight, residual, out, x_stride, residual_stride, eps, N: tl.constexpr, ROW: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, ROW)
    inside = column < N
    row = tl.load(x + token * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if residual is not None:
        place = residual + token * residual_stride + column
        row += tl.load(place, mask=inside, other=0.0).to(tl.float32)
        stored = row.to(residual.dtype.element_ty)
        tl.store(place, stored, mask=inside)
        row = stored.to(tl.float32)  # what is normalised is what the stream holds
    scale = tl.rsqrt(tl.sum(row * row, 0) / N + eps)
    normalised = (row * scale).to(out.dtype.element_ty).to(tl.float32)
    result = normalised * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * N + column, result.to(out.dtype.element_ty), mask=inside)
