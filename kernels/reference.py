"""Every op in plain torch: the specification the fast versions are tested against. Obvious rather than fast."""

from __future__ import annotations

import torch
from torch import Tensor

from . import PagedBatch


class ReferenceOps:
    """The op table in plain torch, on any device and in any precision.

    Attention is computed in float64 for float64 pools and in float32 otherwise. Rows of the result that belong to no
    sequence (padding), and those of a sequence whose context is empty, are zero.
    """

    name = "reference"

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        """Nothing is compiled."""

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        kept = slots >= 0
        pool[0, slots[kept]] = key[kept]
        pool[1, slots[kept]] = value[kept]

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
        out = torch.zeros_like(query)
        starts = batch.query_start.tolist()
        for sequence, context in enumerate(batch.context_len.tolist()):
            first, last = starts[sequence], starts[sequence + 1]
            if context == 0 or first == last:
                continue
            oldest = max(0, context - (last - first) - window + 1) if window > 0 else 0
            slots = context_slots(batch.block_tables[sequence], oldest, context, batch.block_size)
            key, value = pool[0, slots], pool[1, slots]
            out[first:last] = attend(
                query[first:last], key, value, scale=scale, window=window, softcap=softcap, sinks=sinks
            )
        return out

    def copy_blocks(self, pool: Tensor, source: Tensor, target: Tensor, block_size: int) -> None:
        self.move_slots(pool, block_slots(source, block_size), block_slots(target, block_size))

    def move_slots(self, pool: Tensor, source: Tensor, target: Tensor) -> None:
        for layer in pool:
            layer[:, target] = layer[:, source]

    def gather_blocks(self, pool: Tensor, blocks: Tensor, block_size: int, host: Tensor, host_blocks: Tensor) -> None:
        slots, host_slots = block_slots(blocks, block_size), block_slots(host_blocks, block_size)
        host[host_slots.to(host.device)] = pool[:, :, slots.to(pool.device)].movedim(2, 0).to(host.device)

    def scatter_blocks(self, host: Tensor, host_blocks: Tensor, block_size: int, pool: Tensor, blocks: Tensor) -> None:
        slots, host_slots = block_slots(blocks, block_size), block_slots(host_blocks, block_size)
        pool[:, :, slots.to(pool.device)] = host[host_slots.to(host.device)].movedim(0, 2).to(pool.device)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Causal attention of a sequence's last n tokens, ``query`` [n, Hq, D], over its last keys and values [c, H, D]:
    all of them, or where there is a window, at least those that the first query sees."""
    n, query_heads, _ = query.shape
    context, kv_heads, _ = key.shape
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    key = key.to(precise).repeat_interleave(query_heads // kv_heads, dim=1)
    value = value.to(precise).repeat_interleave(query_heads // kv_heads, dim=1)
    scores = torch.einsum("nhd,chd->hnc", query.to(precise), key) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    position = torch.arange(context, device=query.device)
    own = position[context - n :, None]
    hidden = position > own
    if window > 0:
        hidden |= position <= own - window
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        sink = sinks.to(precise)[:, None, None].expand(query_heads, n, 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :context]
    return torch.einsum("hnc,chd->nhd", weights, value).to(query.dtype)


def context_slots(table: Tensor, start: int, context: int, block_size: int) -> Tensor:
    """The slots of positions ``start`` to ``context - 1`` of a sequence with this block table; int64."""
    position = torch.arange(start, context, device=table.device)
    return table[position // block_size].to(torch.int64) * block_size + position % block_size


def block_slots(blocks: Tensor, block_size: int) -> Tensor:
    """All slots of ``blocks``, in order; int64 [N * block_size]."""
    offset = torch.arange(block_size, device=blocks.device)
    return (blocks[:, None].to(torch.int64) * block_size + offset).flatten()
