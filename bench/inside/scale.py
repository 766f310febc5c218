"""How large the measurements are: at full size for a GPU, or small, so that a CPU gets through all of them soon."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama without weights."""

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    context_length: int = 131_072

    def write(self, folder: Path) -> Path:
        """Its ``config.json`` in a folder of its own."""
        home = folder / self.name
        home.mkdir(parents=True, exist_ok=True)
        facts: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.context_length,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": None,
            "eos_token_id": 0,
            "dtype": "bfloat16",
        }
        home.joinpath("config.json").write_text(json.dumps(facts), encoding="utf-8")
        return home


LLAMA_8B = Shape("Llama-3.1-8B", 32, 4096, 14_336, 32, 8, 128, 128_256, tied=False)
LLAMA_1B = Shape("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64, 128_256, tied=True)
TINY = Shape("tiny", 2, 64, 128, 4, 2, 16, 320, tied=True, context_length=4096)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of everything, and where it runs. ``folder`` is for files that go away afterwards."""

    small: bool
    device: torch.device
    folder: Path

    @property
    def dtype(self) -> torch.dtype:
        """What is measured in."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    def aim(self, value: float) -> float | None:
        """An aim of speed; in little there is none."""
        return None if self.small else value

    def pick(self, full: T, small: T) -> T:
        return small if self.small else full
