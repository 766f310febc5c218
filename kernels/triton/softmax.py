"""One step of the online softmax over a tile of scores, shared by the attention kernels.

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), in base 2: scores arrive multiplied by
log2(e), because exp2 is the hardware's instruction.
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def bend(scores, softcap):
    """softcap * tanh(scores / softcap), natural units in and out."""
    return softcap * (2.0 * tl.sigmoid(2.0 * scores / softcap) - 1.0)


@triton.jit
def product(a, b, UPCAST: tl.constexpr):
    """a @ b with float32 sums and no loss of float32 operands. ``UPCAST`` serves the interpreter, whose products of
    bfloat16 are wrong."""
    if UPCAST:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        return tl.dot(a, b, input_precision="ieee")


@triton.jit
def absorb(scores, value, largest, total, weighted, UPCAST: tl.constexpr):
    """Take ``scores`` [M, N] (-inf where hidden) and ``value`` [N, D] into the running ``largest`` and ``total`` [M]
    and ``weighted`` [M, D]; returns all three."""
    highest = tl.maximum(largest, tl.max(scores, 1))
    # A row that has seen nothing yet stays at -inf; -inf minus -inf would be NaN.
    finite = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2(scores - finite[:, None])
    rescale = tl.exp2(largest - finite)
    total = total * rescale + tl.sum(weights, 1)
    weighted = weighted * rescale[:, None] + product(weights.to(value.dtype), value, UPCAST)
    return highest, total, weighted
