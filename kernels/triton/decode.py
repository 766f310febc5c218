"""Paged attention for one query token a sequence: flash decoding.

A program takes one sequence, one key-value head with all query heads that share it (packed into the rows of a matrix
product), and one segment of the context (:mod:`.split`).
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .attention import LOG2E, Attention, leave, walk
from .merge import Partial
from .split import Split
from .tilings import Tiling


def decode_attention(attention: Attention, tables: Tensor, context: Tensor, tiling: Tiling, cut: Split) -> None:
    """The first S rows of ``attention``, for sequences with block ``tables`` [S, M] and ``context`` [S] tokens.

    A context longer than what ``cut`` was made for is still right, only slower: the last segment takes what is left.
    """
    sequences = len(context)
    partial = Partial.of(sequences, attention.heads, cut.segments, attention.head_dim, context.device)
    attention.launch(
        decode_kernel, (attention.kv_heads, sequences, cut.segments), tables, tiling,
        context, *partial, cut.span, SPLIT=cut.segments > 1,
    )  # fmt: skip
    partial.merge(attention.out)


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
    row = tl.arange(0, ROWS)
    if SPLIT:
        if start >= length:
            empty = (sequence * tl.num_programs(0) + kv_head) * GROUP + row
            tl.store(largest_out + empty * tl.num_programs(2) + segment, float("-inf"), mask=row < GROUP)
            return
        stop = tl.where(segment == tl.num_programs(2) - 1, length, tl.minimum(start + span, length))

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

    place = (sequence * tl.num_programs(0) + kv_head) * GROUP + row
    leave(
        weighted, largest, total, out, partial, largest_out, total_out, place, segment, tl.num_programs(2), row < GROUP,
        HEAD_DIM, WIDTH, SPLIT,
    )  # fmt: skip
