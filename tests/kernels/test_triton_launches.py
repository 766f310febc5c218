"""What the Triton ops do on the host: they ask nothing of the device, and launch the same for every step of a captured
graph. Seen on tensors without content, where whoever asks for some fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from pagedeck.kernels import PagedBatch
from pagedeck.kernels.formats import pool_width
from torch import Tensor

pytest.importorskip("triton")
from pagedeck.kernels.triton import activation, decode, kv, merge, norm, ops, prefill, rotary

HEADS, KV_HEADS, HEAD_DIM = 8, 2, 64
Launches = list[tuple[str, tuple[int, ...], list[Any], dict[str, Any]]]


class Recorder:
    """Stands in for a kernel and notes how it is launched; of tensors their shapes."""

    def __init__(self, name: str, launches: Launches) -> None:
        self.name = name
        self.launches = launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            facts = [tuple(a.shape) if isinstance(a, Tensor) else a for a in arguments]
            self.launches.append((self.name, grid, facts, constants))

        return launch


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    noted: Launches = []
    for module in (activation, decode, kv, merge, norm, prefill, rotary):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, Recorder(name, noted))
    monkeypatch.setattr(ops, "device_facts", lambda device: ops.DeviceFacts(90, 132))
    return noted


def blank(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def step(queries: int, sequences: int, decodes: int, max_context: int) -> PagedBatch:
    return PagedBatch(
        query_start=blank(sequences + 1, dtype=torch.int32),
        context_len=blank(sequences, dtype=torch.int32),
        block_tables=blank(sequences, -(-max_context // 32), dtype=torch.int32),
        slots=blank(queries, dtype=torch.int64),
        block_size=32,
        decodes=decodes,
        max_context=max_context,
    )


def forward(batch: PagedBatch, pool_dtype: torch.dtype, **variant: Any) -> None:
    """What one layer calls."""
    tokens = len(batch.slots)
    table = ops.TritonOps()
    x = table.rms_norm(blank(tokens, 512), blank(512), 1e-5, blank(tokens, 512))
    assert x.shape == (tokens, 512)
    projected = blank(tokens, (HEADS + 2 * KV_HEADS) * HEAD_DIM).unflatten(1, (-1, HEAD_DIM))
    query, key, value = projected.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    pool = blank(2, 4096, KV_HEADS, pool_width(HEAD_DIM, pool_dtype), dtype=pool_dtype)
    query = table.rotate_and_write_kv(query, key, value, blank(tokens, 64), blank(tokens, 64), pool, batch.slots)
    table.write_kv(key, value, pool, batch.slots)
    assert table.paged_attention(query, pool, batch, scale=0.125, **variant).shape == query.shape
    assert table.silu_mul(blank(tokens, 1024)).shape == (tokens, 512)


@pytest.mark.parametrize("pool_dtype", [torch.bfloat16, torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("variant", [{}, {"window": 128, "softcap": 30.0, "sinks": blank(HEADS)}], ids=["", "featured"])
def test_a_forward_asks_nothing_of_the_device(
    launches: Launches, pool_dtype: torch.dtype, variant: dict[str, Any]
) -> None:
    forward(step(16, 16, 16, 4096), pool_dtype, **variant)
    forward(step(300, 5, 3, 4096), pool_dtype, **variant)
    assert {name for name, *_ in launches} >= {"decode_kernel", "prefill_kernel", "rotate_kernel", "norm_kernel"}


def test_launches_follow_the_bucket(launches: Launches) -> None:
    """The same batch bucket and context bucket: the same launches."""
    bucket = step(16, 16, 16, 8192)
    forward(bucket, torch.bfloat16)
    first = list(launches)
    launches.clear()
    forward(replace(bucket, context_len=blank(16, dtype=torch.int32)), torch.bfloat16)
    assert launches == first


def test_a_window_needs_no_more_programs_than_it_shows(launches: Launches) -> None:
    forward(step(1, 1, 1, 100_000), torch.bfloat16, window=500)
    forward(step(1, 1, 1, 500), torch.bfloat16)
    grids = [grid for name, grid, *_ in launches if name == "decode_kernel"]
    assert grids[0] == grids[1]
