"""Linear layers of a network, changed in place into what suits the CPU.

A decode step multiplies few rows by every weight of the model, and what ``F.linear`` calls is on many processors half
as fast at that as oneDNN is with weights laid out for itself. Which one is faster here is measured, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

#: Rows that oneDNN's layout is made for.
LAYOUT_ROWS = 32
#: Rows at which the choice is measured: a single stream, a pair (where some libraries fall off a cliff), some decodes,
#: many of them or a part of a prompt.
MEASURED_ROWS = (1, 2, 8, 64)
#: So often at most, and no longer than about this.
REPETITIONS = 4
MEASURED_SECONDS = 1.0
#: The packed layer is also steadier beside a busy process, so it need not quite win.
TOLERANCE = 1.25


class PackedLinear(nn.Module):
    """``nn.Linear`` with its weight in oneDNN's layout; equal up to float32 rounding. Keeps no other copy of it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        # Not a parameter: such a tensor has no strides, and nothing but its own product can read it.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), LAYOUT_ROWS)
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x, self._packed, self.bias, "none", [], "")


@torch.inference_mode()
def pack_linears(network: nn.Module) -> int:
    """Give the float32 linear layers of ``network`` on the CPU oneDNN's layout, if that is faster on this machine;
    returns how many."""
    found = [layer for layer in network.modules() if isinstance(layer, nn.Linear) and _is_packable(layer)]
    if not found or not _available() or not _packing_pays(found):
        return 0
    return replace_linears(network, _is_packable, PackedLinear)


def _is_packable(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear and layer.weight.dtype == torch.float32 and layer.weight.device.type == "cpu"


def replace_linears(
    network: nn.Module, chosen: Callable[[nn.Module], bool], other: Callable[[nn.Linear], nn.Module]
) -> int:
    """Put another layer in the place of each chosen one, one by one, so that few weights are there twice at a time."""
    places = [
        (parent, name)
        for parent in network.modules()
        for name, layer in parent.named_children()
        if chosen(layer)
    ]  # fmt: skip
    for parent, name in places:
        setattr(parent, name, other(getattr(parent, name)))
    return len(places)


def _available() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def _packing_pays(layers: list[nn.Linear]) -> bool:
    """Whether one layer of each shape, weighted by how many there are, is faster packed: in the mean over the measured
    numbers of rows, of how the times compare. The best of a few counts, since a busy machine disturbs some."""
    examples = {(layer.out_features, layer.in_features): layer for layer in layers}
    shapes = Counter((layer.out_features, layer.in_features) for layer in layers)
    pairs = [(layer, PackedLinear(layer)) for layer in examples.values()]
    best = np.full((len(MEASURED_ROWS), len(pairs), 2), np.inf)
    ends = perf_counter() + MEASURED_SECONDS
    for _ in range(REPETITIONS):
        for i, rows in enumerate(MEASURED_ROWS):
            for j, pair in enumerate(pairs):
                x = torch.randn(rows, pair[0].in_features)
                best[i, j] = np.minimum(best[i, j], [_seconds(layer, x) for layer in pair])
        if perf_counter() > ends:
            break
    plain, packed = np.einsum("ijk,j->ki", best, [shapes[shape] for shape in examples])
    return float((packed / plain).mean()) < TOLERANCE


def _seconds(layer: nn.Module, x: Tensor) -> float:
    started = perf_counter()
    layer(x)
    return perf_counter() - started
