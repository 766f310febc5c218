"""Paged attention of prompt chunks compiled for the CPU: many query tokens a sequence, in float32.

Sixteen queries, of neighbouring tokens and of all query heads that share a key-value head, stand in the lanes of
vectors from the first product to the last, so that neither the softmax nor its sums cross lanes: scores are keys times
queries, [positions, 16], results values times weights, [D, 16]. The softmax is the online one (Milakov and Gimelshein,
2018), a tile of positions at a time (Dao et al., "FlashAttention", 2022). A few such tiles of queries share a reading
of the pool, whose rows are brought together, and widened, in the nearest caches.

Tiles of positions begin at multiples of their length, so that a query's result is the same to the last bit however its
prompt is cut into chunks.
"""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined, call-arg"

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numba import prange

from .cpu_jit import Array, entry, exponential, inner, shares_for
from .cpu_pool import find_slots, read_rows, scales_of
from .cpu_tile import OUTPUTS, multiply_floats, rows_together, soften_lanes

LANES = OUTPUTS  # queries in a tile
TILES = 4  # tiles of queries that share a reading of the pool
TILE = 96  # positions whose scores are held at once
UNROLL = 4  # positions in one step of the softmax's sums
MULTIPLIED = 25_000  # multiply-adds that one thread does in a microsecond
LOWEST = np.float32(-1e30)  # stands for minus infinity, which fast-math may not see


