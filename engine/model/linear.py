"""Linear layers of a float32 model on the CPU with weights that oneDNN has laid out for itself.

A decode step multiplies few rows by every weight of the model, and what ``F.linear`` calls is on many processors half
as fast at that as oneDNN is on its own layout. Which one is faster here is measured, not guessed.
"""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor, nn

#: Rows that the layout is made for and the choice is measured at: a step of a few decodes.
LAYOUT_ROWS = 32
MEASURED_ROWS = 8
#: The packed layer is also steadier beside a busy process, so it need not quite win.
TOLERANCE = 1.1


class PackedLinear(nn.Module):
    """``nn.Linear`` with its weight in oneDNN's layout; equal up to float32 rounding. Keeps no other copy of it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        # Not a parameter: such a tensor has no strides, and nothing but its own product can read it.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), LAYOUT_ROWS)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")


@torch.inference_mode()
def pack_linears(model: nn.Module) -> int:
    """Replace the linear layers of ``model`` if that is faster on this machine; returns how many were."""
    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear and layer.weight.dtype == torch.float32 and layer.weight.device.type == "cpu"
    ]
    if not found or not _available() or not _packing_pays([layer for _, _, layer in found]):
        return 0
    for parent, name, layer in found:
        setattr(parent, name, PackedLinear(layer))
    return len(found)


def _available() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def _packing_pays(layers: list[nn.Linear]) -> bool:
    """Whether one layer of each shape, weighted by how many there are, is faster packed."""
    plain = packed = 0.0
    shapes = [(layer.out_features, layer.in_features) for layer in layers]
    for shape in set(shapes):
        layer, count = layers[shapes.index(shape)], shapes.count(shape)
        x = torch.randn(MEASURED_ROWS, layer.in_features)
        other = PackedLinear(layer)
        times = [(_seconds(layer, x), _seconds(other, x)) for _ in range(4)]
        plain += count * min(time for time, _ in times)
        packed += count * min(time for _, time in times)
    return packed < plain * TOLERANCE


def _seconds(layer: nn.Module, x: Tensor) -> float:
    started = perf_counter()
    layer(x)
    return perf_counter() - started
