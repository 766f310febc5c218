"""Linear layers of 8 and 4 bits against those they were made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.network import TransformersNetwork
from pagedeck.engine.model.quantized import QuantizedLinear, quantize_linears
from torch import nn

from .tiny_models import served, tiny_model


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


@pytest.mark.parametrize(("kind", "own"), [("llama", False), ("gemma2", True)])
def test_every_layer_is_rounded_and_the_output_layer_to_8_bits(kind: str, own: bool) -> None:
    network: Any = served(tiny_model(kind, ATTENTION_NAME)).network
    assert isinstance(network, TransformersNetwork) == own
    count = sum(type(module) is nn.Linear for module in network.modules())
    assert quantize_linears(network, 4) == count == (22 if own else 13)
    rounded = [module for module in network.modules() if isinstance(module, QuantizedLinear)]
    assert len(rounded) == count and not any(type(module) is nn.Linear for module in network.modules())
    assert [module for module in rounded if module.quantized.bits == 8] == [network.output_layer()]
