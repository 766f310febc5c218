"""What attention does to a tile of scores: softcap, and one step of the online softmax.

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
def weigh(scores, largest):
    """Weights of ``scores`` [M, N] (-inf where hidden) against the largest score of each row so far, ``largest`` [M]
    or a score among these; returns them, what earlier sums must be multiplied with, and the new largest."""
    highest = tl.maximum(largest, tl.max(scores, 1))
    # A row that has seen nothing yet stays at -inf; -inf minus -inf would be NaN.
    finite = tl.where(highest == float("-inf"), 0.0, highest)
    return tl.exp2(scores - finite[:, None]), tl.exp2(largest - finite), highest
