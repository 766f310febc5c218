"""Paged attention for one query token a sequence: split-KV flash decoding and its merge.

A program takes one sequence, one key-value head with all query heads that share it (packed into the rows of a matrix
product), and one segment of the context (:mod:`.split`). Dao et al., "Flash-Decoding for long-context inference"
(2023).
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .attention import LOG2E, Attention, walk
from .softmax import weigh
from .split import Split
from .tilings import Tiling, next_power_of_two

PIECES = 16  # partial results that the merge holds at once


def decode_attention(attention: Attention, tables: Tensor, context: Tensor, tiling: Tiling, cut: Split) -> None:
    """The first S rows of ``attention``, for sequences with block ``tables`` [S, M] and ``context`` [S] tokens.

    A context longer than what ``cut`` was made for is still right, only slower: the last segment takes what is left.
    """
    sequences, heads, head_dim = len(context), attention.heads, attention.head_dim
    places = sequences * heads * cut.segments if cut.segments > 1 else 0
    partial = torch.empty((places, head_dim), dtype=torch.float32, device=context.device)
    largest = torch.empty(places, dtype=torch.float32, device=context.device)
    total = torch.empty_like(largest)
    attention.launch(
        decode_kernel, (attention.kv_heads, sequences, cut.segments), tables, tiling,
        context, partial, largest, total, cut.span, SPLIT=cut.segments > 1,
    )  # fmt: skip
    if cut.segments > 1:
        merge_kernel[(sequences, heads)](
            partial, largest, total, context, attention.out, attention.window, cut.span, cut.segments,
            HEAD_DIM=head_dim, WIDTH=next_power_of_two(head_dim), PIECES=PIECES, WINDOWED=attention.window > 0,
            num_warps=4,
        )  # fmt: skip


@triton.jit(do_not_specialize=["table_stride", "block_shift", "window", "span"])
def decode_kernel(
    query, pool, scales, tables, sinks, out,
    query_stride, query_head_stride, plane_stride, slot_stride, table_stride, block_shift, window, scale, softcap,
    context, partial, largest_out, total_out, span,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, HEAD_STRIDE: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    kv_head = tl.program_id(0)
    sequence = tl.program_id(1).to(tl.int64)
    segment = tl.program_id(2)
    length = tl.load(context + sequence)
    start = segment * span
    if WINDOWED:
        start += tl.maximum(length - window, 0)
    stop = length
    if SPLIT:
        if start >= length:
            return
        stop = tl.where(segment == tl.num_programs(2) - 1, length, tl.minimum(start + span, length))

    row = tl.arange(0, ROWS)
    head = kv_head * GROUP + row
    column = tl.arange(0, WIDTH)
    live = (row[:, None] < GROUP) & (column[None, :] < HEAD_DIM)
    source = query + sequence * query_stride + head[:, None] * query_head_stride + column[None, :]
    q = tl.load(source, mask=live, other=0.0)

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH], tl.float32)
    if SINKS:
        # The sink counts once, in the first segment.
        logit = tl.load(sinks + head, mask=row < GROUP, other=0.0).to(tl.float32) * LOG2E
        largest = tl.where(segment == 0, logit, largest)
        total = tl.where(segment == 0, 1.0, total)

    largest, total, weighted = walk(
        q, pool, scales, tables + sequence * table_stride, row, start, stop, largest, total, weighted,
        kv_head, plane_stride, slot_stride, block_shift, window, scale, softcap,
        HEAD_DIM, WIDTH, HEAD_STRIDE, TILE, True, False, WINDOWED, CAPPED, UPCAST,
    )  # fmt: skip

    place = sequence * tl.num_programs(0) * GROUP + head
    if SPLIT:
        place = place * tl.num_programs(2) + segment
        tl.store(largest_out + place, largest, mask=row < GROUP)
        tl.store(total_out + place, total, mask=row < GROUP)
        tl.store(partial + place[:, None] * HEAD_DIM + column[None, :], weighted, mask=live)
    else:
        # An empty context leaves a total of zero, or that of the sink; its result is zero.
        result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out + place[:, None] * HEAD_DIM + column[None, :], result.to(out.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["window", "span", "segments"])
def merge_kernel(
    partial, largest_in, total_in, context, out, window, span, segments,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, PIECES: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0).to(tl.int64)
    row = sequence * tl.num_programs(1) + tl.program_id(1)
    visible = tl.load(context + sequence)
    if WINDOWED:
        visible = tl.minimum(visible, window)
    count = tl.minimum(tl.cdiv(visible, span), segments)
    column = tl.arange(0, WIDTH)
    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    weighted = tl.zeros([1, WIDTH], tl.float32)
    for first in range(0, count, PIECES):
        piece = first + tl.arange(0, PIECES)
        exists = piece < count
        place = row * segments + piece
        peaks = tl.load(largest_in + place, mask=exists, other=float("-inf"))
        weights, rescale, largest = weigh(peaks[None, :], largest)
        totals = tl.load(total_in + place, mask=exists, other=0.0)
        total = total * rescale + tl.sum(weights * totals[None, :], 1)
        present = exists[:, None] & (column[None, :] < HEAD_DIM)
        parts = tl.load(partial + place[:, None] * HEAD_DIM + column[None, :], mask=present, other=0.0)
        summed = tl.sum(parts * tl.trans(weights), 0)
        weighted = weighted * rescale[:, None] + summed[None, :]
    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    target = out + row * HEAD_DIM + column
    tl.store(target[None, :], result.to(out.dtype.element_ty), mask=(column < HEAD_DIM)[None, :])
