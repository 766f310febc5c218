"""Layers of a fused network as one call each for decodes, on the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from .fused import FusedLayer, FusedNetwork, Norm, WholeLayer
from .linear import TiledLinear


def whole_layers(network: FusedNetwork, stored: torch.dtype) -> list[WholeLayer]:
    """One call for each layer of ``network`` over a cache in ``stored``; none where the kernel takes no such layer: it
    computes in float32, over weights of our own layouts."""
    if {stored, network.embedding.weight.dtype} != {torch.float32}:
        return []
    layers = [_whole(layer) for layer in network.layers if isinstance(layer, FusedLayer)]
    return [layer for layer in layers if layer is not None] if None not in layers else []


def _whole(layer: FusedLayer) -> WholeLayer | None:
    from ...kernels.cpu_layer import LayerWeights, decode_layer, parts_of  # compiles, which only the CPU needs
    from .quantized import QuantizedLinear

    attention, mlp = layer.attention, layer.mlp
    products: list[nn.Module] = [attention.qkv, attention.output, mlp.gate_up, mlp.down]
    parts = [
        parts_of(product.tiles if isinstance(product, TiledLinear) else product.quantized, product.bias)
        for product in products
        if isinstance(product, TiledLinear | QuantizedLinear)
    ]
    if attention.norms is not None or len(parts) < len(products):
        return None
    qkv, output, gate_up, down = parts
    before_attention, before_mlp = (_norm(norm) for norm in layer.norms)
    weights = LayerWeights(
        norms=(before_attention, before_mlp),
        qkv=qkv,
        output=output,
        gate_up=gate_up,
        down=down,
        heads=attention.parts[0],
        gates=mlp.gate_up.out_features // 2,
    )
    return partial(decode_layer, weights, **attention.variant)


def _norm(norm: Norm) -> tuple[Any, float]:
    return norm.weight.float().numpy(), norm.eps
