"""The product inside a gated feed-forward layer."""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 1024  # elements of the result a program computes


def silu_mul(gate_up: Tensor) -> Tensor:
    """[T, 2 I] to [T, I]: silu of the first half times the second."""
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((tokens, width), dtype=gate_up.dtype, device=gate_up.device)
    if tokens:
        silu_mul_kernel[(tokens, triton.cdiv(width, CHUNK))](
            gate_up, out, gate_up.stride(0), width, CHUNK=CHUNK, num_warps=4
        )
    return out


@triton.jit
def silu_mul_kernel(gate_up, out, stride, width, CHUNK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    inside = column < width
    source = gate_up + token * stride + column
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + width, mask=inside, other=0.0).to(tl.float32)
    activated = (gate * tl.sigmoid(gate)).to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + token * width + column, (activated * up).to(out.dtype.element_ty), mask=inside)
