"""Linear layers in float32 for the CPU, on weights laid out once: tiles of 16 outputs, in them all inputs, of each the
16 outputs side by side. So a product reads weights in order, and its sums stay in registers.

While some rows are multiplied by a tile, the next one is on its way from memory. Per core it needs less time than
oneDNN on its own layout, by a third to a half for few rows, by a twentieth for hundreds. What comes out for a row
depends on that row alone, to the last bit, however many are multiplied with it.
"""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined, call-arg"

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numba import prange
from torch import Tensor
from torch.nn.functional import pad

from .cpu_emitter import LINE
from .cpu_jit import Array, entry, inner, shares_for
from .cpu_tile import BLOCK, LONG, OUTPUTS, multiply_floats, rows_together, store_tile

WEIGHTS_PER_MICROSECOND = 10_000  # a row; reading them takes as long as multiplying two
ROWS_TO_SHARE = 64  # from so many a thread, rows are dealt out instead of outputs


@dataclass(slots=True)
class PackedWeight:
    """The weight [N, K] of a linear layer, laid out as the module describes."""

    out_features: int  # N
    values: Array  # float32 [tiles, K, 16]

    @classmethod
    def pack(cls, weight: Tensor) -> PackedWeight:
        outputs, inputs = weight.shape
        tiles = pad(weight.detach().float(), (0, 0, 0, -outputs % OUTPUTS)).view(-1, OUTPUTS, inputs)
        return cls(outputs, tiles.transpose(1, 2).contiguous().numpy())

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


def packed_linear(x: Tensor, weight: PackedWeight, bias: Tensor | None = None) -> Tensor:
    """``x`` float32 [T, K] times ``weight`` transposed, plus ``bias`` float32 [N]; [T, N]."""
    rows = x.contiguous().numpy()
    out = np.empty((len(rows), weight.out_features), np.float32)
    arguments = (rows, weight.values, None if bias is None else bias.numpy(), out)
    shares = shares_for(weight.values.size * max(2, len(rows)) / WEIGHTS_PER_MICROSECOND)
    if shares == 1:
        product(*arguments, 0, len(weight.values), 0, len(rows))
    else:
        product_shares(*arguments, shares)
    return torch.from_numpy(out)


def compile_packed() -> None:
    """Compile what :func:`packed_linear` runs, or load it from the cache."""
    rows, out = np.zeros((2, 2), np.float32), np.zeros((2, OUTPUTS), np.float32)
    weight = PackedWeight.pack(torch.zeros((OUTPUTS, 2)))
    for bias in (None, out[0]):
        product(rows, weight.values, bias, out, 0, 1, 0, 2)
        product_shares(rows, weight.values, bias, out, 2)


@partial(entry, parallel=True)
def product_shares(x, weights, bias, out, shares):
    tiles, rows = len(weights), len(x)
    for share in prange(shares):
        if rows < ROWS_TO_SHARE * shares:
            product(x, weights, bias, out, tiles * share // shares, tiles * (share + 1) // shares, 0, rows)
        else:  # so that each lays out only its own rows
            product(x, weights, bias, out, 0, tiles, rows * share // shares, rows * (share + 1) // shares)


@entry
def product(x, weights, bias, out, first_tile, last_tile, first_row, last_row):
    x, out = x[first_row:last_row], out[first_row:last_row]
    numbers = _interleave(x)
    total = np.empty((BLOCK, OUTPUTS), np.float32)
    part = -(-LINE // max(1, _long_passes(len(x))))  # of the next tile, bytes an input
    for tile in range(first_tile, last_tile):
        outputs, coming = weights[tile], weights[min(tile + 1, last_tile - 1)].reshape(-1)
        t = begun = 0
        while t < len(x):
            count = rows_together(len(x) - t)
            group = numbers[t * x.shape[1] :]
            if count == 6:
                multiply_floats(6, group, 1, 6, outputs, total, 0, coming[begun:], part)
            elif count == 4:
                multiply_floats(4, group, 1, 4, outputs, total, 0, coming[begun:], part)
            elif count == 2:
                multiply_floats(2, group, 1, 2, outputs, total, 0, None, 0)
            else:
                multiply_floats(1, group, 1, 1, outputs, total, 0, None, 0)
            begun += len(outputs) * part // coming.itemsize if count >= LONG else 0
            store_tile(total, count, bias, out, t, tile * OUTPUTS)
            t += count


@inner
def _long_passes(rows):
    """How many passes over a tile bring parts of the next one near. With few rows, a product reads as fast as memory
    gives, and does so best by itself."""
    t = passes = 0
    while t < rows:
        count = rows_together(rows - t)
        passes += count >= LONG
        t += count
    return passes


@inner
def _interleave(x):
    """Of the rows multiplied together, each input's numbers side by side: [rows / count, K, count]."""
    numbers = np.empty(x.size, np.float32)
    t = 0
    while t < len(x):
        count = rows_together(len(x) - t)
        for r in range(count):
            row, target = x[t + r], numbers[t * x.shape[1] + r :]
            for k in range(row.size):
                target[k * count] = row[k]
        t += count
    return numbers
