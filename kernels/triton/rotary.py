"""Rotary position embedding of queries and keys, and the write of keys and values to the pool, in one pass.

The turned dimensions are seen as two halves [2, R / 2]: where one is loaded, the other is its partner, so both loads
are of neighbours.
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .elements import magnitude, narrowed, pointers, scale_of, scaled
from .kv import store_head
from .tilings import next_power_of_two


def rotate_and_write_kv(
    query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
) -> Tensor:
    """Rotate ``query`` [T, Hq, D] and ``key`` [T, H, D], store key and ``value`` in ``pool`` [2, num_slots, H, ...] at
    ``slots`` (-1 is skipped); returns the rotated query."""
    tokens, heads, head_dim = query.shape
    kv_heads, turned = key.shape[1], cos.shape[1]
    out = torch.empty((tokens, heads, head_dim), dtype=query.dtype, device=query.device)
    if tokens == 0:
        return out
    group = heads // kv_heads
    numbers, scales = pointers(pool)
    rotate_kernel[(tokens, kv_heads)](
        query, key, value, cos, sin, numbers, scales, slots, out,
        query.stride(0), query.stride(1), key.stride(0), key.stride(1), value.stride(0), value.stride(1),
        cos.stride(0), sin.stride(0), pool.stride(0), pool.stride(1),
        GROUP=group, GROUP_ROWS=next_power_of_two(group), HEAD_DIM=head_dim, WIDTH=next_power_of_two(head_dim),
        HALF=turned // 2, HALF_WIDTH=next_power_of_two(turned // 2),
        REST=head_dim - turned, REST_WIDTH=next_power_of_two(head_dim - turned),
        HEAD_STRIDE=pool.stride(2), num_warps=1 if group <= 8 else 4,
    )  # fmt: skip
    return out


@triton.jit
def rotate_kernel(
    query, key, value, cos, sin, pool, scales, slots, out,
    query_stride, query_head_stride, key_stride, key_head_stride, value_stride, value_head_stride,
    cos_stride, sin_stride, plane_stride, slot_stride,
    GROUP: tl.constexpr, GROUP_ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr,
    HALF: tl.constexpr, HALF_WIDTH: tl.constexpr, REST: tl.constexpr, REST_WIDTH: tl.constexpr,
    HEAD_STRIDE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    half = tl.arange(0, 2)[:, None]
    element = tl.arange(0, HALF_WIDTH)[None, :]
    column = half * HALF + element
    partner = (1 - half) * HALF + element
    turns = (half >= 0) & (element < HALF)
    cosine = tl.load(cos + token * cos_stride + column, mask=turns, other=0.0).to(tl.float32)
    sine = tl.load(sin + token * sin_stride + column, mask=turns, other=0.0).to(tl.float32)
    sine = tl.where(half == 0, -sine, sine)
    rest = tl.arange(0, REST_WIDTH)
    passes = rest < REST

    row = tl.arange(0, GROUP_ROWS)
    head = kv_head * GROUP + row
    source = query + token * query_stride + head * query_head_stride
    target = out + (token * tl.num_programs(1) * GROUP + head) * HEAD_DIM
    used = (row < GROUP)[:, None, None] & turns[None, :, :]
    x = tl.load(source[:, None, None] + column[None, :, :], mask=used, other=0.0).to(tl.float32)
    y = tl.load(source[:, None, None] + partner[None, :, :], mask=used, other=0.0).to(tl.float32)
    turned = x * cosine[None, :, :] + y * sine[None, :, :]
    tl.store(target[:, None, None] + column[None, :, :], turned.to(out.dtype.element_ty), mask=used)
    if REST > 0:
        used = (row < GROUP)[:, None] & passes[None, :]
        beyond = 2 * HALF + rest[None, :]
        tl.store(target[:, None] + beyond, tl.load(source[:, None] + beyond, mask=used), mask=used)

    slot = tl.load(slots + token)
    if slot < 0:
        return
    place = slot * slot_stride + kv_head * HEAD_STRIDE
    source = key + token * key_stride + kv_head * key_head_stride
    x = tl.load(source + column, mask=turns, other=0.0).to(tl.float32)
    y = tl.load(source + partner, mask=turns, other=0.0).to(tl.float32)
    # Rounded to the keys' own type first, as if they had been rotated apart from being stored.
    turned = (x * cosine + y * sine).to(key.dtype.element_ty).to(tl.float32)
    unturned = tl.load(source + 2 * HALF + rest, mask=passes, other=0.0).to(tl.float32)
    if pool.dtype.element_ty == tl.int8:
        scale = scale_of(tl.maximum(magnitude(turned, None), magnitude(unturned, None)))
        tl.store(scales + (place + HEAD_DIM) // 4, scale)
        tl.store(pool + place + column, scaled(turned, scale), mask=turns)
        tl.store(pool + place + 2 * HALF + rest, scaled(unturned, scale), mask=passes)
    else:
        tl.store(pool + place + column, narrowed(turned, pool.dtype.element_ty), mask=turns)
        tl.store(pool + place + 2 * HALF + rest, narrowed(unturned, pool.dtype.element_ty), mask=passes)
    store_head(
        value + token * value_stride + kv_head * value_head_stride, pool, scales, plane_stride + place, HEAD_DIM, WIDTH
    )
