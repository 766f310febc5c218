"""The engine on a load of many requests, against what transformers offers on the same machine."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ...ipc.vocabulary import SamplingParams
from .. import baselines
from ..workload import Item, mixed
from .rows import Row
from .scale import LLAMA_8B, TINY, Scale, Shape
from .step_speed import engine_of

CONTINUOUS_AIM = 3.0  # times transformers' continuous batching
STATIC_BATCH = 64


def serving(scale: Scale) -> Iterator[Row]:
    """Output tokens a second of an 8B model on requests of mixed lengths that are all there at the start."""
    shape = scale.pick(LLAMA_8B, TINY)
    items = mixed(
        scale.pick(192, 6), seed=0, vocabulary=shape.vocabulary,
        prompts=scale.pick((16, 512), (4, 40)), outputs=scale.pick((16, 256), (4, 12)),
    )  # fmt: skip
    tokens = sum(item.output_tokens for item in items)
    ours = tokens / _ours(scale, shape, items)
    yield Row("serving", f"{shape.name}, ours", ours, "tokens/s", note=f"{len(items)} requests, {tokens:,} tokens")
    gc.collect()
    if scale.device.type == "cuda":
        torch.cuda.empty_cache()
    model = _plain(scale, shape)
    pairs = [(item.prompt, item.output_tokens) for item in items]
    finished = baselines.continuous(model, pairs, lambda _: None)["finished"]
    theirs = tokens / max(finished)
    yield Row(
        "serving", "times transformers' continuous batching", ours / theirs, "×", at_least=scale.aim(CONTINUOUS_AIM),
        note=f"{theirs:,.0f} tokens/s",
    )  # fmt: skip
    finished = baselines.static(model, pairs, scale.pick(STATIC_BATCH, 4), lambda _: None)["finished"]
    theirs = tokens / max(finished)
    yield Row(
        "serving", f"times transformers.generate, batches of {scale.pick(STATIC_BATCH, 4)}", ours / theirs, "×",
        note=f"{theirs:,.0f} tokens/s",
    )  # fmt: skip


def _ours(scale: Scale, shape: Shape, items: list[Item]) -> float:
    """Seconds until all items have their tokens, once the engine is warm."""
    room = sum(len(item.prompt) + item.output_tokens + 32 for item in items)
    engine = engine_of(scale, shape, tokens=room, max_batch_size=256).engine

    def run(items: list[Item]) -> float:
        begin = time.perf_counter()
        for number, item in enumerate(items):
            sampling = SamplingParams(max_tokens=item.output_tokens, temperature=0.0, ignore_eos=True)
            engine.submit(id=str(number), prompt=item.prompt, sampling=sampling, priority="normal")
        while engine.has_work:
            engine.step()
        return time.perf_counter() - begin

    run([Item(item.prompt[:16], 4) for item in items])
    return run(items)


def _plain(scale: Scale, shape: Shape) -> PreTrainedModel:
    """The same shape as transformers runs it by itself, also with random weights."""
    config = AutoConfig.from_pretrained(str(shape.write(scale.folder)))
    with torch.device(scale.device):
        model = AutoModelForCausalLM.from_config(config, dtype=scale.dtype, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None
    return model.eval()