def chunk_attention(
    query: Array,
    pool: Array,
    tables: Array,
    starts: Array,
    context: Array,
    first: int,
    block_size: int,
    *,
    scale: float,
    window: int,
    softcap: float,
    sinks: Array,
    out: Array,
    shares: int | None = None,
) -> None:
    """Attention of the queries of all sequences from ``first`` on, ``query`` and ``out`` [T, Hq, D], over ``pool``.

    All arrays are C-contiguous; ``query``, ``out`` and ``sinks`` ([Hq] or empty) are float32, ``tables``, ``starts`` [S
    + 1] and ``context`` [S] int32. The pool is one of those that :func:`.cpu_decode.decode_attention` takes. ``shares``
    is into how many the work is dealt, by default what pays.
    """
    heads, width = query.shape[1:]
    blocks = _blocks(starts, context, first, heads // pool.shape[2], window)
    if shares is None:
        shares = shares_for(int(blocks[:, 3].sum()) * pool.shape[2] * LANES * 2 * width / MULTIPLIED)
    arguments = (
        query, pool, scales_of(pool), tables, starts, context, blocks, block_size, window, np.float32(scale),
        np.float32(softcap), sinks, out,
    )  # fmt: skip
    if shares == 1:
        _one_share(*arguments)
    else:
        _all_shares(*arguments, shares)


def compile_chunks(head_dim: int, pool: type[np.generic]) -> None:
    """Compile everything :func:`chunk_attention` runs over such a pool, or load it from the cache."""
    rows = np.zeros((1, 1, head_dim), np.float32)
    slots = np.zeros((2, 1, 1, head_dim + (16 if pool is np.int8 else 0)), pool)
    table = np.zeros((1, 1), np.int32)
    for shares in (1, 2):
        chunk_attention(
            rows, slots, table, np.array([0, 1], np.int32), table[0] + 1, 0, 1, scale=1.0, window=0, softcap=0.0,
            sinks=np.empty(0, np.float32), out=np.empty_like(rows), shares=shares,
        )  # fmt: skip


@entry
def _blocks(starts, context, first, group, window):
    """What the work is dealt out in: of each the sequence, the first and the last but one of its queries (all heads'
    that share a key-value head, counted token by token), and about how much it takes; int64 [blocks, 4]."""
    most = LANES * TILES
    count = 0
    for s in range(first, context.size):
        if context[s] > 0:
            count += -(-(starts[s + 1] - starts[s]) * group // most)
    blocks = np.empty((count, 4), np.int64)
    count = 0
    for s in range(first, context.size):
        queries = (starts[s + 1] - starts[s]) * group if context[s] > 0 else 0
        prefix = context[s] - (starts[s + 1] - starts[s])
        for begin in range(0, queries, most):
            end = min(begin + most, queries)
            seen = prefix + (begin + end) // (2 * group) + 1
            blocks[count, 0], blocks[count, 1], blocks[count, 2] = s, begin, end
            blocks[count, 3] = -(-(end - begin) // LANES) * (min(seen, window) if window > 0 else seen)
            count += 1
    return blocks


@entry
def _one_share(
    query, pool, scales, tables, starts, context, blocks, block_size, window, scale, softcap, sinks, out
):  # fmt: skip
    share, shares = np.int64(0), np.int64(1)  # not literals, for which all would be compiled once more
    _share(
        query, pool, scales, tables, starts, context, blocks, block_size, window, scale, softcap, sinks, out, share,
        shares,
    )  # fmt: skip


@partial(entry, parallel=True)
def _all_shares(
    query, pool, scales, tables, starts, context, blocks, block_size, window, scale, softcap, sinks, out, shares
):  # fmt: skip
    for share in prange(shares):
        _share(
            query, pool, scales, tables, starts, context, blocks, block_size, window, scale, softcap, sinks, out,
            np.int64(share), shares,
        )  # fmt: skip


@inner
def _share(
    query, pool, scales, tables, starts, context, blocks, block_size, window, scale, softcap, sinks, out, share, shares
):  # fmt: skip
    """One thread's part: the blocks whose middle, all laid end to end by what they take, lies in it."""
    width = query.shape[2]
    queries = np.empty((TILES, width, LANES), np.float32)
    weighted = np.empty((TILES, width, LANES), np.float32)
    largest = np.empty((TILES, LANES), np.float32)
    total = np.empty((TILES, LANES), np.float32)
    scores = np.empty((TILE, LANES), np.float32)
    keys = np.empty((TILE, width), np.float32)
    values = np.empty((TILE, width), np.float32)
    slots = np.empty(TILE, np.int64)
    rescale = np.empty(LANES, np.float32)
    work = blocks[:, 3].sum() * pool.shape[2]
    done = 0
    for b in range(len(blocks)):
        s, begin, end, takes = blocks[b]
        for kv_head in range(pool.shape[2]):
            middle = done + takes // 2
            done += takes
            if middle * shares // max(1, work) != share:
                continue
            group = query.shape[1] // pool.shape[2]
            tokens, results = query[starts[s] : starts[s + 1]], out[starts[s] : starts[s + 1]]
            prefix = context[s] - len(tokens)
            _begin(tokens, kv_head, group, begin, end, scale, queries, largest, total, weighted)
            oldest = max(0, prefix + begin // group - window + 1) if window > 0 else 0
            newest = prefix + (end - 1) // group
            for start in range(oldest // TILE * TILE, newest + 1, TILE):
                count = min(TILE, newest + 1 - start)
                skipped = max(0, oldest - start)
                _gather(pool, scales, tables[s], start, skipped, count, block_size, kv_head, slots, keys, values)
                for t in range(-(-(end - begin) // LANES)):
                    first_query = begin + t * LANES
                    lowest = prefix + first_query // group  # positions of the tile's queries
                    highest = prefix + (min(first_query + LANES, end) - 1) // group
                    if start > highest or (window > 0 and start + count <= lowest - window + 1):
                        continue
                    near = min(count, highest + 1 - start)
                    hides = start + near - 1 > lowest or (window > 0 and start < highest - window + 1)
                    _attend_tile(
                        queries[t], keys, values, near, start, prefix, first_query, group, hides, window, softcap,
                        scores, rescale, largest[t], total[t], weighted[t],
                    )  # fmt: skip
            _finish(begin, end, group, kv_head, sinks, largest, total, weighted, results)


@inner
def _begin(tokens, kv_head, group, begin, end, scale, queries, largest, total, weighted):
    """Lay the queries out, times the scale; lanes beyond the last one hold zeros."""
    for t in range(-(-(end - begin) // LANES)):
        largest[t] = LOWEST
        total[t] = 0
        weighted[t] = 0
        for lane in range(LANES):
            place = begin + t * LANES + lane
            if place < end:
                row = tokens[place // group, kv_head * group + place % group]
                for d in range(row.size):
                    queries[t, d, lane] = row[d] * scale
            else:
                queries[t, :, lane] = 0


@inner
def _gather(pool, scales, table, start, skipped, count, block_size, kv_head, slots, keys, values):
    """Positions ``start + skipped`` to ``start + count`` of the pool, and zeros for those around them."""
    find_slots(table, start + skipped, count - skipped, block_size, slots)
    read_rows(pool, scales, 0, slots, count - skipped, kv_head, keys[skipped:])
    read_rows(pool, scales, 1, slots, count - skipped, kv_head, values[skipped:])
    for rows in (keys, values):
        rows[:skipped] = 0
        rows[count : -(-count // UNROLL) * UNROLL] = 0


@inner
def _attend_tile(
    queries, keys, values, count, start, prefix, first_query, group, hides, window, softcap,
    scores, rescale, largest, total, weighted,
):  # fmt: skip
    padded = -(-count // UNROLL) * UNROLL
    width = len(queries)
    i = 0
    while i < padded:
        together = rows_together(padded - i)
        _multiply(together, keys.reshape(-1)[i * width :], width, 1, queries, scores[i:], 0)
        i += together
    if softcap > 0:
        _bend(scores[:padded].reshape(-1), softcap)
    hides = hides or padded > count
    if hides:
        _hide(scores, padded, start, prefix, first_query, group, window, LOWEST)
    if _raise_largest(scores, padded, largest, rescale):
        for lane in range(LANES):
            total[lane] *= rescale[lane]
        for d in range(width):
            for lane in range(LANES):
                weighted[d, lane] *= rescale[lane]
    soften_lanes(scores, padded, largest, total)  # adds next to nothing for what is hidden
    if hides:
        _hide(scores, padded, start, prefix, first_query, group, window, np.float32(0))
    d = 0
    while d < width:
        together = rows_together(width - d)
        _multiply(together, values.reshape(-1)[d:], 1, width, scores[:padded], weighted[d:], 1)
        d += together


@inner
def _multiply(together, x, row, step, weights, total, adds):
    if together == 6:
        multiply_floats(6, x, row, step, weights, total, adds, None, 0)
    elif together == 4:
        multiply_floats(4, x, row, step, weights, total, adds, None, 0)
    elif together == 2:
        multiply_floats(2, x, row, step, weights, total, adds, None, 0)
    else:
        multiply_floats(1, x, row, step, weights, total, adds, None, 0)


@inner
def _bend(scores, softcap):
    """softcap tanh(score / softcap), tanh x being (1 - exp(-2x)) / (1 + exp(-2x))."""
    twice = np.float32(2) / softcap
    for i in range(scores.size):
        power = exponential(-abs(scores[i]) * twice)
        bent = softcap * (np.float32(1) - power) / (np.float32(1) + power)
        scores[i] = bent if scores[i] >= 0 else -bent


@inner
def _hide(scores, count, start, prefix, first_query, group, window, number):
    """Put ``number`` where a query does not see a position."""
    for lane in range(LANES):
        own = prefix + (first_query + lane) // group
        for i in range(max(0, own + 1 - start), count):
            scores[i, lane] = number
        if window > 0:
            for i in range(min(count, own - window + 1 - start)):
                scores[i, lane] = number


@inner
def _raise_largest(scores, count, largest, rescale):
    """Find the largest scores so far. Returns whether any grew, and by how much what was summed before then shrinks."""
    for lane in range(LANES):
        rescale[lane] = largest[lane]
    for i in range(0, count, UNROLL):
        for lane in range(LANES):
            a, b = max(scores[i, lane], scores[i + 1, lane]), max(scores[i + 2, lane], scores[i + 3, lane])
            largest[lane] = max(largest[lane], max(a, b))
    grew = False
    for lane in range(LANES):
        grew |= largest[lane] > rescale[lane]
    if grew:
        for lane in range(LANES):
            rescale[lane] = exponential(rescale[lane] - largest[lane])
    return grew


@inner
def _finish(begin, end, group, kv_head, sinks, largest, total, weighted, results):
    """The softmax's division, the sink taking part in it."""
    for place in range(begin, end):
        t, lane = (place - begin) // LANES, (place - begin) % LANES
        head = kv_head * group + place % group
        factor = 1 / total[t, lane]
        if sinks.size > 0:
            highest = max(largest[t, lane], sinks[head])
            rescale = math.exp(largest[t, lane] - highest)
            factor = rescale / (total[t, lane] * rescale + math.exp(sinks[head] - highest))
        row = results[place // group, head]
        for d in range(row.size):
            row[d] = weighted[t, d, lane] * np.float32(factor)
