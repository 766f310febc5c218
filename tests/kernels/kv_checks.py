"""What every op table must do with keys and values, compared bit for bit with plain indexing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pagedeck.kernels import Ops
from torch import Tensor

LAYERS, KV_HEADS, HEAD_DIM = 2, 3, 20


def _pool(slots: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((LAYERS, 2, slots, KV_HEADS, HEAD_DIM), generator=generator).to(dtype)


def _same(a: Tensor, b: Tensor) -> None:
    assert torch.equal(a, b), f"{int((a != b).sum())} of {a.numel()} elements differ"


def write_skips_padding(ops: Ops, dtype: torch.dtype) -> None:
    """Slots -1 are skipped; keys may be rows of a wider projection, and values transposed."""
    pool = _pool(50, dtype)
    before = pool.clone()
    slots = torch.tensor([7, -1, 49, 0, -1])
    key = torch.randn(5, KV_HEADS, HEAD_DIM + 5).to(dtype)[..., :HEAD_DIM]
    value = torch.randn(KV_HEADS, 5, HEAD_DIM).to(dtype).transpose(0, 1)
    ops.write_kv(key, value, pool[1], slots)
    for token, slot in ((0, 7), (2, 49), (3, 0)):
        before[1, 0, slot] = key[token]
        before[1, 1, slot] = value[token]
    _same(pool, before)


def write_of_padding_alone(ops: Ops, dtype: torch.dtype) -> None:
    pool = _pool(10, dtype)
    before = pool.clone()
    rows = torch.randn(3, KV_HEADS, HEAD_DIM).to(dtype)
    ops.write_kv(rows, rows, pool[0], torch.full((3,), -1))
    ops.write_kv(rows[:0], rows[:0], pool[0], torch.empty(0, dtype=torch.int64))
    _same(pool, before)


def copies_blocks(ops: Ops, dtype: torch.dtype) -> None:
    """Whole blocks, in every layer; one source may have two targets; a tail that fills no block stays."""
    for block_size in (8, 32):
        pool = _pool(6 * block_size + 5, dtype)
        before = pool.clone()
        ops.copy_blocks(pool, torch.tensor([4, 0, 4]), torch.tensor([1, 5, 2]), block_size)
        for source, target in ((4, 1), (0, 5), (4, 2)):
            rows = before[:, :, source * block_size : (source + 1) * block_size].clone()
            before[:, :, target * block_size : (target + 1) * block_size] = rows
        _same(pool, before)


def moves_slots_as_if_at_once(ops: Ops, dtype: torch.dtype) -> None:
    """A rotation and an overlapping shift, in which targets are sources of others."""
    pool = _pool(40, dtype)
    before = pool.clone()
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
        copies_blocks,
        moves_slots_as_if_at_once,
        moves_nothing,
        swaps_out_and_in,
    )
}
