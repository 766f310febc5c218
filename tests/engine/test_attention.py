"""What reaches our attention inside transformers' models, and which models are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from pagedeck.engine.model.attention import ATTENTION_NAME, probe, refuse_unservable
from pagedeck.ipc.vocabulary import Refused
from torch import Tensor

from .tiny_models import COMMON, CONFIGS, tiny_config, tiny_model


@dataclass
class Recorder:
    """Takes the place of a paged context and keeps what the layers ask for."""

    seen: dict[int, dict[str, Any]] = field(default_factory=dict)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **variant: Any) -> Tensor:
        self.seen[layer] = variant | {"query": query.shape, "key": key.shape, "value": value.shape}
        return torch.zeros_like(query)


def recorded(kind: str, **changes: Any) -> dict[int, dict[str, Any]]:
    recorder = Recorder()
    tokens = torch.arange(5)[None]
    model = tiny_model(kind, ATTENTION_NAME, **changes)
    model(input_ids=tokens, position_ids=tokens, use_cache=False, paged=recorder)
    return recorder.seen


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_every_layer_arrives_once_with_its_shapes(kind: str) -> None:
    kv_heads = 4 if kind in ("gpt2", "neox") else 2
    seen = recorded(kind)
    windows = tuple(layer["window"] for layer in seen.values())
    assert probe(tiny_model(kind, ATTENTION_NAME)) == ((3, kv_heads, 8), windows)
    assert list(seen) == [0, 1, 2]
    assert all(layer["query"] == (5, 4, 8) for layer in seen.values())
    assert all(layer["key"] == layer["value"] == (5, kv_heads, 8) for layer in seen.values())


def test_variants_arrive_layer_by_layer() -> None:
    assert [layer["window"] for layer in recorded("llama").values()] == [0, 0, 0]
    assert [layer["window"] for layer in recorded("mistral").values()] == [11, 11, 11]
    gemma2 = recorded("gemma2")
    assert [layer["window"] for layer in gemma2.values()] == [7, 0, 7]
    assert all(layer["softcap"] == 2.0 and layer["scale"] == 16**-0.5 for layer in gemma2.values())
    assert all(layer["sinks"].shape == (4,) for layer in recorded("gpt_oss").values())
    assert all(layer["scale"] == 8**-0.5 and layer["sinks"] is None for layer in recorded("gpt2").values())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.T5Config(), "t5 is an encoder-decoder"),
        (transformers.BartConfig(), "bart is an encoder-decoder"),
        (tiny_config("gemma3", use_bidirectional_attention=True), "is bidirectional"),
        (
            tiny_config("llama", layer_types=["full_attention", "chunked_attention", "full_attention"]),
            "made of chunked",
        ),
        (transformers.Qwen3NextConfig(), "made of linear_attention layers"),
        (transformers.Gemma3nTextConfig(), "share keys and values across layers"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_configurations_that_cannot_be_served(config: transformers.PreTrainedConfig, reason: str) -> None:
    with pytest.raises(Refused, match=reason) as refused:
        refuse_unservable(config)
    assert refused.value.field == "model"
    assert str(refused.value).count("\n") == 0


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_configurations_that_can(kind: str) -> None:
    refuse_unservable(tiny_config(kind))


def build(config: transformers.PreTrainedConfig) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION_NAME).eval()


SMALL_MLA = {
    **COMMON,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 3,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: build(transformers.DeepseekV3Config(**SMALL_MLA)), "unequal size"),
        (
            lambda: build(transformers.MambaConfig(vocab_size=97, hidden_size=32, state_size=4, num_hidden_layers=2)),
            "MambaForCausalLM",
        ),
        (lambda: build(transformers.BertConfig(**COMMON)), "BertLMHeadModel is bidirectional"),
    ],
    ids=["mla", "mamba", "bert"],
)
def test_models_that_cannot_be_served(make: Any, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        probe(make())


def test_models_with_attention_of_their_own_are_refused() -> None:
    config = transformers.BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(Refused, match="BloomForCausalLM"):
        probe(model)


def test_a_forward_without_a_context_is_refused() -> None:
    with pytest.raises(Refused, match="do not receive"):
        tiny_model("llama", ATTENTION_NAME)(input_ids=torch.tensor([[1, 2]]), use_cache=False)


def test_sliding_layers_must_tell_their_window() -> None:
    model = tiny_model("gemma2", ATTENTION_NAME)
    model.model.layers[2].self_attn.sliding_window = None
    with pytest.raises(Refused, match="attention of layer 2 about its window"):
        probe(model)
