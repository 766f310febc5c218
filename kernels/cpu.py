"""The op table for the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import PagedBatch, cpu_rowwise
from .cpu_chunks import chunk_attention, compile_chunks
from .cpu_decode import compile_decode, decode_attention
from .cpu_jit import COMPILED
from .cpu_prefill import prefill_attention
from .formats import raw
from .reference import ReferenceOps, rotate
from .runs import block_runs

QUANTISED = (torch.int8, torch.float8_e4m3fn)


class CpuOps:
    """Compiled kernels. What they do not compute in, plain torch does; prompt chunks in float64 are of that, too."""

    name = "cpu"

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        if dtype in COMPILED or dtype in QUANTISED:
            number = torch.float64 if dtype == torch.float64 else torch.float32
            query, pool = torch.zeros((1, 1, head_dim), dtype=number), torch.zeros((2, 1, 1, 4), dtype=dtype)
            stored = raw(pool).numpy().dtype.type
            compile_decode(head_dim, query.numpy().dtype.type, stored)
            if number == torch.float32:
                compile_chunks(head_dim, stored)
            cpu_rowwise.compile_rowwise(head_dim, number)

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        if pool.dtype == torch.int8 and key.dtype == torch.float32 and pool.is_contiguous():
            cpu_rowwise.write_int8(key, value, pool, slots)
        elif pool.dtype in QUANTISED:
            ReferenceOps().write_kv(key, value, pool, slots)
        else:
            kept = slots >= 0
            if not bool(kept.all()):
                key, value, slots = key[kept], value[kept], slots[kept]
            pool[0].index_copy_(0, slots, key)
            pool[1].index_copy_(0, slots, value)

    def rotate_and_write_kv(
        self, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
    ) -> Tensor:
        if not _compiled(query, pool):
            self.write_kv(rotate(key, cos, sin), value, pool, slots)
            return rotate(query, cos, sin)
        if pool.dtype == query.dtype:
            return cpu_rowwise.rotate_and_write_kv(query, key, value, cos, sin, pool, slots)
        rows = key.new_empty((2, *key.shape))
        rotated = cpu_rowwise.rotate_and_write_kv(query, key, value, cos, sin, rows, torch.arange(len(key)))
        self.write_kv(rows[0], rows[1], pool, slots)
        return rotated

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
        if x.dtype in COMPILED and (residual is None or residual.is_contiguous()):
            return cpu_rowwise.rms_norm(x, weight, eps, residual)
        return ReferenceOps().rms_norm(x, weight, eps, residual)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        if gate_up.dtype in COMPILED:
            return cpu_rowwise.silu_mul(gate_up)
        return ReferenceOps().silu_mul(gate_up)

    def paged_attention(
        self,
        query: Tensor,
        pool: Tensor,
        batch: PagedBatch,
        *,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Tensor | None = None,
    ) -> Tensor:
        out = torch.zeros(query.shape, dtype=query.dtype)
        variant: dict[str, Any] = {"scale": scale, "window": window, "softcap": softcap}
        done = 0
        if _compiled(query, pool):
            done = _attend(query, pool, batch, sinks=_sinks_array(sinks, query), out=out, **variant)
        if done < len(batch.context_len):
            prefill_attention(query, pool, batch, done, sinks=sinks, out=out, **variant)
        return out

    def copy_blocks(self, pool: Tensor, source: Tensor, target: Tensor, block_size: int) -> None:
        blocks = pool.shape[2] // block_size
        for layer in raw(pool):
            view = layer[:, : blocks * block_size].unflatten(1, (blocks, block_size))
            view.index_copy_(1, target, view.index_select(1, source))

    def move_slots(self, pool: Tensor, source: Tensor, target: Tensor) -> None:
        for layer in raw(pool):
            layer.index_copy_(1, target, layer.index_select(1, source))

    def gather_blocks(self, pool: Tensor, blocks: Tensor, block_size: int, host: Tensor, host_blocks: Tensor) -> None:
        for start, host_start, count in block_runs(blocks, host_blocks, block_size):
            run = pool[:, :, start : start + count]
            host[host_start : host_start + count].copy_(run.movedim(2, 0))

    def scatter_blocks(self, host: Tensor, host_blocks: Tensor, block_size: int, pool: Tensor, blocks: Tensor) -> None:
        for start, host_start, count in block_runs(blocks, host_blocks, block_size):
            run = host[host_start : host_start + count]
            pool[:, :, start : start + count].copy_(run.movedim(0, 2))


def _compiled(query: Tensor, pool: Tensor) -> bool:
    """Whether the kernels compute with such queries over such a pool."""
    plain = query.dtype in COMPILED and pool.dtype == query.dtype
    return pool.is_contiguous() and (plain or (query.dtype == torch.float32 and pool.dtype in QUANTISED))


def _attend(query: Tensor, pool: Tensor, batch: PagedBatch, *, out: Tensor, **variant: Any) -> int:
    """Attention in compiled kernels; returns how many sequences, from the first on, that is."""
    rows, stored, results = query.contiguous().numpy(), raw(pool).numpy(), out.numpy()
    tables, context = batch.block_tables.contiguous().numpy(), batch.context_len.numpy()
    size, decodes = batch.block_size, batch.decodes
    if decodes:
        decode_attention(
            rows[:decodes], stored, tables[:decodes], context[:decodes], size, out=results[:decodes], **variant
        )
    if decodes == len(context) or query.dtype == torch.float64:
        return decodes
    starts = batch.query_start.numpy()
    chunk_attention(rows, stored, tables, starts, context, decodes, size, out=results, **variant)
    return len(context)


def _sinks_array(sinks: Tensor | None, query: Tensor) -> np.ndarray:
    if sinks is None:
        return np.empty(0, np.float32 if query.dtype == torch.float32 else np.float64)
    return sinks.to(query.dtype).numpy()
