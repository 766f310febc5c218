"""What a pool's bytes mean to a kernel. :mod:`..formats` says the same in torch.

The type of the pool's pointer tells which: float8 (e4m3) is ``float8e4nv`` where the hardware converts it, ``uint8``
where it is done here by hand; ``int8`` has a scale a head and slot. All else is the number itself.
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_E4M3 = tl.constexpr(448.0)
ROUNDER = tl.constexpr(12582912.0)  # 1.5 * 2**23: adding and subtracting it rounds to the nearest integer, ties to even


def pointers(pool: Tensor, *, converts_float8: bool = False) -> tuple[Tensor, Tensor]:
    """``pool`` as kernels take it, and its scales: the same bytes as float32 (of no use but in int8). To be written,
    float8 is always converted by hand."""
    if pool.dtype == torch.int8:
        return pool, pool.view(torch.float32)
    if pool.dtype == torch.float8_e4m3fn and not converts_float8:
        pool = pool.view(torch.uint8)
    return pool, pool


@triton.jit
def widened(stored, kind: tl.constexpr):
    """What was loaded from a pool, as ``kind``; int8 still without its scale."""
    if stored.dtype == tl.uint8:
        return _from_e4m3(stored).to(kind)
    else:
        return stored.to(kind)


@triton.jit
def narrowed(x, kind: tl.constexpr):
    """Float32 ``x`` as it is stored in a pool of ``kind``, which is not int8."""
    if kind == tl.uint8:
        return _to_e4m3(x)
    else:
        return x.to(kind)


@triton.jit
def magnitude(x, AXIS: tl.constexpr):
    """The largest absolute value of float32 ``x`` along an axis, as its bits: as integers NaN is larger than all else,
    where a maximum of floats would lose it."""
    return tl.max(tl.abs(x).to(tl.int32, bitcast=True), AXIS)


@triton.jit
def scale_of(bits):
    """The scale of int8 values from their :func:`magnitude`."""
    return bits.to(tl.float32, bitcast=True) / 127.0


@triton.jit
def scaled(x, scale):
    """Float32 ``x`` as int8 in units of ``scale``, rounded to nearest."""
    units = x / tl.where(scale == 0.0, 1.0, scale)
    return (tl.minimum(tl.maximum(units, -127.0), 127.0) + ROUNDER - ROUNDER).to(tl.int8)


@triton.jit
def _from_e4m3(byte):
    """float8 to float16: the same layout with one more bit of exponent, whose bias is larger by 8."""
    bits = byte.to(tl.int16)
    half = (((bits & 0x80) << 8) | ((bits & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0
    return tl.where((bits & 0x7F) == 0x7F, float("nan"), half)


@triton.jit
def _to_e4m3(x):
    """Float32 to float8, rounded to nearest, ties to even, saturating."""
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    size = tl.minimum(tl.abs(x), LARGEST_E4M3)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - 960  # 20 bits of mantissa less, bias 7 instead of 127
    # Below 2**-6 numbers are multiples of 2**-9, which is what 2**14 + size is rounded to.
    small = (size + 16384.0).to(tl.int32, bitcast=True) & 0xF
    code = tl.where(size < 0.015625, small, normal)
    return (sign | tl.where(x != x, 0x7F, code)).to(tl.uint8)
