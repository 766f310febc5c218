"""Paged decode attention compiled for the CPU with numba: one query token a sequence.

Each thread takes an equal share of all positions of the batch laid end to end, whatever sequences they belong to, so
that threads finish together for ragged contexts and for a single long one alike. A share that begins or ends inside a
sequence leaves a partial result; at most ``threads - 1`` cuts exist and are merged afterwards. Inside a share the
softmax is the online one (Milakov and Gimelshein, 2018), a tile of positions at a time, whatever the block size. Each
key and value is read once for all query heads that share it, while the next tile's come from memory.
"""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined, call-arg"

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numba import prange

from .cpu_emitter import LINE
from .cpu_heads import HEADS, POSITIONS, add_values, score_heads
from .cpu_jit import Array, entry, exponentials, inner, shares_for
from .cpu_pool import find_slots, read_rows, scales_of

TILE = 64  # positions whose scores are held at once: keys of 64 x 64 floats fill half the first-level cache
MULTIPLIED = 6000  # numbers of keys, times query heads, that one thread does in a microsecond
LOWEST = -1e30  # stands for minus infinity, which fast-math may not see
IN_ORDER = np.arange(TILE)


def decode_attention(
    query: Array,
    pool: Array,
    tables: Array,
    context: Array,
    block_size: int,
    *,
    scale: float,
    window: int,
    softcap: float,
    sinks: Array,
    out: Array,
    shares: int | None = None,
) -> None:
    """Attention of ``query`` [S, Hq, D] over ``pool`` [2, num_slots, H, D], written to ``out`` [S, Hq, D].

    All arrays are C-contiguous, the floating ones of one type (float32 or float64), ``tables`` and ``context`` int32.
    ``sinks`` is [Hq] or empty. To a query in float32 the pool may also be int8, [2, num_slots, H, D + 16] with scales,
    or the bytes of float8_e4m3fn as uint8. ``shares`` is into how many the work is dealt, by default what pays.
    """
    if shares is None:
        seen = np.minimum(context, window) if window > 0 else context
        shares = shares_for(int(seen.sum()) * query.shape[1] * query.shape[2] / MULTIPLIED)
    number = query.dtype.type
    arguments = (
        query, pool, scales_of(pool), tables, context, window, block_size, number(scale), number(softcap), sinks, out
    )  # fmt: skip
    if shares == 1:
        attend(*arguments)
    else:
        attend_in_shares(*arguments, shares)


def compile_decode(head_dim: int, query: type[np.floating[Any]], pool: type[np.generic]) -> None:
    """Compile everything :func:`decode_attention` runs for these types, or load it from the cache."""
    row = np.zeros((1, 1, head_dim), query)
    slots = np.zeros((2, 1, 1, head_dim + (16 if pool is np.int8 else 0)), pool)
    one = np.ones((1, 1), np.int32)
    for shares in (1, 2):
        decode_attention(
            row, slots, one - 1, one[0], 1, scale=1.0, window=0, softcap=0.0, sinks=np.empty(0, query),
            out=np.empty_like(row), shares=shares,
        )  # fmt: skip


@entry
def attend(query, pool, scales, tables, context, window, block_size, scale, softcap, sinks, out):
    ends = _ends(context, window)
    share, shares = np.int64(0), np.int64(1)  # not literals, for which all would be compiled once more
    largest, total, weighted = _pieces(query, shares)
    _share(
        query, pool, scales, tables, context, ends, block_size, scale, softcap, sinks, out, share, shares,
        largest, total, weighted,
    )  # fmt: skip


@partial(entry, parallel=True)
def attend_in_shares(query, pool, scales, tables, context, window, block_size, scale, softcap, sinks, out, shares):
    ends = _ends(context, window)
    largest, total, weighted = _pieces(query, shares)
    for share in prange(shares):
        _share(
            query, pool, scales, tables, context, ends, block_size, scale, softcap, sinks, out, np.int64(share),
            shares, largest, total, weighted,
        )  # fmt: skip
    _merge(ends, shares, sinks, largest, total, weighted, out)


@inner
def _ends(context, window):
    """Where each sequence's visible positions end, all of them laid end to end."""
    ends = np.empty(context.size, np.int64)
    end = 0
    for s in range(context.size):
        end += min(context[s], window) if window > 0 else context[s]
        ends[s] = end
    return ends


