"""A decoder of the common kind (RMSNorm, rotary embedding, grouped attention, gated SiLU) in few, large operations.

One product makes queries, keys and values, one makes gate and up; the residual is added where the next norm reads it;
rotary embedding happens on the way into the cache. Behind the last attention only the tokens that are sampled go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...kernels import Ops, PagedBatch
from .attention import PagedContext
from .network import Network

Turn = tuple[Tensor, Tensor]  # cosines and sines [T, R] of the tokens' positions


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

    def attend(self, hidden: Tensor, turn: Turn, pool: Tensor, batch: PagedBatch, ops: Ops) -> Tensor:
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


#: A layer over the residual [T, N] of a batch of T decodes, which becomes its output in place.
WholeLayer = Callable[[Tensor, Turn, Tensor, PagedBatch], None]


class FusedNetwork(Network):
    """``rotary`` gives cosines and sines [1, T, R] for an example of the activations' type and
    positions [1, T]. ``whole`` has each layer as one call, for decodes, or is empty."""

    def __init__(
        self, embedding: nn.Embedding, rotary: nn.Module, layers: Sequence[FusedLayer], norm: Norm, head: nn.Linear
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.rotary = rotary
        self.layers = nn.ModuleList(layers)
        self.head = head
        self.whole: Sequence[WholeLayer] = ()
        self._first = layers[0].norms[0]
        self._last = norm
        # Each layer's output is normalised by what reads it: the next layer's first norm, or the model's last.
        entries = [layer.norms[0] for layer in layers] + [norm]
        self._walk = [
            (layer, layer.norms[1], after) for layer, (_, after) in zip(layers, pairwise(entries), strict=True)
        ]

    def logits(self, ids: Tensor, positions: Tensor, paged: PagedContext, sampled: Tensor) -> Tensor:
        residual = self.embedding(ids)
        cos, sin = self.rotary(residual, positions[None])
        decodes = all(batch.decodes == len(ids) for _, batch in paged.layers)
        walk = self._walk_whole if self.whole and decodes else self._walk_by_ops
        hidden = walk(residual, (cos[0], sin[0]), paged, sampled)
        return self.head(hidden) if len(sampled) else hidden.new_empty((0, self.head.out_features))

    def _walk_whole(self, residual: Tensor, turn: Turn, paged: PagedContext, sampled: Tensor) -> Tensor:
        """All layers' hidden states of the sampled tokens, normalised for the head."""
        for layer, (pool, batch) in zip(self.whole, paged.layers, strict=True):
            layer(residual, turn, pool, batch)
        return paged.ops.rms_norm(residual if len(sampled) == len(residual) else residual[sampled], *self._last)

    def _walk_by_ops(self, residual: Tensor, turn: Turn, paged: PagedContext, sampled: Tensor) -> Tensor:
        """The same, for any step, op by op."""
        ops = paged.ops
        hidden = ops.rms_norm(residual, *self._first)
        for (layer, before_mlp, after), (pool, batch) in zip(self._walk, paged.layers, strict=True):
            hidden = layer.attention.attend(hidden, turn, pool, batch, ops)
            if after is self._last and len(sampled) < len(residual):
                hidden, residual = hidden[sampled], residual[sampled]
                if not len(sampled):
                    return hidden
            hidden = ops.rms_norm(layer.attention.output(hidden), *before_mlp, residual)
            hidden = ops.rms_norm(layer.mlp.transform(hidden, ops), *after, residual)
        return hidden

    def output_layer(self) -> nn.Module:
        return self.head


def _per_head(ops: Ops, x: Tensor, norm: Norm) -> Tensor:
    return ops.rms_norm(x.flatten(0, 1), *norm).view(x.shape)
