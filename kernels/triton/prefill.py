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

from .attention import LOG2E, Attention, leave, walk
from .merge import Partial
from .split import Split, split
from .tilings import Tiling


def prefill_attention(
    attention: Attention,
    query_start: Tensor,
    tables: Tensor,
    context: Tensor,
    tiling: Tiling,
    *,
    tokens: int,
    max_context: int,
    processors: int,
) -> None:
    """The last ``tokens`` rows of ``attention``, of which ``query_start`` [S + 1] names each sequence's, with block
    ``tables`` [S, M] and ``context`` [S] tokens, ``max_context`` at most.

    Few queries over long contexts, as when a conversation goes on, would leave processors idle: their contexts are cut.
    """
    sequences, first = len(context), len(attention.query) - tokens
    strip = tiling.rows // attention.group
    strips = tokens // strip + sequences
    cut = Split(1, max_context)
    if strips * attention.kv_heads < processors:
        cut = split(strips, attention.kv_heads, attention.visible(max_context), processors)
    partial = Partial.of(tokens, attention.heads, cut.segments, attention.head_dim, context.device)
    attention.launch(
        prefill_kernel, (strips, attention.kv_heads, cut.segments), tables, tiling,
        query_start, context, sequences, first, *partial, cut.span, STRIP=strip, SPLIT=cut.segments > 1,
    )  # fmt: skip
    partial.merge(attention.out[first:])


@triton.jit(do_not_specialize=["table_stride", "sequences", "block_shift", "window", "first_row", "span"])
def prefill_kernel(
    query, pool, scales, tables, sinks, out,
    query_stride, query_head_stride, plane_stride, slot_stride, table_stride, block_shift, window, scale, softcap,
    query_start, context, sequences, first_row, partial, largest_out, total_out, span,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, HEAD_STRIDE: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, STRIP: tl.constexpr, SPLIT: tl.constexpr,
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
    used = (row < STRIP * GROUP) & (token < count)
    place = (begin + token).to(tl.int64)
    segment = tl.program_id(2)
    start = 0
    stop = tl.minimum(prefix + first_token + STRIP, length)
    if WINDOWED:
        start = tl.maximum(prefix + first_token - window + 1, 0)
    if SPLIT:
        start += segment * span
        if start >= stop:
            empty = (place - first_row) * tl.num_programs(1) * GROUP + head
            tl.store(largest_out + empty * tl.num_programs(2) + segment, float("-inf"), mask=used)
            return
        stop = tl.where(segment == tl.num_programs(2) - 1, stop, tl.minimum(start + span, stop))

    column = tl.arange(0, WIDTH)
    live = used[:, None] & (column[None, :] < HEAD_DIM)
    source = query + place[:, None] * query_stride + head[:, None] * query_head_stride + column[None, :]
    q = tl.load(source, mask=live, other=0.0)

    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    weighted = tl.zeros([ROWS, WIDTH], tl.float32)
    if SINKS:
        # The sink counts once, in the first segment.
        largest = tl.where(segment == 0, tl.load(sinks + head).to(tl.float32) * LOG2E, float("-inf"))
        total = tl.where(segment == 0, total + 1.0, total)

    table = tables + sequence * table_stride
    own = prefix + token
    if not WINDOWED:
        # Whole tiles before the strip's first token are seen by all of its rows: nothing there needs a mask.
        whole = tl.maximum(tl.minimum(prefix + first_token + 1, stop) - start, 0) // TILE * TILE
        largest, total, weighted = walk(
            q, pool, scales, table, own, start, start + whole, largest, total, weighted,
            kv_head, plane_stride, slot_stride, block_shift, window, scale, softcap,
            HEAD_DIM, WIDTH, HEAD_STRIDE, TILE, False, False, False, CAPPED, UPCAST,
        )  # fmt: skip
        start += whole
    largest, total, weighted = walk(
        q, pool, scales, table, own, start, stop, largest, total, weighted,
        kv_head, plane_stride, slot_stride, block_shift, window, scale, softcap,
        HEAD_DIM, WIDTH, HEAD_STRIDE, TILE, True, True, WINDOWED, CAPPED, UPCAST,
    )  # fmt: skip
    out_row = (begin + token - first_row if SPLIT else begin + token).to(tl.int64)
    out_place = out_row * tl.num_programs(1) * GROUP + head
    leave(
        weighted, largest, total, out, partial, largest_out, total_out, out_place, segment, tl.num_programs(2), used,
        HEAD_DIM, WIDTH, SPLIT,
    )  # fmt: skip
