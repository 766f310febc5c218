"""Paged attention of prompt chunks on the CPU: keys and values of a sequence are brought together once, then torch's
attention runs over blocks of queries, each against only the keys it may see."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from . import PagedBatch
from .formats import decode, raw

QUERY_BLOCK = 64  # a causal triangle is cut into strips of this height; half of the square above it is saved
SCORES = 1 << 22  # the most scores held at once where softcap or sinks need them in memory


def prefill_attention(
    query: Tensor,
    pool: Tensor,
    batch: PagedBatch,
    first_sequence: int,
    *,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
) -> None:
    """Attention of all sequences from ``first_sequence`` on, written to their rows of ``out`` [T, Hq, D]."""
    starts = batch.query_start.tolist()
    contexts = batch.context_len.tolist()
    for sequence in range(first_sequence, len(contexts)):
        start, stop, context = starts[sequence], starts[sequence + 1], contexts[sequence]
        if start == stop or context == 0:
            continue
        prefix = context - (stop - start)
        oldest = max(0, prefix - window + 1) if window > 0 else 0
        stored = _context(raw(pool), batch.block_tables[sequence], oldest, context, batch.block_size)
        key, value = (decode(rows.view(pool.dtype), query.shape[2]).to(query.dtype) for rows in stored)
        height = _strip_height(query.shape[1], context - oldest, softcap > 0 or sinks is not None)
        for row in range(start, stop, height):
            rows = slice(row, min(row + height, stop))
            position = prefix + row - start
            end = prefix + rows.stop - start
            begin = max(0, position - window + 1) if window > 0 else 0
            keys = slice(begin - oldest, end - oldest)
            hidden = _hidden(position, end, begin, window, query.device)
            strip = (query[rows], key[keys], value[keys], hidden, scale)
            out[rows] = _attend(*strip) if softcap <= 0 and sinks is None else _attend_openly(*strip, softcap, sinks)


def _context(pool: Tensor, table: Tensor, start: int, stop: int, block_size: int) -> tuple[Tensor, Tensor]:
    """Keys and values of positions ``start`` to ``stop``: a view where the blocks are neighbours."""
    first = start // block_size
    blocks = table[first : -(-stop // block_size)].to(torch.int64)
    skip, length = start - first * block_size, stop - start
    if bool((blocks.diff() == 1).all()):
        slot = int(blocks[0]) * block_size + skip
        return pool[0, slot : slot + length], pool[1, slot : slot + length]
    slots = (blocks[:, None] * block_size + torch.arange(block_size)).flatten()[skip : skip + length]
    return pool[0].index_select(0, slots), pool[1].index_select(0, slots)


def _strip_height(heads: int, context: int, scores_in_memory: bool) -> int:
    if not scores_in_memory:
        return QUERY_BLOCK
    return max(1, min(QUERY_BLOCK, SCORES // (heads * context)))


def _hidden(position: int, end: int, begin: int, window: int, device: torch.device) -> Tensor | None:
    """Which of the keys ``begin`` to ``end`` the queries ``position`` to ``end`` may not see [n, c]; None if they see
    all."""
    if end - position == 1:
        return None
    own = torch.arange(position, end, device=device)[:, None]
    keys = torch.arange(begin, end, device=device)
    hidden = keys > own
    if window > 0:
        hidden |= keys <= own - window
    return hidden


def _attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    bias = None
    if hidden is not None:
        bias = torch.zeros(hidden.shape, dtype=query.dtype).masked_fill_(hidden, float("-inf"))
    q, k, v = (t.transpose(0, 1)[None] for t in (query, key, value))
    attended = scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, enable_gqa=True)
    return attended[0].transpose(0, 1)


def _attend_openly(
    query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None, scale: float, softcap: float, sinks: Tensor | None
) -> Tensor:
    """Where the scores themselves are needed: softcap bends them, sinks join their sum. In float32 or better."""
    n, heads, _ = query.shape
    context, kv_heads, _ = key.shape
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    grouped = query.to(precise).mul(scale).unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3).flatten(1, 2)
    scores = torch.bmm(grouped, key.to(precise).permute(1, 2, 0)).view(heads, n, context)
    if softcap > 0:
        scores.div_(softcap).tanh_().mul_(softcap)
    if hidden is not None:
        scores.masked_fill_(hidden, float("-inf"))
    if sinks is None:
        weights = scores.softmax(-1)
    else:
        sink = sinks.to(precise)[:, None, None]
        highest = torch.maximum(scores.amax(-1, keepdim=True), sink)
        weights = scores.sub_(highest).exp_()
        weights /= weights.sum(-1, keepdim=True) + (sink - highest).exp()
    attended = torch.bmm(weights.view(kv_heads, -1, context), value.to(precise).transpose(0, 1))
    return attended.unflatten(1, (-1, n)).permute(2, 0, 1, 3).flatten(1, 2).to(query.dtype)
