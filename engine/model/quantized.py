"""Linear layers with weights of 8 or 4 bits on the CPU: fewer bytes to read, which is what few rows wait for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...kernels.cpu_linear import QuantizedWeight, quantized_linear
from .linear import by_rows, replace_linears
from .network import Network


class QuantizedLinear(nn.Module):
    """``nn.Linear`` with its weight rounded to 8 or 4 bits, in groups of 32 inputs. Keeps no other copy of it."""

    def __init__(self, linear: nn.Linear, bits: int) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self.quantized = QuantizedWeight.quantize(linear.weight.detach(), bits)

    def forward(self, x: Tensor) -> Tensor:
        return by_rows(quantized_linear, x, self.quantized, self.bias)


@torch.inference_mode()
def quantize_linears(network: Network, bits: int) -> int:
    """Round the weights of all linear layers of ``network`` to ``bits``, but those of its output layer to 8; returns
    how many layers that were. It decides between tens of thousands of tokens, and is where 4 bits would cost most."""
    head = network.output_layer()
    return replace_linears(
        network,
        lambda layer: type(layer) is nn.Linear,
        lambda layer: QuantizedLinear(layer, 8 if layer is head else bits),
    )
