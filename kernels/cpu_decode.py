"""Paged decode attention compiled for the CPU with numba: one query token a sequence.

Each thread takes an equal share of all positions of the batch laid end to end, whatever sequences they belong to, so
that threads finish together for ragged contexts and for a single long one alike. A share that begins or ends inside a
sequence leaves a partial result; at most ``threads - 1`` cuts exist and are merged afterwards. Inside a share the
softmax is the online one (Milakov and Gimelshein, 2018), a tile of positions at a time, whatever the block size.
"""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numba import prange

from .cpu_jit import Array, entry, exponentials, inner, shares_for
from .cpu_pool import find_slots, read_rows, scales_of

TILE = 64  # positions whose scores are held at once: keys of 64 x 64 floats fill half the first-level cache
UNROLL = 4  # positions in one pass over a head, so that the query is loaded once for all of them
MULTIPLIED = 8000  # multiply-adds that one thread does in a microsecond
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
        _one_share(*arguments)
    else:
        _all_shares(*arguments, shares)


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
def _one_share(query, pool, scales, tables, context, window, block_size, scale, softcap, sinks, out):
    ends = _ends(context, window)
    largest, total, weighted = _pieces(query, 1)
    _share(
        query, pool, scales, tables, context, ends, block_size, scale, softcap, sinks, out, 0, 1,
        largest, total, weighted,
    )  # fmt: skip


