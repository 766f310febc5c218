"""Layers as one call each against the same layers op by op."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pagedeck.engine.model.attention import PagedContext, probe
from pagedeck.engine.model.fused import FusedNetwork
from pagedeck.engine.model.fusing import fuse
from pagedeck.engine.model.linear import TiledLinear, replace_linears
from pagedeck.engine.model.quantized import quantize_linears
from pagedeck.engine.model.whole import whole_layers
from pagedeck.kernels import PagedBatch, cpu_jit, ops_for
from torch import Tensor, nn

from .test_fusing import FUSED, make

CONTEXTS = (1, 9, 70, 0, 33)  # one that begins, some of several blocks and several tiles, one of nobody
BLOCK = 8


def network_of(kind: str, weights: str, dtype: torch.dtype = torch.float32) -> FusedNetwork:
    model = make(*FUSED[kind], dtype)
    shape, _ = probe(model)
    network = fuse(model, shape.kv_heads, shape.head_dim, 256, ops_for("cpu"))
    assert isinstance(network, FusedNetwork)
    if weights == "tiles":
        replace_linears(network, lambda layer: type(layer) is nn.Linear, TiledLinear)
    elif weights != "plain":
        quantize_linears(network, {"int8": 8, "int4": 4}[weights])
    return network


def decodes() -> PagedBatch:
    tables = torch.randperm(len(CONTEXTS) * 9).view(len(CONTEXTS), 9).int()
    context = torch.tensor(CONTEXTS, dtype=torch.int32)
    last = (context.long() - 1).clamp(min=0)
    slots = tables.gather(1, (last // BLOCK)[:, None])[:, 0] * BLOCK + last % BLOCK
    return PagedBatch(
        query_start=torch.arange(len(CONTEXTS) + 1, dtype=torch.int32),
        context_len=context,
        block_tables=tables,
        slots=torch.where(context > 0, slots, -1),
        block_size=BLOCK,
        decodes=len(CONTEXTS),
        max_context=max(CONTEXTS),
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("kind", "weights"),
    [("llama", "tiles"), ("mistral", "tiles"), ("llama", "int8"), ("llama with biases", "int4")],
)
def test_a_step_of_decodes(kind: str, weights: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same logits of the tokens that are sampled, the same keys and values."""
    if threads > 1:
        monkeypatch.setattr(cpu_jit, "WAKE", 1e-6)
    torch.manual_seed(0)
    network, batch = network_of(kind, weights), decodes()
    layers = whole_layers(network, torch.float32)
    assert len(layers) == len(network.layers)
    tokens, positions = torch.arange(len(CONTEXTS)) * 17, batch.context_len.long().clamp(min=1) - 1
    pools = torch.randn(len(layers), 2, 9 * BLOCK * len(CONTEXTS), 2, 8)

    def step(sampled: list[int]) -> tuple[Tensor, Tensor]:
        stored = pools.clone()
        paged = PagedContext([(pool, batch) for pool in stored], ops_for("cpu"))
        with torch.inference_mode():
            return network.logits(tokens, positions, paged, torch.tensor(sampled, dtype=torch.int64)), stored

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for sampled in ([0, 1, 2, 4], [2], []):
            network.whole = []
            wanted, wanted_pools = step(sampled)
            network.whole = layers
            got, got_pools = step(sampled)
            assert got.shape == wanted.shape
            assert (got - wanted).norm() <= 2e-3 * wanted.norm()  # what rounds rows makes much of a last bit
            assert (got_pools - wanted_pools).norm() <= 2e-3 * wanted_pools.norm()
    finally:
        torch.set_num_threads(before)


def test_steps_with_prompts_go_op_by_op() -> None:
    network, batch = network_of("llama", "tiles"), decodes()
    network.whole = [_fails] * len(network.layers)
    batch.decodes = len(CONTEXTS) - 1
    pools = torch.zeros(len(network.layers), 2, 9 * BLOCK * len(CONTEXTS), 2, 8)
    paged = PagedContext([(pool, batch) for pool in pools], ops_for("cpu"))
    tokens = torch.arange(len(CONTEXTS))
    with torch.inference_mode():
        assert network.logits(tokens, tokens, paged, tokens).isfinite().all()


def _fails(*_: Any) -> None:
    raise AssertionError("a whole layer was called")


@pytest.mark.parametrize(
    ("kind", "weights", "dtype", "stored"),
    [
        ("llama", "tiles", torch.float32, torch.int8),
        ("llama", "int8", torch.float64, torch.float64),
        ("llama", "plain", torch.float32, torch.float32),
        ("qwen3", "tiles", torch.float32, torch.float32),
    ],
)
def test_what_the_kernel_does_not_take(kind: str, weights: str, dtype: torch.dtype, stored: torch.dtype) -> None:
    assert whole_layers(network_of(kind, weights, dtype), stored) == []
