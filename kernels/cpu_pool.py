"""What the compiled attention kernels read of a pool: where positions lie, and rows of narrower formats in float32."""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined"

from __future__ import annotations

import numpy as np

from .cpu_jit import Array, inner

SCALE_BYTES = 16  # of an int8 row, behind its numbers
FLOAT8_BIAS = 2.0**120  # by which float8's exponent is too small once its bits stand in a float32


def scales_of(pool: Array) -> Array | None:
    """What numbers of ``pool`` are to be multiplied by: None for floats, one number for float8, and for int8 the pool
    itself, seen as float32, in which the scale stands behind the values."""
    if pool.dtype == np.int8:
        return pool.view(np.float32)
    return np.array([FLOAT8_BIAS], np.float32) if pool.dtype == np.uint8 else None


@inner
def find_slots(table, start, count, block_size, slots):
    """The slots of ``count`` positions from ``start`` on."""
    for i in range(count):
        block = (start + i) // block_size
        slots[i] = np.int64(table[block]) * block_size + (start + i - block * block_size)


@inner
def read_rows(pool, scales, plane, slots, count, kv_head, out):
    """One head's keys (``plane`` 0) or values (1) at ``count`` slots, as numbers: ``out`` [>= count, >= D]."""
    rows = pool[plane]
    width = rows.shape[2] if scales is None or scales.ndim == 1 else rows.shape[2] - SCALE_BYTES
    if scales is None:
        for i in range(count):
            row, numbers = rows[slots[i], kv_head], out[i]
            for d in range(width):
                numbers[d] = row[d]
    elif scales.ndim == 1:  # float8: sign and the rest moved to where float32 has them
        words = out.view(np.int32)
        for i in range(count):
            row = rows[slots[i], kv_head]
            for d in range(width):
                byte = np.int32(row[d])
                words[i, d] = ((byte & np.int32(128)) << np.int32(24)) | ((byte & np.int32(127)) << np.int32(20))
            for d in range(width):
                out[i, d] *= scales[0]
    else:
        for i in range(count):
            row = rows[slots[i], kv_head]
            scale = scales[plane, slots[i], kv_head, width // 4]
            for d in range(width):
                out[i, d] = np.float32(row[d]) * scale
