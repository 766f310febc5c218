"""The small ops between a layer's matrix products, compiled for the CPU: each reads and writes its rows once."""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from .cpu_jit import WAKE, entry, exponentials, flat, inner, rows_of, shares_for

NORMED, GATED, ROTATED = 4000, 1200, 3000  # numbers that one thread does in a microsecond
TILE = 256  # gates whose exponentials are held at once


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None) -> Tensor:
    """The root-mean-square norm of ``x`` [T, N], or of ``residual`` after ``x`` was added to it in place."""
    rows = x.contiguous().numpy()
    out = np.empty_like(rows)
    added = np.empty((0, 0), rows.dtype) if residual is None else residual.numpy()
    arguments = (rows, rows_of(weight, x.dtype), eps, added, out)
    shares = shares_for(rows.size / NORMED)
    if shares == 1:
        norm_rows(*arguments, 0, len(rows))
    else:
        _norm_shares(*arguments, shares)
    return torch.from_numpy(out)


def silu_mul(gate_up: Tensor) -> Tensor:
    """SiLU of the left half of ``gate_up`` [T, 2 I] times its right half; [T, I]."""
    rows = gate_up.contiguous().numpy()
    out = np.empty((len(rows), rows.shape[1] // 2), rows.dtype)
    shares = shares_for(out.size / GATED)
    if shares == 1:
        silu_rows(rows, out, 0, len(rows))
    else:
        silu_shares(rows, out, shares)
    return torch.from_numpy(out)


def rotate_and_write_kv(
    query: Tensor, key: Tensor, value: Tensor, cos: Tensor, sin: Tensor, pool: Tensor, slots: Tensor
) -> Tensor:
    """Rotate ``query`` [T, Hq, D], returned contiguous, and ``key`` [T, H, D], which goes with ``value`` to ``slots``
    of ``pool`` [2, num_slots, H, D]."""
    if query.numel() == 0:
        return torch.empty_like(query, memory_format=torch.contiguous_format)
    query, key, value = (t if t.stride(-1) == 1 else t.contiguous() for t in (query, key, value))
    stored = pool.numpy()
    out = np.empty(query.shape, stored.dtype)
    arguments = (
        flat(query), query.stride(0), query.stride(1),
        flat(key), key.stride(0), key.stride(1),
        flat(value), value.stride(0), value.stride(1),
        rows_of(cos, query.dtype), rows_of(sin, query.dtype), stored, slots.numpy(), out,
    )  # fmt: skip
    shares = shares_for((out.size + 2 * key.numel()) / ROTATED)
    if shares == 1:
        rotate_rows(*arguments, 0, len(out))
    else:
        _rotate_shares(*arguments, shares)
    return torch.from_numpy(out)


def write_int8(key: Tensor, value: Tensor, pool: Tensor, slots: Tensor) -> None:
    """Round ``key`` and ``value`` [T, H, D] to 8 bits with a scale a head, into an int8 ``pool``."""
    rows = pool.numpy()
    _write_int8(key.contiguous().numpy(), value.contiguous().numpy(), rows, rows.view(np.float32), slots.numpy())


def compile_rowwise(head_dim: int, dtype: torch.dtype) -> None:
    """Compile everything above for this type, or load it from the cache."""
    for rows in (1, 2 * NORMED * WAKE // head_dim + 1):
        x = torch.zeros((rows, head_dim), dtype=dtype)
        rms_norm(x, x[0], 1e-6, x.clone())
        silu_mul(torch.cat([x, x], dim=1))
        heads = x[:, None]
        pool = torch.zeros((2, 1, 1, head_dim), dtype=dtype)
        rotate_and_write_kv(heads, heads, heads, x, x, pool, torch.full((rows,), -1))
    if dtype == torch.float32:
        write_int8(heads, heads, torch.zeros((2, 1, 1, head_dim + 16), dtype=torch.int8), torch.full((rows,), -1))


@partial(entry, parallel=True)
def _norm_shares(x, weight, eps, residual, out, shares):
    for share in prange(shares):
        norm_rows(x, weight, eps, residual, out, len(x) * share // shares, len(x) * (share + 1) // shares)


@entry
def norm_rows(x, weight, eps, residual, out, first, last):
    width = x.shape[1]
    for t in range(first, last):
        row = x[t]
        if residual.size > 0:
            row = residual[t]
            for i in range(width):
                row[i] += x[t, i]
        squares = out.dtype.type(0)
        for i in range(width):
            squares += row[i] * row[i]
        factor = out.dtype.type(1 / math.sqrt(squares / width + eps))
        for i in range(width):
            out[t, i] = weight[i] * (row[i] * factor)


@partial(entry, parallel=True)
def silu_shares(gate_up, out, shares):
    for share in prange(shares):
        silu_rows(gate_up, out, len(out) * share // shares, len(out) * (share + 1) // shares)


@entry
def silu_rows(gate_up, out, first, last):
    width = out.shape[1]
    one = out.dtype.type(1)
    decay = np.empty(TILE, out.dtype)
    for t in range(first, last):
        for start in range(0, width, TILE):
            count = min(TILE, width - start)
            gate, up = gate_up[t, start : start + count], gate_up[t, width + start : width + start + count]
            target = out[t, start : start + count]
            for i in range(count):
                decay[i] = -abs(gate[i])
            exponentials(decay, count)
            for i in range(count):
                g, e = gate[i], decay[i]
                target[i] = g * up[i] * (one if g >= 0 else e) / (one + e)


@partial(entry, parallel=True)
def _rotate_shares(
    query, q_token, q_head, key, k_token, k_head, value, v_token, v_head, cos, sin, pool, slots, out, shares
):  # fmt: skip
    for share in prange(shares):
        rotate_rows(
            query, q_token, q_head, key, k_token, k_head, value, v_token, v_head, cos, sin, pool, slots, out,
            len(out) * share // shares, len(out) * (share + 1) // shares,
        )  # fmt: skip


@entry
def rotate_rows(
    query, q_token, q_head, key, k_token, k_head, value, v_token, v_head, cos, sin, pool, slots, out, first, last
):  # fmt: skip
    for t in range(first, last):
        for head in range(out.shape[1]):
            _rotate_head(query[t * q_token + head * q_head :], cos[t], sin[t], out[t, head])
        slot = slots[t]
        if slot < 0:
            continue
        for head in range(pool.shape[2]):
            _rotate_head(key[t * k_token + head * k_head :], cos[t], sin[t], pool[0, slot, head])
            source = value[t * v_token + head * v_head :]
            target = pool[1, slot, head]
            for d in range(target.size):
                target[d] = source[d]


@inner
def _rotate_head(source, cos, sin, target):
    half = cos.size // 2
    for d in range(half):
        a, b = source[d], source[half + d]
        target[d] = a * cos[d] - b * sin[d]
        target[half + d] = b * cos[half + d] + a * sin[half + d]
    for d in range(2 * half, target.size):
        target[d] = source[d]


@partial(entry, fastmath=False)  # what is not finite must stay so, and rounding be exact
def _write_int8(key, value, pool, scales, slots):
    width = key.shape[2]
    for t in range(len(slots)):
        slot = slots[t]
        if slot < 0:
            continue
        for head in range(key.shape[1]):
            _round_head(key[t, head], pool[0, slot, head], scales[0, slot, head, width // 4 :])
            _round_head(value[t, head], pool[1, slot, head], scales[1, slot, head, width // 4 :])


@njit
def _round_head(row, integers, scale):
    largest, finite = np.float32(0), True
    for d in range(row.size):
        largest = max(largest, abs(row[d]))
        finite &= abs(row[d]) < np.inf
    scale[0] = largest / np.float32(127) if finite else np.float32(np.nan)
    divisor = scale[0] if finite and scale[0] > 0 else np.float32(np.inf)
    for d in range(row.size):
        integers[d] = np.int8(np.rint(row[d] / divisor)) if finite else np.int8(0)
