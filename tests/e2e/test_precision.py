"""What 8 and 4 bits cost the real model: perplexity on the shipped text, against float32."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from pagedeck.engine.cache.storage import KVLayout, KVStorage
from pagedeck.engine.config import EngineConfig
from pagedeck.engine.model.attention import PagedContext
from pagedeck.engine.model.fused import FusedNetwork
from pagedeck.engine.model.fusing import fuse
from pagedeck.engine.model.loading import load_model
from pagedeck.engine.model.quantized import quantize_linears
from pagedeck.kernels import PagedBatch, ops_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TEXT = Path(__file__).parents[2] / "assets" / "texts" / "perplexity.txt"
CHUNK = 64  # tokens a step, so that most of what is attended to has been through the cache


@cache
def perplexity(bits: int, kv_dtype: torch.dtype = torch.float32) -> float:
    """Of the default model, its linear layers rounded to ``bits`` if they are fewer than 32."""
    loaded = load_model(EngineConfig(device="cpu"), lambda *_: None)
    ops = ops_for("cpu")
    layout = loaded.layout
    network = fuse(loaded.model, layout.kv_heads, layout.head_dim, loaded.context_length, ops)
    assert isinstance(network, FusedNetwork)
    if bits < 32:
        quantize_linears(network, bits)
    ids = torch.tensor(loaded.tokenizer(TEXT.read_text(encoding="utf-8"))["input_ids"])
    blocks = -(-len(ids) // 16)
    storage = KVStorage(KVLayout(layout.layers, layout.kv_heads, layout.head_dim, kv_dtype), blocks * 16, 0, "cpu", ops)
    total = 0.0
    for first in range(0, len(ids) - 1, CHUNK):
        last = min(first + CHUNK, len(ids) - 1)
        positions = torch.arange(first, last)
        batch = PagedBatch(
            query_start=torch.tensor([0, last - first], dtype=torch.int32),
            context_len=torch.tensor([last], dtype=torch.int32),
            block_tables=torch.arange(blocks, dtype=torch.int32)[None],
            slots=positions,
            block_size=16,
            decodes=0,
            max_context=last,
        )
        paged = PagedContext([(layer, batch) for layer in storage.pool], ops)
        with torch.inference_mode():
            logits = network.logits(ids[first:last], positions, paged, positions - first)
        total += float(torch.nn.functional.cross_entropy(logits, ids[first + 1 : last + 1], reduction="sum"))
    return float(torch.tensor(total / (len(ids) - 1)).exp())


@pytest.mark.parametrize(
    ("bits", "kv_dtype", "share"),
    [
        (8, torch.float32, 0.01),
        (4, torch.float32, 0.03),
        (32, torch.int8, 0.01),
        (32, torch.float8_e4m3fn, 0.03),
    ],
    ids=["int8 weights", "int4 weights", "int8 cache", "fp8 cache"],
)
def test_perplexity_stays_near_that_of_float32(bits: int, kv_dtype: torch.dtype, share: float) -> None:
    exact, got = perplexity(32), perplexity(bits, kv_dtype)
    print(f"perplexity {got:.4f}, in float32 {exact:.4f}: {got / exact - 1:+.2%}")
    assert 1 < exact < 60
    assert abs(got / exact - 1) < share
