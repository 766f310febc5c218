"""What a model would take of this machine's memory, from its configuration alone: an estimate before any weight is
there."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..ipc.vocabulary import Refused
from .assembly import MEMORY_UTILIZATION, TOKEN_BUDGET, check_weights, pool_blocks
from .cache.layer_groups import TYPICAL_LENGTH, Division, group_layers
from .cache.storage import KVLayout, free_memory
from .config import DEFAULT_MODEL, EngineConfig
from .model import hub, library
from .model.attention import LayerShape, refuse_unservable
from .model.checkpoint import ACCEPTED, HUB_ID, Checkpoint, default_folder
from .model.loading import choose_device, choose_dtype, choose_kv_dtype, context_length, read_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

#: The default model's configuration, for as long as it is not on the machine.
_DEFAULT = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}

#: Numbers of a linear layer that share a scale of 16 bits, and at 4 bits a minimum of as many.
_GROUP = 32


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes are estimates but for what is ``free`` now. ``token_bytes`` is what keys and values of a token take, in the
    ``windowed`` layers no longer than the token is inside the window. ``tokens`` fit into the device pool, in as many
    requests of ``request_tokens`` each as ``requests`` says; ``problem`` says why none do."""

    architecture: str
    parameters: int
    context_length: int
    device: str
    dtype: str
    layers: int
    windowed: int
    weight_bytes: int
    token_bytes: int
    free: int
    pool_bytes: int = 0
    tokens: int = 0
    requests: int = 0
    request_tokens: int = 0
    problem: str = ""


def estimate(config: EngineConfig, reclaimed: int = 0) -> Footprint:
    """What ``config.model`` would take with these settings, where ``reclaimed`` bytes become free before it loads.

    Raises:
        Refused: there is no such model, it cannot be served, or a setting does not do.
    """
    check_weights(config)
    facts = configuration(config.model)
    refuse_unservable(facts)
    text = facts.get_text_config(decoder=True)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, facts, device)
    shape, windows = stated_layers(facts)
    layout = KVLayout(*shape, choose_kv_dtype(config.kv_dtype, dtype, shape.head_dim))
    length = context_length(config.context_length, text)
    parameters, weight_bytes = weigh(facts, dtype, config.weights)
    free = free_memory(device) + reclaimed
    found = Footprint(
        architecture=str(next(iter(facts.architectures or []), facts.model_type)),
        parameters=parameters,
        context_length=length,
        device=device.type,
        dtype=str(dtype).removeprefix("torch."),
        layers=shape.layers,
        windowed=sum(0 < window < length for window in windows),
        weight_bytes=weight_bytes,
        token_bytes=layout.slot_bytes,
        free=free,
    )
    division = Division(
        groups=group_layers(windows, length),
        layer_bytes=layout.slot_bytes // layout.layers,
        context_length=length,
        max_batch_size=config.max_batch_size,
        token_budget=config.token_budget or TOKEN_BUDGET[device.type],
    )
    return _with_pool(found, config, division)


def _with_pool(found: Footprint, config: EngineConfig, division: Division) -> Footprint:
    left = found.free - found.weight_bytes
    if left <= 0:
        return dataclasses.replace(found, problem="The weights alone take more memory than is free.")
    share = config.memory_utilization or MEMORY_UTILIZATION[found.device]
    try:
        blocks = pool_blocks(dataclasses.replace(config, memory_utilization=share), division, left)
    except Refused as refused:
        return dataclasses.replace(found, problem=str(refused))
    tokens = blocks * config.block_size
    length = min(TYPICAL_LENGTH, found.context_length)
    return dataclasses.replace(
        found,
        pool_bytes=division.bytes(blocks, config.block_size),
        tokens=tokens,
        requests=tokens // length,
        request_tokens=length,
    )


def configuration(model: str) -> PretrainedConfig:
    """A model's configuration, from this machine or from the hub. No weight is read or downloaded.

    Raises:
        Refused: it cannot be had; the message says why.
    """
    from transformers import AutoConfig

    path = Path(model).expanduser()
    if model == DEFAULT_MODEL and not path.exists():
        folder = default_folder()
        return read_config(Checkpoint(model, folder)) if folder.is_dir() else AutoConfig.for_model("llama", **_DEFAULT)
    if path.is_dir() or (path.suffix == ".json" and path.is_file()):
        return read_config(Checkpoint(path.name, path))
    if path.suffix == ".gguf" and path.is_file():
        return _of_gguf(path)
    if not HUB_ID.fullmatch(model):
        raise Refused(str(Refused.value("model", model, ACCEPTED)), field="model", code="model")
    files = library.snapshot(library.repository(model))
    if files is not None and (files / "config.json").is_file():
        return read_config(Checkpoint(model, files))
    with tempfile.TemporaryDirectory() as scratch:
        return read_config(hub.configuration(hub.describe(model), Path(scratch)))


def _of_gguf(path: Path) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
    except Exception as error:  # whatever a damaged file provokes in three libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise Refused(f"The GGUF file {path} cannot be read ({reason}).", field="model", code="model") from error


def stated_layers(facts: PretrainedConfig) -> tuple[LayerShape, tuple[int, ...]]:
    """What a configuration tells of the layers, as :func:`~.model.attention.probe` finds it in the model itself."""
    text = facts.get_text_config(decoder=True)
    layers = int(text.num_hidden_layers)
    heads = int(text.num_attention_heads)
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    window = int(getattr(text, "sliding_window", None) or 0)
    kinds = getattr(text, "layer_types", None) or ["sliding_attention"] * layers
    windows = tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    return LayerShape(layers, int(getattr(text, "num_key_value_heads", None) or heads), int(head_dim)), windows


def weigh(facts: PretrainedConfig, dtype: torch.dtype, weights: str) -> tuple[int, int]:
    """Parameters of a model, and the bytes that they take in ``dtype`` with linear layers held as ``weights`` says.

    Raises:
        Refused: transformers cannot build the model.
    """
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(facts, dtype=dtype, trust_remote_code=False)
    except (ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refused(f"No model can be made of this configuration: {reason}", field="model", code="model") from error
    held = [*model.parameters()]
    numbers, taken = sum(p.numel() for p in held), sum(p.numel() * p.element_size() for p in held)
    if weights == "auto":
        return numbers, taken
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    for layer in model.modules():
        if type(layer) is nn.Linear:
            bits = 8 if weights == "int8" or layer is head else 4
            scales = 2 if bits == 8 else 4
            taken += layer.weight.numel() * bits // 8 + layer.weight.numel() // _GROUP * scales
            if layer.weight is not embedding.weight:  # the embedding stays as it is
                taken -= layer.weight.numel() * layer.weight.element_size()
    return numbers, taken
