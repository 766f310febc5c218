"""Fused networks compute what transformers' modules do, and only what computes the same is fused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from pagedeck.engine.model.attention import ATTENTION_NAME, PagedContext, probe
from pagedeck.engine.model.fused import FusedNetwork
from pagedeck.engine.model.fusing import fuse
from pagedeck.engine.model.network import Network
from pagedeck.kernels import Ops, PagedBatch, ops_for
from pagedeck.kernels.reference import ReferenceOps
from torch import Tensor, nn
from transformers import PreTrainedModel

from .tiny_models import COMMON, GROUPED, VOCABULARY

FUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", GROUPED),
    "llama with biases": ("LlamaConfig", GROUPED | {"attention_bias": True, "mlp_bias": True}),
    "llama, tied, scaled rotation": (
        "LlamaConfig",
        GROUPED
        | {
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": ("MistralConfig", GROUPED | {"sliding_window": 5}),
    "qwen2": ("Qwen2Config", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3Config", GROUPED),
    "phi3": ("Phi3Config", {"num_key_value_heads": 2}),
    "phi3, partly rotated": (
        "Phi3Config",
        {
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        },
    ),
}

NOT_FUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another embedding": ("GemmaConfig", GROUPED, "embedding or its head"),
    "scaled residuals": ("GraniteConfig", GROUPED | {"residual_multiplier": 0.5}, "logits differ"),
    "another activation": ("LlamaConfig", GROUPED | {"hidden_act": "gelu"}, "logits differ"),
    "norms behind": ("Olmo2Config", {"num_key_value_heads": 2}, "Olmo2DecoderLayer has"),
    "layers that do not rotate": (
        "SmolLM3Config",
        {"num_key_value_heads": 2, "no_rope_layers": [1, 0, 1]},
        "logits differ",
    ),
    "queries that grow with their position": (
        "Ministral3Config",
        GROUPED
        | {
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "original_max_position_embeddings": 128,
                "llama_4_scaling_beta": 0.1,
            },
        },
        "logits differ",
    ),
    "no gate": ("Starcoder2Config", {"num_key_value_heads": 2}, "Starcoder2MLP has"),
}


def make(name: str, more: dict[str, Any], dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    config = getattr(transformers, name)(**(COMMON | more))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=ATTENTION_NAME
        ).eval()
        for weight in model.parameters():
            if weight.ndim == 1:  # biases begin as zeros and norms as ones, which would hide mistakes
                nn.init.normal_(weight, mean=weight.mean().item(), std=0.3)
    return model.requires_grad_(False)


def fused(model: PreTrainedModel, ops: Ops | None = None) -> Network:
    shape, _ = probe(model)
    return fuse(model, shape.kv_heads, shape.head_dim, 256, ops or ops_for("cpu"))


TOKENS = torch.arange(23) * 31 % VOCABULARY
POSITIONS = torch.arange(23)


def own_logits(model: PreTrainedModel) -> Tensor:
    """transformers' own forward with its own attention."""
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        logits: Tensor = model(input_ids=TOKENS[None], use_cache=False).logits[0]
    model.set_attn_implementation(ATTENTION_NAME)
    return logits


def paged_logits(network: Network, model: PreTrainedModel, sampled: list[int], ops: Ops) -> Tensor:
    """Through a cache of 3 blocks in disorder: a chunk of 14 tokens, then the rest."""
    text = model.config.get_text_config()
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    pool = torch.full((text.num_hidden_layers, 2, 32, text.num_key_value_heads, head_dim), torch.nan, dtype=model.dtype)
    blocks = torch.tensor([2, 0, 3])
    slots = (blocks[:, None] * 8 + torch.arange(8)).flatten()[: len(TOKENS)]
    parts = []
    for first, last in ((0, 14), (14, 23)):
        batch = PagedBatch(
            query_start=torch.tensor([0, last - first], dtype=torch.int32),
            context_len=torch.tensor([last], dtype=torch.int32),
            block_tables=blocks[None].int(),
            slots=slots[first:last],
            block_size=8,
            decodes=0,
            max_context=last,
        )
        chosen = torch.tensor([i - first for i in sampled if first <= i < last], dtype=torch.int64)
        paged = PagedContext([(layer, batch) for layer in pool], ops)
        with torch.inference_mode():
            parts.append(network.logits(TOKENS[first:last], POSITIONS[first:last], paged, chosen))
    return torch.cat(parts)


def distance(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


@pytest.mark.parametrize("kind", list(FUSED))
def test_fused_networks_compute_what_transformers_does(kind: str) -> None:
    model = make(*FUSED[kind])
    expected = own_logits(model)
    for ops in (ops_for("cpu"), ReferenceOps()):
        model = make(*FUSED[kind])
        network = fused(model, ops)
        assert isinstance(network, FusedNetwork)
        assert distance(paged_logits(network, model, list(range(23)), ops), expected) < 1e-5
        some = [5, 13, 22]
        assert distance(paged_logits(network, model, some, ops), expected[some]) < 1e-5
        none = paged_logits(network, model, [], ops)
        assert none.shape == (0, VOCABULARY)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05), (torch.float16, 0.01)])
def test_other_precisions_too(dtype: torch.dtype, close: float) -> None:
    name, more = FUSED["qwen3"]
    model = make(name, more | {"initializer_range": 0.1}, dtype)
    expected = own_logits(model).float()
    network = fused(model)
    assert isinstance(network, FusedNetwork)
    assert distance(paged_logits(network, model, list(range(23)), ops_for("cpu")).float(), expected) < close


@pytest.mark.parametrize("kind", list(NOT_FUSED))
def test_what_computes_otherwise_stays_as_it_is(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    name, more, reason = NOT_FUSED[kind]
    model = make(name, more)
    expected = own_logits(model)
    with caplog.at_level("INFO", logger="pagedeck.engine.model.fusing"):
        network = fused(model)
    assert not isinstance(network, FusedNetwork)
    assert reason in caplog.text
    assert distance(paged_logits(network, model, list(range(23)), ops_for("cpu")), expected) < 1e-5


def test_a_layer_that_does_more_than_its_parts_tell_is_noticed() -> None:
    model: Any = make(*FUSED["llama"])
    layer = model.model.layers[2]
    forward = layer.mlp.forward
    layer.mlp.forward = lambda x: forward(x) * 1.01
    assert not isinstance(fused(model), FusedNetwork)


def test_weights_are_there_once() -> None:
    model: Any = make(*FUSED["llama"])
    before = sum(p.numel() for p in model.parameters())
    embedding = model.model.embed_tokens.weight
    network: Any = fused(model)
    held = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() // 8 for p in network.parameters()}
    norms = sum(n.weight.numel() for layer in network.layers for n in layer.norms) + model.model.norm.weight.numel()
    assert sum(held.values()) + norms == before
    assert network.embedding.weight is embedding
    assert len(model.model.layers) == 0
    assert not isinstance(model.get_output_embeddings(), nn.Linear)
