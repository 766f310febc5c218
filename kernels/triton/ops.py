"""The op table for GPUs."""

from __future__ import annotations

import os
from functools import cache

import torch
from torch import Tensor

from .. import PagedBatch
from ..reference import ReferenceOps, rotate
from ..runs import block_runs
from .tilings import ROCM, decode_tiling, prefill_tiling

QUANTISED = (torch.int8, torch.float8_e4m3fn)
STAGING = 64 << 20  # bytes on the device through which blocks travel to and from the host


class TritonOps:
    """Attention and copies as Triton kernels, in float16, bfloat16 and float32; block sizes are powers of two.

    Rows of an attention result that belong to no sequence are not written. Transfers to and from the host pool are
    queued on the current stream: wait for it before the CPU touches the host pool.
    """

    name = "triton"

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        """Triton compiles a kernel at its first launch, with the shapes that it then sees."""

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        from . import kv

        if pool.dtype in QUANTISED:
            ReferenceOps().write_kv(key, value, pool, slots)
            return
        kv.write_kv(_dense_rows(key), _dense_rows(value), pool, slots)

    def rotate_and_write_kv(
        self, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
    ) -> Tensor:
        self.write_kv(rotate(key, cos, sin), value, pool, slots)
        return rotate(query, cos, sin)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
        return ReferenceOps().rms_norm(x, weight, eps, residual)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
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
        from .decode import decode_attention, segments_for
        from .prefill import prefill_attention

        query = _dense_rows(query)
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        sequences, decodes = len(batch.context_len), batch.decodes
        kv_heads, head_dim = pool.shape[2:]
        arch, processors = device_facts(query.device)
        shape = (arch, head_dim, pool.element_size(), query.shape[1] // kv_heads)
        upcast = interpreted() and pool.dtype == torch.bfloat16
        if decodes:
            visible = min(batch.max_context, window) if window > 0 else batch.max_context
            decode_attention(
                query[:decodes], pool, batch.block_tables, batch.context_len, batch.block_size,
                scale=scale, window=window, softcap=softcap, sinks=sinks, out=out, upcast=upcast,
                tiling=decode_tiling(*shape), segments=segments_for(decodes, kv_heads, visible, processors),
            )  # fmt: skip
        if decodes < sequences:
            prefill_attention(
                query, pool, batch.query_start[decodes:], batch.block_tables[decodes:], batch.context_len[decodes:],
                batch.block_size, tokens=len(query) - decodes,
                scale=scale, window=window, softcap=softcap, sinks=sinks, out=out, upcast=upcast,
                tiling=prefill_tiling(*shape),
            )  # fmt: skip
        return out

    def copy_blocks(self, pool: Tensor, source: Tensor, target: Tensor, block_size: int) -> None:
        from . import kv

        kv.copy_blocks(pool, source.to(pool.device), target.to(pool.device), block_size)

    def move_slots(self, pool: Tensor, source: Tensor, target: Tensor) -> None:
        from . import kv

        kv.move_slots(pool, source.to(pool.device), target.to(pool.device))

    def gather_blocks(self, pool: Tensor, blocks: Tensor, block_size: int, host: Tensor, host_blocks: Tensor) -> None:
        from . import kv

        step = _staged_blocks(host, block_size)
        for some, host_some in zip(blocks.split(step), host_blocks.split(step), strict=True):
            staging = kv.gather(pool, some.to(pool.device), block_size)
            for start, host_start, count in block_runs(torch.arange(len(some)), host_some, block_size):
                host[host_start : host_start + count].copy_(staging[start : start + count], non_blocking=True)

    def scatter_blocks(self, host: Tensor, host_blocks: Tensor, block_size: int, pool: Tensor, blocks: Tensor) -> None:
        from . import kv

        step = _staged_blocks(host, block_size)
        for some, host_some in zip(blocks.split(step), host_blocks.split(step), strict=True):
            staging = torch.empty((len(some) * block_size, *host.shape[1:]), dtype=pool.dtype, device=pool.device)
            for start, host_start, count in block_runs(torch.arange(len(some)), host_some, block_size):
                staging[start : start + count].copy_(host[host_start : host_start + count], non_blocking=True)
            kv.scatter(staging, pool, some.to(pool.device), block_size)


@cache
def device_facts(device: torch.device) -> tuple[int, int]:
    """Architecture (see :mod:`.tilings`) and number of processors; an A100's where only the interpreter can run."""
    if device.type == "cpu":
        return 80, 108
    facts = torch.cuda.get_device_properties(device)
    arch = ROCM if torch.version.hip else facts.major * 10 + facts.minor
    return arch, facts.multi_processor_count


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _dense_rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _staged_blocks(host: Tensor, block_size: int) -> int:
    return max(1, STAGING // (host[0].numel() * host.element_size() * block_size))
