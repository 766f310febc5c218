"""The innermost products of :mod:`.cpu_decode`, written in LLVM's language (:mod:`.cpu_emitter`): query heads that
share a key-value head against the same keys and values, each of which is loaded once for all of them.

While they compute, they begin to bring what is read next into the second-level cache: a head's rows lie apart from one
another, which no processor foresees, and read without it take three times as long.
"""

# What numba and llvmlite pass around has no types that a checker could know.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .cpu_emitter import DOUBLE, FLOAT, LINE, VECTOR_BYTES, Emitter

HEADS = 3  # the most that are multiplied together: with four positions their sums fill the registers
POSITIONS = 4  # in one pass over a head
COLUMNS = LINE // VECTOR_BYTES  # vectors of values whose sums are held at once


@intrinsic(prefer_literal=True)
def score_heads(typing, count, query, keys, start, step, slots, passes, scores, row, pool, coming, offset):
    """The products of ``count`` heads, the first of ``query`` [>= count, D], with keys, ``passes`` times four, put into
    the flat ``scores`` from ``row`` times the head on. ``count`` must be a literal, and is at most three; D is a
    multiple of 64 bytes. The keys begin at byte ``start + step * slots[i]`` of ``keys``. Read next will be the slots
    ``coming`` of ``pool`` [2, num_slots, H, ...], a row of each, which in the first begins at byte ``offset``."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    signature = types.void(count, query, keys, start, step, slots, passes, scores, row, pool, coming, offset)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        names = ("query", "rows", "start", "step", "slots", "passes", "scores", "row", "pool", "coming", "offset")
        _ScoreEmitter(context, builder, names, signature, arguments, query).emit()
        return context.get_dummy_value()

    return signature, codegen


@intrinsic(prefer_literal=True)
def add_values(
    typing, count, scores, row, values, start, step, slots, positions, factors, weighted, pool, coming, offset
):
    """Multiply the first ``count`` rows of ``weighted`` [>= count, D] by their ``factors`` [>= count], and add to them
    so many ``positions``' values, each times its head's score. The rest is as in :func:`score_heads`."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    signature = types.void(
        count, scores, row, values, start, step, slots, positions, factors, weighted, pool, coming, offset
    )  # fmt: skip

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        names = (
            "scores", "row", "rows", "start", "step", "slots", "positions", "factors", "weighted", "pool", "coming",
            "offset",
        )  # fmt: skip
        _ValueEmitter(context, builder, names, signature, arguments, weighted).emit()
        return context.get_dummy_value()

    return signature, codegen


class _HeadEmitter(Emitter):
    def __init__(self, context: Any, builder: Any, names: Any, signature: Any, arguments: Any, numbers: Any) -> None:
        heads, element = signature.args[0].literal_value, DOUBLE if numbers.dtype == types.float64 else FLOAT
        super().__init__(context, builder, names, signature.args[1:], arguments[1:], heads, element)

    def at(self, name: str, place: Any) -> Any:
        return self.load(name, self.element, place, self.lanes, 4)

    def row_start(self, position: Any) -> Any:
        """Where the key or value of a position begins."""
        b = self.builder
        return self.byte("rows", b.add(self.of["start"], b.mul(self.scalar("slots", position), self.of["step"])))

    def vector_of(self, row: Any, place: Any) -> Any:
        b = self.builder
        address = b.gep(b.bitcast(row, self.element.as_pointer()), [place])
        return b.load(b.bitcast(address, ir.VectorType(self.element, self.lanes).as_pointer()), align=4)

    def heads(self, step: Any) -> list[Any]:
        return [self.builder.mul(step, self.number(head)) for head in range(self.rows)]

    def prefetch_row(self, position: Any, line: Any) -> None:
        """Begin to bring a line of what is read next at a position."""
        b = self.builder
        slot = b.mul(self.scalar("coming", position), b.mul(self._pool_shape(2), self.pool_row()))
        self.prefetch("pool", b.add(b.add(self.of["offset"], slot), b.mul(line, self.number(LINE))))

    def pool_row(self) -> Any:
        """Bytes of a head's row in the pool."""
        return self.builder.mul(self._pool_shape(3), self.of["pool"].itemsize)

    def _pool_shape(self, dimension: int) -> Any:
        return self.builder.extract_value(self.of["pool"].shape, dimension)


