"""From transformers' modules to a :class:`FusedNetwork`, if that computes the same.

A model is recognised by how it is built: names and kinds of its modules, whatever their class. What that cannot tell
(another norm, scaled residuals, another rotation) shows in a trial: a few tokens through both.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...kernels import Ops, PagedBatch
from .attention import PagedContext
from .fused import FusedAttention, FusedLayer, FusedMLP, FusedNetwork, Norm
from .network import Network, TransformersNetwork

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

TRIAL_TOKENS = 16
#: How far logits may lie apart, as a share of their size: in units of the precision's rounding, but not less than what
#: float32 norms inside a float64 model leave.
TRIAL_ROUNDINGS = 16
TRIAL_TOLERANCE = 1e-4


class _Unlike(Exception):
    """Says what is not as in a fused decoder."""


@torch.inference_mode()
def fuse(model: PreTrainedModel, kv_heads: int, head_dim: int, context_length: int, ops: Ops) -> Network:
    """A network that computes what ``model`` does: of fewer operations if it can be, and then its layers and its head
    are no longer in ``model``; otherwise its own modules."""
    own = TransformersNetwork(model)
    try:
        _check(model)
        trial = _Trial(model, kv_heads, head_dim, context_length, ops)
        expected = trial.logits(own)
        network = _rebuilt(model, trial.variants, kv_heads, head_dim)
        trial.compare(network, expected)
    except _Unlike as difference:
        log.info("the model runs as transformers has it, not fused: %s", difference)
        return own
    model.base_model.layers = nn.ModuleList()
    model.set_output_embeddings(nn.Identity())
    return network


#: Names of a layer's parts that hold weights, where the projections are apart and where they are joined already.
PROJECTIONS = ({"q_proj", "k_proj", "v_proj", "o_proj"}, {"qkv_proj", "o_proj"})
ATTENTION_PARTS = (*PROJECTIONS, *(parts | {"q_norm", "k_norm"} for parts in PROJECTIONS))
MLP_PARTS = ({"gate_proj", "up_proj", "down_proj"}, {"gate_up_proj", "down_proj"})


class _Trial:
    """One sequence of a few tokens, at positions spread over the whole context, since some models treat far ones in
    another way; over keys and values of one layer that all layers share.
    ``variants``: what each layer asked of attention in the last run."""

    def __init__(self, model: PreTrainedModel, kv_heads: int, head_dim: int, context_length: int, ops: Ops) -> None:
        weight = model.get_input_embeddings().weight
        device = weight.device
        count = TRIAL_TOKENS
        self.ids = torch.arange(count, device=device) * 7919 % len(weight)
        self.positions = torch.arange(count, device=device) * (context_length - 1) // (count - 1)
        self.all = torch.arange(count, device=device)
        self.variants: dict[int, dict[str, Any]] = {}
        pool = torch.zeros((2, count, kv_heads, head_dim), dtype=weight.dtype, device=device)
        batch = PagedBatch(
            query_start=torch.tensor([0, count], dtype=torch.int32, device=device),
            context_len=torch.tensor([count], dtype=torch.int32, device=device),
            block_tables=torch.zeros((1, 1), dtype=torch.int32, device=device),
            slots=self.all,
            block_size=count,
            decodes=0,
            max_context=count,
        )
        layers = int(model.config.get_text_config(decoder=True).num_hidden_layers)
        self._paged = _Noting([(pool, batch)] * layers, ops, self.variants)

    def logits(self, network: Network) -> Tensor:
        return network.logits(self.ids, self.positions, self._paged, self.all)

    def compare(self, network: Network, expected: Tensor) -> None:
        try:
            got = self.logits(network)
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # as parts that do not fit together do
            raise _Unlike(f"fused, it fails ({(str(error) or type(error).__name__).splitlines()[0]})") from error
        rounding = torch.finfo(expected.dtype).eps
        apart = float((got - expected).float().norm() / expected.float().norm())
        if not apart <= max(TRIAL_ROUNDINGS * rounding, TRIAL_TOLERANCE):
            raise _Unlike(f"its logits differ by {apart:.2g} of their size")


class _Noting(PagedContext):
    """Attends, and notes what each layer asks for."""

    def __init__(self, layers: Sequence[tuple[Tensor, PagedBatch]], ops: Ops, seen: dict[int, dict[str, Any]]) -> None:
        super().__init__(layers, ops)
        self._seen = seen

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **variant: Any) -> Tensor:
        self._seen[layer] = variant
        return super().attend(layer, query, key, value, **variant)


def _check(model: PreTrainedModel) -> None:
    """That the model has the parts of a fused one."""
    base: Any = model.base_model
    _require(base, {"embed_tokens", "layers", "norm"})
    if type(base.embed_tokens) is not nn.Embedding or type(model.get_output_embeddings()) is not nn.Linear:
        raise _Unlike("its embedding or its head is of another kind")
    if not hasattr(base, "rotary_emb"):
        raise _Unlike("it rotates nothing, or each layer on its own")
    for layer in base.layers:
        _require(layer, {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"})
        _require(layer.self_attn, *ATTENTION_PARTS)
        _require(layer.mlp, *MLP_PARTS)


def _rebuilt(model: PreTrainedModel, variants: dict[int, dict[str, Any]], kv_heads: int, head_dim: int) -> FusedNetwork:
    """The fused network over the weights of ``model``, whose own projections become views of them."""
    base: Any = model.base_model
    layers = [_fused_layer(layer, variants[i], kv_heads, head_dim) for i, layer in enumerate(base.layers)]
    head: Any = model.get_output_embeddings()
    return FusedNetwork(base.embed_tokens, base.rotary_emb, layers, _norm(base.norm), head)


def _require(module: nn.Module, *accepted: set[str]) -> None:
    """That the children of ``module`` that hold weights are just those of one of ``accepted``."""
    weighted = {name for name, child in module.named_children() if next(child.parameters(), None) is not None}
    if weighted not in accepted:
        raise _Unlike(f"{type(module).__name__} has {', '.join(sorted(weighted)) or 'no weights'}")


def _fused_layer(layer: Any, variant: dict[str, Any], kv_heads: int, head_dim: int) -> FusedLayer:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = _joined(attention, "q_proj", "k_proj", "v_proj") if hasattr(attention, "q_proj") else attention.qkv_proj
    gate_up = _joined(mlp, "gate_proj", "up_proj") if hasattr(mlp, "gate_proj") else mlp.gate_up_proj
    norms = (_norm(attention.q_norm), _norm(attention.k_norm)) if hasattr(attention, "q_norm") else None
    if norms is not None and any(norm.weight.shape != (head_dim,) for norm in norms):
        raise _Unlike("its queries and keys are not normalised head by head")
    heads = qkv.out_features // head_dim - 2 * kv_heads
    return FusedLayer(
        (_norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)),
        FusedAttention(qkv, attention.o_proj, heads, kv_heads, norms, variant),
        FusedMLP(gate_up, mlp.down_proj),
    )


def _joined(parent: nn.Module, *names: str) -> nn.Linear:
    """One linear layer that computes the outputs of several, whose weights become views of its own."""
    parts: list[nn.Linear] = [getattr(parent, name) for name in names]
    if any(type(part) is not nn.Linear for part in parts) or len({part.bias is None for part in parts}) > 1:
        raise _Unlike(f"{type(parent).__name__} has projections of another kind")
    sizes = [part.out_features for part in parts]
    joined = nn.Linear(parts[0].in_features, sum(sizes), bias=False, device="meta")
    for kind in ("weight", "bias"):
        if getattr(parts[0], kind) is not None:
            whole = torch.cat([getattr(part, kind) for part in parts])
            setattr(joined, kind, nn.Parameter(whole, requires_grad=False))
            for part, view in zip(parts, whole.split(sizes), strict=True):
                setattr(part, kind, nn.Parameter(view, requires_grad=False))
    return joined


def _norm(module: nn.Module) -> Norm:
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weights = dict(module.named_parameters())
    if eps is None or weights.keys() != {"weight"} or weights["weight"].ndim != 1:
        raise _Unlike(f"{type(module).__name__} is another kind of norm")
    return Norm(weights["weight"], float(eps))
