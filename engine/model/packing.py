"""A step's work as packed tensors: all tokens in one row, no padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...kernels import PagedBatch
from ..cache.cache_groups import CacheGroups
from ..cache.kv_cache import KVCache
from ..request import Work
from .placement import to_device


@dataclass(slots=True)
class PackedStep:
    """What the model's forward takes. ``sampled`` names the tokens whose logits choose a next token, in plan order.

    The tokens at ``unknown`` are in flight: their values are those that the step before sampled for its rows
    ``sources``.
    """

    input_ids: Tensor  # int64 [1, T]
    position_ids: Tensor  # int64 [1, T]
    sampled: Tensor  # int64 [R]
    unknown: Tensor  # int64 [U]
    sources: Tensor  # int64 [U]
    batches: list[PagedBatch]  # one a group of layers


def pack(works: list[Work], cache: KVCache | CacheGroups, device: torch.device, sampled: dict[int, int]) -> PackedStep:
    """Pack ``works``, single-token entries first. Python runs once a sequence, never once a token.

    ``sampled`` names the row of each sequence, by number, that the step before sampled.
    """
    count = len(works)
    starts = np.fromiter((work.start for work in works), np.int64, count)
    counts = np.fromiter((work.count for work in works), np.int64, count)
    samples = np.fromiter((work.samples for work in works), np.bool_, count)
    query_start = np.zeros(count + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])
    tokens, unknown, sources = _known_tokens(works, sampled)
    positions = np.arange(len(tokens)) - np.repeat(query_start[:-1] - starts, counts)
    context = starts + counts

    def place(array: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(array), device)

    def batch(group: KVCache) -> PagedBatch:
        rows = group.rows(seqs)
        return PagedBatch(
            query_start=query_starts,
            context_len=contexts,
            block_tables=place(group.block_tables(rows, -(-int(context.max()) // group.block_size))),
            slots=place(group.slots_at(np.repeat(rows, counts), positions)),
            block_size=group.block_size,
            decodes=count if (counts == 1).all() else int((counts != 1).argmax()),
            max_context=int(context.max()),
        )

    seqs = [work.sequence.number for work in works]
    query_starts, contexts = place(query_start), place(context.astype(np.int32))
    return PackedStep(
        input_ids=place(np.array([tokens], np.int64)),
        position_ids=place(positions[None]),
        sampled=place(query_start[1:][samples].astype(np.int64) - 1),
        unknown=place(np.array(unknown, np.int64)),
        sources=place(np.array(sources, np.int64)),
        batches=[batch(group) for group in cache.groups],
    )


def _known_tokens(works: list[Work], rows: dict[int, int]) -> tuple[list[int], list[int], list[int]]:
    """All works' tokens in a row, 0 where one is in flight; where those are, and the rows that sample them. Only the
    last token of a sequence can be in flight."""
    tokens: list[int] = []
    unknown: list[int] = []
    sources: list[int] = []
    end = 0
    for work in works:
        end += work.count
        tokens += work.sequence.tokens[work.start : work.start + work.count]
        if len(tokens) < end:
            unknown.append(len(tokens))
            sources.append(rows[work.sequence.number])
            tokens.append(0)
    return tokens, unknown, sources
