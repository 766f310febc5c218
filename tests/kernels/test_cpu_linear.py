"""Linear layers in 8 and 4 bits: the layout, GGUF's blocks taken over, and products of every shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.kernels import cpu_jit
from pagedeck.kernels.cpu_linear import QuantizedWeight, quantized_linear
from torch.nn.functional import pad


def product_error(x: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None = None) -> float:
    """The largest error of a product against the same rounded weight in float64, as a share of what it would be if all
    inputs of a group were as large as its largest."""
    exact = weight.dequantize().double()
    wanted = x.double() @ exact.T + (0 if bias is None else bias.double())
    largest = pad(x.double().abs(), (0, -x.shape[1] % 32)).unflatten(1, (-1, 32)).amax(-1)
    sizes = largest.repeat_interleave(32, 1)[:, : x.shape[1]] @ exact.abs().T + 1e-30
    result = quantized_linear(x, weight, bias)
    assert result.shape == wanted.shape
    assert result.dtype == x.dtype
    return float(((result.double() - wanted).abs() / sizes).nan_to_num(nan=float("inf")).max())


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 20), outputs=st.integers(1, 70), inputs=st.integers(1, 130), bits=st.sampled_from([8, 4]),
    bias=st.booleans(), seed=st.integers(0, 99), threads=st.booleans(),
)  # fmt: skip
def test_any_shape(rows: int, outputs: int, inputs: int, bits: int, bias: bool, seed: int, threads: bool) -> None:
    """Outputs that fill no tile, inputs that fill no group, any number of rows, in one share and in several."""
    torch.manual_seed(seed)
    weight = QuantizedWeight.quantize(torch.randn(outputs, inputs), bits)
    wake, before = cpu_jit.WAKE, torch.get_num_threads()
    if threads:
        cpu_jit.WAKE = 1e-6
        torch.set_num_threads(2)
    try:
        error = product_error(torch.randn(rows, inputs), weight, torch.randn(outputs) if bias else None)
    finally:
        cpu_jit.WAKE = wake
        torch.set_num_threads(before)
    assert error < 3e-5


@pytest.mark.parametrize("bits", [8, 4])
def test_a_large_number_spoils_only_its_group(bits: int) -> None:
    x = torch.randn(5, 256)
    x[:, 40] = 1e4
    weight = QuantizedWeight.quantize(torch.randn(48, 256), bits)
    x_rest, rest = x.clone(), weight.dequantize()
    rest[:, 32:64] = 0
    x_rest[:, 32:64] = 0
    assert product_error(x, weight) < 3e-5
    assert product_error(x_rest, QuantizedWeight.quantize(rest, bits)) < 3e-5


@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_and_the_largest_integers(bits: int) -> None:
    """No division by zero, and no overflow where every product of a group is as large as it can be."""
    for weight in (torch.zeros(16, 64), torch.ones(16, 64), -torch.ones(16, 64)):
        quantized = QuantizedWeight.quantize(weight, bits)
        torch.testing.assert_close(quantized.dequantize(), weight, rtol=1e-3, atol=0)
        for x in (torch.zeros(6, 64), torch.ones(6, 64), -torch.ones(6, 64)):
            assert product_error(x, quantized) < 3e-5


@pytest.mark.parametrize(("bits", "step"), [(8, 1 / 127), (4, 2 / 15)])
def test_rounding_is_within_half_a_step(bits: int, step: float) -> None:
    weight = torch.rand(40, 96) * 2 - 1
    error = (QuantizedWeight.quantize(weight, bits).dequantize() - weight).abs().max()
    assert step / 4 < error < step * 0.51


def test_bytes_of_a_weight() -> None:
    weight = torch.randn(64, 128)
    assert QuantizedWeight.quantize(weight, 8).nbytes == 64 * 128 * 8.5 / 8
    assert QuantizedWeight.quantize(weight, 4).nbytes == 64 * 128 * 5 / 8


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_blocks_of_a_gguf_file_are_taken_over_exactly(kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    numbers = np.random.default_rng(0).normal(size=(40, 96)).astype(np.float32)
    form = getattr(gguf.GGMLQuantizationType, kind)
    blocks = gguf.quants.quantize(numbers, form)
    weight = QuantizedWeight.from_blocks(torch.from_numpy(blocks), kind)
    wanted = torch.from_numpy(gguf.quants.dequantize(blocks, form))
    torch.testing.assert_close(weight.dequantize(), wanted, rtol=1e-6, atol=1e-7)
    assert product_error(torch.randn(3, 96), weight) < 3e-5


def test_other_types_of_input_come_back_as_they_went_in() -> None:
    weight = QuantizedWeight.quantize(torch.randn(32, 64), 8)
    for dtype, tolerance in ((torch.float64, 3e-5), (torch.bfloat16, 1e-2)):
        assert product_error(torch.randn(4, 64).to(dtype), weight) < tolerance
    assert quantized_linear(torch.empty(0, 64), weight).shape == (0, 32)
