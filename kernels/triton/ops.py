"""The op table for GPUs."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from .. import PagedBatch
from ..runs import block_runs
from .split import split
from .tilings import ROCM, decode_tiling, prefill_tiling

STAGING = 64 << 20  # bytes on the device through which blocks travel to and from the host


class TritonOps:
    """Attention and copies as Triton kernels, in float16, bfloat16 and float32; block sizes are powers of two.

    Rows of an attention result that belong to no sequence are undefined. Transfers to and from the host pool are
    queued on the current stream: wait for it before the CPU touches the host pool.

    What a forward runs (all but what moves blocks) asks nothing of the device and can be captured in a CUDA graph. Its
    launches depend on the shapes and strides of tensors and on a batch's ``decodes``, ``max_context`` and
    ``block_size``; a replay keeps these and may change what the tensors hold. A sequence that pads the batch has a
    context of 0, so its result is zero, and a slot of -1. Should a context exceed ``max_context``, the result is still
    right, and slow.
    """

    name = "triton"

    def warm_up(self, head_dim: int, dtype: torch.dtype) -> None:
        """Nothing: Triton compiles a kernel at its first launch, with the shapes that it then sees, so whoever has the
        pools launches each once."""

    def write_kv(self, key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
        from . import kv

        kv.write_kv(_dense_rows(key), _dense_rows(value), pool, slots)

    def rotate_and_write_kv(
        self, query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
    ) -> Tensor:
        from . import rotary

        return rotary.rotate_and_write_kv(query, key, value, cos, sin, pool, slots)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
        from . import norm

        return norm.rms_norm(x, weight, eps, residual)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        from . import activation

        return activation.silu_mul(gate_up)

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
        from .attention import Attention
        from .decode import decode_attention
        from .prefill import prefill_attention

        query = _dense_rows(query)
        facts = device_facts(query.device)
        attention = Attention(
            query, pool, torch.empty_like(query, memory_format=torch.contiguous_format), batch.block_size,
            scale, window, softcap, sinks, facts.converts_float8,
            upcast=interpreted() and (query.dtype == torch.bfloat16 or pool.dtype == torch.int8),
        )  # fmt: skip
        shape = (facts.arch, attention.head_dim, query.element_size(), attention.group)
        narrow = pool.element_size() == 1
        sequences, decodes = len(batch.context_len), batch.decodes
        if decodes:
            cut = split(decodes, attention.kv_heads, attention.visible(batch.max_context), facts.processors)
            tables, context = batch.block_tables[:decodes], batch.context_len[:decodes]
            decode_attention(attention, tables, context, decode_tiling(*shape, narrow=narrow), cut)
        if decodes < sequences:
            prefill_attention(
                attention, batch.query_start[decodes:], batch.block_tables[decodes:], batch.context_len[decodes:],
                prefill_tiling(*shape, narrow=narrow), tokens=len(query) - decodes, max_context=batch.max_context,
                processors=facts.processors,
            )  # fmt: skip
        return attention.out

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


class DeviceFacts(NamedTuple):
    arch: int  # see :mod:`.tilings`
    processors: int

    @property
    def converts_float8(self) -> bool:
        """Whether the hardware turns float8 (e4m3fn) into wider numbers."""
        return self.arch >= 89 and self.arch != ROCM


@cache
def device_facts(device: torch.device) -> DeviceFacts:
    """An A100's where only the interpreter can run."""
    if device.type == "cpu":
        return DeviceFacts(80, 108)
    facts = torch.cuda.get_device_properties(device)
    arch = ROCM if torch.version.hip else facts.major * 10 + facts.minor
    return DeviceFacts(arch, facts.multi_processor_count)


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _dense_rows(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _staged_blocks(host: Tensor, block_size: int) -> int:
    return max(1, STAGING // (host[0].numel() * host.element_size() * block_size))
