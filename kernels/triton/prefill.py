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

from .attention import LOG2E, Attention, walk
from .tilings import Tiling


def prefill_attention(
    attention: Attention, query_start: Tensor, tables: Tensor, context: Tensor, tiling: Tiling, *, tokens: int
) -> None:
    """The rows of ``attention`` that ``query_start`` [S + 1] names, ``tokens`` in all at most, for sequences with block
    ``tables`` [S, M] and ``context`` [S] tokens."""
    sequences = len(context)
    strip = tiling.rows // attention.group
    attention.launch(
        prefill_kernel, (tokens // strip + sequences, attention.kv_heads), tables, tiling,
        query_start, context, sequences, STRIP=strip,
    )  # fmt: skip


@triton.jit(do_not_specialize=["table_stride", "sequences", "block_shift", "window"])
def prefill_kernel(
    query, pool, scales, tables, sinks, out,
    query_stride, query_head_stride, plane_stride, slot_stride, table_stride, block_shift, window, scale, softcap,
    query_start, context, sequences,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, HEAD_STRIDE: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, STRIP: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    # Strips late in a sequence see most of it: they go first, so that none of them runs alone at the end.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
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
    if first_token >= count:
        return
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

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH], tl.float32)
    if SINKS:
        largest = tl.load(sinks + head).to(tl.float32) * LOG2E
        total += 1.0

    table = tables + sequence * table_stride
    own = prefix + token
    start = 0
    stop = tl.minimum(prefix + first_token + STRIP, length)
    if WINDOWED:
        start = tl.maximum(prefix + first_token - window + 1, 0)
    else:
        # Whole tiles before the strip's first token are seen by all of its rows: nothing there needs a mask.
        start = (prefix + first_token + 1) // TILE * TILE
        largest, total, weighted = walk(
            q, pool, scales, table, own, 0, start, largest, total, weighted,
            kv_head, plane_stride, slot_stride, block_shift, window, scale, softcap,
            HEAD_DIM, WIDTH, HEAD_STRIDE, TILE, False, False, False, CAPPED, UPCAST,
        )  # fmt: skip
    largest, total, weighted = walk(
        q, pool, scales, table, own, start, stop, largest, total, weighted,
        kv_head, plane_stride, slot_stride, block_shift, window, scale, softcap,
        HEAD_DIM, WIDTH, HEAD_STRIDE, TILE, True, True, WINDOWED, CAPPED, UPCAST,
    )  # fmt: skip

    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    target = out + (place[:, None] * tl.num_programs(1) * GROUP + head[:, None]) * HEAD_DIM + column[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=live)
