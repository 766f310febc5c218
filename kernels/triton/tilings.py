"""How the attention kernels are tiled: a plain table, because tuning while requests run would stall them.

Keyed by architecture (compute capability, major times ten plus minor) and head size rounded up to a power of two. The
numbers fit registers and shared memory without spilling, which the tests check by compiling for each architecture.
"""

from __future__ import annotations

from typing import NamedTuple


class Tiling(NamedTuple):
    """``rows`` of queries (each a token and a head) against ``positions`` of the context at a time."""

    rows: int
    positions: int
    warps: int
    stages: int


DECODE = {
    (80, 64): Tiling(16, 64, 4, 3),
    (80, 128): Tiling(16, 64, 4, 3),
    (80, 256): Tiling(16, 32, 4, 2),
    (90, 64): Tiling(16, 128, 4, 3),
    (90, 128): Tiling(16, 64, 4, 3),
    (90, 256): Tiling(16, 64, 4, 2),
}

PREFILL = {
    (80, 64): Tiling(128, 64, 8, 3),
    (80, 128): Tiling(128, 64, 8, 2),
    (80, 256): Tiling(64, 32, 8, 2),
    (90, 64): Tiling(128, 64, 4, 3),
    (90, 128): Tiling(128, 64, 8, 3),
    (90, 256): Tiling(128, 64, 8, 2),
}

# Pools of one byte a number. They are widened in registers, so tiles are smaller.
DECODE_NARROW = {
    (80, 64): Tiling(16, 64, 4, 3),
    (80, 128): Tiling(16, 32, 4, 3),
    (80, 256): Tiling(16, 16, 4, 3),
    (90, 64): Tiling(16, 64, 4, 3),
    (90, 128): Tiling(16, 32, 4, 3),
    (90, 256): Tiling(16, 16, 4, 3),
}

PREFILL_NARROW = PREFILL | {
    (80, 64): Tiling(64, 32, 4, 2),
    (80, 128): Tiling(64, 32, 4, 2),
    (80, 256): Tiling(64, 32, 8, 2),
}

ROCM = 942  # one entry for all of AMD's
SMALL_SHARED = (75, 86, 89, 120, 121, ROCM)  # 64 to 100 KiB a processor, where the others have 164 and more


def decode_tiling(arch: int, head_dim: int, element_size: int, group: int, *, narrow: bool) -> Tiling:
    """The tiling of split-KV decode for ``group`` query heads a key-value head. ``element_size`` is that of queries,
    in bytes; the pool is ``narrow`` if its numbers take one byte."""
    return _fitting(DECODE_NARROW if narrow else DECODE, arch, head_dim, element_size, group)


def prefill_tiling(arch: int, head_dim: int, element_size: int, group: int, *, narrow: bool) -> Tiling:
    """The tiling of prefill, as for :func:`decode_tiling`."""
    return _fitting(PREFILL_NARROW if narrow else PREFILL, arch, head_dim, element_size, group)


def row_warps(row: int) -> int:
    """Warps for a program that holds a whole row of ``row`` elements: at most 32 a thread, so that none spills."""
    return min(32, max(1, row // 1024))


def next_power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _fitting(table: dict[tuple[int, int], Tiling], arch: int, head_dim: int, element_size: int, group: int) -> Tiling:
    """The entry of the newest architecture not newer than ``arch``, halved until wide elements fit, with rows for all
    of a group."""
    width = max(64, next_power_of_two(head_dim))
    known = 80 if arch < 90 or arch in SMALL_SHARED else 90
    tiling = table[known, width]
    if element_size > 2:
        tiling = tiling._replace(positions=max(16, tiling.positions // 2), stages=1)
    if arch in SMALL_SHARED:
        tiling = tiling._replace(positions=max(16, tiling.positions // 2), stages=min(2, tiling.stages))
    return tiling._replace(rows=max(tiling.rows, next_power_of_two(group)))
