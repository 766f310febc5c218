"""A decoder of the common kind (RMSNorm, rotary embedding, grouped attention, gated SiLU) in few, large operations.

One product makes queries, keys and values, one makes gate and up; the residual is added where the next norm reads it;
rotary embedding happens on the way into the cache. Behind the last attention only the tokens that are sampled go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...kernels import Ops, PagedBatch
from .attention import PagedContext
from .network import Network


class Norm(NamedTuple):
    weight: Tensor  # [N]
    eps: float


class FusedAttention(nn.Module):
    """``qkv`` makes ``heads`` queries, then ``kv_heads`` keys, then as many values; ``norms`` are those of each head's
    query and key, where there are any; ``variant`` is what :meth:`Ops.paged_attention` takes besides tensors."""

    def __init__(
        self,
        qkv: nn.Linear,
        output: nn.Linear,
        heads: int,
        kv_heads: int,
        norms: tuple[Norm, Norm] | None,
        variant: dict[str, Any],
    ) -> None:
        super().__init__()
        self.qkv = qkv
        self.output = output
        self.heads = heads + 2 * kv_heads
        self.parts = (heads, kv_heads, kv_heads)
        self.norms = norms
        self.variant = variant

    def attend(self, hidden: Tensor, turn: tuple[Tensor, Tensor], pool: Tensor, batch: PagedBatch, ops: Ops) -> Tensor:
        """All heads' values [T, Hq * D] after ``hidden`` [T, N], before the output product."""
        tokens = hidden.shape[0]
        query, key, value = self.qkv(hidden).view(tokens, self.heads, -1).split(self.parts, dim=1)
        if self.norms is not None:
            query, key = (_per_head(ops, x, norm) for x, norm in zip((query, key), self.norms, strict=True))
        query = ops.rotate_and_write_kv(query, key, value, *turn, pool, batch.slots)
        return ops.paged_attention(query, pool, batch, **self.variant).view(tokens, -1)


class FusedMLP(nn.Module):
    def __init__(self, gate_up: nn.Linear, down: nn.Linear) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down = down

    def transform(self, hidden: Tensor, ops: Ops) -> Tensor:
        return self.down(ops.silu_mul(self.gate_up(hidden)))


class FusedLayer(nn.Module):
    """``norms``: before attention, before the MLP."""

    def __init__(self, norms: tuple[Norm, Norm], attention: FusedAttention, mlp: FusedMLP) -> None:
        super().__init__()
        self.norms = norms
        self.attention = attention
        self.mlp = mlp


class FusedNetwork(Network):
    """``rotary`` gives cosines and sines [1, T, R] for an example of the activations' type and
    positions [1, T]."""

    def __init__(
        self, embedding: nn.Embedding, rotary: nn.Module, layers: Sequence[FusedLayer], norm: Norm, head: nn.Linear
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.rotary = rotary
        self.layers = nn.ModuleList(layers)
        self.head = head
        self._first = layers[0].norms[0]
        # Each layer's output is normalised by what reads it: the next layer's first norm, or the model's last.
        entries = [layer.norms[0] for layer in layers] + [norm]
        self._walk = [
            (layer, layer.norms[1], after) for layer, (_, after) in zip(layers, pairwise(entries), strict=True)
        ]

    def logits(self, ids: Tensor, positions: Tensor, paged: PagedContext, sampled: Tensor) -> Tensor:
        ops = paged.ops
        residual = self.embedding(ids)
        cos, sin = self.rotary(residual, positions[None])
        turn = cos[0], sin[0]
        hidden = ops.rms_norm(residual, *self._first)
        for (layer, before_mlp, after), (pool, batch) in zip(self._walk, paged.layers, strict=True):
            hidden = layer.attention.attend(hidden, turn, pool, batch, ops)
            if after is self._walk[-1][2] and len(sampled) < len(ids):
                hidden, residual = hidden[sampled], residual[sampled]
                if not len(sampled):
                    return hidden.new_empty((0, self.head.out_features))
            hidden = ops.rms_norm(layer.attention.output(hidden), *before_mlp, residual)
            hidden = ops.rms_norm(layer.mlp.transform(hidden, ops), *after, residual)
        return self.head(hidden)

    def output_layer(self) -> nn.Module:
        return self.head


def _per_head(ops: Ops, x: Tensor, norm: Norm) -> Tensor:
    return ops.rms_norm(x.flatten(0, 1), *norm).view(x.shape)
