"""What every op table must do with a layer's rows, against the reference in float64 on the same rounded numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from pagedeck.kernels import Ops
from pagedeck.kernels.formats import decode, encode, pool_width, raw
from pagedeck.kernels.reference import ReferenceOps, rotate
from torch import Tensor

#: Relative and absolute: the interpreter truncates where it rounds to bfloat16.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
NARROW = (torch.int8, torch.float8_e4m3fn)


def _close(result: Tensor, wanted: Tensor) -> None:
    tolerance = TOLERANCE[result.dtype]
    torch.testing.assert_close(result.double(), wanted.double(), rtol=tolerance, atol=tolerance)


def _strided(rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """Rows that are part of wider ones."""
    return torch.randn(rows, width + 24).to(dtype)[:, 8 : width + 8]


def normalises(ops: Ops, dtype: torch.dtype) -> None:
    for tokens, width in ((1, 1), (3, 33), (5, 576), (2, 2048), (0, 8)):
        x = _strided(tokens, width, dtype)
        weight = torch.randn(width).to(dtype)
        result = ops.rms_norm(x, weight, 1e-6)
        assert result.dtype == dtype
        assert result.shape == x.shape
        _close(result, ReferenceOps().rms_norm(x.double(), weight.double(), 1e-6))


def normalises_small_and_large_rows(ops: Ops, dtype: torch.dtype) -> None:
    """Rows of zeros, rows where ``eps`` decides, and rows whose squares float16 cannot hold."""
    x = torch.randn(3, 64).to(dtype)
    x[0], x[1], x[2] = 0, x[1] * 1e-3, x[2] * 1e3
    weight = torch.ones(64, dtype=dtype)
    _close(ops.rms_norm(x, weight, 1e-5), ReferenceOps().rms_norm(x.double(), weight.double(), 1e-5))


def adds_to_the_residual_first(ops: Ops, dtype: torch.dtype) -> None:
    x, residual, weight = _strided(4, 80, dtype), _strided(4, 80, dtype), torch.randn(80).to(dtype)
    before, summed = x.clone(), residual.double() + x.double()
    result = ops.rms_norm(x, weight, 1e-6, residual)
    _close(residual, summed)
    assert torch.equal(x, before)
    _close(result, ReferenceOps().rms_norm(residual.double(), weight.double(), 1e-6))


def gates(ops: Ops, dtype: torch.dtype) -> None:
    for tokens, width in ((1, 1), (3, 100), (2, 1536), (0, 8)):
        gate_up = _strided(tokens, 2 * width, dtype) * 4
        result = ops.silu_mul(gate_up)
        assert result.dtype == dtype
        assert result.is_contiguous()
        _close(result, ReferenceOps().silu_mul(gate_up.double()))
    _close(ops.silu_mul(torch.tensor([[-200.0, 80.0, 2.0, 3.0]]).to(dtype)), torch.tensor([[0.0, 240.0]]))


def _rotates(ops: Ops, dtype: torch.dtype, group: int, head_dim: int, turned: int, stored: torch.dtype) -> None:
    """All three are views into one matrix of projections; some tokens are padding."""
    tokens, kv_heads = 5, 2
    sizes = [group * kv_heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    projected = torch.randn(tokens, sum(sizes)).to(dtype)
    before = projected.clone()
    query, key, value = (part.unflatten(1, (-1, head_dim)) for part in projected.split(sizes, dim=1))
    angle = torch.randn(tokens, turned) * 3
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    slots = torch.tensor([3, -1, 11, 0, -1])
    pool = torch.zeros(2, 12, kv_heads, pool_width(head_dim, stored), dtype=torch.uint8 if stored in NARROW else stored)
    pool = pool.view(stored)
    result = ops.rotate_and_write_kv(query, key, value, cos, sin, pool, slots)
    assert result.is_contiguous()
    assert result.dtype == dtype
    assert torch.equal(projected, before)
    _close(result, rotate(query.double(), cos.double(), sin.double()))
    kept = slots >= 0
    untouched = torch.ones(12, dtype=torch.bool).index_fill_(0, slots[kept], False)
    assert not raw(pool)[:, untouched].any()
    for plane, wanted in zip(pool, (rotate(key.double(), cos.double(), sin.double()), value.double()), strict=True):
        if stored not in NARROW:
            _close(plane[slots[kept]], wanted[kept])
            continue
        # A number may fall to either side where it is rounded: half a unit of the format more than exact arithmetic.
        read = decode(plane[slots[kept]], head_dim).double()
        exact = decode(encode(wanted[kept], stored), head_dim).double()
        unit = wanted[kept].abs() / 8 if stored != torch.int8 else wanted[kept].abs().amax(-1, keepdim=True) / 127
        slack = TOLERANCE[dtype] * (1 + wanted[kept].abs())
        assert ((read - wanted[kept]).abs() <= unit / 2 + slack + (exact - wanted[kept]).abs()).all()


def rotates_and_writes(ops: Ops, dtype: torch.dtype) -> None:
    for group, head_dim, turned in ((1, 64, 64), (4, 128, 128), (7, 96, 96), (3, 80, 32), (16, 80, 80), (2, 64, 2)):
        _rotates(ops, dtype, group, head_dim, turned, dtype)


def rotates_and_writes_narrow(ops: Ops, dtype: torch.dtype) -> None:
    for stored in NARROW:
        for group, head_dim, turned in ((1, 64, 64), (3, 80, 32), (7, 96, 96)):
            _rotates(ops, dtype, group, head_dim, turned, stored)


def rotates_nothing(ops: Ops, dtype: torch.dtype) -> None:
    rows, none = torch.zeros(0, 2, 8, dtype=dtype), torch.zeros(0, 8, dtype=dtype)
    pool = torch.ones(2, 4, 2, 8, dtype=dtype)
    result = ops.rotate_and_write_kv(rows, rows, rows, none, none, pool, torch.zeros(0, dtype=torch.int64))
    assert result.shape == (0, 2, 8)
    assert (pool == 1).all()


CHECKS: dict[str, Callable[[Ops, torch.dtype], None]] = {
    check.__name__: check
    for check in (
        normalises,
        normalises_small_and_large_rows,
        adds_to_the_residual_first,
        gates,
        rotates_and_writes,
        rotates_and_writes_narrow,
        rotates_nothing,
    )
}
