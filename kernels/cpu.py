"""The op table for the CPU."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from . import PagedBatch, cpu_rowwise
from .cpu_decode import compile_decode, decode_attention
from .cpu_jit import COMPILED
from .cpu_prefill import prefill_attention
from .formats import raw
from .reference import ReferenceOps, rotate
from .runs import block_runs

QUANTISED = (torch.int8, torch.float8_e4m3fn)


class CpuOps:
    """Decodes and the small ops run in compiled kernels, prompt chunks through torch's attention over gathered keys and
    values. What the kernels do not compute in, plain torch does."""

    name = "cpu"

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        if dtype in COMPILED:
            compile_decode(head_dim, np.float32 if dtype == torch.float32 else np.float64)
            cpu_rowwise.compile_rowwise(head_dim, dtype)

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        if pool.dtype in QUANTISED:
            ReferenceOps().write_kv(key, value, pool, slots)
            return
        if bool((slots < 0).any()):
            kept = slots >= 0
            key, value, slots = key[kept], value[kept], slots[kept]
        pool[0].index_copy_(0, slots, key)
        pool[1].index_copy_(0, slots, value)

    def rotate_and_write_kv(
        self, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
    ) -> Tensor:
        if pool.dtype in COMPILED and pool.dtype == query.dtype and pool.is_contiguous():
            return cpu_rowwise.rotate_and_write_kv(query, key, value, cos, sin, pool, slots)
        self.write_kv(rotate(key, cos, sin), value, pool, slots)
        return rotate(query, cos, sin)

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
        if pool.dtype in QUANTISED:
            return ReferenceOps().paged_attention(
                query, pool, batch, scale=scale, window=window, softcap=softcap, sinks=sinks
            )
        out = torch.zeros_like(query, memory_format=torch.contiguous_format)
        compiled = batch.decodes if pool.dtype in COMPILED else 0
        if compiled:
            decode_attention(
                query[:compiled].contiguous().numpy(),
                pool.numpy(),
                batch.block_tables[:compiled].contiguous().numpy(),
                batch.context_len[:compiled].numpy(),
                batch.block_size,
                scale=scale,
                window=window,
                softcap=softcap,
                sinks=_sinks_array(sinks, query),
                out=out[:compiled].numpy(),
                threads=torch.get_num_threads(),
            )
        if compiled < len(batch.context_len):
            prefill_attention(
                query, pool, batch, compiled, scale=scale, window=window, softcap=softcap, sinks=sinks, out=out
            )
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


def _sinks_array(sinks: Tensor | None, query: Tensor) -> np.ndarray:
    if sinks is None:
        return np.empty(0, np.float32 if query.dtype == torch.float32 else np.float64)
    return sinks.to(query.dtype).numpy()
