"""Our attention inside transformers' models.

transformers calls the function registered under ``config._attn_implementation`` in every attention layer and passes
on keyword arguments of the model's forward. So a step's metadata travels as the argument ``paged``; the keys and
values live outside the model. No mask is built for a name that the mask registry does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from ...ipc.vocabulary import Refused
from ...kernels import Ops, PagedBatch

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

ATTENTION_NAME = "pagedeck"

SERVED_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "attention"})


@dataclass(slots=True)
class PagedContext:
    """What the attention layers need of a step: each layer's pool [2, num_slots, H, D] and where each token stands in
    it, and the ops."""

    layers: Sequence[tuple[Tensor, PagedBatch]]
    ops: Ops

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **variant: Any) -> Tensor:
        """Store this step's keys and values, then attend: ``query`` [T, Hq, D], ``key`` and ``value`` [T, H, D]."""
        pool, batch = self.layers[layer]
        self.ops.write_kv(key, value, pool, batch.slots)
        return self.ops.paged_attention(query, pool, batch, **variant)


@dataclass(slots=True)
class LayerProbe:
    """Stands in for a :class:`PagedContext` at load: notes what each layer asks for and attends to nothing else."""

    shapes: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)  # layer: Hq, H, Dk, Dv
    windows: dict[int, int] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **variant: Any) -> Tensor:
        if layer in self.shapes:
            raise Refused(f"The model cannot be served: it runs the attention of layer {layer} more than once.")
        self.shapes[layer] = (query.shape[1], key.shape[1], key.shape[2], value.shape[2])
        self.windows[layer] = variant["window"]
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    paged: PagedContext | LayerProbe | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """The registered function: ``query`` [1, Hq, T, D], ``key`` and ``value`` [1, H, T, D]; returns [1, T, Hq, D]."""
    if paged is None:
        raise Refused("The model cannot be served: its layers do not receive what is passed to its forward.")
    if attention_mask is not None:
        raise Refused("The model cannot be served: it builds an attention mask of its own.")
    out = paged.attend(
        module.layer_idx,  # type: ignore[arg-type]
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window or 0,
        softcap=softcap or 0.0,
        sinks=s_aux,
    )
    return out.unsqueeze(0), None


AttentionInterface.register(ATTENTION_NAME, attention_forward)


def refuse_unservable(config: PretrainedConfig) -> None:
    """Raises :class:`Refused` for an architecture that its configuration tells cannot be served."""
    text = config.get_text_config(decoder=True)
    kind = getattr(config, "model_type", "") or type(config).__name__
    others = sorted({str(t) for t in getattr(text, "layer_types", None) or ()} - SERVED_LAYER_TYPES)
    for wrong, reason in (
        (config.is_encoder_decoder, "an encoder-decoder; accepted are decoder-only language models"),
        (
            getattr(text, "use_bidirectional_attention", None) in (True, "all"),
            "bidirectional; accepted is causal attention",
        ),
        (getattr(text, "num_kv_shared_layers", None), "made of layers that share keys and values across layers"),
        (others, f"made of {', '.join(others)} layers; accepted are full and sliding-window attention"),
    ):
        if wrong:
            raise Refused(f"The model cannot be served: {kind} is {reason}.", field="model", code="unsupported")


class LayerShape(NamedTuple):
    """What the cache holds of a token in each of ``layers`` layers."""

    layers: int
    kv_heads: int
    head_dim: int


def probe(model: PreTrainedModel) -> tuple[LayerShape, tuple[int, ...]]:
    """The layers' shape, and each one's window (0 is none), from one forward of a few tokens.

    Raises:
        Refused: a layer bypasses our attention or calls it twice, or layers differ in what a token takes in the cache.
    """
    seen = LayerProbe()
    device = model.get_input_embeddings().weight.device
    tokens = torch.arange(4, device=device)[None]
    try:
        with torch.inference_mode():
            model(input_ids=tokens, position_ids=tokens, use_cache=False, paged=seen)
    except (TypeError, AttributeError) as error:
        raise _unservable(model, f"does not take paged attention ({error})") from error
    text = model.config.get_text_config(decoder=True)
    layers = int(text.num_hidden_layers)
    if sorted(seen.shapes) != list(range(layers)):
        raise _unservable(model, f"runs attention in {len(seen.shapes)} of its {layers} layers")
    shapes = {shape[1:] for shape in seen.shapes.values()}
    if len(shapes) > 1 or any(key != value for _, key, value in shapes):
        raise _unservable(model, "has layers or keys and values of unequal size")
    if any(getattr(m, "is_causal", True) is False and hasattr(m, "layer_idx") for m in model.modules()):
        raise _unservable(model, "is bidirectional; accepted is causal attention")
    if getattr(text, "sliding_window", None):
        for layer, kind in enumerate(getattr(text, "layer_types", None) or ()):
            if (kind == "sliding_attention") != bool(seen.windows[layer]):
                raise _unservable(model, f"does not tell the attention of layer {layer} about its window")
    ((heads, head_dim, _),) = shapes
    return LayerShape(layers, heads, head_dim), tuple(seen.windows[layer] for layer in range(layers))


def _unservable(model: PreTrainedModel, reason: str) -> Refused:
    return Refused(f"The model cannot be served: {type(model).__name__} {reason}.", field="model", code="unsupported")
