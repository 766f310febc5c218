"""The tensors behind the pools: keys and values on the device and on the host, and the copies between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels import Ops
from .kv_cache import Transfer, TransferKind
from .moves import Batch


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What one token's keys and values are: ``layers`` times two of ``[kv_heads, head_dim]``."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def slot_bytes(self) -> int:
        return self.layers * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize


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
        shape = (layout.layers, 2, num_slots, layout.kv_heads, layout.head_dim)
        self.pool = torch.empty(shape, dtype=layout.dtype, device=device)
        self._copy_stream = torch.cuda.Stream(self.pool.device) if self.pool.is_cuda else None
        self.host = self._new_host(num_host_slots)

    def execute(self, journal: Iterable[Transfer], block_size: int) -> int:
        """Carry out ``journal`` in order, as few large copies as possible. Returns bytes copied."""
        copied = 0
        with self._copying():
            for kind, source, target in _coalesced(journal):
                self._transfer(kind, source, target, block_size)
                copied += len(source) * block_size * self.layout.slot_bytes
        return copied

    def move(self, batches: Sequence[Batch], tier: str = "device") -> int:
        """Run slot moves inside a tier, batch by batch. Scratch: a batch's slots of one layer. Returns bytes copied."""
        moved = 0
        if tier == "host":
            self._settle()
        for source, target in batches:
            if tier == "device":
                self.ops.move_slots(self.pool, self._index(source), self._index(target))
            else:
                for layer in self.host.unbind(1):
                    layer[torch.from_numpy(target)] = layer[torch.from_numpy(source)]
            moved += len(source)
        return moved * self.layout.slot_bytes

    def resize_host(self, num_host_slots: int, moves: Sequence[Batch]) -> int:
        """Run ``moves``, then make the host pool ``num_host_slots`` long; what fits keeps its place. Returns bytes
        copied.

        Raises:
            RuntimeError: the machine has not that much memory; the pool is as it was.
        """
        resized = self._new_host(num_host_slots)
        self._settle()
        moved = self.move(moves, "host")
        kept = min(num_host_slots, len(self.host))
        resized[:kept] = self.host[:kept]
        self.host = resized
        return moved + kept * self.layout.slot_bytes

    def _new_host(self, num_host_slots: int) -> Tensor:
        layout = self.layout
        shape = (num_host_slots, layout.layers, 2, layout.kv_heads, layout.head_dim)
        return torch.empty(shape, dtype=layout.dtype, pin_memory=self.pool.is_cuda)

    def _transfer(self, kind: TransferKind, source: list[int], target: list[int], block_size: int) -> None:
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
        return torch.as_tensor(ids, dtype=torch.int64, device=self.pool.device)

    @contextmanager
    def _copying(self) -> Iterator[None]:
        if self._copy_stream is None:
            yield
            return
        compute = torch.cuda.current_stream(self.pool.device)
        self._copy_stream.wait_stream(compute)
        with torch.cuda.stream(self._copy_stream):
            yield
        compute.wait_stream(self._copy_stream)


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
