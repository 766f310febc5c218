"""Linear layers with weights of 8 or 4 bits for the CPU.

Weights are integers in groups of 32 inputs, each with a scale and for 4 bits a minimum, as in GGUF's blocks Q8_0, Q4_0
and Q4_1, whose numbers are taken over as they are. Rows of the input are rounded to 16 bits in the same groups, which
loses nothing that a float32 product would have kept for long: the products of a group are summed in 32-bit integers,
exactly, and groups in float32. A processor multiplies 16-bit integers in pairs at twice the rate of float32, so this
is faster than float32 for few rows, where reading the weights takes the time, and for many.

Weights are laid out once for that: tiles of 16 outputs, in them groups of 32 inputs, in them 16 pairs of inputs, and of
each pair the 16 outputs side by side. At 4 bits a byte holds input pair p in its low and p + 8 in its high half.
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

from .cpu_jit import Array, entry, inner, shares_for
from .cpu_tile import BLOCK, GROUP, OUTPUTS, PAIRS, multiply_group, rows_together, store_tile

WEIGHTS_PER_MICROSECOND = 20_000  # a row; reading them takes as long as multiplying two
ROWS_TO_SHARE = 16  # from so many a thread, rows are dealt out instead of outputs
LARGEST = 32767
TINY = 1e-30
BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}


@dataclass(slots=True)
class QuantizedWeight:
    """The weight [N, K] of a linear layer in 8 or 4 bits: an element is its integer times the scale of its group of 32
    inputs, plus at 4 bits the group's minimum."""

    out_features: int  # N
    in_features: int  # K
    values: Array  # uint8 [tiles, groups, bytes of 16 outputs x 32 inputs], as the module describes
    scales: Array  # [tiles, groups, 16], float16 held as uint16
    minimums: Array | None  # the same; None at 8 bits

    @property
    def bits(self) -> int:
        return 8 if self.minimums is None else 4

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scales.nbytes + (0 if self.minimums is None else self.minimums.nbytes)

    @classmethod
    def quantize(cls, weight: Tensor, bits: int) -> QuantizedWeight:
        """Round ``weight`` [N, K] to ``bits`` (8 or 4)."""
        outputs, inputs = weight.shape
        padded = pad(weight.float(), (0, -inputs % GROUP))
        groups = padded.view(outputs, -1, GROUP)
        if bits == 8:
            scale = (groups.abs().amax(-1) / 127).half()
            minimum = None
            shifted = groups
            lowest, highest = -127, 127
        else:
            minimum = groups.amin(-1).half()
            shifted = groups - minimum.float()[..., None]
            scale = (shifted.amax(-1) / 15).half()
            lowest, highest = 0, 15
        step = scale.float()[..., None]
        integers = (shifted / torch.where(step == 0, 1, step)).round_().clamp_(lowest, highest).to(torch.int8)
        return cls._packed(inputs, integers, scale, minimum)

    @classmethod
    def from_blocks(cls, blocks: Tensor, kind: str) -> QuantizedWeight:
        """Take over GGUF's own blocks: ``blocks`` is uint8 [N, bytes of a row], ``kind`` Q8_0, Q4_0 or Q4_1."""
        each = blocks.unflatten(1, (-1, BLOCK_BYTES[kind]))
        scale = each[..., :2].contiguous().view(torch.float16)[..., 0]
        inputs = each.shape[1] * GROUP
        if kind == "Q8_0":
            return cls._packed(inputs, each[..., 2:].contiguous().view(torch.int8), scale, None)
        halves = each[..., -GROUP // 2 :]
        integers = torch.cat([halves & 15, halves >> 4], dim=-1).view(torch.int8)
        minimum = each[..., 2:4].contiguous().view(torch.float16)[..., 0] if kind == "Q4_1" else scale * -8
        return cls._packed(inputs, integers, scale, minimum)

    @classmethod
    def _packed(cls, inputs: int, integers: Tensor, scale: Tensor, minimum: Tensor | None) -> QuantizedWeight:
        """Lay out ``integers`` int8 [N, groups, 32], ``scale`` and ``minimum`` [N, groups]."""
        outputs, groups, _ = integers.shape
        spare = -outputs % OUTPUTS

        def tiled(parameter: Tensor) -> Array:
            padded = pad(parameter, (0, 0, 0, spare))
            return padded.view(-1, OUTPUTS, groups).transpose(1, 2).contiguous().numpy().view(np.uint16)

        padded = pad(integers, (0, 0, 0, 0, 0, spare))
        paired = padded.view(-1, OUTPUTS, groups, PAIRS, 2).permute(0, 2, 3, 1, 4).contiguous().view(torch.uint8)
        if minimum is not None:
            paired = paired[:, :, : PAIRS // 2] | (paired[:, :, PAIRS // 2 :] << 4)
        values = paired.flatten(2).contiguous().numpy()
        return cls(outputs, inputs, values, tiled(scale), None if minimum is None else tiled(minimum))

    def dequantize(self) -> Tensor:
        """The weight as float32 [N, K]."""
        tiles, groups, _ = self.scales.shape

        def by_group(parameter: Array) -> Tensor:
            return torch.from_numpy(parameter.view(np.float16)).float().transpose(1, 2).reshape(-1, groups, 1)

        values = torch.from_numpy(self.values).view(tiles, groups, -1, OUTPUTS, 2)
        if self.minimums is not None:
            values = torch.cat([values & 15, values >> 4], dim=2)
        numbers = values.view(torch.int8).permute(0, 3, 1, 2, 4).reshape(tiles * OUTPUTS, groups, GROUP).float()
        numbers *= by_group(self.scales)
        if self.minimums is not None:
            numbers += by_group(self.minimums)
        return numbers.flatten(1)[: self.out_features, : self.in_features].contiguous()


def quantized_linear(x: Tensor, weight: QuantizedWeight, bias: Tensor | None = None) -> Tensor:
    """``x`` [T, K] times ``weight`` transposed, plus ``bias`` [N]; [T, N] in ``x``'s type, computed in float32."""
    rows = x.float().contiguous().numpy()
    out = np.empty((len(rows), weight.out_features), np.float32)
    offset = None if bias is None else bias.float().numpy()
    arguments = (rows, weight.values, weight.scales, weight.minimums, offset, out)
    shares = shares_for(weight.values.size * max(2, len(rows)) / WEIGHTS_PER_MICROSECOND)
    if shares == 1:
        product(*arguments, 0, len(weight.values), 0, len(rows))
    else:
        product_shares(*arguments, shares)
    result = torch.from_numpy(out)
    return result if x.dtype == torch.float32 else result.to(x.dtype)


def compile_linear(bits: int) -> None:
    """Compile what :func:`quantized_linear` runs at this many bits, or load it from the cache."""
    weight = QuantizedWeight.quantize(torch.zeros((OUTPUTS, GROUP)), bits)
    rows, out = np.zeros((2, GROUP), np.float32), np.zeros((2, OUTPUTS), np.float32)
    for bias in (None, out[0]):
        arguments = (rows, weight.values, weight.scales, weight.minimums, bias, out)
        product(*arguments, 0, 1, 0, 2)
        product_shares(*arguments, 2)


@partial(entry, parallel=True)
def product_shares(x, values, scales, minimums, bias, out, shares):
    tiles, rows = len(values), len(x)
    for share in prange(shares):
        if rows < ROWS_TO_SHARE * shares:
            product(
                x, values, scales, minimums, bias, out, tiles * share // shares, tiles * (share + 1) // shares, 0, rows
            )
        else:  # so that each rounds only its own rows
            product(
                x, values, scales, minimums, bias, out, 0, tiles, rows * share // shares, rows * (share + 1) // shares
            )


@entry
def product(x, values, scales, minimums, bias, out, first_tile, last_tile, first_row, last_row):
    groups = scales.shape[1]
    x, out = x[first_row:last_row], out[first_row:last_row]
    integers, steps, sums = _round_rows(x, groups)
    total = np.empty((BLOCK, OUTPUTS), np.float32)
    for tile in range(first_tile, last_tile):
        t = 0
        while t < len(x):
            count = rows_together(len(x) - t)
            total[:] = 0
            if count == 6:
                for g in range(groups):
                    multiply_group(6, integers, t, steps, sums, values, scales, minimums, tile, g, total)
            elif count == 4:
                for g in range(groups):
                    multiply_group(4, integers, t, steps, sums, values, scales, minimums, tile, g, total)
            elif count == 2:
                for g in range(groups):
                    multiply_group(2, integers, t, steps, sums, values, scales, minimums, tile, g, total)
            else:
                for g in range(groups):
                    multiply_group(1, integers, t, steps, sums, values, scales, minimums, tile, g, total)
            store_tile(total, count, bias, out, t, tile * OUTPUTS)
            t += count


@inner
def _round_rows(x, groups):
    """Rows in 16-bit integers, the steps between two of them, and the sums of groups. Of the rows multiplied together
    pairs of inputs lie side by side, and so do steps and sums: [rows / count, groups, 16 pairs, count, 2]."""
    integers = np.empty(len(x) * groups * PAIRS, np.int32)  # a pair in each
    steps = np.empty(len(x) * groups, np.float32)
    sums = np.empty(len(x) * groups, np.float32)
    rounded = np.empty(GROUP, np.int16)
    pairs = rounded.view(np.int32)
    t = 0
    while t < len(x):
        count = rows_together(len(x) - t)
        for r in range(count):
            for g in range(groups):
                place = t * groups + g * count + r
                steps[place], sums[place] = _round_group(x[t + r, g * GROUP : (g + 1) * GROUP], rounded)
                target = integers[(place - r) * PAIRS + r :]
                for p in range(PAIRS):
                    target[p * count] = pairs[p]
        t += count
    return integers, steps, sums


@inner
def _round_group(numbers, rounded):
    largest, total = np.float32(0), np.float32(0)
    for i in range(numbers.size):
        largest = max(largest, abs(numbers[i]))
        total += numbers[i]
    factor = np.float32(LARGEST) / max(largest, np.float32(TINY))
    for i in range(numbers.size):
        rounded[i] = np.int32(np.floor(numbers[i] * factor + np.float32(0.5)))  # unlike rint, is vectorised
    rounded[numbers.size :] = 0
    return largest / np.float32(LARGEST), total
