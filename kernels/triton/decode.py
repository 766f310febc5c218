"""Paged attention for one query token a sequence: split-KV flash decoding and its merge.

A program takes one sequence, one key-value head with all query heads that share it (packed into the rows of a matrix
product), and one segment of the context. Dao et al., "Flash-Decoding for long-context inference" (2023). The number
of segments depends on shapes the host knows only, so a captured graph keeps it.
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .softmax import absorb, bend, product
from .tilings import Tiling, next_power_of_two

LOG2E = tl.constexpr(1.4426950408889634)
MIN_SEGMENT = 256  # positions; below this a segment's partial result costs more than the split gains
MAX_SEGMENTS = 128


def segments_for(sequences: int, kv_heads: int, max_context: int, processors: int) -> int:
    """How many programs share a sequence's context: enough to fill the processors twice, a power of two so that few
    variants of the merge are compiled."""
    wanted = -(-2 * processors // max(1, sequences * kv_heads))
    possible = max(1, max_context // MIN_SEGMENT)
    return min(next_power_of_two(min(wanted, possible)), MAX_SEGMENTS)


def decode_attention(
    query: Tensor,
    pool: Tensor,
    tables: Tensor,
    context: Tensor,
    block_size: int,
    *,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    tiling: Tiling,
    segments: int,
    upcast: bool,
) -> None:
    """Attention of ``query`` [S, Hq, D] over ``pool`` [2, num_slots, H, D], written to ``out`` [S, Hq, D]."""
    sequences, heads, head_dim = query.shape
    kv_heads = pool.shape[2]
    width = next_power_of_two(head_dim)
    split = segments > 1
    shape = (sequences, heads, segments)
    partial = torch.empty((*shape, head_dim) if split else 1, dtype=torch.float32, device=query.device)
    largest = torch.empty(shape if split else 1, dtype=torch.float32, device=query.device)
    total = torch.empty_like(largest)
    decode_kernel[(sequences, kv_heads, segments)](
        query, pool[0], pool[1], tables, context, sinks if sinks is not None else query, out, partial, largest, total,
        query.stride(0), query.stride(1), out.stride(0), out.stride(1), pool.stride(1), tables.stride(0),
        block_size.bit_length() - 1, window, scale, softcap,
        HEADS=heads, GROUP=heads // kv_heads, HEAD_DIM=head_dim, WIDTH=width, ROWS=tiling.rows, TILE=tiling.positions,
        SEGMENTS=segments, WINDOWED=window > 0, CAPPED=softcap > 0, SINKS=sinks is not None, UPCAST=upcast,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip
    if split:
        merge_kernel[(sequences, heads)](
            partial, largest, total, out, out.stride(0), out.stride(1),
            HEADS=heads, HEAD_DIM=head_dim, WIDTH=width, SEGMENTS=segments, num_warps=4,
        )  # fmt: skip


@triton.jit(do_not_specialize=["table_stride", "block_shift", "window"])
def decode_kernel(
    query, keys, values, tables, context, sinks, out, partial, largest_out, total_out,
    query_stride, query_head_stride, out_stride, out_head_stride, slot_stride, table_stride,
    block_shift, window, scale, softcap,
    HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, SEGMENTS: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    segment = tl.program_id(2)
    length = tl.load(context + sequence)
    oldest = 0
    if WINDOWED:
        oldest = tl.maximum(length - window, 0)
    tiles = tl.cdiv(tl.cdiv(length - oldest, TILE), SEGMENTS)
    start = oldest + segment * tiles * TILE
    stop = tl.minimum(start + tiles * TILE, length)

    row = tl.arange(0, ROWS)
    head = kv_head * GROUP + row
    column = tl.arange(0, WIDTH)
    live = (row[:, None] < GROUP) & (column[None, :] < HEAD_DIM)
    q = tl.load(
        query + sequence * query_stride + head[:, None] * query_head_stride + column[None, :], mask=live, other=0.0
    )

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH], tl.float32)
    if SINKS:
        # The sink counts once, in the first segment.
        logit = tl.load(sinks + head, mask=row < GROUP, other=0.0).to(tl.float32) * LOG2E
        largest = tl.where(segment == 0, logit, largest)
        total = tl.where(segment == 0, 1.0, total)

    table = tables + sequence * table_stride
    column_offset = kv_head * HEAD_DIM + column
    for first in range(start, stop, TILE):
        position = first + tl.arange(0, TILE)
        exists = position < stop
        block = tl.load(table + (position >> block_shift), mask=exists, other=0).to(tl.int64)
        slot = (block << block_shift) + (position & ((1 << block_shift) - 1))
        offset = slot[:, None] * slot_stride + column_offset[None, :]
        present = exists[:, None] & (column[None, :] < HEAD_DIM)
        k = tl.load(keys + offset, mask=present, other=0.0)
        v = tl.load(values + offset, mask=present, other=0.0)
        scores = product(q, tl.trans(k), UPCAST) * scale
        if CAPPED:
            scores = bend(scores, softcap)
        scores = tl.where(exists[None, :], scores * LOG2E, float("-inf"))
        largest, total, weighted = absorb(scores, v, largest, total, weighted, UPCAST)

    if SEGMENTS == 1:
        # An empty context leaves a total of zero; its result is zero.
        result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        target = out + sequence * out_stride + head[:, None] * out_head_stride + column[None, :]
        tl.store(target, result.to(out.dtype.element_ty), mask=live)
    else:
        place = (sequence * HEADS + head) * SEGMENTS + segment
        tl.store(largest_out + place, largest, mask=row < GROUP)
        tl.store(total_out + place, total, mask=row < GROUP)
        # Nothing is written for a segment past the end of a short context, and the merge reads nothing of it.
        written = live & (largest[:, None] > float("-inf"))
        tl.store(partial + place[:, None] * HEAD_DIM + column[None, :], weighted, mask=written)


@triton.jit
def merge_kernel(
    partial, largest, total, out, out_stride, out_head_stride,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, WIDTH)
    place = (sequence * HEADS + head) * SEGMENTS + tl.arange(0, SEGMENTS)
    peaks = tl.load(largest + place)
    highest = tl.max(peaks, 0)
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2(peaks - highest)
    summed = tl.sum(weights * tl.load(total + place), 0)
    present = (peaks > float("-inf"))[:, None] & (column[None, :] < HEAD_DIM)
    parts = tl.load(partial + place[:, None] * HEAD_DIM + column[None, :], mask=present, other=0.0)
    result = tl.sum(parts * weights[:, None], 0) / tl.where(summed == 0.0, 1.0, summed)
    target = out + sequence * out_stride + head * out_head_stride + column
    tl.store(target, result.to(out.dtype.element_ty), mask=column < HEAD_DIM)
