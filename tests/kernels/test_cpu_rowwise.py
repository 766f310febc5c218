"""The small ops compiled for the CPU against the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from pagedeck.kernels import cpu_jit, cpu_rowwise
from pagedeck.kernels.cpu import CpuOps
from pagedeck.kernels.reference import ReferenceOps

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 1e-2}


@pytest.fixture(params=["one share", "shares"], autouse=True)
def shares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every op in one share, and dealt out over two threads however little there is."""
    if request.param == "one share":
        yield
        return
    monkeypatch.setattr(cpu_jit, "WAKE", 1e-6)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def close(result: torch.Tensor, wanted: torch.Tensor) -> None:
    tolerance = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 8), (1, 576), (7, 100), (33, 3)], ids=str)
def test_rms_norm(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[1]).to(dtype)
    close(CpuOps().rms_norm(x, weight, 1e-5), ReferenceOps().rms_norm(x, weight, 1e-5))
    residual = torch.randn(shape).to(dtype)
    other = residual.clone()
    close(CpuOps().rms_norm(x, weight, 1e-5, residual), ReferenceOps().rms_norm(x, weight, 1e-5, other))
    assert torch.equal(residual, other)
    apart = torch.randn(shape[1], shape[0]).to(dtype).T
    close(CpuOps().rms_norm(apart, weight, 1e-5, residual), ReferenceOps().rms_norm(apart, weight, 1e-5, other))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_of_zeros_is_normed_to_zeros(dtype: torch.dtype) -> None:
    assert not CpuOps().rms_norm(torch.zeros(3, 20, dtype=dtype), torch.ones(20, dtype=dtype), 1e-6).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 8), (1, 3072), (7, 100), (33, 2 * cpu_rowwise.TILE + 6)], ids=str)
def test_silu_mul(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = (torch.randn(shape) * 4).to(dtype)
    close(CpuOps().silu_mul(x), ReferenceOps().silu_mul(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_silu_of_the_largest_numbers(dtype: torch.dtype) -> None:
    gates = torch.tensor([[0.0, 1e-30, 88.0, -88.0, 700.0, -700.0, 1e30, -1e30]], dtype=dtype)
    x = torch.cat([gates, torch.ones_like(gates)], dim=1)
    close(CpuOps().silu_mul(x), ReferenceOps().silu_mul(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [1, 40])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "rotary"), [(9, 3, 64, 64), (4, 4, 20, 12), (2, 1, 80, 32)])
def test_rotary_and_the_write(
    heads: int, kv_heads: int, head_dim: int, rotary: int, tokens: int, dtype: torch.dtype
) -> None:
    """From views into one matrix, and from heads laid out one after the other; padding is rotated and not written."""
    cos, sin = torch.randn(2, tokens, rotary)
    slots = torch.randperm(60)[:tokens]
    slots[1::5] = -1
    matrix = torch.randn(tokens, (heads + 2 * kv_heads) * head_dim).to(dtype).unflatten(1, (-1, head_dim))
    apart = matrix.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    for whole in (matrix, matrix.transpose(0, 1).contiguous().transpose(0, 1), apart):
        query, key, value = whole.split((heads, kv_heads, kv_heads), dim=1)
        pool = torch.randn(2, 60, kv_heads, head_dim).to(dtype)
        other = pool.clone()
        result = CpuOps().rotate_and_write_kv(query, key, value, cos, sin, pool, slots)
        assert result.is_contiguous()
        close(result, ReferenceOps().rotate_and_write_kv(query, key, value, cos, sin, other, slots))
        close(pool, other)
        untouched = [slot for slot in range(60) if slot not in slots.tolist()]
        assert torch.equal(pool[:, untouched], other[:, untouched])
