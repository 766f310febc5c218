"""The memory pages behind a CPU tensor: how many there are, and giving them back before the tensor is gone."""

from __future__ import annotations

import ctypes
import mmap
import sys

import torch
from torch import Tensor

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def give_back(tensor: Tensor) -> None:
    """Let the operating system have the pages that lie wholly within a contiguous ``tensor``, whose content is not
    needed any more. Does nothing where that is not possible: the memory is then free when the tensor is."""
    if _libc is None or tensor.device.type != "cpu" or tensor.is_pinned():
        return
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > first:
        _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(stop - first), mmap.MADV_DONTNEED)


def resident(tensor: Tensor) -> int:
    """Bytes of a contiguous CPU ``tensor`` that have memory behind them; all of them where that cannot be told."""
    if _libc is None or not tensor.nbytes:
        return tensor.nbytes
    first = tensor.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    length = tensor.data_ptr() + tensor.nbytes - first
    pages = torch.zeros(-(-length // mmap.PAGESIZE), dtype=torch.uint8)
    if _libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(length), ctypes.c_void_p(pages.data_ptr())):
        return tensor.nbytes
    return int((pages & 1).sum()) * mmap.PAGESIZE
