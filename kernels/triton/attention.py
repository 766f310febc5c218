"""What the attention kernels share: how they are launched, and the walk over a sequence's positions.

The walk takes a tile of positions at a time, whatever the block size, into a running softmax.
"""

# Triton gives the types of its functions when it compiles them.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from .elements import pointers, widened
from .softmax import bend, weigh
from .tilings import Tiling, next_power_of_two

LOG2E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True, slots=True)
class Attention:
    """One layer's attention: ``query`` [T, Hq, D] (heads apart by any stride, rows dense) over ``pool``
    [2, num_slots, H, ...] into ``out`` [T, Hq, D], which is contiguous."""

    query: Tensor
    pool: Tensor
    out: Tensor
    block_size: int
    scale: float
    window: int
    softcap: float
    sinks: Tensor | None
    converts_float8: bool  # the hardware does
    upcast: bool  # multiply in float32: for Triton's interpreter, whose products of bfloat16 are wrong

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def kv_heads(self) -> int:
        return self.pool.shape[2]

    @property
    def head_dim(self) -> int:
        return self.query.shape[2]

    @property
    def group(self) -> int:
        """Query heads a key-value head."""
        return self.heads // self.kv_heads

    def visible(self, context: int) -> int:
        """How much of ``context`` a single query sees."""
        return min(context, self.window) if self.window > 0 else context

    def launch(
        self, kernel: Any, grid: tuple[int, ...], tables: Tensor, tiling: Tiling, *arguments: Any, **constants: Any
    ) -> None:
        """Run ``kernel`` with what both take, then with ``arguments`` and ``constants`` of its own."""
        numbers, scales = pointers(self.pool, converts_float8=self.converts_float8)
        sinks = self.query if self.sinks is None else self.sinks
        kernel[grid](
            self.query, numbers, scales, tables, sinks, self.out,
            self.query.stride(0), self.query.stride(1), self.pool.stride(0), self.pool.stride(1), tables.stride(0),
            self.block_size.bit_length() - 1, self.window, self.scale, self.softcap, *arguments,
            GROUP=self.group, HEAD_DIM=self.head_dim, WIDTH=next_power_of_two(self.head_dim),
            HEAD_STRIDE=self.pool.stride(2), ROWS=tiling.rows, TILE=tiling.positions,
            WINDOWED=self.window > 0, CAPPED=self.softcap > 0, SINKS=self.sinks is not None, UPCAST=self.upcast,
            num_warps=tiling.warps, num_stages=tiling.stages, **constants,
        )  # fmt: skip


@triton.jit
def leave(
    weighted, largest, total, out, partial, largest_out, total_out, place, segment, segments, used,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Store what a softmax has come to for rows ``place`` [M] of ``out`` [rows, D], those that are ``used``; or if the
    context is ``SPLIT``, the partial results of one segment."""
    column = tl.arange(0, WIDTH)
    live = used[:, None] & (column[None, :] < HEAD_DIM)
    if SPLIT:
        place = place * segments + segment
        tl.store(largest_out + place, largest, mask=used)
        tl.store(total_out + place, total, mask=used)
        tl.store(partial + place[:, None] * HEAD_DIM + column[None, :], weighted, mask=live)
    else:
        # An empty context leaves a total of zero, or that of a sink; its result is zero.
        result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out + place[:, None] * HEAD_DIM + column[None, :], result.to(out.dtype.element_ty), mask=live)


@triton.jit
def walk(
    q, pool, scales, table, own, start, stop, largest, total, weighted,
    kv_head, plane_stride, slot_stride, block_shift, window, scale, softcap,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, HEAD_STRIDE: tl.constexpr, TILE: tl.constexpr,
    ENDS: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CAPPED: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """Take positions ``start`` to ``stop`` of the sequence with block ``table`` into the softmax of queries ``q``
    [M, WIDTH] (running ``largest`` and ``total`` [M], ``weighted`` [M, WIDTH]); returns these three.

    ``ENDS``: the last tile may be partly filled. ``CAUSAL``: a row sees positions up to its ``own`` [M] only, and if
    ``WINDOWED``, none that ``window`` positions have passed since.
    """
    SCALED: tl.constexpr = pool.dtype.element_ty == tl.int8
    kind: tl.constexpr = tl.float32 if UPCAST else q.dtype
    # Weights times int8's scales can be too small for float16; they are never too small for bfloat16.
    value_kind: tl.constexpr = tl.bfloat16 if SCALED and kind == tl.float16 else kind
    q = q.to(kind)
    column = tl.arange(0, WIDTH)
    inside = column < HEAD_DIM
    if HEAD_DIM == WIDTH:
        inside = tl.full([WIDTH], True, tl.int1)  # a constant, of which the compiler makes plain loads
    head = kv_head * HEAD_STRIDE
    for first in range(start, stop, TILE):
        position = first + tl.arange(0, TILE)
        exists = tl.full([TILE], True, tl.int1)
        if ENDS:
            exists = position < stop
        block = tl.load(table + (position >> block_shift), mask=exists, other=0).to(tl.int64)
        slot = (block << block_shift) + (position & ((1 << block_shift) - 1))
        place = slot * slot_stride + head
        offset = place[:, None] + column[None, :]
        present = exists[:, None] & inside[None, :]
        k = widened(tl.load(pool + offset, mask=present, other=0.0), kind)
        v = widened(tl.load(pool + plane_stride + offset, mask=present, other=0.0), value_kind)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if SCALED:
            scores *= tl.load(scales + (place + HEAD_DIM) // 4, mask=exists, other=0.0)[None, :]
        if CAPPED:
            scores = bend(scores * scale, softcap) * LOG2E
        else:
            scores *= scale * LOG2E
        seen = exists[None, :]
        if CAUSAL:
            seen = seen & (position[None, :] <= own[:, None])
            if WINDOWED:
                seen = seen & (position[None, :] > own[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
        weights, rescale, largest = weigh(scores, largest)
        total = total * rescale + tl.sum(weights, 1)
        if SCALED:
            weights *= tl.load(scales + (plane_stride + place + HEAD_DIM) // 4, mask=exists, other=0.0)[None, :]
        weighted = weighted * rescale[:, None] + tl.dot(weights.to(value_kind), v, input_precision="ieee")
    return largest, total, weighted
