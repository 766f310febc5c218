"""Shapes to try attention kernels on, and the tensors that go with them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from pagedeck.kernels import PagedBatch
from pagedeck.kernels.formats import decode, encode, raw
from pagedeck.kernels.reference import ReferenceOps
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """A batch: ``queries`` and ``contexts`` are each sequence's query tokens and tokens in the cache."""

    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    block_size: int = 16
    kv_heads: int = 2
    group: int = 3
    head_dim: int = 64
    dtype: str = "float32"
    pool: str = ""  # the type that keys and values are kept in, if another
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    padding: int = 0  # query rows beyond the last sequence's
    arch: int = 80  # of the device that the Triton kernels are tiled for
    bucket: int = 0  # the batch's bound on contexts; 0 is the longest of them
    span: int = 0  # positions of a segment, for the Triton kernels; 0 leaves it to them

    @property
    def label(self) -> str:
        default = {f.name: f.default for f in dataclasses.fields(self)}
        facts = [f"q{'.'.join(map(str, self.queries))}-c{'.'.join(map(str, self.contexts))}"]
        facts += [
            f"{k}={v}"
            for k, v in dataclasses.asdict(self).items()
            if k not in ("queries", "contexts") and v != default[k]
        ]
        return "-".join(facts)


def decodes(*contexts: int, **shape: Any) -> Case:
    return Case((1,) * len(contexts), contexts, **shape)


@dataclass
class Problem:
    query: Tensor
    pool: Tensor
    batch: PagedBatch
    options: dict[str, Any]


def build(case: Case, seed: int = 0) -> Problem:
    """Random tensors for ``case``, blocks shuffled, every slot and table entry that must not be read poisoned."""
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, case.dtype)
    size = case.block_size
    needed = [-(-c // size) for c in case.contexts]
    blocks = torch.randperm(sum(needed) + 3, generator=generator)
    slots = (len(blocks) + 1) * size - size // 2  # a tail that fills no block
    stored = getattr(torch, case.pool or case.dtype)
    pool = encode(torch.full((2, slots, case.kv_heads, case.head_dim), float("nan"), dtype=dtype), stored)
    tables = torch.full((len(needed), max(needed, default=1) + 2), 2**31 - 1, dtype=torch.int32)
    start = 0
    for sequence, (count, context) in enumerate(zip(needed, case.contexts, strict=True)):
        own = blocks[start : start + count]
        start += count
        oldest = max(0, context - case.queries[sequence] - case.window + 1) if case.window else 0
        tables[sequence, oldest // size : count] = own[oldest // size :]
        position = torch.arange(oldest, context)
        used = own[position // size] * size + position % size
        rows = torch.randn((2, len(position), case.kv_heads, case.head_dim), generator=generator)
        raw(pool)[:, used] = raw(encode(rows.to(dtype), stored))
    tokens = sum(case.queries)
    heads = case.kv_heads * case.group
    # As projections give it: heads apart by more than their size.
    wide = torch.randn((tokens + case.padding, heads, case.head_dim + 8), generator=generator).to(dtype)
    batch = PagedBatch(
        query_start=torch.tensor([0, *torch.tensor(case.queries).cumsum(0).tolist()], dtype=torch.int32),
        context_len=torch.tensor(case.contexts, dtype=torch.int32),
        block_tables=tables,
        slots=torch.full((tokens + case.padding,), -1),
        block_size=size,
        decodes=next((i for i, n in enumerate(case.queries) if n != 1), len(case.queries)),
        max_context=case.bucket or max(case.contexts),
    )
    options: dict[str, Any] = {"scale": case.head_dim**-0.5 * 2, "window": case.window, "softcap": case.softcap}
    options["sinks"] = torch.randn(heads, generator=generator).to(dtype) if case.sinks else None
    return Problem(wide[..., : case.head_dim], pool, batch, options)


def expected(problem: Problem) -> Tensor:
    """The reference's answer in float64, for the same rounded inputs and what the pool really holds."""
    options = dict(problem.options)
    if options["sinks"] is not None:
        options["sinks"] = options["sinks"].double()
    pool = decode(problem.pool, problem.query.shape[-1]).double()
    return ReferenceOps().paged_attention(problem.query.double(), pool, problem.batch, **options)


def worst(result: Tensor, problem: Problem) -> float:
    """The largest error over the rows that belong to a sequence; NaN anywhere in them is infinite."""
    rows = int(problem.batch.query_start[-1])
    error = (result[:rows].double() - expected(problem)[:rows]).abs()
    return float(error.nan_to_num(nan=float("inf")).max())


TOLERANCE = {"float64": 1e-12, "float32": 5e-6, "float16": 4e-3, "bfloat16": 3e-2}
