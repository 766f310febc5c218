"""Linear layers on packed weights: products of every shape, and what a row gives whatever stands beside it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.kernels import cpu_jit
from pagedeck.kernels.cpu_packed import PackedWeight, packed_linear


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 20), outputs=st.integers(1, 70), inputs=st.integers(1, 100), bias=st.booleans(),
    threads=st.booleans(),
)  # fmt: skip
def test_any_shape(rows: int, outputs: int, inputs: int, bias: bool, threads: bool) -> None:
    x, weight, offset = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    wake, before = cpu_jit.WAKE, torch.get_num_threads()
    if threads:
        cpu_jit.WAKE = 1e-6
        torch.set_num_threads(2)
    try:
        result = packed_linear(x, PackedWeight.pack(weight), offset if bias else None)
    finally:
        cpu_jit.WAKE = wake
        torch.set_num_threads(before)
    wanted = x.double() @ weight.double().T + (offset.double() if bias else 0)
    torch.testing.assert_close(result.double(), wanted, rtol=1e-5, atol=5e-5)


def test_a_row_gives_the_same_bits_whatever_is_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(150, 96), PackedWeight.pack(torch.randn(80, 96))
    whole = packed_linear(x, weight)
    for first, last in ((0, 1), (3, 5), (7, 15), (20, 27), (100, 150)):
        assert torch.equal(packed_linear(x[first:last], weight), whole[first:last])
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_jit, "WAKE", 1e-6)
    torch.set_num_threads(2)
    try:
        assert torch.equal(packed_linear(x, weight), whole)
    finally:
        torch.set_num_threads(before)
