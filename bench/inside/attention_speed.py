"""Attention by itself: decodes against what memory gives, prompts against torch's own attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...kernels import Ops, PagedBatch, ops_for
from .rows import Row
from .scale import LLAMA_8B, TINY, Scale
from .timing import copies_beyond_caches, copy_bandwidth, random, read_bandwidth, seconds

BLOCK = 32
NOTABLE = 64 << 20  # bytes; less is over before a GPU is busy, and is only told

DECODE_AIM = 0.85  # of a copy's bandwidth
PREFILL_AIM = 0.9  # of the speed of torch's attention


def decode(scale: Scale) -> Iterator[Row]:
    """Bytes of keys and values a second, against the bandwidth of a copy within the device."""
    size = scale.pick(2 << 30, 16 << 20)
    copied = copy_bandwidth(scale.device, size)
    yield Row("decode", "copy within the device", copied / 1e9, "GB/s", note="bytes read and written")
    yield Row("decode", "reading alone", read_bandwidth(scale.device, size) / 1e9, "GB/s")
    shape = scale.pick(LLAMA_8B, TINY)
    ops = ops_for(scale.device)
    for sequences, context in scale.pick(
        [(1, 1024), (1, 8192), (1, 131_072), (8, 1024), (8, 8192), (64, 1024), (64, 8192), (256, 2048)],
        [(1, 256), (8, 256)],
    ):
        taken = sequences * context * 2 * shape.kv_heads * shape.head_dim * scale.dtype.itemsize
        made = [_attention(scale, ops, sequences, 1, context, seed) for seed in range(copies_beyond_caches(taken))]
        speed = taken / seconds(made, scale.device)
        aimed = taken >= NOTABLE
        yield Row(
            "decode", f"{sequences} × {context:,} tokens", speed / copied, "%",
            at_least=scale.aim(DECODE_AIM) if aimed else None, note=f"{speed / 1e9:,.0f} GB/s",
        )  # fmt: skip


def prefill(scale: Scale) -> Iterator[Row]:
    """Whole prompts, and a chunk behind a long context, against torch's attention on contiguous keys and values."""
    shape = scale.pick(LLAMA_8B, TINY)
    ops = ops_for(scale.device)
    for sequences, queries, context in scale.pick(
        [(1, 2048, 2048), (1, 8192, 8192), (8, 1024, 1024), (1, 2048, 16_384)], [(1, 64, 64), (2, 32, 96)]
    ):
        pairs = queries * context - queries * (queries - 1) // 2
        work = 4 * shape.heads * shape.head_dim * pairs * sequences  # two products of two operations
        ours = work / seconds([_attention(scale, ops, sequences, queries, context)], scale.device)
        others = _torch_attention(scale, sequences, queries, context)
        theirs = work / min(seconds([call], scale.device) for call in others)
        yield Row(
            "prefill", f"{sequences} × {queries:,} tokens of {context:,}", ours / theirs, "%",
            at_least=scale.aim(PREFILL_AIM), note=f"{ours / 1e12:,.3g} TFLOP/s, torch's attention {theirs / 1e12:,.3g}",
        )  # fmt: skip


def _attention(
    scale: Scale, ops: Ops, sequences: int, queries: int, context: int, seed: int = 0
) -> Callable[[], Tensor]:
    """Our attention over shuffled blocks."""
    shape, device = scale.pick(LLAMA_8B, TINY), scale.device
    blocks = -(-context // BLOCK)
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randperm(sequences * blocks, generator=generator).to(torch.int32).reshape(sequences, blocks)
    # Numbers are made where they are needed: a host would take longer for them than everything else here.
    pool = torch.empty(
        (2, sequences * blocks * BLOCK, shape.kv_heads, shape.head_dim), dtype=scale.dtype, device=device
    ).normal_()
    batch = PagedBatch(
        query_start=(torch.arange(sequences + 1, dtype=torch.int32) * queries).to(device),
        context_len=torch.full((sequences,), context, dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        slots=torch.full((sequences * queries,), -1, device=device),
        block_size=BLOCK,
        decodes=sequences if queries == 1 else 0,
        max_context=context,
    )
    query = random((sequences * queries, shape.heads, shape.head_dim), scale.dtype, device, seed)
    return lambda: ops.paged_attention(query, pool, batch, scale=shape.head_dim**-0.5)


def _torch_attention(scale: Scale, sequences: int, queries: int, context: int) -> list[Callable[[], Tensor]]:
    """torch's attention over contiguous keys and values: grouped by itself, and with its heads repeated beforehand."""
    shape, device = scale.pick(LLAMA_8B, TINY), scale.device
    query = random((sequences, shape.heads, queries, shape.head_dim), scale.dtype, device)
    key, value = torch.empty(
        (2, sequences, shape.kv_heads, context, shape.head_dim), dtype=scale.dtype, device=device
    ).normal_()
    keys, values = (part.repeat_interleave(shape.heads // shape.kv_heads, dim=1) for part in (key, value))
    if queries == context:
        return [
            lambda: scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True),
            lambda: scaled_dot_product_attention(query, keys, values, is_causal=True),
        ]
    from torch.nn.attention.bias import causal_lower_right

    mask = causal_lower_right(queries, context)
    return [lambda: scaled_dot_product_attention(query, keys, values, attn_mask=mask)]
