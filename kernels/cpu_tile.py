"""The innermost product of :mod:`.cpu_linear`, written in LLVM's language: its sums must stay in registers.

Plain loops over small arrays do not: the compiler keeps such arrays in memory. The vectors here are of general width
and operations of general kind, which LLVM turns into what the processor has; on x86 pairs of 16-bit products become
one instruction.
"""

# What numba and llvmlite pass around has no types that a checker could know.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

GROUP = 32  # inputs that share a scale
PAIRS = GROUP // 2
OUTPUTS = 16  # of a tile
LANES = 8  # outputs in one vector
VECTORS = OUTPUTS // LANES

I8, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
HALF, FLOAT = ir.HalfType(), ir.FloatType()


@intrinsic(prefer_literal=True)
def multiply_group(typing, bits, rows, x, t, steps, sums, values, scales, minimums, tile, group, total):
    """Add to ``total`` float32 [>= rows, 16] what inputs ``group`` contribute to rows ``t`` … of outputs ``tile``."""
    if not isinstance(bits, types.IntegerLiteral) or not isinstance(rows, types.IntegerLiteral):
        return None
    signature = types.void(bits, rows, x, t, steps, sums, values, scales, minimums, tile, group, total)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = _Emitter(context, builder, signature.args, arguments)
        emit.group(bits.literal_value, rows.literal_value)
        return context.get_dummy_value()

    return signature, codegen


class _Emitter:
    """Writes the instructions of one :func:`multiply_group`."""

    def __init__(self, context: Any, builder: Any, kinds: Any, arguments: Any) -> None:
        names = ("x", "t", "steps", "sums", "values", "scales", "minimums", "tile", "group", "total")
        self.builder = builder
        self.of: dict[str, Any] = {}
        for name, kind, argument in zip(names, kinds[2:], arguments[2:], strict=True):
            if isinstance(kind, types.Array):
                self.of[name] = context.make_array(kind)(context, builder, argument)
            else:
                self.of[name] = context.cast(builder, argument, kind, types.int64)

    def group(self, bits: int, rows: int) -> None:
        b = self.builder
        self.groups = b.extract_value(self.of["scales"].shape, 1)
        place = b.add(b.mul(self.of["tile"], self.groups), self.of["group"])
        wide = ir.VectorType(I32, LANES)
        sums = [[cgutils.alloca_once_value(b, ir.Constant(wide, None)) for _ in range(VECTORS)] for _ in range(rows)]
        for line in sums:
            for each in line:
                b.store(ir.Constant(wide, None), each)
        halves = 2 if bits == 4 else 1
        with cgutils.for_range(b, ir.Constant(I64, PAIRS // halves)) as loop:
            start = b.add(
                b.mul(place, ir.Constant(I64, GROUP * OUTPUTS // halves)),
                b.mul(loop.index, ir.Constant(I64, OUTPUTS * 2)),
            )
            packed = [
                self._load(self.of["values"].data, I8, b.add(start, ir.Constant(I64, 2 * LANES * v)), 2 * LANES, 1)
                for v in range(VECTORS)
            ]
            for half in range(halves):
                weights = [self._weights(each, bits, half) for each in packed]
                pair = b.add(loop.index, ir.Constant(I64, half * PAIRS // 2))
                for r in range(rows):
                    x = self._input_pair(r, pair)
                    for v in range(VECTORS):
                        product = self._pair_products(x, weights[v])
                        b.store(b.add(b.load(sums[r][v]), product), sums[r][v])
        self._scale(bits, sums, place)

    def _weights(self, packed: Any, bits: int, half: int) -> Any:
        b = self.builder
        wide = ir.VectorType(I16, 2 * LANES)
        if bits == 8:
            return b.sext(packed, wide)
        values = b.zext(packed, wide)
        if half == 0:
            return b.and_(values, ir.Constant(wide, [15] * 2 * LANES))
        return b.lshr(values, ir.Constant(wide, [4] * 2 * LANES))

    def _input_pair(self, row: int, pair: Any) -> Any:
        """Two neighbouring inputs of a row, repeated for all outputs of a vector."""
        b = self.builder
        token = b.add(self.of["t"], ir.Constant(I64, row))
        place = b.add(b.mul(b.add(b.mul(token, self.groups), self.of["group"]), ir.Constant(I64, PAIRS)), pair)
        address = b.gep(b.bitcast(self.of["x"].data, I32.as_pointer()), [place])
        return b.bitcast(self._splat(b.load(address, align=4), I32), ir.VectorType(I16, 2 * LANES))

    def _pair_products(self, a: Any, c: Any) -> Any:
        """a0 c0 + a1 c1, a2 c2 + a3 c3, …"""
        b = self.builder
        wide = ir.VectorType(I32, 2 * LANES)
        products = b.mul(b.sext(a, wide), b.sext(c, wide))
        even, odd = (
            b.shuffle_vector(
                products, products, ir.Constant(ir.VectorType(I32, LANES), [2 * i + k for i in range(LANES)])
            )
            for k in (0, 1)
        )
        return b.add(even, odd)

    def _scale(self, bits: int, sums: Any, place: Any) -> None:
        b = self.builder
        real = ir.VectorType(FLOAT, LANES)
        for v in range(VECTORS):
            at = b.add(b.mul(place, ir.Constant(I64, OUTPUTS)), ir.Constant(I64, v * LANES))
            scale = self._halves("scales", at)
            minimum = self._halves("minimums", at) if bits == 4 else None
            for r, line in enumerate(sums):
                token = b.add(b.mul(b.add(self.of["t"], ir.Constant(I64, r)), self.groups), self.of["group"])
                step = self._splat(b.load(b.gep(self.of["steps"].data, [token])), FLOAT)
                address = b.bitcast(
                    b.gep(self.of["total"].data, [ir.Constant(I64, r * OUTPUTS + v * LANES)]), real.as_pointer()
                )
                total = b.load(address, align=4)
                total = self._fma(b.sitofp(b.load(line[v]), real), b.fmul(scale, step), total)
                if minimum is not None:
                    summed = self._splat(b.load(b.gep(self.of["sums"].data, [token])), FLOAT)
                    total = self._fma(minimum, summed, total)
                b.store(total, address, align=4)

    def _halves(self, name: str, at: Any) -> Any:
        bits = self._load(self.of[name].data, I16, at, LANES, 2)
        return self.builder.fpext(self.builder.bitcast(bits, ir.VectorType(HALF, LANES)), ir.VectorType(FLOAT, LANES))

    def _load(self, data: Any, element: Any, at: Any, count: int, align: int) -> Any:
        b = self.builder
        base = b.bitcast(data, element.as_pointer())
        address = b.bitcast(b.gep(base, [at]), ir.VectorType(element, count).as_pointer())
        return b.load(address, align=align)

    def _splat(self, number: Any, element: Any) -> Any:
        b = self.builder
        vector = ir.VectorType(element, LANES)
        single = b.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(I32, 0))
        return b.shuffle_vector(single, single, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))

    def _fma(self, a: Any, c: Any, total: Any) -> Any:
        b = self.builder
        vector = ir.VectorType(FLOAT, LANES)
        function = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{LANES}f32"
        )
        return b.call(function, [a, c, total])
