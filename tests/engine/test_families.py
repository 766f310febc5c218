"""Families of models, each as a checkpoint on the disk through the whole engine: what ``transformers.generate`` says.

Small blocks, prompts in chunks, several requests at once. Weights are float32, as they are served on the CPU, so a
comparison ends where the two most probable tokens are too close to tell whose rounding is right.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from pagedeck.engine.assembly import Assembled, assemble
from pagedeck.engine.config import EngineConfig
from pagedeck.ipc.vocabulary import Refused, SamplingParams
from transformers import AutoModelForCausalLM

from .tiny_models import COMMON, GROUPED, WINDOWED

OUTPUT = 14
#: Logits nearer than this are alike.
MARGIN = 1e-3

PROMPTS = [[7], [3, 1, 4, 1, 5, 9, 2, 6], list(range(20, 65)), [11, 90] * 14, [*range(20, 52), 1]]

ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
EXPERTS = {"num_experts_per_tok": 2}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", GROUPED),
    "llama3": (
        "Llama",
        GROUPED
        | {
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": ("Mistral", GROUPED | {"sliding_window": 11}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "qwen3": ("Qwen3", GROUPED),
    "gemma": ("Gemma", GROUPED),
    "gemma2": ("Gemma2", GROUPED | WINDOWED | {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0}),
    "gemma3": ("Gemma3Text", GROUPED | WINDOWED | {"query_pre_attn_scalar": 16}),
    "phi": ("Phi", {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", {"num_key_value_heads": 2}),
    "gpt2": ("GPT2", {}),
    "neox": ("GPTNeoX", {}),
    "gpt_oss": ("GptOss", GROUPED | WINDOWED | ROPE | EXPERTS | {"num_local_experts": 4}),
    "mixtral": ("Mixtral", GROUPED | EXPERTS | {"num_local_experts": 4}),
    "qwen3_moe": (
        "Qwen3Moe",
        GROUPED | EXPERTS | {"num_experts": 4, "moe_intermediate_size": 24, "norm_topk_prob": True},
    ),
    "olmo2": ("Olmo2", {"num_key_value_heads": 2}),
    "granite": ("Granite", {"num_key_value_heads": 2, "logits_scaling": 2.0, "attention_multiplier": 0.3}),
    "smollm3": ("SmolLM3", GROUPED | {"no_rope_layer_interval": 2}),
    "starcoder2": ("Starcoder2", {"num_key_value_heads": 2, "sliding_window": 9}),
    "cohere": ("Cohere", {"num_key_value_heads": 2}),
    "opt": ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
}

#: Kinds whose layers let no other attention in.
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "bloom": ("Bloom", {}),
    "stablelm": ("StableLm", {"num_key_value_heads": 2}),
    "mamba": ("Mamba", {"state_size": 4}),
}


def save(family: str, folder: Path, dtype: torch.dtype = torch.float32, **more: Any) -> Path:
    """A checkpoint with random weights."""
    name, own = (FAMILIES | REFUSED)[family]
    config = getattr(transformers, f"{name}Config")(**(COMMON | own))
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for weight in (weight for name, weight in model.named_parameters() if "sinks" in name or "bias" in name):
            torch.nn.init.normal_(weight)
    model.to(dtype).save_pretrained(folder, **more)
    return folder


def serve(folder: Path | str, **settings: Any) -> Assembled:
    defaults = {"device": "cpu", "block_size": 8, "num_blocks": 48, "token_budget": 20}
    return assemble(EngineConfig(model=str(folder), **(defaults | settings)), lambda *_: None)


def answers(served: Assembled) -> list[list[int]]:
    greedy = SamplingParams(max_tokens=OUTPUT, temperature=0.0, ignore_eos=True)
    submit = partial(served.engine.submit, sampling=greedy, priority=10)
    requests = [submit(id=str(number), prompt=prompt) for number, prompt in enumerate(PROMPTS)]
    while served.engine.has_work:
        served.engine.step()
        served.engine.cache.check()
    assert not any(request.error for request in requests)
    return [request.sequences[0].tokens[len(request.prompt) :] for request in requests]


def compare(folder: Path, got: list[list[int]]) -> None:
    """As far as the reference's own logits leave no doubt, which is nearly everywhere."""
    reference = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    compared = 0
    for prompt, tokens in zip(PROMPTS, got, strict=True):
        ids = torch.tensor([prompt])
        out = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=OUTPUT,
            min_new_tokens=OUTPUT,
            output_logits=True,
            return_dict_in_generate=True,
        )
        expected = out.sequences[0, len(prompt) :].tolist()
        for place, logits in enumerate(out.logits):
            first, second = logits[0].topk(2).values.tolist()
            if first - second < MARGIN:
                break
            assert tokens[place] == expected[place], f"token {place} after a prompt of {len(prompt)}"
            compared += 1
    assert compared > 0.8 * OUTPUT * len(PROMPTS)
    assert len({tuple(tokens) for tokens in got}) > 2


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_checkpoint_says_what_generate_says(family: str, tmp_path: Path) -> None:
    folder = save(family, tmp_path / family)
    compare(folder, answers(serve(folder)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_half_the_size_in_several_files(dtype: torch.dtype, tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "half", dtype, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert json.loads((folder / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    compare(folder, answers(serve(folder)))


@pytest.mark.parametrize(("family", "dtype"), [("llama", "bfloat16"), ("gemma2", "float16"), ("gpt_oss", "bfloat16")])
def test_in_half_precision_it_says_nearly_that(family: str, dtype: str, tmp_path: Path) -> None:
    """Rounding may change which token is the most probable; all first ones it does not."""
    folder = save(family, tmp_path / family)
    exact, rounded = answers(serve(folder)), answers(serve(folder, dtype=dtype))
    assert all(len(tokens) == OUTPUT for tokens in rounded)
    assert sum(a[0] == b[0] for a, b in zip(exact, rounded, strict=True)) >= 2


@pytest.mark.parametrize("family", list(REFUSED))
def test_kinds_that_cannot_be_served_are_refused_with_the_reason(family: str, tmp_path: Path) -> None:
    folder = save(family, tmp_path / family)
    with pytest.raises(Refused, match="cannot be served") as refused:
        serve(folder)
    assert "\n" not in str(refused.value) and "'pagedeck'" not in str(refused.value)


def test_pickled_weights_are_refused_with_the_way_to_convert_them(tmp_path: Path) -> None:
    folder = save("llama", tmp_path / "pickled")
    weights = folder / "model.safetensors"
    torch.save({"never": "loaded"}, folder / "pytorch_model.bin")
    serve(folder)  # which lies beside safetensors
    weights.unlink()
    with pytest.raises(Refused, match=r"pickle \(pytorch_model.bin\).* convert it once with transformers") as refused:
        serve(folder)
    assert refused.value.field == "model"
