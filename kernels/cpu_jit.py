"""How the CPU's kernels are compiled with numba: options, where compiled code is kept, and what several of them share.

A kernel is called through :func:`entry`; it has a form for one thread and one that deals its work out in shares. For
little work only the first is called: waking a sleeping thread costs more than many a whole op.
"""

# numba infers the types of its functions, and sets its options as attributes that no checker sees.
# mypy: disable-error-code="no-untyped-def, attr-defined, call-arg"

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, types
from numba.extending import intrinsic
from platformdirs import user_cache_path
from torch import Tensor

UNUSED = 30 * 24 * 3600.0  # seconds after which code compiled of another state of the sources is given up


def take_folder(folder: Path) -> None:
    """Mark ``folder`` as used, and remove those beside it that no process has begun to use for long. One that still
    uses such a folder goes on: its code is in memory, and numba makes the folder anew for what it compiles next."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        unused = [other for other in folder.parent.iterdir() if other.stat().st_mtime < time.time() - UNUSED]
    except OSError:  # a folder that is not to be written to, or that another process removes as well
        return
    for other in unused:
        shutil.rmtree(other, ignore_errors=True)


if not numba.config.CACHE_DIR:
    # By default numba writes beside the source, and an installed package may be read-only. It asks whether a function's
    # own file has changed, but compiles in those that it calls in others: each state of all files has its own folder.
    _sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("cpu*.py")))
    _folder = user_cache_path("pagedeck") / "numba" / sha256(_sources).hexdigest()[:16]
    take_folder(_folder)
    numba.config.CACHE_DIR = str(_folder)
if numba.config.THREADING_LAYER == "default":
    # The workqueue layer aborts the process when two threads enter it; omp sleeps when OMP_WAIT_POLICY is PASSIVE.
    numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]

Array = np.ndarray[Any, Any]

COMPILED = (torch.float32, torch.float64)  # what the kernels compute in

#: Microseconds of work for which one more thread is worth waking. One that sleeps takes that long to come, on a
#: virtual machine above all; one that OpenMP lets spin for a moment after its last work is there at once.
WAKE = 8 if int(os.environ.get("GOMP_SPINCOUNT") or 0) else 50

LOG2_E = 1.4426950408889634
EXP2 = (
    1.5403530e-4,
    1.3333558e-3,
    9.6181291e-3,
    5.5504109e-2,
    2.4022651e-1,
    6.9314718e-1,
    1.0,
)  # a polynomial, |x| < 1/2

inner = njit(fastmath=True, error_model="numpy")


def entry(function: Callable[..., None], **options: Any) -> Any:
    """What Python calls: compiled on first use, and kept for later starts where there is a place to."""
    given: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "nogil": True} | options
    try:
        return njit(function, cache=True, **given)
    except RuntimeError:  # numba found no folder to write to
        return njit(function, **given)


def most_threads() -> int:
    return max(1, min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))


@inner
def worth_sharing(microseconds, threads, wake):
    """Into how many shares to deal work that takes one thread about so long."""
    return max(1, min(threads, int(microseconds / wake)))


def shares_for(microseconds: float) -> int:
    """:func:`worth_sharing` among the threads there are; sets how many of them take part."""
    shares: int = worth_sharing.py_func(microseconds, most_threads(), WAKE)
    if shares > 1:
        numba.set_num_threads(shares)
    return shares


def flat(tensor: Tensor) -> Array:
    """The memory from the first element of ``tensor`` on, in one dimension, for kernels that step by strides: numba
    knows such an array to be contiguous."""
    left = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((left,), (1,)).numpy()


def rows_of(tensor: Tensor, dtype: torch.dtype) -> Array:
    """``tensor`` as a contiguous array of this type: itself, where it is one."""
    return (tensor if tensor.dtype == dtype else tensor.to(dtype)).contiguous().numpy()


@intrinsic
def _float_of(typing, bits):
    """The float32 that these 32 bits are."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), codegen


@inner
def exponential(x):
    """exp of ``x``, float32 and at most 0. By a polynomial for the fraction of the binary exponent and bit arithmetic
    for the rest (relative error 2e-7), because the compiler vectorises this and not exp."""
    exponent = max(x * np.float32(LOG2_E), np.float32(-126))
    whole = np.floor(exponent + np.float32(0.5))
    x = exponent - whole
    power = np.float32(EXP2[0])
    power = power * x + np.float32(EXP2[1])
    power = power * x + np.float32(EXP2[2])
    power = power * x + np.float32(EXP2[3])
    power = power * x + np.float32(EXP2[4])
    power = power * x + np.float32(EXP2[5])
    power = power * x + np.float32(EXP2[6])
    return power * _float_of((np.int32(whole) + np.int32(127)) << np.int32(23))


@inner
def exponentials(row, count):
    """exp of ``row[:count]``, all at most 0, in place."""
    if row.itemsize == 8:
        for i in range(count):
            row[i] = math.exp(row[i])
    else:
        for i in range(count):
            row[i] = exponential(np.float32(row[i]))
