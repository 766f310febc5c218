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

from .cpu_jit import entry, inner, shares_for
from .cpu_tile import GROUP, OUTPUTS, PAIRS, multiply_group

GRAIN = 200_000  # weights worth waking one more thread for
BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}


@dataclass(slots=True)
class QuantizedWeight:
    """The weight [N, K] of a linear layer in 8 or 4 bits: an element is its integer times the scale of its group of 32
    inputs, plus at 4 bits the group's minimum."""

    bits: int
    out_features: int  # N
    in_features: int  # K
    values: Tensor  # uint8 [tiles, groups, bytes of 16 outputs x 32 inputs], as the module describes
    scales: Tensor  # float16 [tiles, groups, 16]
    minimums: Tensor  # float16, the same; empty at 8 bits

    @classmethod
    def quantize(cls, weight: Tensor, bits: int) -> QuantizedWeight:
        """Round ``weight`` [N, K] to ``bits`` (8 or 4)."""
        outputs, inputs = weight.shape
        padded = torch.nn.functional.pad(weight.float(), (0, -inputs % GROUP))
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
        return cls._packed(bits, inputs, integers, scale, minimum)

    @classmethod
    def from_blocks(cls, blocks: Tensor, kind: str) -> QuantizedWeight:
        """Take over GGUF's own blocks: ``blocks`` is uint8 [N, bytes of a row], ``kind`` Q8_0, Q4_0 or Q4_1."""
        each = blocks.unflatten(1, (-1, BLOCK_BYTES[kind]))
        scale = each[..., :2].contiguous().view(torch.float16)[..., 0]
        inputs = each.shape[1] * GROUP
        if kind == "Q8_0":
            return cls._packed(8, inputs, each[..., 2:].contiguous().view(torch.int8), scale, None)
        halves = each[..., -GROUP // 2 :]
        integers = torch.cat([halves & 15, halves >> 4], dim=-1).view(torch.int8)
        minimum = each[..., 2:4].contiguous().view(torch.float16)[..., 0] if kind == "Q4_1" else scale * -8
        return cls._packed(4, inputs, integers, scale, minimum)

    @classmethod
    def _packed(
        cls, bits: int, inputs: int, integers: Tensor, scale: Tensor, minimum: Tensor | None
    ) -> QuantizedWeight:
        """Lay out ``integers`` int8 [N, groups, 32], ``scale`` and ``minimum`` [N, groups]."""
        outputs, groups, _ = integers.shape
        spare = -outputs % OUTPUTS

        def tiled(parameter: Tensor) -> Tensor:
            padded = torch.nn.functional.pad(parameter, (0, 0, 0, spare))
            return padded.view(-1, OUTPUTS, groups).transpose(1, 2).contiguous()

        padded = torch.nn.functional.pad(integers, (0, 0, 0, 0, 0, spare))
        paired = padded.view(-1, OUTPUTS, groups, PAIRS, 2).permute(0, 2, 3, 1, 4).contiguous().view(torch.uint8)
        if bits == 4:
            paired = paired[:, :, : PAIRS // 2] | (paired[:, :, PAIRS // 2 :] << 4)
        nothing = torch.empty((0, 0, 0), dtype=torch.float16)
        minimums = nothing if minimum is None else tiled(minimum)
        return cls(bits, outputs, inputs, paired.flatten(2).contiguous(), tiled(scale), minimums)

    def dequantize(self) -> Tensor:
        """The weight as float32 [N, K]."""
        tiles, groups, _ = self.scales.shape
        values = self.values.view(tiles, groups, -1, OUTPUTS, 2)
        if self.bits == 4:
            values = torch.cat([values & 15, values >> 4], dim=2)
        numbers = values.view(torch.int8).permute(0, 3, 1, 2, 4).reshape(tiles * OUTPUTS, groups, GROUP).float()
        numbers *= self.scales.float().transpose(1, 2).reshape(-1, groups, 1)
        if self.bits == 4:
            numbers += self.minimums.float().transpose(1, 2).reshape(-1, groups, 1)
        return numbers.flatten(1)[: self.out_features, : self.in_features].contiguous()

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.scales.nbytes + self.minimums.nbytes


def quantized_linear(x: Tensor, weight: QuantizedWeight, bias: Tensor | None = None) -> Tensor:
    """``x`` [T, K] times ``weight`` transposed, plus ``bias`` [N]; [T, N] in ``x``'s type, computed in float32."""
    rows = x.float().contiguous().numpy()
    out = torch.empty((len(x), weight.out_features))
    offset = np.empty(0, np.float32) if bias is None else bias.float().numpy()
    tiles = len(weight.values)
    arguments = (
        rows, weight.values.numpy(), weight.scales.numpy().view(np.uint16), weight.minimums.numpy().view(np.uint16),
        offset, out.numpy(),
    )  # fmt: skip
    shares = shares_for(weight.values.numel() * max(1, len(x) // 4), GRAIN)
    product, product_shares = (_product_8, _shares_8) if weight.bits == 8 else (_product_4, _shares_4)
    if shares == 1:
        product(*arguments, 0, tiles)
    else:
        product_shares(*arguments, shares)
    return out.to(x.dtype)


def compile_linear(bits: int) -> None:
    """Compile what :func:`quantized_linear` runs at this many bits, or load it from the cache."""
    for outputs in (OUTPUTS, 2 * GRAIN // 8):
        weight = QuantizedWeight.quantize(torch.zeros((outputs, GROUP)), bits)
        quantized_linear(torch.zeros((1, GROUP)), weight)


@partial(entry, parallel=True)
def _shares_8(x, values, scales, minimums, bias, out, shares):
    for share in prange(shares):
        _product_8(
            x, values, scales, minimums, bias, out, len(values) * share // shares, len(values) * (share + 1) // shares
        )


@partial(entry, parallel=True)
def _shares_4(x, values, scales, minimums, bias, out, shares):
    for share in prange(shares):
        _product_4(
            x, values, scales, minimums, bias, out, len(values) * share // shares, len(values) * (share + 1) // shares
        )


@entry
def _product_8(x, values, scales, minimums, bias, out, first, last):
    groups = scales.shape[1]
    rows, steps, sums = _round_rows(x, groups)
    total = np.empty((6, OUTPUTS), np.float32)
    for tile in range(first, last):
        t = 0
        while t < len(x):
            left = len(x) - t
            total[:] = 0
            if left >= 6 and left != 8:
                for g in range(groups):
                    multiply_group(8, 6, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 6
            elif left >= 4:
                for g in range(groups):
                    multiply_group(8, 4, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 4
            elif left >= 2:
                for g in range(groups):
                    multiply_group(8, 2, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 2
            else:
                for g in range(groups):
                    multiply_group(8, 1, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 1
            _store(total, count, bias, out, t, tile * OUTPUTS)
            t += count


@entry
def _product_4(x, values, scales, minimums, bias, out, first, last):
    groups = scales.shape[1]
    rows, steps, sums = _round_rows(x, groups)
    total = np.empty((6, OUTPUTS), np.float32)
    for tile in range(first, last):
        t = 0
        while t < len(x):
            left = len(x) - t
            total[:] = 0
            if left >= 6 and left != 8:
                for g in range(groups):
                    multiply_group(4, 6, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 6
            elif left >= 4:
                for g in range(groups):
                    multiply_group(4, 4, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 4
            elif left >= 2:
                for g in range(groups):
                    multiply_group(4, 2, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 2
            else:
                for g in range(groups):
                    multiply_group(4, 1, rows, t, steps, sums, values, scales, minimums, tile, g, total)
                count = 1
            _store(total, count, bias, out, t, tile * OUTPUTS)
            t += count


@inner
def _store(total, count, bias, out, t, start):
    width = min(OUTPUTS, out.shape[1] - start)
    for r in range(count):
        for j in range(width):
            out[t + r, start + j] = total[r, j]
        if bias.size > 0:
            for j in range(width):
                out[t + r, start + j] += bias[start + j]


@inner
def _round_rows(x, groups):
    """Rows as 16-bit integers [T, groups * 32], the step between two integers [T, groups], and the groups' sums."""
    rows = np.zeros((len(x), groups * GROUP), np.int16)
    steps = np.empty((len(x), groups), np.float32)
    sums = np.empty((len(x), groups), np.float32)
    for t in range(len(x)):
        for g in range(groups):
            row = x[t, g * GROUP : (g + 1) * GROUP]
            largest = np.float32(0)
            total = np.float32(0)
            for i in range(row.size):
                largest = max(largest, abs(row[i]))
                total += row[i]
            steps[t, g] = largest / np.float32(32767)
            sums[t, g] = total
            factor = np.float32(32767) / largest if largest > 0 else np.float32(0)
            for i in range(row.size):
                rows[t, g * GROUP + i] = np.int16(np.int32(np.rint(row[i] * factor)))
    return rows, steps, sums
