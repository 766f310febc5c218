"""What the inner loops that are written in LLVM's language have in common: loads, splats and multiply-adds of vectors.

Such loops keep their sums in registers. Plain loops over small arrays do not: the compiler keeps such arrays in memory.
The vectors are of general width and operations of general kind, which LLVM turns into what the processor has.
"""

# What numba and llvmlite pass around has no types that a checker could know.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

I8, I16, I32, I64 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
VECTOR_BYTES = 32
LINE = 64  # bytes that come from memory at once


class Emitter:
    """Writes instructions for numba's ``arguments`` of these ``names`` and ``kinds``, arrays and integers, that work on
    ``rows`` together, each in vectors of ``element``."""

    def __init__(
        self, context: Any, builder: Any, names: Any, kinds: Any, arguments: Any, rows: int, element: Any = FLOAT
    ) -> None:
        self.builder = builder
        self.rows = rows
        self.element = element
        self.lanes = VECTOR_BYTES // (8 if element == DOUBLE else 4)
        self.of: dict[str, Any] = {}
        for name, kind, argument in zip(names, kinds, arguments, strict=True):
            if isinstance(kind, types.Array):
                self.of[name] = context.make_array(kind)(context, builder, argument)
            elif kind != types.none:
                self.of[name] = context.cast(builder, argument, kind, types.int64)

    def number(self, value: int) -> Any:
        return ir.Constant(I64, value)

    def scalar(self, name: str, at: Any) -> Any:
        return self.builder.load(self.builder.gep(self.of[name].data, [at]))

    def load(self, name: str, element: Any, at: Any, count: int, align: int) -> Any:
        return self.builder.load(self.address(name, element, at, count), align=align)

    def address(self, name: str, element: Any, at: Any, count: int) -> Any:
        b = self.builder
        base = b.bitcast(self.of[name].data, element.as_pointer())
        return b.bitcast(b.gep(base, [at]), ir.VectorType(element, count).as_pointer())

    def byte(self, name: str, place: Any) -> Any:
        """The address of a byte of an array."""
        b = self.builder
        return b.gep(b.bitcast(self.of[name].data, I8.as_pointer()), [place])

    def prefetch(self, name: str, place: Any) -> None:
        """Begin to bring the line with this byte of an array into the second-level cache. Far more lines can be under
        way than to the first level, for which a reader would soon wait."""
        b = self.builder
        address = self.byte(name, place)
        kind = ir.FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
        to_read, second_level, data = ir.Constant(I32, 0), ir.Constant(I32, 2), ir.Constant(I32, 1)
        function = b.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        b.call(function, [address, to_read, second_level, data])

    def splat(self, number: Any) -> Any:
        b = self.builder
        vector = ir.VectorType(number.type, self.lanes)
        single = b.insert_element(ir.Constant(vector, ir.Undefined), number, ir.Constant(I32, 0))
        return self.shuffle(single, single, [0] * self.lanes)

    def shuffle(self, a: Any, c: Any, places: list[int]) -> Any:
        return self.builder.shuffle_vector(a, c, ir.Constant(ir.VectorType(I32, len(places)), places))

    def fma(self, a: Any, c: Any, total: Any) -> Any:
        b = self.builder
        vector = ir.VectorType(self.element, self.lanes)
        name = f"llvm.fmuladd.v{self.lanes}f{VECTOR_BYTES * 8 // self.lanes}"
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(vector, [vector] * 3), name)
        return b.call(function, [a, c, total])

    def zeros(self, element: Any, columns: int) -> list[list[Any]]:
        """For each row so many vectors of sums, which stay in registers."""
        zero = ir.Constant(ir.VectorType(element, self.lanes), None)
        sums = [[cgutils.alloca_once_value(self.builder, zero) for _ in range(columns)] for _ in range(self.rows)]
        for line in sums:
            for each in line:
                self.builder.store(zero, each)
        return sums
