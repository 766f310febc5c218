"""A step's work as packed numbers: all tokens in one row. They travel to the device in one copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels import PagedBatch
from ..cache.cache_groups import CacheGroups
from ..cache.kv_cache import KVCache
from ..request import Work

Array = np.ndarray

#: Where each array begins in a copy: a multiple of what the widest loads need.
ALIGNMENT = 16


class Shape(NamedTuple):
    """What a step of decodes is padded to: so many rows, and tables for contexts of so many tokens."""

    rows: int
    context: int


@dataclass(slots=True)
class PackedStep:
    """What the model's forward takes, still on the host.

    A padded step has a ``shape``; its rows from ``samples`` on are of nobody: their context is empty and their slot
    -1. The tokens at ``unknown`` are in flight: their values are those that the step before sampled for its rows
    ``sources``.
    """

    ids: Array  # int64 [T]
    positions: Array  # int64 [T]
    sampled: Array  # int64 [R], the tokens whose logits choose a next token, in plan order
    query_start: Array  # int32 [S + 1]
    context_len: Array  # int32 [S]
    tables: list[Array]  # int32 [S, M], one a group of layers
    slots: list[Array]  # int64 [T], the same
    unknown: Array  # int64 [U]
    sources: Array  # int64 [U]
    block_size: int
    decodes: int
    max_context: int
    samples: int
    shape: Shape | None

    def __iter__(self) -> Iterator[Array]:
        """All arrays. Those whose size a shape leaves open come last."""
        yield from (self.ids, self.positions, self.sampled, self.query_start, self.context_len)
        yield from self.tables
        yield from self.slots
        yield from (self.unknown, self.sources)


@dataclass(slots=True)
class DeviceStep:
    """A :class:`PackedStep` on the device."""

    ids: Tensor
    positions: Tensor
    sampled: Tensor
    unknown: Tensor
    sources: Tensor
    batches: list[PagedBatch]  # one a group of layers


def pack(
    works: list[Work], cache: KVCache | CacheGroups, sampled: dict[int, int], shape: Shape | None = None
) -> PackedStep:
    """Pack ``works``, single-token entries first. Python runs once a sequence, never once a token.

    ``sampled`` names the row of each sequence, by number, that the step before sampled. With a ``shape``, all works
    are decodes that sample.
    """
    count = len(works)
    starts = np.fromiter((work.start for work in works), np.int64, count)
    counts = np.fromiter((work.count for work in works), np.int64, count)
    samples = np.fromiter((work.samples for work in works), np.bool_, count)
    query_start = np.zeros(count + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])
    tokens, unknown, sources = _known_tokens(works, sampled)
    positions = np.arange(len(tokens)) - np.repeat(query_start[:-1] - starts, counts)
    context = (starts + counts).astype(np.int32)
    seqs = [work.sequence.number for work in works]
    longest = int(context.max()) if shape is None else shape.context
    tables, slots = [], []
    for group in cache.groups:
        rows = group.rows(seqs)
        tables.append(group.block_tables(rows, -(-longest // group.block_size)))
        slots.append(group.slots_at(np.repeat(rows, counts), positions))
    step = PackedStep(
        ids=np.array(tokens, np.int64),
        positions=positions,
        sampled=query_start[1:][samples].astype(np.int64) - 1,
        query_start=query_start,
        context_len=context,
        tables=tables,
        slots=slots,
        unknown=np.array(unknown, np.int64),
        sources=np.array(sources, np.int64),
        block_size=cache.block_size,
        decodes=count if (counts == 1).all() else int((counts != 1).argmax()),
        max_context=longest,
        samples=int(samples.sum()),
        shape=shape,
    )
    if shape is not None:
        _pad(step, shape.rows)
    return step


def _pad(step: PackedStep, rows: int) -> None:
    """Rows of nobody, up to ``rows``."""
    extra = rows - len(step.ids)
    step.ids, step.positions, step.context_len = (
        np.pad(array, (0, extra)) for array in (step.ids, step.positions, step.context_len)
    )
    step.sampled = np.arange(rows)
    step.query_start = np.arange(rows + 1, dtype=np.int32)
    step.tables = [np.pad(table, ((0, extra), (0, 0))) for table in step.tables]
    step.slots = [np.pad(slots, (0, extra), constant_values=-1) for slots in step.slots]
    step.decodes = rows


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


def ship(step: PackedStep, device: torch.device, into: Tensor | None = None) -> DeviceStep:
    """``step`` on ``device``; the host does not wait. ``into`` is a buffer of bytes there, where steps of one shape
    find the same places (but for ``unknown`` and ``sources``); :func:`bytes_of` tells its size."""
    arrays = list(step)
    if device.type == "cpu" and into is None:
        tensors = [torch.from_numpy(array) for array in arrays]
    else:
        tensors = _copied(arrays, device, into)
    ids, positions, sampled, query_start, context_len, *others, unknown, sources = tensors
    groups = len(step.tables)
    batches = [
        PagedBatch(
            query_start=query_start,
            context_len=context_len,
            block_tables=table,
            slots=slots,
            block_size=step.block_size,
            decodes=step.decodes,
            max_context=step.max_context,
        )
        for table, slots in zip(others[:groups], others[groups:], strict=True)
    ]
    return DeviceStep(ids, positions, sampled, unknown, sources, batches)


def bytes_of(step: PackedStep) -> int:
    """What a buffer for steps of this shape takes."""
    rows = len(step.ids)
    fixed = list(step)[:-2]
    return sum(_aligned(array.nbytes) for array in fixed) + 2 * _aligned(rows * step.unknown.itemsize)


def _copied(arrays: list[Array], device: torch.device, into: Tensor | None) -> list[Tensor]:
    starts = np.cumsum([0] + [_aligned(array.nbytes) for array in arrays]).tolist()
    host = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    bytes_ = host.numpy()
    for start, array in zip(starts, arrays, strict=False):
        bytes_[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if into is None:
        there = host.to(device, non_blocking=True)
    else:
        there = into[: starts[-1]].copy_(host, non_blocking=True)
    return [
        there[start : start + array.nbytes].view(torch.from_numpy(array[:0]).dtype).view(array.shape)
        for start, array in zip(starts, arrays, strict=False)
    ]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