@partial(entry, parallel=True)
def _all_shares(query, pool, scales, tables, context, window, block_size, scale, softcap, sinks, out, shares):
    ends = _ends(context, window)
    largest, total, weighted = _pieces(query, shares)
    for share in prange(shares):
        _share(
            query, pool, scales, tables, context, ends, block_size, scale, softcap, sinks, out, share, shares,
            largest, total, weighted,
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
    return (
        np.empty((sequences + shares, heads), query.dtype),
        np.empty((sequences + shares, heads), query.dtype),
        np.empty((sequences + shares, heads, head_dim), query.dtype),
    )


@inner
def _share(
    query, pool, scales, tables, context, ends, block_size, scale, softcap, sinks, out, share, shares,
    largest, total, weighted,
):  # fmt: skip
    """One thread's part. The piece of sequence s in share w is stored at s + w: each step along the path from the
    first share of the first sequence to the last of the last raises exactly one of the two."""
    sequences, heads, head_dim = query.shape
    begin, end = ends[-1] * share // shares, ends[-1] * (share + 1) // shares
    scores = np.empty(TILE, query.dtype)
    slots = np.empty(TILE, np.int64)
    unpacked = np.empty((2, TILE, head_dim if scales is not None else 0), query.dtype)
    offset = 0
    for s in range(sequences):
        length = ends[s] - offset
        first, last = max(begin - offset, 0), min(end - offset, length)
        offset = ends[s]
        if length == 0 and share == 0:
            out[s] = 0
        if first >= last:
            continue
        hidden = context[s] - length  # positions before the window
        piece = s + share
        largest[piece] = LOWEST
        total[piece] = 0
        weighted[piece] = 0
        for start in range(hidden + first, hidden + last, TILE):
            count = min(TILE, hidden + last - start)
            find_slots(tables[s], start, count, block_size, slots)
            for i in range(count, -(-count // UNROLL) * UNROLL):
                slots[i] = slots[count - 1]  # passes are UNROLL wide; what they compute here is thrown away
            _attend_tile(
                query[s], pool, scales, slots, count, scale, softcap, scores, unpacked,
                largest[piece], total[piece], weighted[piece],
            )  # fmt: skip
        if last - first == length:
            for head in range(heads):
                _finish(head, largest[piece, head], total[piece, head], weighted[piece, head], sinks, out[s, head])


@inner
def _attend_tile(
    query, pool, scales, slots, count, scale, softcap, scores, unpacked, largest, total, weighted
):  # fmt: skip
    group = query.shape[0] // pool.shape[2]
    padded = -(-count // UNROLL) * UNROLL
    numbers = unpacked.reshape(2, TILE, 1, -1)
    for kv_head in range(pool.shape[2]):
        if scales is not None:
            read_rows(pool, scales, 0, slots, padded, kv_head, unpacked[0])
            read_rows(pool, scales, 1, slots, padded, kv_head, unpacked[1])
        for head in range(kv_head * group, (kv_head + 1) * group):
            if scales is None:
                _dot_products(query[head], pool[0], slots, padded, kv_head, scores)
            else:
                _dot_products(query[head], numbers[0], IN_ORDER, padded, 0, scores)
            rescale = _soften(head, count, padded, scale, softcap, scores, largest, total)
            if scales is None:
                _add_values(scores, pool[1], slots, padded, kv_head, rescale, weighted[head])
            else:
                _add_values(scores, numbers[1], IN_ORDER, padded, 0, rescale, weighted[head])


@inner
def _soften(head, count, padded, scale, softcap, scores, largest, total):
    """From products to the softmax's terms; returns by how much what was summed before shrinks."""
    for i in range(padded):
        scores[i] *= scale
    if softcap > 0:
        for i in range(padded):
            scores[i] = softcap * math.tanh(scores[i] / softcap)
    highest = largest[head]
    for i in range(padded):  # padding repeats the last position, so it changes no maximum
        highest = max(highest, scores[i])
    for i in range(padded):
        scores[i] -= highest
    exponentials(scores, padded)
    for i in range(count, padded):
        scores[i] = 0
    rescale = math.exp(largest[head] - highest)
    summed = total[head] * rescale
    for i in range(padded):
        summed += scores[i]
    largest[head] = highest
    total[head] = summed
    return rescale


@inner
def _dot_products(query, keys, slots, count, kv_head, scores):
    zero = query.dtype.type(0)
    for i in range(0, count, UNROLL):
        k0, k1 = keys[slots[i], kv_head], keys[slots[i + 1], kv_head]
        k2, k3 = keys[slots[i + 2], kv_head], keys[slots[i + 3], kv_head]
        s0, s1, s2, s3 = zero, zero, zero, zero
        for d in range(query.shape[0]):
            q = query[d]
            s0 += q * k0[d]
            s1 += q * k1[d]
            s2 += q * k2[d]
            s3 += q * k3[d]
        scores[i], scores[i + 1], scores[i + 2], scores[i + 3] = s0, s1, s2, s3


@inner
def _add_values(weights, values, slots, count, kv_head, rescale, weighted):
    rescale = weights.dtype.type(rescale)
    for d in range(weighted.shape[0]):
        weighted[d] *= rescale
    for i in range(0, count, UNROLL):
        v0, v1 = values[slots[i], kv_head], values[slots[i + 1], kv_head]
        v2, v3 = values[slots[i + 2], kv_head], values[slots[i + 3], kv_head]
        w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for d in range(weighted.shape[0]):
            weighted[d] += w0 * v0[d] + w1 * v1[d] + w2 * v2[d] + w3 * v3[d]


@inner
def _finish(head, largest, total, weighted, sinks, out):
    """The softmax's division, the sink taking part in it."""
    factor = 1 / total
    if sinks.size > 0:
        highest = max(largest, sinks[head])
        rescale = math.exp(largest - highest)
        factor = rescale / (total * rescale + math.exp(sinks[head] - highest))
    factor = weighted.dtype.type(factor)
    for d in range(out.shape[0]):
        out[d] = weighted[d] * factor


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
            for head in range(out.shape[1]):
                piece = s + first
                _finish(head, largest[piece, head], total[piece, head], weighted[piece, head], sinks, out[s, head])


@inner
def _combine(into, piece, head, largest, total, weighted):
    highest = max(largest[into, head], largest[piece, head])
    a, b = math.exp(largest[into, head] - highest), math.exp(largest[piece, head] - highest)
    a, b = weighted.dtype.type(a), weighted.dtype.type(b)
    largest[into, head] = highest
    total[into, head] = a * total[into, head] + b * total[piece, head]
    for d in range(weighted.shape[2]):
        weighted[into, head, d] = a * weighted[into, head, d] + b * weighted[piece, head, d]
