"""Decode steps as recorded graphs: what the device does for so many rows is told to it once, then replayed.

A step of decodes is padded to one of a few shapes, its numbers are copied to where the graph of that shape reads them,
and one call does the work of hundreds. A shape is recorded when it first comes up.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ..request import Work
from .packing import DeviceStep, PackedStep, Shape, bytes_of, ship

log = logging.getLogger(__name__)

Compute = Callable[[], Tensor]

#: Numbers of rows that steps are padded to: fine where a row is a large part of a step.
ROWS = (1, 2, 4, *range(8, 65, 8), *range(96, 513, 32))
#: The shortest context that tables are padded to; longer ones double.
SHORTEST_CONTEXT = 512
#: Runs before a recording, in which kernels are compiled and libraries take their workspaces.
REHEARSALS = 2


class Recorder(Protocol):
    """How a device records what it is told."""

    def __call__(self, compute: Compute) -> Compute:
        """``compute``, which has run before, recorded: a call repeats all its work on the same memory, and returns the
        same tensor with what came of it."""


class CudaRecorder:
    """CUDA graphs. Their working memory is shared: one replays at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Compute) -> Compute:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = compute()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


class DecodeGraphs:
    """Graphs of decode steps by shape. ``bind`` gives the network's work on a step that lies on the device."""

    def __init__(self, recorder: Recorder, bind: Callable[[DeviceStep], Compute], device: torch.device) -> None:
        self._record = recorder
        self._bind = bind
        self._device = device
        self._graphs: dict[tuple[Shape, int], tuple[Tensor, Compute]] = {}  # by shape and block size
        self._failed = False

    def __len__(self) -> int:
        return len(self._graphs)

    def shape(self, works: list[Work]) -> Shape | None:
        """What a step is padded to; None for one that is no step of decodes, or too large for a graph."""
        if self._failed or len(works) > ROWS[-1] or not all(work.count == 1 and work.samples for work in works):
            return None
        longest = max(work.start for work in works) + 1
        return Shape(ROWS[bisect_left(ROWS, len(works))], max(SHORTEST_CONTEXT, 1 << (longest - 1).bit_length()))

    @staticmethod
    def sizes(rows: int) -> list[int]:
        """Numbers of rows up to ``rows`` that between them need every shape that such steps can have."""
        return [*ROWS[: bisect_left(ROWS, rows)], rows][: len(ROWS)] if rows else []

    def run(self, step: PackedStep, fill: Callable[[DeviceStep], None]) -> tuple[DeviceStep, Tensor]:
        """A padded ``step`` on the device, and the logits of its rows, padding included, both in memory that the next
        run overwrites. ``fill`` puts tokens in their places that only the device knows."""
        assert step.shape is not None
        key = step.shape, step.block_size
        if key not in self._graphs:
            return self._first(step, key, fill)
        buffer, replay = self._graphs[key]
        there = ship(step, self._device, buffer)
        fill(there)
        return there, replay()

    def clear(self) -> None:
        """Memory that the graphs read or write is no longer theirs."""
        self._graphs.clear()

    def _first(
        self, step: PackedStep, key: tuple[Shape, int], fill: Callable[[DeviceStep], None]
    ) -> tuple[DeviceStep, Tensor]:
        """Compute a step of a new shape as any other, then record that for the next ones."""
        buffer = torch.zeros(bytes_of(step), dtype=torch.uint8, device=self._device)
        there = ship(step, self._device, buffer)
        fill(there)
        compute = self._bind(there)
        for _ in range(REHEARSALS):  # each writes the same keys and values to the same slots
            logits = compute()
        try:
            self._graphs[key] = buffer, self._record(compute)
        except RuntimeError as error:
            self._failed = True
            self._graphs.clear()
            log.warning("decode steps run without CUDA graphs: %s", str(error).splitlines()[0])
        return there, logits