@inner
def _pieces(query, shares):
    sequences, heads, head_dim = query.shape
    unit = LINE // query.itemsize
    return (
        np.empty((sequences + shares, heads), query.dtype),
        np.empty((sequences + shares, heads), query.dtype),
        np.empty((sequences + shares, heads, -(-head_dim // unit) * unit), query.dtype),
    )


@inner
def _share(
    query, pool, scales, tables, context, ends, block_size, scale, softcap, sinks, out, share, shares,
    largest, total, weighted,
):  # fmt: skip
    """One thread's part. The piece of sequence s in share w is stored at s + w: each step along the path from the
    first share of the first sequence to the last of the last raises exactly one of the two."""
    heads, width = weighted.shape[1], weighted.shape[2]
    begin, end = ends[-1] * share // shares, ends[-1] * (share + 1) // shares
    tiles = _tiles(context, ends, begin, end)
    if share == 0:
        _clear_empty(ends, out)
    own_largest, own_total, own_weighted = _pieces(query[:0], np.int64(1))  # what others write lies elsewhere
    scaled, unpacked = np.empty((heads, width), query.dtype), np.empty((2 * TILE, width), query.dtype)
    scores, factors = np.empty((HEADS, TILE), query.dtype), np.empty(HEADS, query.dtype)
    slots = np.empty((2, TILE), np.int64)
    _clear(unpacked)
    for n in range(len(tiles)):
        s = tiles[n, 0]
        if tiles[n, 3]:
            _begin(query[s], scale, scaled, own_largest[0], own_total[0], own_weighted[0])
        if n == 0:
            _find(tables, tiles[0], block_size, slots[0])
        coming = min(n + 1, len(tiles) - 1)
        if coming > n:
            _find(tables, tiles[coming], block_size, slots[coming % 2])
        _attend_tile(
            scaled, pool, scales, slots[n % 2], tiles[n, 2], slots[coming % 2], softcap, scores, factors, unpacked,
            own_largest[0], own_total[0], own_weighted[0],
        )  # fmt: skip
        if n + 1 == len(tiles) or tiles[n + 1, 3]:
            if begin <= (ends[s - 1] if s > 0 else 0) and ends[s] <= end:
                _finish(own_largest[0], own_total[0], own_weighted[0], sinks, out[s])
            else:
                piece = s + share
                _keep(own_largest[0], own_total[0], own_weighted[0], largest[piece], total[piece], weighted[piece])


@inner
def _tiles(context, ends, begin, end):
    """What a share computes one after the other: of each tile the sequence, the first position, how many, and whether
    it is the sequence's first; int64 [tiles, 4]."""
    tiles = np.empty(((end - begin) // TILE + 2 * context.size, 4), np.int64)
    count = offset = 0
    for s in range(context.size):
        hidden = context[s] - (ends[s] - offset)  # positions before the window
        first, last = max(begin, offset), min(end, ends[s])
        for start in range(first, last, TILE):
            tiles[count, 0] = s
            tiles[count, 1] = hidden + start - offset
            tiles[count, 2] = min(TILE, last - start)
            tiles[count, 3] = start == first
            count += 1
        offset = ends[s]
    return tiles[:count]


@inner
def _find(tables, tile, block_size, slots):
    count = tile[2]
    find_slots(tables[tile[0]], tile[1], count, block_size, slots)
    for i in range(count, TILE):
        slots[i] = slots[count - 1]  # passes are several positions wide; what they compute here is thrown away


@inner
def _clear(rows):
    for i in range(rows.shape[0]):
        for d in range(rows.shape[1]):
            rows[i, d] = 0


@inner
def _clear_empty(ends, out):
    for s in range(ends.size):
        if ends[s] == (ends[s - 1] if s > 0 else 0):
            _clear(out[s])


@inner
def _begin(query, scale, scaled, largest, total, weighted):
    for head in range(len(query)):
        largest[head] = LOWEST
        total[head] = 0
        for d in range(weighted.shape[1]):
            weighted[head, d] = 0
            scaled[head, d] = query[head, d] * scale if d < query.shape[1] else 0


@inner
def _keep(own_largest, own_total, own_weighted, largest, total, weighted):
    for head in range(len(own_total)):
        largest[head], total[head] = own_largest[head], own_total[head]
        for d in range(weighted.shape[1]):
            weighted[head, d] = own_weighted[head, d]


@inner
def _attend_tile(
    query, pool, scales, slots, count, coming, softcap, scores, factors, unpacked, largest, total, weighted
):  # fmt: skip
    group, width = query.shape[0] // pool.shape[2], query.shape[1]
    row = pool.shape[3] * pool.itemsize  # of a head, in bytes
    numbers, rows, step = unpacked, IN_ORDER, width * query.itemsize
    key, value = 0, TILE * step  # their first bytes
    where_they_lie = scales is None and pool.shape[3] == width
    if where_they_lie:
        numbers, rows, step = pool.view(query.dtype).reshape((-1, width)), slots, pool.shape[2] * row
    for kv_head in range(pool.shape[2]):
        its_key = kv_head * row
        its_value = its_key + pool.shape[1] * pool.shape[2] * row
        if where_they_lie:
            key, value = its_key, its_value
        else:
            for plane in range(2):
                read_rows(pool, scales, plane, slots, count, kv_head, unpacked[plane * TILE :])
        head = kv_head * group
        while head < (kv_head + 1) * group:
            together = _heads_together((kv_head + 1) * group - head)
            _score(together, query[head:], numbers, key, step, rows, count, scores, pool, coming, its_key)
            for h in range(together):
                factors[h] = _soften(head + h, count, softcap, scores[h], largest, total)
            sums = weighted[head:]
            _add(together, scores, numbers, value, step, rows, count, factors, sums, pool, coming, its_value)
            head += together


@inner
def _heads_together(left):
    return min(left, HEADS) if left != 4 else 2


@inner
def _score(together, query, keys, start, step, slots, count, scores, pool, coming, offset):
    passes = -(-count // POSITIONS)
    if together == 3:
        score_heads(3, query, keys, start, step, slots, passes, scores, TILE, pool, coming, offset)
    elif together == 2:
        score_heads(2, query, keys, start, step, slots, passes, scores, TILE, pool, coming, offset)
    else:
        score_heads(1, query, keys, start, step, slots, passes, scores, TILE, pool, coming, offset)


@inner
def _add(together, scores, values, start, step, slots, count, factors, weighted, pool, coming, offset):
    if together == 3:
        add_values(3, scores, TILE, values, start, step, slots, count, factors, weighted, pool, coming, offset)
    elif together == 2:
        add_values(2, scores, TILE, values, start, step, slots, count, factors, weighted, pool, coming, offset)
    else:
        add_values(1, scores, TILE, values, start, step, slots, count, factors, weighted, pool, coming, offset)


@inner
def _soften(head, count, softcap, scores, largest, total):
    """From products to the softmax's terms; returns by how much what was summed before shrinks. Loops go over whole
    tiles, which the compiler knows the length of; beyond ``count`` terms are next to nothing."""
    if softcap > 0:
        for i in range(count):
            scores[i] = softcap * math.tanh(scores[i] / softcap)
    for i in range(count, TILE):
        scores[i] = LOWEST
    highest = largest[head]
    for i in range(TILE):
        highest = max(highest, scores[i])
    for i in range(TILE):
        scores[i] -= highest
    exponentials(scores, TILE)
    rescale = math.exp(largest[head] - highest)
    summed = total[head] * rescale
    for i in range(TILE):
        summed += scores[i]
    largest[head] = highest
    total[head] = summed
    return rescale


@inner
def _finish(largest, total, weighted, sinks, out):
    """The softmax's division, the sink taking part in it."""
    for head in range(len(out)):
        factor = 1 / total[head]
        if sinks.size > 0:
            highest = max(largest[head], sinks[head])
            rescale = math.exp(largest[head] - highest)
            factor = rescale / (total[head] * rescale + math.exp(sinks[head] - highest))
        factor = weighted.dtype.type(factor)
        for d in range(out.shape[1]):
            out[head, d] = weighted[head, d] * factor


@inner
def _merge(ends, shares, sinks, largest, total, weighted, out):
    """Combine the pieces of every sequence that was cut, into its first piece and from there into ``out``."""
    share = 0
    for s in range(ends.size):
        while share < shares - 1 and ends[-1] * (share + 1) // shares <= (ends[s - 1] if s > 0 else 0):
            share += 1
        first = share
        while share < shares - 1 and ends[-1] * (share + 1) // shares < ends[s]:
            share += 1
            for head in range(out.shape[1]):
                _combine(s + first, s + share, head, largest, total, weighted)
        if share > first:
            _finish(largest[s + first], total[s + first], weighted[s + first], sinks, out[s])


@inner
def _combine(into, piece, head, largest, total, weighted):
    highest = max(largest[into, head], largest[piece, head])
    a, b = math.exp(largest[into, head] - highest), math.exp(largest[piece, head] - highest)
    a, b = weighted.dtype.type(a), weighted.dtype.type(b)
    largest[into, head] = highest
    total[into, head] = a * total[into, head] + b * total[piece, head]
    for d in range(weighted.shape[2]):
        weighted[into, head, d] = a * weighted[into, head, d] + b * weighted[piece, head, d]
