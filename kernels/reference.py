"""Every op in plain torch: the specification the fast versions are tested against. Obvious rather than fast."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu

from . import PagedBatch
from .formats import decode, encode, raw


class ReferenceOps:
    """The op table in plain torch, on any device and in any precision.

    Computed in float64 for float64 and in float32 otherwise. Rows of the result that belong to no
    sequence (padding), and those of a sequence whose context is empty, are zero.
    """

    name = "reference"

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        """Nothing is compiled."""

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        kept = slots >= 0
        for plane, rows in ((pool[0], key), (pool[1], value)):
            raw(plane)[slots[kept]] = raw(encode(rows[kept], pool.dtype))

    def rotate_and_write_kv(
        self, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
    ) -> Tensor:
        self.write_kv(rotate(key, cos, sin), value, pool, slots)
        return rotate(query, cos, sin)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
        rows = (x if residual is None else residual.add_(x)).to(_precise(x))
        normalised = rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)
        return (weight * normalised.to(x.dtype)).to(x.dtype)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate) * up

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
            key, value = (decode(plane[slots], query.shape[-1]) for plane in pool)
            out[first:last] = attend(
                query[first:last], key, value, scale=scale, window=window, softcap=softcap, sinks=sinks
            )
        return out

    def copy_blocks(self, pool: Tensor, source: Tensor, target: Tensor, block_size: int) -> None:
        self.move_slots(pool, block_slots(source, block_size), block_slots(target, block_size))

    def move_slots(self, pool: Tensor, source: Tensor, target: Tensor) -> None:
        for layer in raw(pool):
            layer[:, target] = layer[:, source]

    def gather_blocks(self, pool: Tensor, blocks: Tensor, block_size: int, host: Tensor, host_blocks: Tensor) -> None:
        slots, host_slots = block_slots(blocks, block_size), block_slots(host_blocks, block_size)
        raw(host)[host_slots.to(host.device)] = raw(pool)[:, :, slots.to(pool.device)].movedim(2, 0).to(host.device)

    def scatter_blocks(self, host: Tensor, host_blocks: Tensor, block_size: int, pool: Tensor, blocks: Tensor) -> None:
        slots, host_slots = block_slots(blocks, block_size), block_slots(host_blocks, block_size)
        raw(pool)[:, :, slots.to(pool.device)] = raw(host)[host_slots.to(host.device)].movedim(0, 2).to(pool.device)


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
    precise = _precise(query)
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


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` [T, H, D] with its first R dimensions turned by ``cos`` and ``sin`` [T, R], in halves; contiguous."""
    turning = x[..., : cos.shape[-1]].to(_precise(x))
    first, second = turning.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    out = x.clone(memory_format=torch.contiguous_format)
    out[..., : cos.shape[-1]] = turning * cos[:, None] + turned * sin[:, None]
    return out


def context_slots(table: Tensor, start: int, context: int, block_size: int) -> Tensor:
    """The slots of positions ``start`` to ``context - 1`` of a sequence with this block table; int64."""
    position = torch.arange(start, context, device=table.device)
    return table[position // block_size].to(torch.int64) * block_size + position % block_size


def block_slots(blocks: Tensor, block_size: int) -> Tensor:
    """All slots of ``blocks``, in order; int64 [N * block_size]."""
    offset = torch.arange(block_size, device=blocks.device)
    return (blocks[:, None].to(torch.int64) * block_size + offset).flatten()


def _precise(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
