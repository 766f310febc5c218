"""A decoder layer's decode step in one compiled call, for the CPU: norms, products, rotary embedding, the write to the
cache, attention and the gated MLP.

It calls the kernels of :mod:`.cpu_rowwise`, :mod:`.cpu_packed`, :mod:`.cpu_linear` and :mod:`.cpu_decode` one after the
other. With few tokens these are done so soon that calling each of them from Python takes as long as they do.
"""

# numba infers the types of its functions.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from . import PagedBatch, cpu_decode, cpu_jit, cpu_linear, cpu_packed, cpu_rowwise
from .cpu_jit import Array, entry, inner, most_threads, rows_of
from .cpu_linear import QuantizedWeight
from .cpu_packed import PackedWeight

NO_SINKS = np.empty(0, np.float32)

Parts = tuple[Array, Array | None, Array | None, Array | None]  # values, scales, minimums, bias


@dataclass(slots=True)
class LayerWeights:
    """What a layer computes with, as the kernel takes it. All numbers are float32 where they are not rounded weights,
    and the weights of all four products are of one kind."""

    norms: tuple[tuple[Array, float], tuple[Array, float]]  # weight [N] and epsilon: before attention, before the MLP
    qkv: Parts  # queries, keys and values of all heads
    output: Parts
    gate_up: Parts
    down: Parts
    heads: int  # of queries
    gates: int  # outputs of gate_up / 2


def parts_of(weight: PackedWeight | QuantizedWeight, bias: Tensor | None) -> Parts:
    """A product's weight and bias, as :class:`LayerWeights` holds them."""
    offsets = None if bias is None else bias.float().contiguous().numpy()
    if isinstance(weight, PackedWeight):
        return weight.values, None, None, offsets
    return weight.values, weight.scales, weight.minimums, offsets


def decode_layer(
    weights: LayerWeights,
    residual: Tensor,
    turn: tuple[Tensor, Tensor],
    pool: Tensor,
    batch: PagedBatch,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
) -> None:
    """A layer over ``residual`` [T, N], which becomes its output in place, for a batch of T decodes; keys and values go
    to ``pool`` [2, num_slots, H, D]. Both are float32 and contiguous. ``turn`` is the cosines and sines of
    :meth:`.Ops.rotate_and_write_kv`; the rest is as in :meth:`.Ops.paged_attention`."""
    threads = most_threads()
    numba.set_num_threads(threads)
    cos, sin = (rows_of(part, torch.float32) for part in turn)
    (first, first_eps), (second, second_eps) = weights.norms
    _layer(
        residual.numpy(), first, first_eps, second, second_eps, weights.qkv, weights.output, weights.gate_up,
        weights.down, weights.heads, weights.gates, cos, sin, pool.numpy(), batch.block_tables.contiguous().numpy(),
        batch.context_len.numpy(), batch.slots.numpy(), batch.block_size, window, np.float32(scale),
        np.float32(softcap), NO_SINKS if sinks is None else rows_of(sinks, torch.float32), threads,
        float(cpu_jit.WAKE),
    )  # fmt: skip


@entry
def _layer(
    residual, first, first_eps, second, second_eps, qkv, output, gate_up, down, heads, gates, cos, sin, pool, tables,
    context, slots, block_size, window, scale, softcap, sinks, threads, wake,
):  # fmt: skip
    rows, width = residual.shape
    kv_heads, head_dim = pool.shape[2:]
    nothing = np.empty((0, 0), residual.dtype)
    normed = np.empty((rows, width), residual.dtype)
    cpu_rowwise.norm_rows(residual, first, first_eps, nothing, normed, 0, rows)
    all_heads = np.empty((rows, heads + 2 * kv_heads, head_dim), residual.dtype)
    _multiply(normed, qkv[0], qkv[1], qkv[2], qkv[3], all_heads.reshape(rows, -1), threads, wake)
    query = np.empty((rows, heads, head_dim), residual.dtype)
    numbers, token = all_heads.reshape(-1), (heads + 2 * kv_heads) * head_dim
    cpu_rowwise.rotate_rows(
        numbers, token, head_dim, numbers[heads * head_dim :], token, head_dim,
        numbers[(heads + kv_heads) * head_dim :], token, head_dim, cos, sin, pool, slots, query, 0, rows,
    )  # fmt: skip
    attended = np.empty((rows, heads, head_dim), residual.dtype)
    _attend(query, pool, tables, context, window, block_size, scale, softcap, sinks, attended, threads, wake)
    added = np.empty((rows, width), residual.dtype)
    _multiply(attended.reshape(rows, -1), output[0], output[1], output[2], output[3], added, threads, wake)
    cpu_rowwise.norm_rows(added, second, second_eps, residual, normed, 0, rows)
    pairs = np.empty((rows, 2 * gates), residual.dtype)
    _multiply(normed, gate_up[0], gate_up[1], gate_up[2], gate_up[3], pairs, threads, wake)
    gated = np.empty((rows, gates), residual.dtype)
    shares = cpu_jit.worth_sharing(gated.size / cpu_rowwise.GATED, threads, wake)
    if shares == 1:
        cpu_rowwise.silu_rows(pairs, gated, 0, rows)
    else:
        cpu_rowwise.silu_shares(pairs, gated, shares)
    _multiply(gated, down[0], down[1], down[2], down[3], added, threads, wake)
    for t in range(rows):
        for i in range(width):
            residual[t, i] += added[t, i]


@inner
def _multiply(x, values, scales, minimums, bias, out, threads, wake):
    if scales is None:
        shares = cpu_jit.worth_sharing(values.size * max(2, len(x)) / cpu_packed.WEIGHTS_PER_MICROSECOND, threads, wake)
        if shares == 1:
            cpu_packed.product(x, values, bias, out, 0, len(values), 0, len(x))
        else:
            cpu_packed.product_shares(x, values, bias, out, shares)
    else:
        shares = cpu_jit.worth_sharing(values.size * max(2, len(x)) / cpu_linear.WEIGHTS_PER_MICROSECOND, threads, wake)
        if shares == 1:
            cpu_linear.product(x, values, scales, minimums, bias, out, 0, len(values), 0, len(x))
        else:
            cpu_linear.product_shares(x, values, scales, minimums, bias, out, shares)


@inner
def _attend(query, pool, tables, context, window, block_size, scale, softcap, sinks, out, threads, wake):
    seen = 0
    for s in range(len(context)):
        seen += min(context[s], window) if window > 0 else context[s]
    shares = cpu_jit.worth_sharing(seen * query.shape[1] * query.shape[2] / cpu_decode.MULTIPLIED, threads, wake)
    if shares == 1:
        cpu_decode.attend(query, pool, None, tables, context, window, block_size, scale, softcap, sinks, out)
    else:
        cpu_decode.attend_in_shares(
            query, pool, None, tables, context, window, block_size, scale, softcap, sinks, out, shares
        )
