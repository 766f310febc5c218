"""Arithmetic on tensors: the op table.

Every op exists in plain torch (:mod:`.reference`, the specification), in a fast version for the CPU
(:mod:`.cpu`) and as Triton kernels for GPUs (:mod:`.triton`). :func:`ops_for` picks by device. Nothing here knows a
request, a scheduler or a socket.

Shapes, with L layers, H key-value heads, Hq query heads (a multiple of H), D the head size, T tokens in the step
and S sequences in the step:

- the device pool is ``[L, 2, num_slots, H, D]``, keys at index 0, values at 1; slot ``b * block_size + i`` is token
  ``i`` of block ``b``, so the block size is only an argument;
- the host pool is ``[num_slots, L, 2, H, D]``: all layers of a block are one contiguous run of bytes;
- a pool may be narrower than the model computes in. ``float8_e4m3fn``: numbers are rounded on write, those too large
  become the largest (448). ``int8``: the last dimension is ``D + 16``, that is D integers, then their scale as a
  float32 in the next 4 bytes; the last 12 are never read. A number is its integer times the scale, and the scale the
  largest magnitude of that slot and head / 127. D must then be a multiple of 4. What only moves slots or blocks
  carries these bytes as they are.

This package must import on its own, as a top-level ``kernels``, without torch being loaded by it: other libraries
probe for a package of that name when the repository is the working directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(slots=True)
class PagedBatch:
    """Where each token of a step stands: what attention needs besides queries and the pool.

    Tokens of one sequence are neighbours; sequences with a single query token (decodes) come first. A sequence's
    queries are the last ``query_start[s + 1] - query_start[s]`` of its ``context_len[s]`` tokens, and query *i*
    sees all positions up to its own.

    A step may be padded to a size that others share: with sequences whose context is 0 and whose query's slot is -1.
    On a GPU a decode step can be captured in a graph and replayed: the tensors stay where they are and get another
    content, the last three fields stay as they are, and ``max_context`` is a bound that all replays keep.
    """

    query_start: Tensor  # int32 [S + 1]
    context_len: Tensor  # int32 [S], tokens in the cache including this step's
    block_tables: Tensor  # int32 [S, M], rows padded with anything; so are blocks that end before every query's window
    slots: Tensor  # int64 [T], where each token's key and value go; -1 for padding
    block_size: int
    decodes: int  # how many leading sequences have exactly one query token
    max_context: int  # no context is longer; how the work is cut follows from it and ``decodes``, not from contents


class Ops(Protocol):
    """The op table. Pools are changed in place; everything else is returned or written to ``out``."""

    name: str

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        """Compile what can be compiled before the first call (or load it from the cache), so that no request waits
        for it. Takes seconds the first time on a machine; safe to call from a background thread."""

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        """Store ``key`` and ``value`` [T, H, D] in one layer's ``pool`` [2, num_slots, H, D]; slot -1 is skipped."""

    def rotate_and_write_kv(
        self, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
    ) -> Tensor:
        """Rotary position embedding of ``query`` [T, Hq, D] and ``key`` [T, H, D], then :meth:`write_kv` of the rotated
        keys and of ``value`` [T, H, D]; returns the rotated query, contiguous.

        Each may be a strided view, say into one matrix of all projections, if its last dimension is contiguous.
        ``cos`` and ``sin`` are [T, R] with an even R <= D: the first R dimensions become ``x * cos + turned * sin``,
        where ``turned`` is their second half negated, then their first (Su et al., "RoFormer", 2021, with halves
        instead of neighbours); those from R on pass through.
        """

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
        """``x`` [T, N] over the root of its rows' mean square (plus ``eps``), times ``weight`` [N]; in ``x``'s type.
        Zhang and Sennrich, "Root mean square layer normalization" (2019).

        With ``residual`` [T, N], ``x`` is first added to it in place, and the sum is what is normalised. Computed in
        float32 or better, and rounded to ``x``'s type before the weight is applied.
        """

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[T, 2 I] to [T, I]: the first half times its sigmoid, times the second half."""

    def paged_attention(
        self,
        query: Tensor,
        pool: Tensor,
        batch: PagedBatch,
        *,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Causal attention of ``query`` [T, Hq, D] over one layer's ``pool`` [2, num_slots, H, D]; returns [T, Hq, D]
        in ``query``'s type.

        ``window`` > 0: a query sees itself and the ``window - 1`` positions before it. ``softcap`` > 0: scores
        become ``softcap * tanh(score / softcap)``. ``sinks`` [Hq]: a logit a head that takes part in the softmax
        and contributes no value.
        """

    def copy_blocks(self, pool: Tensor, source: Tensor, target: Tensor, block_size: int) -> None:
        """Copy whole blocks ``source`` -> ``target`` (int64 [N], disjoint) in all layers of the device pool."""

    def move_slots(self, pool: Tensor, source: Tensor, target: Tensor) -> None:
        """Copy slots ``source`` -> ``target`` (int64 [N]) in all layers of the device pool, as if at once: every
        source is read before any target is written. Scratch: N slots of one layer."""

    def gather_blocks(self, pool: Tensor, blocks: Tensor, block_size: int, host: Tensor, host_blocks: Tensor) -> None:
        """Copy device ``blocks`` into ``host_blocks`` (int64 [N] each) of the host pool."""

    def scatter_blocks(self, host: Tensor, host_blocks: Tensor, block_size: int, pool: Tensor, blocks: Tensor) -> None:
        """Copy ``host_blocks`` of the host pool into device ``blocks`` (int64 [N] each)."""


def ops_for(device: torch.device | str) -> Ops:
    """The fastest op table for ``device``: Triton on CUDA (and ROCm), :mod:`.cpu` on the CPU."""
    kind = device if isinstance(device, str) else device.type
    if kind.startswith("cuda"):
        from .triton.ops import TritonOps

        return TritonOps()
    from .cpu import CpuOps

    return CpuOps()
