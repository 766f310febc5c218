"""Linear layers of a network, changed in place into what suits the CPU.

A decode step multiplies few rows by every weight of the model, and what ``F.linear`` calls is on many processors half
as fast at that as products of weights that were laid out for it: by our own kernel, or by oneDNN. Which one is fastest
here is measured, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any

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
#: Ours need not quite win: what a row gives does not depend on how many there are. Nor need oneDNN's, against the plain
#: layer: it is steadier beside a busy process.
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


class TiledLinear(nn.Module):
    """``nn.Linear`` with its weight in tiles, as our own kernel reads it. Keeps no other copy of it."""

    def __init__(self, linear: nn.Linear) -> None:
        from ...kernels.cpu_packed import PackedWeight, packed_linear  # compiles, which only the CPU needs

        super().__init__()
        self.in_features = linear.in_features
        self.out_features = linear.out_features
        self.bias = linear.bias
        self.tiles = PackedWeight.pack(linear.weight.detach())
        self._product = packed_linear

    def forward(self, x: Tensor) -> Tensor:
        return by_rows(self._product, x, self.tiles, self.bias)


def by_rows(product: Callable[..., Tensor], x: Tensor, *weights: Any) -> Tensor:
    """``product`` of rows [T, K] and ``weights``, for ``x`` with any dimensions before its last."""
    if x.ndim == 2:
        return product(x, *weights)
    return product(x.flatten(0, -2), *weights).unflatten(0, x.shape[:-1])


@torch.inference_mode()
def pack_linears(network: nn.Module) -> int:
    """Give the float32 linear layers of ``network`` on the CPU the layout that is fastest on this machine; returns how
    many got another one than their own."""
    found = [layer for layer in network.modules() if isinstance(layer, nn.Linear) and _is_packable(layer)]
    if not found:
        return 0
    kinds: list[Callable[[nn.Linear], nn.Module]] = [TiledLinear, *([PackedLinear] if _available() else [])]
    *others, plain = _times(found, [*kinds, lambda layer: layer])
    relative = [float((other / plain).mean()) for other in others]
    for kind, time in zip(kinds, relative, strict=True):
        if time < min(1.0, *relative) * TOLERANCE:
            return replace_linears(network, _is_packable, kind)
    return 0


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


def _times(layers: list[nn.Linear], kinds: list[Callable[[nn.Linear], nn.Module]]) -> np.ndarray:
    """Seconds that one layer of each shape, weighted by how many there are, takes as each of ``kinds``, by number of
    rows; float64 [K, rows]. The best of a few counts, since a busy machine disturbs some."""
    examples = {(layer.out_features, layer.in_features): layer for layer in layers}
    shapes = Counter((layer.out_features, layer.in_features) for layer in layers)
    made = [(layer.in_features, [kind(layer) for kind in kinds]) for layer in examples.values()]
    for width, alternatives in made:
        for layer in alternatives:
            _seconds(layer, torch.zeros(1, width))  # what compiles does it here
    best = np.full((len(kinds), len(MEASURED_ROWS), len(made)), np.inf)
    ends = perf_counter() + MEASURED_SECONDS
    for _ in range(REPETITIONS):
        for i, rows in enumerate(MEASURED_ROWS):
            for j, (width, alternatives) in enumerate(made):
                x = torch.randn(rows, width)
                best[:, i, j] = np.minimum(best[:, i, j], [_seconds(layer, x) for layer in alternatives])
        if perf_counter() > ends:
            break
    return best @ np.array([shapes[shape] for shape in examples])


def _seconds(layer: nn.Module, x: Tensor) -> float:
    started = perf_counter()
    layer(x)
    return perf_counter() - started
