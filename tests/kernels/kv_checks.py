"""What every op table must do with keys and values, compared bit for bit with plain indexing of what the formats say.

The type is that of the pool; what is written to a narrower one is float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pagedeck.kernels import Ops
from pagedeck.kernels.formats import decode, encode, raw
from torch import Tensor

LAYERS, KV_HEADS, HEAD_DIM = 2, 3, 20


def _pool(slots: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return encode(torch.randn((LAYERS, 2, slots, KV_HEADS, HEAD_DIM), generator=generator), dtype)


def _rows(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape).to(torch.float32 if dtype.itemsize == 1 else dtype)


def _same(a: Tensor, b: Tensor) -> None:
    a, b = raw(a), raw(b)
    if a.dtype == torch.int8 and a.shape[-1] > HEAD_DIM:
        a, b = a[..., : HEAD_DIM + 4], b[..., : HEAD_DIM + 4]  # nothing reads what is behind the scale
    assert torch.equal(a, b), f"{int((a != b).sum())} of {a.numel()} elements differ"


def write_skips_padding(ops: Ops, dtype: torch.dtype) -> None:
    """Slots -1 are skipped; keys may be rows of a wider projection, and values transposed."""
    pool = _pool(50, dtype)
    before = raw(pool.clone())
    slots = torch.tensor([7, -1, 49, 0, -1])
    key = _rows(dtype, 5, KV_HEADS, HEAD_DIM + 5)[..., :HEAD_DIM]
    value = _rows(dtype, KV_HEADS, 5, HEAD_DIM).transpose(0, 1)
    ops.write_kv(key, value, pool[1], slots)
    for token, slot in ((0, 7), (2, 49), (3, 0)):
        before[1, 0, slot] = raw(encode(key[token], dtype))
        before[1, 1, slot] = raw(encode(value[token], dtype))
    _same(pool, before)


def write_of_padding_alone(ops: Ops, dtype: torch.dtype) -> None:
    pool = _pool(10, dtype)
    before = pool.clone()
    rows = _rows(dtype, 3, KV_HEADS, HEAD_DIM)
    ops.write_kv(rows, rows, pool[0], torch.full((3,), -1))
    ops.write_kv(rows[:0], rows[:0], pool[0], torch.empty(0, dtype=torch.int64))
    _same(pool, before)


def writes_numbers_at_the_edges(ops: Ops, dtype: torch.dtype) -> None:
    """Nothing but zeros, the largest and the smallest numbers, ties, and what is not finite stays so."""
    numbers = torch.tensor([0.0, -0.0, 1e-9, 2**-10, 3 * 2**-10, 2**-9, 0.0625, 1.0625, -1.1875, 3.25, 240, 448, 464])
    rows = torch.zeros(6, KV_HEADS, HEAD_DIM)
    rows[0, 0, : len(numbers)] = numbers
    rows[1, 1, : len(numbers)] = -numbers
    rows[2] = numbers[torch.arange(HEAD_DIM) % len(numbers)] * 1000 if dtype != torch.float16 else 60000
    rows[3, 0] = torch.arange(HEAD_DIM) - 127.0
    rows[3, 1] = torch.arange(HEAD_DIM) + 0.5
    rows[3, 1, 0] = 127
    rows[4] = 1e-44 if dtype == torch.float32 else 2**-14
    pool = _pool(10, dtype)
    wanted = raw(pool.clone())
    slots = torch.arange(2, 8)
    rows = rows.to(torch.float32 if dtype.itemsize == 1 else dtype)
    ops.write_kv(rows, rows.flip(0), pool[0], slots)
    wanted[0, 0, slots], wanted[0, 1, slots] = raw(encode(rows, dtype)), raw(encode(rows.flip(0), dtype))
    _same(pool, wanted)

    rows[1, 1, 3] = float("nan")
    ops.write_kv(rows, rows, pool[0], slots)
    read = decode(pool[0, :, slots], HEAD_DIM)
    assert read[:, 1, 1, 3].isnan().all()
    assert read[:, 2:].isfinite().all()


def copies_blocks(ops: Ops, dtype: torch.dtype) -> None:
    """Whole blocks, in every layer; one source may have two targets; a tail that fills no block stays."""
    for block_size in (8, 32):
        pool = _pool(6 * block_size + 5, dtype)
        before = raw(pool.clone())
        ops.copy_blocks(pool, torch.tensor([4, 0, 4]), torch.tensor([1, 5, 2]), block_size)
        for source, target in ((4, 1), (0, 5), (4, 2)):
            rows = before[:, :, source * block_size : (source + 1) * block_size].clone()
            before[:, :, target * block_size : (target + 1) * block_size] = rows
        _same(pool, before)


def moves_slots_as_if_at_once(ops: Ops, dtype: torch.dtype) -> None:
    """A rotation and an overlapping shift, in which targets are sources of others."""
    pool = _pool(40, dtype)
    before = pool.clone()
    before = raw(before)
    source = torch.tensor([0, 1, 2, *range(10, 30)])
    target = torch.tensor([1, 2, 0, *range(13, 33)])
    ops.move_slots(pool, source, target)
    wanted = before.clone()
    wanted[:, :, target] = before[:, :, source]
    _same(pool, wanted)


def moves_nothing(ops: Ops, dtype: torch.dtype) -> None:
    pool = _pool(16, dtype)
    host = pool.movedim(2, 0).contiguous()
    before, host_before = pool.clone(), host.clone()
    none = torch.empty(0, dtype=torch.int64)
    ops.move_slots(pool, none, none)
    ops.copy_blocks(pool, none, none, 8)
    ops.gather_blocks(pool, none, 8, host, none)
    ops.scatter_blocks(host, none, 8, pool, none)
    _same(pool, before)
    _same(host, host_before)


def swaps_out_and_in(ops: Ops, dtype: torch.dtype) -> None:
    """Blocks in runs and alone, to other places of the host pool and back to other blocks."""
    size = 8
    pool = _pool(12 * size + 3, dtype)
    host = _pool(9 * size, dtype, seed=1).movedim(2, 0).contiguous()
    wanted_host, wanted_pool = host.clone(), pool.clone()
    blocks, host_blocks = torch.tensor([3, 4, 5, 11, 0]), torch.tensor([6, 7, 8, 2, 1])
    ops.gather_blocks(pool, blocks, size, host, host_blocks)
    for block, place in zip(blocks.tolist(), host_blocks.tolist(), strict=True):
        rows = pool[:, :, block * size : (block + 1) * size]
        wanted_host[place * size : (place + 1) * size] = rows.movedim(2, 0)
    _same(host, wanted_host)
    _same(pool, wanted_pool)

    back = torch.tensor([9, 10, 2, 7, 8])
    ops.scatter_blocks(host, host_blocks, size, pool, back)
    for block, source in zip(back.tolist(), blocks.tolist(), strict=True):
        rows = wanted_pool[:, :, source * size : (source + 1) * size].clone()
        pool_rows = pool[:, :, block * size : (block + 1) * size]
        _same(pool_rows, rows)
    untouched = [b for b in range(12) if b not in back.tolist()]
    for block in untouched:
        span = slice(block * size, (block + 1) * size)
        _same(pool[:, :, span], wanted_pool[:, :, span])
    _same(host, wanted_host)


CHECKS: dict[str, Callable[[Ops, torch.dtype], None]] = {
    check.__name__: check
    for check in (
        write_skips_padding,
        write_of_padding_alone,
        writes_numbers_at_the_edges,
        copies_blocks,
        moves_slots_as_if_at_once,
        moves_nothing,
        swaps_out_and_in,
    )
}
