"""Paged attention for prompt chunks of any lengths side by side.

A program takes one key-value head with all query heads that share it, and a strip of one sequence's query tokens:
row r of the matrix product is token ``r // GROUP``, head ``r % GROUP``. Which sequence a program serves is found by
bisection over the running count of strips, so that the host need not read the lengths back.
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .softmax import absorb, bend, product
from .tilings import Tiling, next_power_of_two

LOG2E = tl.constexpr(1.4426950408889634)


def prefill_attention(
    query: Tensor,
    pool: Tensor,
    query_start: Tensor,
    tables: Tensor,
    context: Tensor,
    block_size: int,
    *,
    tokens: int,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    tiling: Tiling,
    upcast: bool,
) -> None:
    """Attention of the sequences of ``query_start`` [S + 1] (rows into ``query`` [T, Hq, D], ``tokens`` at most in
    all), written to their rows of ``out``."""
    sequences = len(context)
    heads, head_dim = query.shape[1:]
    kv_heads = pool.shape[2]
    group = heads // kv_heads
    strip = tiling.rows // group
    prefill_kernel[(tokens // strip + sequences, kv_heads)](
        query, pool[0], pool[1], query_start, tables, context, sinks if sinks is not None else query, out,
        query.stride(0), query.stride(1), out.stride(0), out.stride(1), pool.stride(1), tables.stride(0),
        sequences, block_size.bit_length() - 1, window, scale, softcap,
        GROUP=group, HEAD_DIM=head_dim, WIDTH=next_power_of_two(head_dim), ROWS=tiling.rows, STRIP=strip,
        TILE=tiling.positions, WINDOWED=window > 0, CAPPED=softcap > 0, SINKS=sinks is not None, UPCAST=upcast,
        num_warps=tiling.warps, num_stages=tiling.stages,
    )  # fmt: skip


@triton.jit(do_not_specialize=["table_stride", "sequences", "block_shift", "window"])
def prefill_kernel(
    query, keys, values, query_start, tables, context, sinks, out,
    query_stride, query_head_stride, out_stride, out_head_stride, slot_stride, table_stride,
    sequences, block_shift, window, scale, softcap,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, STRIP: tl.constexpr,
    TILE: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    kv_head = tl.program_id(1)
    base = tl.load(query_start)
    # Sequence s owns the programs from strips(tokens before it) + s on: enough for its last, partly filled strip.
    low = 0
    high = sequences
    while low + 1 < high:
        middle = (low + high) // 2
        if (tl.load(query_start + middle) - base) // STRIP + middle <= program:
            low = middle
        else:
            high = middle
    sequence = low.to(tl.int64)
    begin = tl.load(query_start + sequence)
    count = tl.load(query_start + sequence + 1) - begin
    first_token = (program - ((begin - base) // STRIP + low)) * STRIP
    length = tl.load(context + sequence)
    prefix = length - count

    row = tl.arange(0, ROWS)
    token = first_token + row // GROUP
    head = kv_head * GROUP + row % GROUP
    column = tl.arange(0, WIDTH)
    used = (row < STRIP * GROUP) & (token < count)
    live = used[:, None] & (column[None, :] < HEAD_DIM)
    place = (begin + token).to(tl.int64)
    source = query + place[:, None] * query_stride + head[:, None] * query_head_stride + column[None, :]
    q = tl.load(source, mask=live, other=0.0)

    own = prefix + token
    stop = tl.minimum(prefix + first_token + STRIP, length)
    if first_token >= count:
        stop = 0
    start = 0
    if WINDOWED:
        start = tl.maximum(prefix + first_token - window + 1, 0)

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH], tl.float32)
    if SINKS:
        largest = tl.load(sinks + head).to(tl.float32) * LOG2E
        total = total + 1.0

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
        seen = exists[None, :] & (position[None, :] <= own[:, None])
        if WINDOWED:
            seen = seen & (position[None, :] > own[:, None] - window)
        scores = tl.where(seen, scores * LOG2E, float("-inf"))
        largest, total, weighted = absorb(scores, v, largest, total, weighted, UPCAST)

    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    target = out + place[:, None] * out_stride + head[:, None] * out_head_stride + column[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=live)
