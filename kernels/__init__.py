"""Arithmetic on tensors: the op table.

Every op exists in plain torch (:mod:`.reference`, the specification), in a fast version for the CPU
(:mod:`.cpu`) and as Triton kernels for GPUs (:mod:`.triton`). :func:`ops_for` picks by device. Nothing here knows a
request, a scheduler or a socket.

Shapes, with L layers, H key-value heads, Hq query heads (a multiple of H), D the head size, T tokens in the step
and S sequences in the step:

- the device pool is ``[L, 2, num_slots, H, D]``, keys at index 0, values at 1; slot ``b * block_size + i`` is token
  ``i`` of block ``b``, so the block size is only an argument;
- the host pool is ``[num_slots, L, 2, H, D]``: all layers of a block are one contiguous run of bytes.

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
    """

    query_start: Tensor  # int32 [S + 1]
    context_len: Tensor  # int32 [S], tokens in the cache including this step's
    block_tables: Tensor  # int32 [S, M], rows padded with anything; so are blocks that end before every query's window
    slots: Tensor  # int64 [T], where each token's key and value go; -1 for padding
    block_size: int
    decodes: int  # how many leading sequences have exactly one query token
    max_context: int


class Ops(Protocol):
    """The op table. Pools are changed in place; everything else is returned or written to ``out``."""

    name: str

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        """Compile what can be compiled before the first call (or load it from the cache), so that no request waits
        for it. Takes seconds the first time on a machine; safe to call from a background thread."""

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        """Store ``key`` and ``value`` [T, H, D] in one layer's ``pool`` [2, num_slots, H, D]; slot -1 is skipped."""

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
        """Causal attention of ``query`` [T, Hq, D] over one layer's ``pool`` [2, num_slots, H, D]; returns [T, Hq, D].

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
