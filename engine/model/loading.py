"""Loading: files or a configuration alone to a model that attends through our cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...ipc.vocabulary import Refused
from ..cache.storage import KVLayout
from ..config import EngineConfig
from .attention import ATTENTION_NAME, probe, refuse_unservable
from .checkpoint import Checkpoint, locate
from .library import note_use

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Report = Callable[[str, float | None], None]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "tokenizer_config.json")


@dataclass(slots=True)
class LoadedModel:
    """A model, and what the engine has to know of it. What a fused network made its own is no longer in ``model``."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    layout: KVLayout
    windows: tuple[int, ...]  # how many positions each layer sees, 0 is all
    device: torch.device
    dtype: torch.dtype
    eos_ids: frozenset[int]
    context_length: int  # tokens
    vocabulary: int  # token ids are 0 to vocabulary - 1
    parameters: int

    @property
    def chat_template(self) -> bool:
        return self.tokenizer is not None and self.tokenizer.chat_template is not None


def load_model(config: EngineConfig, report: Report) -> LoadedModel:
    """Load ``config.model`` onto its device; code that comes with a model is never run.

    Raises:
        Refused: the model cannot be had, read or served; the message says why.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # progress goes to ``report``
    device = choose_device(config.device)
    checkpoint = locate(config, report)
    note_use(checkpoint.name)
    report(f"Loading {checkpoint.name}", None)
    facts = read_config(checkpoint)
    refuse_unservable(facts)
    dtype = choose_dtype(config.dtype, facts, device)
    if config.load_format == "dummy":
        model = _random_model(facts, dtype, device, config.seed)
    else:
        model = _saved_model(checkpoint, dtype, device)
    model.eval().requires_grad_(False)
    shape, windows = probe(model)
    tokenizer = _tokenizer(checkpoint.folder)
    text = facts.get_text_config(decoder=True)
    return LoadedModel(
        name=checkpoint.name,
        model=model,
        tokenizer=tokenizer,
        layout=KVLayout(*shape, choose_kv_dtype(config.kv_dtype, dtype, shape.head_dim)),
        windows=windows,
        device=device,
        dtype=dtype,
        eos_ids=_eos_ids(model, tokenizer),
        context_length=context_length(config.context_length, text),
        vocabulary=int(text.vocab_size),
        parameters=sum(p.numel() for p in model.parameters()),
    )


def choose_device(name: str) -> torch.device:
    """The device that ``auto``, ``cpu`` or ``cuda`` means here."""
    if name == "cuda" and not torch.cuda.is_available():
        raise Refused("device is 'cuda', but no GPU can be used here; accepted are auto and cpu.", field="device")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def choose_dtype(name: str, facts: PretrainedConfig, device: torch.device) -> torch.dtype:
    """The precision that ``name`` means: auto is float32 on the CPU and the checkpoint's own (or bfloat16) on a GPU."""
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cpu":
        return torch.float32
    stated = facts.get_text_config(decoder=True).dtype or facts.dtype
    stated = getattr(torch, stated) if isinstance(stated, str) else stated
    return stated if stated in (torch.float16, torch.bfloat16) else torch.bfloat16


def choose_kv_dtype(name: str, dtype: torch.dtype, head_dim: int) -> torch.dtype:
    """What the cache of a model that computes in ``dtype`` holds keys and values in."""
    if name == "int8" and head_dim % 4:
        raise Refused.value("kv_dtype", name, f"auto and fp8, since the heads of this model are {head_dim} wide")
    return {"auto": dtype, "int8": torch.int8, "fp8": torch.float8_e4m3fn}[name]


def read_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """A model's configuration.

    Raises:
        Refused: transformers does not know its kind, or it needs code of its own.
    """
    from transformers import AutoConfig

    path = checkpoint.folder if checkpoint.folder.is_file() else checkpoint.folder / "config.json"
    try:
        return AutoConfig.from_pretrained(str(path), trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        if "auto_map" in json.loads(path.read_text(encoding="utf-8")):
            reason = "it needs code of its own, and code that comes with a model is never run"
        else:
            reason = _first_line(error)
        raise _refused(f"The model {checkpoint.name} cannot be served: {reason}") from error


def _saved_model(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    placement: dict[str, Any] = {} if device.type == "cpu" else {"device_map": {"": device}}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(checkpoint.folder),
            dtype=dtype,
            attn_implementation=ATTENTION_NAME,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **placement,
        )
    except SafetensorError as error:
        raise _refused(f"The weights of {checkpoint.name} are damaged or incomplete ({_first_line(error)}).") from error
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        if error.args == (ATTENTION_NAME,):  # looked up among the layers that the model's code has
            raise _refused(
                f"The model {checkpoint.name} cannot be served: its kind has attention layers of its own, which let no "
                "other arithmetic in."
            ) from error
        raise _refused(f"The weights of {checkpoint.name} cannot be loaded: {_first_line(error)}") from error
    model: PreTrainedModel
    model, loading = loaded
    if missing := sorted(loading["missing_keys"]):
        raise _refused(
            f"The weights of {checkpoint.name} are incomplete: {len(missing)} are missing, first {missing[0]}."
        )
    return model


def _random_model(facts: PretrainedConfig, dtype: torch.dtype, device: torch.device, seed: int) -> PreTrainedModel:
    """Random weights from ``seed``, made on the device; the same on every start on one kind of device."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(
                facts, dtype=dtype, attn_implementation=ATTENTION_NAME, trust_remote_code=False
            )
    except (ValueError, KeyError) as error:
        raise _refused(f"No model can be made of this configuration: {_first_line(error)}") from error


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError, ImportError) as error:
        raise _refused(f"The tokenizer in {folder} cannot be loaded: {_first_line(error)}") from error


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    found: set[int] = set()
    for holder in (model.generation_config, model.config.get_text_config(decoder=True), tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return frozenset(int(id) for id in found)


def context_length(asked: int | None, text: PretrainedConfig) -> int:
    own = getattr(text, "max_position_embeddings", None) or asked
    if own is None:
        raise Refused("The model states no longest context; state context_length.", field="context_length")
    # Past this length these scale all positions of a batch by its longest, which would tie requests to one another.
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        own = min(own, int(rope.get("original_max_position_embeddings", own)))
    if asked is not None and asked > own:
        raise Refused.value("context_length", asked, f"at most {own:,} tokens for this model")
    return int(asked or own)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _refused(reason: str) -> Refused:
    return Refused(reason, field="model", code="model")
