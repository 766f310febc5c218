"""A step's work as packed tensors: all tokens in one row, no padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..kernels import PagedBatch
from .kv_cache import KVCache
from .request import Work


@dataclass(slots=True)
class PackedStep:
    """What the model's forward takes. ``sampled`` names the tokens whose logits choose a next token, in plan order."""

    input_ids: Tensor  # int64 [1, T]
    position_ids: Tensor  # int64 [1, T]
    sampled: Tensor  # int64 [R]
    batch: PagedBatch


def pack(works: list[Work], cache: KVCache, device: torch.device) -> PackedStep:
    """Pack ``works``, single-token entries first. Python runs once a sequence, never once a token."""
    count = len(works)
    starts = np.fromiter((work.start for work in works), np.int64, count)
    counts = np.fromiter((work.count for work in works), np.int64, count)
    samples = np.fromiter((work.samples for work in works), np.bool_, count)
    query_start = np.zeros(count + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])
    tokens: list[int] = []
    for work in works:
        tokens += work.sequence.tokens[work.start : work.start + work.count]
    positions = np.arange(len(tokens)) - np.repeat(query_start[:-1] - starts, counts)
    context = starts + counts
    rows = cache.rows([work.sequence.number for work in works])
    tables = cache.block_tables(rows, -(-int(context.max()) // cache.block_size))
    slots = cache.slots_at(np.repeat(rows, counts), positions)

    def place(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device, non_blocking=True)

    return PackedStep(
        input_ids=place(np.array([tokens], np.int64)),
        position_ids=place(positions[None]),
        sampled=place(query_start[1:][samples].astype(np.int64) - 1),
        batch=PagedBatch(
            query_start=place(query_start),
            context_len=place(context.astype(np.int32)),
            block_tables=place(tables),
            slots=place(slots),
            block_size=cache.block_size,
            decodes=count if (counts == 1).all() else int((counts != 1).argmax()),
            max_query=int(counts.max()),
            max_context=int(context.max()),
        ),
    )
