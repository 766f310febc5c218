"""The tensors behind the pools: keys and values on the device and on the host, and the copies between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import psutil
import torch
from torch import Tensor

from ...kernels import Ops
from ...kernels.formats import pool_width, raw
from ..denied import is_denial
from ..placement import to_device
from .kv_cache import Transfer, TransferKind
from .moves import Batch
from .pages import give_back, resident
from .reshape import Reshape

#: From so many slots in a mean run on, copying run by run is faster than by index (measured on the CPU: at 16 slots
#: half as fast, at 64 by half faster, at 1,024 more than twice as fast).
SLICED_SLOTS = 48


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one token's keys and values are: ``layers`` times two of ``[kv_heads, head_dim]``, held in ``dtype``, which
    may be narrower than the model's (see :mod:`pagedeck.kernels`)."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def width(self) -> int:
        """How many elements of ``dtype`` a head takes: its numbers, and their scale where they have one."""
        return pool_width(self.head_dim, self.dtype)

    @property
    def slot_bytes(self) -> int:
        return self.layers * 2 * self.kv_heads * self.width * self.dtype.itemsize


#: A device pool and a host pool, where they get another size.
Pools = tuple[Tensor | None, Tensor | None]


class KVStorage:
    """Device pool ``[L, 2, num_slots, H, D]`` and host pool ``[num_host_slots, L, 2, H, D]``.

    On the CPU neither is touched when it is made, so memory is used only as blocks are written. Beside a CUDA device
    the host pool is pinned, and copies between the tiers run on a stream of their own, which waits for the compute
    stream and which the compute stream waits for: the forward that follows sees what the journal did.
    """

    def __init__(
        self, layout: KVLayout, num_slots: int, num_host_slots: int, device: torch.device | str, ops: Ops
    ) -> None:
        self.layout = layout
        self.ops = ops
        self.device = torch.device(device)
        self.pool = self._new_pool(num_slots)
        self._copy_stream = torch.cuda.Stream(self.pool.device) if self.pool.is_cuda else None
        self.host = self._new_host(num_host_slots)

    def execute(self, journal: list[Transfer], block_size: int) -> int:
        """Carry out ``journal`` in order, as few large copies as possible, and empty it. Returns bytes copied.

        Where the memory for a copy is denied, it is made in parts. If that of a single block is, the error is raised
        and ``journal`` begins with the copy that failed: carried out later, it is as if it had been now. What it has
        done already does no harm, since no copy overwrites what it reads.
        """
        copied = 0
        with self._copying():
            for kind, source, target in _coalesced(tuple(journal)):
                self._transfer(kind, source, target, block_size)
                del journal[: len(source)]
                copied += len(source) * block_size * self.layout.slot_bytes
        return copied

    def move(self, batches: Iterable[Batch], tier: str = "device") -> int:
        """Run slot moves inside a tier, batch by batch. Scratch: a batch's slots of one layer. Returns bytes copied."""
        moved = 0
        if tier == "host":
            self._settle()
        for source, target in batches:
            if tier == "device":
                self.ops.move_slots(self.pool, self._index(source), self._index(target))
            else:
                for layer in raw(self.host).unbind(1):
                    layer[torch.from_numpy(target)] = layer[torch.from_numpy(source)]
            moved += len(source)
        return moved * self.layout.slot_bytes

    def rehearse(self, block_size: int) -> None:
        """Every kind of copy once, while nothing is held yet, so that none is compiled while somebody waits."""
        blocks, host_blocks = self.pool.shape[2] // block_size, len(self.host) // block_size
        journal = [Transfer(TransferKind.COPY, 0, 1)] if blocks > 1 else []
        if host_blocks:
            journal += [Transfer(TransferKind.SWAP_OUT, 0, 0), Transfer(TransferKind.SWAP_IN, 0, 0)]
        self.execute(journal, block_size)
        self.move([(np.array([0]), np.array([1]))])

    def given_back(self) -> int:
        """Bytes of the device pool that become free while its content moves into another one.

        On a GPU the old pool and the new one are there at once; on the CPU the old one's pages are given back as they
        are copied.
        """
        return 0 if self.pool.is_cuda else resident(self.pool)

    def new_pools(self, change: Reshape) -> Pools:
        """The memory that ``change`` takes. Raises ``RuntimeError`` if there is not that much."""
        return (
            None if change.num_slots == change.old_slots else self._new_pool(change.num_slots),
            None if change.num_host_slots == change.old_host_slots else self._new_host(change.num_host_slots),
        )

    def reshape(self, change: Reshape, pools: Pools | None = None) -> int:
        """Carry out ``change``: slots move within a pool that keeps its size, and into another one otherwise. Scratch:
        a batch's slots of one layer; beside it, a pool of another size is there twice while it moves, on the CPU with
        no more than one layer of its content in both. ``pools``: what :meth:`new_pools` made before. Returns bytes
        copied.

        Raises:
            RuntimeError: there is not that much memory; both pools are as they were.
        """
        pool, host = self.new_pools(change) if pools is None else pools
        self._settle()
        copied = 0
        if pool is not None and change.device is not None:
            for old, new in zip(self.pool, pool, strict=True):
                for source, target in change.device.copies():
                    _copy_slots(old, new, source, target)
                give_back(old)
            copied += change.device.slots_copied(resized=True) * self.layout.slot_bytes
        elif change.device is not None:
            copied += self.move(change.device.batches())
        if host is not None and change.host is not None:
            for source, target in change.host.copies():
                _copy_slots(self.host[None], host[None], source, target)
            copied += change.host.slots_copied(resized=True) * self.layout.slot_bytes
        elif change.host is not None:
            copied += self.move(change.host.batches(), "host")
        self.pool = self.pool if pool is None else pool
        self.host = self.host if host is None else host
        return copied

    def _new_pool(self, num_slots: int) -> Tensor:
        layout = self.layout
        shape = (layout.layers, 2, num_slots, layout.kv_heads, layout.width)
        return torch.empty(shape, dtype=layout.dtype, device=self.device)

    def _new_host(self, num_host_slots: int) -> Tensor:
        layout = self.layout
        shape = (num_host_slots, layout.layers, 2, layout.kv_heads, layout.width)
        return torch.empty(shape, dtype=layout.dtype, pin_memory=self.device.type == "cuda")

    def _transfer(self, kind: TransferKind, source: list[int], target: list[int], block_size: int) -> None:
        """In parts, if need be."""
        try:
            self._copy(kind, source, target, block_size)
        except (MemoryError, RuntimeError) as error:
            if len(source) == 1 or not is_denial(error):
                raise
            half = len(source) // 2
            self._transfer(kind, source[:half], target[:half], block_size)
            self._transfer(kind, source[half:], target[half:], block_size)

    def _copy(self, kind: TransferKind, source: list[int], target: list[int], block_size: int) -> None:
        if kind is TransferKind.COPY:
            self.ops.copy_blocks(self.pool, self._index(source), self._index(target), block_size)
        elif kind is TransferKind.SWAP_OUT:
            self.ops.gather_blocks(self.pool, self._index(source), block_size, self.host, torch.tensor(target))
        else:
            self.ops.scatter_blocks(self.host, torch.tensor(source), block_size, self.pool, self._index(target))

    def _settle(self) -> None:
        """The CPU is about to touch the host pool, which copies may still be reading or writing."""
        if self._copy_stream is not None:
            self._copy_stream.synchronize()

    def _index(self, ids: object) -> Tensor:
        return to_device(torch.as_tensor(ids, dtype=torch.int64), self.pool.device)

    @contextmanager
    def _copying(self) -> Iterator[None]:
        if self._copy_stream is None:
            yield
            return
        compute = torch.cuda.current_stream(self.pool.device)
        self._copy_stream.wait_stream(compute)
        try:
            with torch.cuda.stream(self._copy_stream):
                yield
        finally:
            compute.wait_stream(self._copy_stream)


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device."""
    return int(torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available)


def _copy_slots(old: Tensor, new: Tensor, source: np.ndarray, target: np.ndarray) -> None:
    """Copy slots, which are dimension 1, from one tensor to another: long runs of neighbours one by one."""
    old, new = raw(old), raw(new)
    cuts = np.flatnonzero((np.diff(source) != 1) | (np.diff(target) != 1)) + 1
    if old.device.type == "cpu" and len(source) > SLICED_SLOTS * len(cuts):
        for start, stop in pairwise([0, *cuts.tolist(), len(source)]):
            there, here = int(target[start]), int(source[start])
            new[:, there : there + stop - start] = old[:, here : here + stop - start]
    else:
        chosen = old.index_select(1, torch.from_numpy(source).to(old.device))
        new.index_copy_(1, torch.from_numpy(target).to(old.device), chosen)


def _coalesced(journal: Iterable[Transfer]) -> Iterator[tuple[TransferKind, list[int], list[int]]]:
    """Runs of transfers of one kind that can be carried out as if at once: nothing is written twice, and no copy
    reads or overwrites what another one of the run writes or reads."""
    kind = TransferKind.COPY
    source: list[int] = []
    target: list[int] = []
    read: set[int] = set()
    written: set[int] = set()
    for transfer in journal:
        same_pool = kind is TransferKind.COPY
        clash = transfer.target in written or (same_pool and (transfer.source in written or transfer.target in read))
        if source and (transfer.kind is not kind or clash):
            yield kind, source, target
            source, target, read, written = [], [], set(), set()
        kind = transfer.kind
        source.append(transfer.source)
        target.append(transfer.target)
        read.add(transfer.source)
        written.add(transfer.target)
    if source:
        yield kind, source, target
