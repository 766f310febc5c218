"""Moving keys and values: into the pool, between its slots, and to and from a staging buffer of the host pool."""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .elements import magnitude, narrowed, pointers, scale_of, scaled
from .tilings import next_power_of_two

CHUNK = 4096  # elements a program copies; wide enough for full-width loads, small enough to spread over the device


def write_kv(key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
    """Store ``key`` and ``value`` [T, H, D] in ``pool`` [2, num_slots, H, ...]; slot -1 is skipped."""
    tokens, kv_heads, head_dim = key.shape
    if tokens == 0:
        return
    numbers, scales = pointers(pool)
    write_kernel[(tokens, kv_heads)](
        key, value, numbers, scales, slots,
        key.stride(0), key.stride(1), value.stride(0), value.stride(1), pool.stride(0), pool.stride(1),
        HEAD_DIM=head_dim, WIDTH=next_power_of_two(head_dim), HEAD_STRIDE=pool.stride(2), num_warps=1,
    )  # fmt: skip


@triton.jit
def write_kernel(
    key, value, pool, scales, slots, key_stride, key_head_stride, value_stride, value_head_stride,
    plane_stride, slot_stride,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, HEAD_STRIDE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slots + token)
    if slot < 0:
        return
    place = slot * slot_stride + head * HEAD_STRIDE
    store_head(key + token * key_stride + head * key_head_stride, pool, scales, place, HEAD_DIM, WIDTH)
    store_head(
        value + token * value_stride + head * value_head_stride, pool, scales, plane_stride + place, HEAD_DIM, WIDTH
    )


@triton.jit
def store_head(source, pool, scales, place, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr):
    """Copy one head's key or value into the pool at element ``place``, in the pool's format."""
    column = tl.arange(0, WIDTH)
    inside = column < HEAD_DIM
    x = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
    if pool.dtype.element_ty == tl.int8:
        scale = scale_of(magnitude(x, 0))
        tl.store(scales + (place + HEAD_DIM) // 4, scale)
        tl.store(pool + place + column, scaled(x, scale), mask=inside)
    else:
        tl.store(pool + place + column, narrowed(x, pool.dtype.element_ty), mask=inside)


def copy_rows(
    source: Tensor,
    target: Tensor,
    source_rows: Tensor | None,
    target_rows: Tensor | None,
    count: int,
    *,
    planes: int,
    row: int,
    source_strides: tuple[int, int],
    target_strides: tuple[int, int],
) -> None:
    """Copy ``count`` rows of ``row`` neighbouring elements in each of ``planes`` planes.

    Row i is number ``source_rows[i]`` of the source and ``target_rows[i]`` of the target (i itself where None).
    Strides are (plane, row), in elements. Rows that are read and rows that are written must be disjoint.
    """
    if count == 0:
        return
    chunk = min(CHUNK, next_power_of_two(row))
    copy_kernel[(count, planes, triton.cdiv(row, chunk))](
        source, target, source_rows, target_rows, *source_strides, *target_strides, row, CHUNK=chunk, num_warps=4
    )


@triton.jit
def copy_kernel(
    source, target, source_rows, target_rows,
    source_plane_stride, source_row_stride, target_plane_stride, target_row_stride, row,
    CHUNK: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0).to(tl.int64)
    plane = tl.program_id(1).to(tl.int64)
    element = tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    source_row = index
    if source_rows is not None:
        source_row = tl.load(source_rows + index)
    target_row = index
    if target_rows is not None:
        target_row = tl.load(target_rows + index)
    inside = element < row
    read = source + plane * source_plane_stride + source_row * source_row_stride + element
    write = target + plane * target_plane_stride + target_row * target_row_stride + element
    tl.store(write, tl.load(read, mask=inside), mask=inside)


def copy_blocks(pool: Tensor, source: Tensor, target: Tensor, block_size: int) -> None:
    """Copy whole blocks in all layers of ``pool`` [L, 2, num_slots, H, D]; source and target are disjoint."""
    plane, slot = pool.stride(1), pool.stride(2)
    strides = (plane, block_size * slot)
    copy_rows(
        pool, pool, source, target, len(source), planes=2 * pool.shape[0], row=block_size * slot,
        source_strides=strides, target_strides=strides,
    )  # fmt: skip


def move_slots(pool: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy slots in all layers of ``pool`` as if at once, through a scratch of one layer's moved slots."""
    count, plane, slot = len(source), pool.stride(1), pool.stride(2)
    scratch = torch.empty((2, count, slot), dtype=pool.dtype, device=pool.device)
    pool_strides, scratch_strides = (plane, slot), (count * slot, slot)
    for layer in pool:
        copy_rows(
            layer, scratch, source, None, count, planes=2, row=slot,
            source_strides=pool_strides, target_strides=scratch_strides,
        )  # fmt: skip
        copy_rows(
            scratch, layer, None, target, count, planes=2, row=slot,
            source_strides=scratch_strides, target_strides=pool_strides,
        )  # fmt: skip


def gather(pool: Tensor, blocks: Tensor, block_size: int) -> Tensor:
    """Blocks of the device pool in the host pool's order: [N * block_size, L, 2, H, D] on the device."""
    layers, _, _, kv_heads, head_dim = pool.shape
    staging = pool.new_empty((len(blocks) * block_size, layers, 2, kv_heads, head_dim))
    slots = _slots(blocks, block_size)
    copy_rows(
        pool, staging, slots, None, len(slots), planes=2 * layers, row=pool.stride(2),
        source_strides=(pool.stride(1), pool.stride(2)), target_strides=(staging.stride(2), staging.stride(0)),
    )  # fmt: skip
    return staging


def scatter(staging: Tensor, pool: Tensor, blocks: Tensor, block_size: int) -> None:
    """The reverse of :func:`gather`."""
    slots = _slots(blocks, block_size)
    copy_rows(
        staging, pool, None, slots, len(slots), planes=2 * pool.shape[0], row=pool.stride(2),
        source_strides=(staging.stride(2), staging.stride(0)), target_strides=(pool.stride(1), pool.stride(2)),
    )  # fmt: skip


def _slots(blocks: Tensor, block_size: int) -> Tensor:
    return (blocks[:, None] * block_size + torch.arange(block_size, device=blocks.device)).flatten()