class _ScoreEmitter(_HeadEmitter):
    """Writes one :func:`score_heads`."""

    def emit(self) -> None:
        with cgutils.for_range(self.builder, self.of["passes"]) as loop:
            self._pass(self.builder.mul(loop.index, self.number(POSITIONS)))

    def _pass(self, first: Any) -> None:
        b = self.builder
        positions = [b.add(first, self.number(p)) for p in range(POSITIONS)]
        with cgutils.for_range(b, b.udiv(b.add(self.pool_row(), self.number(LINE - 1)), self.number(LINE))) as loop:
            for position in positions:
                self.prefetch_row(position, loop.index)
        width = b.extract_value(self.of["query"].shape, 1)
        heads, rows = self.heads(width), [self.row_start(position) for position in positions]
        sums = self.zeros(self.element, POSITIONS)
        with cgutils.for_range(b, b.udiv(width, self.number(self.lanes))) as loop:
            at = b.mul(loop.index, self.number(self.lanes))
            queries = [self.at("query", b.add(head, at)) for head in heads]
            for p, row in enumerate(rows):
                key = self.vector_of(row, at)
                for query, line in zip(queries, sums, strict=True):
                    b.store(self.fma(key, query, b.load(line[p])), line[p])
        for target, line in zip(self.heads(self.of["row"]), sums, strict=True):
            scores = self._summed([b.load(each) for each in line])
            b.store(scores, self.address("scores", self.element, b.add(target, first), POSITIONS), align=4)

    def _summed(self, vectors: list[Any]) -> Any:
        """The sum of each of ``vectors``, side by side. Each turn adds the second half of what is left of each vector
        to the first, two vectors going into one while there are several."""
        left = self.lanes
        while left > 1:
            if len(vectors) > 1:
                pairs = zip(vectors[::2], vectors[1::2], strict=True)
                vectors = [self._folded(first, second, 2 * self.lanes, left) for first, second in pairs]
            else:
                vectors = [self._folded(vectors[0], vectors[0], POSITIONS * left, left)]
            left //= 2
        return vectors[0]

    def _folded(self, first: Any, second: Any, lanes: int, each: int) -> Any:
        places = [start + i for start in range(0, lanes, each) for i in range(each // 2)]
        halves = (self.shuffle(first, second, [place + half for place in places]) for half in (0, each // 2))
        return self.builder.fadd(*halves)


class _ValueEmitter(_HeadEmitter):
    """Writes one :func:`add_values`."""

    def emit(self) -> None:
        b = self.builder
        together = self.number(COLUMNS * self.lanes)
        width = b.extract_value(self.of["weighted"].shape, 1)
        with cgutils.for_range(b, b.udiv(width, together)) as loop:
            self._columns(width, b.mul(loop.index, together), loop.index)

    def _columns(self, width: Any, first: Any, line: Any) -> None:
        b = self.builder
        columns = [b.add(first, self.number(i * self.lanes)) for i in range(COLUMNS)]
        places = [[b.add(head, column) for column in columns] for head in self.heads(width)]
        sums = self.zeros(self.element, COLUMNS)
        for h, (row, targets) in enumerate(zip(sums, places, strict=True)):
            factor = self.splat(self.scalar("factors", self.number(h)))
            for each, target in zip(row, targets, strict=True):
                b.store(b.fmul(factor, self.at("weighted", target)), each)
        heads = self.heads(self.of["row"])
        with cgutils.for_range(b, self.of["positions"]) as loop:
            self.prefetch_row(loop.index, line)
            start = self.row_start(loop.index)
            weights = [self.splat(self.scalar("scores", b.add(head, loop.index))) for head in heads]
            for i, column in enumerate(columns):
                value = self.vector_of(start, column)
                for weight, row in zip(weights, sums, strict=True):
                    b.store(self.fma(value, weight, b.load(row[i])), row[i])
        for row, targets in zip(sums, places, strict=True):
            for each, target in zip(row, targets, strict=True):
                b.store(b.load(each), self.address("weighted", self.element, target, self.lanes), align=4)
