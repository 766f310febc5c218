"""Linear layers of 8 and 4 bits against those they were made of."""

from __future__ import annotations

import pytest
import torch
from pagedeck.engine.model.quantized import QuantizedLinear, quantize_linears
from torch import nn


@pytest.mark.parametrize(("bits", "close"), [(8, 0.01), (4, 0.1)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [(1,), (1, 1), (7,), (1, 40), (0,), (2, 3)])
def test_products_are_close(bits: int, close: float, bias: bool, rows: tuple[int, ...]) -> None:
    plain = nn.Linear(96, 80, bias=bias).requires_grad_(False)
    x = torch.randn(*rows, 96)
    got, exact = QuantizedLinear(plain, bits)(x), plain(x)
    assert got.shape == exact.shape and got.dtype == exact.dtype
    assert (got - exact).norm() <= close * exact.norm()


def test_numbers_of_a_gguf_file_lose_nothing() -> None:
    """Read into float32 and rounded again, they are those of the file."""
    import gguf

    weight = torch.randn(48, 96).numpy()
    for kind, bits in ((gguf.GGMLQuantizationType.Q8_0, 8), (gguf.GGMLQuantizationType.Q4_1, 4)):
        read = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(weight, kind), kind).copy())
        again = QuantizedLinear(_linear(read), bits).quantized.dequantize()
        assert torch.allclose(again, read, rtol=1e-3, atol=1e-3)


def _linear(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


def test_every_layer_is_rounded_and_the_head_to_8_bits() -> None:
    network = nn.Sequential(nn.Linear(32, 64), nn.Sequential(nn.Linear(64, 32), nn.SiLU()), nn.Linear(32, 100))
    assert quantize_linears(network.requires_grad_(False), 4, network[2]) == 3
    assert [network[0].quantized.bits, network[1][0].quantized.bits, network[2].quantized.bits] == [4, 4, 8]
