"""The innermost products of :mod:`.cpu_linear`, :mod:`.cpu_packed` and :mod:`.cpu_chunks`, written in LLVM's language
(:mod:`.cpu_emitter`). On x86 pairs of 16-bit products become one instruction.
"""

# What numba and llvmlite pass around has no types that a checker could know.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .cpu_emitter import FLOAT, HALF, I8, I16, I32, Emitter
from .cpu_jit import EXP2, LOG2_E, inner

GROUP = 32  # inputs that share a scale
PAIRS = GROUP // 2
OUTPUTS = 16  # of a tile
LANES = 8  # outputs in one vector
VECTORS = OUTPUTS // LANES
BLOCK = 6  # the most rows multiplied together: their sums and two vectors of weights fill the registers
LONG = 4  # rows with which multiplying takes long enough to bring a part of the next tile near meanwhile


@intrinsic(prefer_literal=True)
def multiply_group(typing, count, x, t, steps, sums, values, scales, minimums, tile, group, total):
    """Add to ``total`` float32 [>= count, 16] what inputs ``group`` contribute to ``count`` rows from ``t`` on of
    outputs ``tile``; ``count`` must be a literal. Weights are of 8 bits where ``minimums`` is None, else of 4."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    signature = types.void(count, x, t, steps, sums, values, scales, minimums, tile, group, total)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        names = ("x", "t", "steps", "sums", "values", "scales", "minimums", "tile", "group", "total")
        _GroupEmitter(context, builder, names, signature.args[1:], arguments[1:], count.literal_value).emit()
        return context.get_dummy_value()

    return signature, codegen


@intrinsic(prefer_literal=True)
def multiply_floats(typing, count, x, row, step, weights, total, adds, coming, part):
    """Put into ``total`` float32 [>= count, 16] the products of ``count`` rows with ``weights`` float32 [K, 16], or add
    them where ``adds`` is 1. Number k of row r is ``x[r * row + k * step]``. ``count``, ``adds`` must be literals.
    ``coming`` is None or what is read next, of which the first K times ``part`` bytes are brought near meanwhile."""
    if not isinstance(count, types.IntegerLiteral) or not isinstance(adds, types.IntegerLiteral):
        return None
    signature = types.void(count, x, row, step, weights, total, adds, coming, part)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        names = ("x", "row", "step", "weights", "total", "adds", "coming", "part")
        emitter = _FloatEmitter(context, builder, names, signature.args[1:], arguments[1:], count.literal_value)
        emitter.emit(bool(adds.literal_value))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def soften_lanes(typing, scores, count, largest, total):
    """Of ``scores`` float32 [>= count, 16] the exponentials after ``largest`` [16], none of which is smaller, was
    subtracted, in place; they are added to ``total`` [16]. As :func:`.cpu_jit.exponential` computes them."""
    signature = types.void(scores, count, largest, total)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        names = ("scores", "count", "largest", "total")
        _SoftmaxEmitter(context, builder, names, signature.args, arguments, 1).emit()
        return context.get_dummy_value()

    return signature, codegen


@inner
def rows_together(left):
    """How many of the rows ``left`` are multiplied together."""
    if left >= 6 and left != 8:
        return 6
    return 4 if left >= 4 else 2 if left >= 2 else 1


@inner
def store_tile(total, count, bias, out, t, start):
    width = min(OUTPUTS, out.shape[1] - start)
    for r in range(count):
        target, numbers = out[t + r, start : start + width], total[r]
        for j in range(width):
            target[j] = numbers[j]
        if bias is not None:
            offsets = bias[start : start + width]
            for j in range(width):
                target[j] += offsets[j]


class _FloatEmitter(Emitter):
    """Writes one :func:`multiply_floats`."""

    def emit(self, adds: bool) -> None:
        b = self.builder
        inputs = b.extract_value(self.of["weights"].shape, 0)
        places = [
            [self.address("total", FLOAT, self.number(r * OUTPUTS + v * LANES), LANES) for v in range(VECTORS)]
            for r in range(self.rows)
        ]
        sums = self.zeros(FLOAT, VECTORS)
        if adds:
            for line, targets in zip(sums, places, strict=True):
                for each, target in zip(line, targets, strict=True):
                    b.store(b.load(target, align=4), each)
        rows = [b.mul(self.of["row"], self.number(r)) for r in range(self.rows)]
        with cgutils.for_range(b, inputs) as loop:
            at = b.mul(loop.index, self.number(OUTPUTS))
            weights = [self.load("weights", FLOAT, b.add(at, self.number(v * LANES)), LANES, 4) for v in range(VECTORS)]
            if "coming" in self.of:
                self.prefetch("coming", b.mul(loop.index, self.of["part"]))
            number = b.mul(loop.index, self.of["step"])
            for row, line in zip(rows, sums, strict=True):
                x = self.splat(self.scalar("x", b.add(row, number)))
                for each, weight in zip(line, weights, strict=True):
                    b.store(self.fma(x, weight, b.load(each)), each)
        for line, targets in zip(sums, places, strict=True):
            for each, target in zip(line, targets, strict=True):
                b.store(b.load(each), target, align=4)


class _SoftmaxEmitter(Emitter):
    """Writes one :func:`soften_lanes`."""

    def emit(self) -> None:
        b = self.builder
        largest = [self.load("largest", FLOAT, self.number(v * LANES), LANES, 4) for v in range(VECTORS)]
        (sums,) = self.zeros(FLOAT, VECTORS)
        with cgutils.for_range(b, self.of["count"]) as loop:
            for v, (most, each) in enumerate(zip(largest, sums, strict=True)):
                at = b.add(b.mul(loop.index, self.number(OUTPUTS)), self.number(v * LANES))
                address = self.address("scores", FLOAT, at, LANES)
                power = self._exponential(b.fsub(b.load(address, align=4), most))
                b.store(power, address, align=4)
                b.store(b.fadd(b.load(each), power), each)
        for v, each in enumerate(sums):
            address = self.address("total", FLOAT, self.number(v * LANES), LANES)
            b.store(b.fadd(b.load(address, align=4), b.load(each)), address, align=4)

    def _exponential(self, x: Any) -> Any:
        b = self.builder
        real, whole = ir.VectorType(FLOAT, LANES), ir.VectorType(I32, LANES)
        floor = cgutils.get_or_insert_function(b.module, ir.FunctionType(real, [real]), f"llvm.floor.v{LANES}f32")
        exponent = b.fmul(x, self._floats(LOG2_E))
        exponent = b.select(b.fcmp_ordered(">", exponent, self._floats(-126)), exponent, self._floats(-126))
        rounded = b.call(floor, [b.fadd(exponent, self._floats(0.5))])
        fraction = b.fsub(exponent, rounded)
        power = self._floats(EXP2[0])
        for coefficient in EXP2[1:]:
            power = self.fma(power, fraction, self._floats(coefficient))
        bits = b.shl(b.add(b.fptosi(rounded, whole), self._whole(127)), self._whole(23))
        return b.fmul(power, b.bitcast(bits, real))

    def _floats(self, number: float) -> Any:
        return ir.Constant(ir.VectorType(FLOAT, LANES), [float(np.float32(number))] * LANES)

    def _whole(self, number: int) -> Any:
        return ir.Constant(ir.VectorType(I32, LANES), [number] * LANES)


class _GroupEmitter(Emitter):
    """Writes one :func:`multiply_group`."""

    def emit(self) -> None:
        b = self.builder
        self.bits = 4 if "minimums" in self.of else 8
        groups = b.extract_value(self.of["scales"].shape, 1)
        weights = b.add(b.mul(self.of["tile"], groups), self.of["group"])
        inputs = b.add(b.mul(self.of["t"], groups), b.mul(self.of["group"], self.number(self.rows)))
        sums = self.zeros(I32, VECTORS)
        halves = 8 // self.bits
        with cgutils.for_range(b, self.number(PAIRS // halves)) as loop:
            start = b.add(
                b.mul(weights, self.number(GROUP * OUTPUTS // halves)),
                b.mul(loop.index, self.number(OUTPUTS * 2)),
            )
            if self.bits == 8 and self.rows >= LONG:  # with 4 bits there is next to nothing to wait for
                self.prefetch("values", b.add(start, b.mul(groups, self.number(GROUP * OUTPUTS))))
            packed = [
                self.load("values", I8, b.add(start, self.number(2 * LANES * v)), 2 * LANES, 1) for v in range(VECTORS)
            ]
            for half in range(halves):
                pair = b.add(loop.index, self.number(half * PAIRS // 2))
                self._pair(sums, [self._weights(each, half) for each in packed], inputs, pair)
        self._scale(sums, weights, inputs)

    def _halves(self, name: str, at: Any) -> Any:
        """Eight half-precision numbers as float32."""
        bits = self.load(name, I16, at, LANES, 2)
        return self.builder.fpext(self.builder.bitcast(bits, ir.VectorType(HALF, LANES)), ir.VectorType(FLOAT, LANES))

    def _pair(self, sums: Any, weights: Any, inputs: Any, pair: Any) -> None:
        """Add the products of one pair of inputs, which stands repeated for all outputs of a vector."""
        b = self.builder
        first = b.add(b.mul(inputs, self.number(PAIRS)), b.mul(pair, self.number(self.rows)))
        for r, line in enumerate(sums):
            address = b.gep(b.bitcast(self.of["x"].data, I32.as_pointer()), [b.add(first, self.number(r))])
            x = b.bitcast(self.splat(b.load(address, align=4)), ir.VectorType(I16, 2 * LANES))
            for each, weight in zip(line, weights, strict=True):
                b.store(b.add(b.load(each), self._pair_products(x, weight)), each)

    def _weights(self, packed: Any, half: int) -> Any:
        b = self.builder
        wide = ir.VectorType(I16, 2 * LANES)
        if self.bits == 8:
            return b.sext(packed, wide)
        values = b.zext(packed, wide)
        if half == 0:
            return b.and_(values, ir.Constant(wide, [15] * 2 * LANES))
        return b.lshr(values, ir.Constant(wide, [4] * 2 * LANES))

    def _pair_products(self, a: Any, c: Any) -> Any:
        """a0 c0 + a1 c1, a2 c2 + a3 c3, …"""
        b = self.builder
        wide = ir.VectorType(I32, 2 * LANES)
        products = b.mul(b.sext(a, wide), b.sext(c, wide))
        even, odd = (self.shuffle(products, products, [2 * i + k for i in range(LANES)]) for k in (0, 1))
        return b.add(even, odd)

    def _scale(self, sums: Any, weights: Any, inputs: Any) -> None:
        """From integers to numbers: times the weights' scale and the rows' step, plus minimum times the rows' sum."""
        b = self.builder
        real = ir.VectorType(FLOAT, LANES)
        for v in range(VECTORS):
            at = b.add(b.mul(weights, self.number(OUTPUTS)), self.number(v * LANES))
            scale = self._halves("scales", at)
            minimum = self._halves("minimums", at) if self.bits == 4 else None
            for r, line in enumerate(sums):
                row = b.add(inputs, self.number(r))
                step = self.splat(self.scalar("steps", row))
                address = self.address("total", FLOAT, self.number(r * OUTPUTS + v * LANES), LANES)
                total = self.fma(b.sitofp(b.load(line[v]), real), b.fmul(scale, step), b.load(address, align=4))
                if minimum is not None:
                    total = self.fma(minimum, self.splat(self.scalar("sums", row)), total)
                b.store(total, address, align=4)
