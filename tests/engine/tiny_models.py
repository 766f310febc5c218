"""Tiny random models of several architectures, in float64 so that rounding cannot change a greedy choice."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import transformers
from pagedeck.engine.model.attention import LayerShape, probe
from pagedeck.engine.model.fusing import fuse
from pagedeck.engine.model.network import Network
from pagedeck.kernels import ops_for
from transformers import PreTrainedModel

VOCABULARY = 97

COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
WINDOWED = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 7}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", GROUPED),
    "mistral": ("MistralConfig", GROUPED | {"sliding_window": 11}),
    "qwen3": ("Qwen3Config", GROUPED),
    "gemma2": ("Gemma2Config", GROUPED | WINDOWED | {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3TextConfig", GROUPED | WINDOWED | {"query_pre_attn_scalar": 16}),
    "gpt2": ("GPT2Config", {}),
    "neox": ("GPTNeoXConfig", {}),
    "gpt_oss": (
        "GptOssConfig",
        GROUPED
        | WINDOWED
        | {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
            "experts_implementation": "eager",  # the grouped product takes no float64
        },
    ),
}


def tiny_config(kind: str, **changes: Any) -> transformers.PreTrainedConfig:
    name, own = CONFIGS[kind]
    return getattr(transformers, name)(**(COMMON | own | changes))


def tiny_model(kind: str, attention: str, **changes: Any) -> PreTrainedModel:
    """The same weights for every ``attention``."""
    config = tiny_config(kind, **changes)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float64, attn_implementation=attention
        )
        for name, weight in model.named_parameters():
            if "sinks" in name:
                torch.nn.init.normal_(weight)
    return model.eval().requires_grad_(False)


class Served(NamedTuple):
    network: Network
    shape: LayerShape
    windows: tuple[int, ...]


@cache
def served(model: PreTrainedModel) -> Served:
    """A model as the engine runs it, of fused layers where it can be: those are no longer in ``model`` then."""
    shape, windows = probe(model)
    context = model.config.max_position_embeddings
    return Served(fuse(model, shape.kv_heads, shape.head_dim, context, ops_for("cpu")), shape, windows)
