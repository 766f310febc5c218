"""How long work on a device takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from torch import Tensor

#: Working sets are made this large, so that no cache holds what the call before has read.
BEYOND_CACHES = 256 << 20  # bytes


def seconds(calls: Sequence[Callable[[], object]], device: torch.device, *, repeats: int = 7) -> float:
    """The median time of one of ``calls``, which are made one after the other, each on data of its own.

    On a GPU they are captured in a graph, so that launching them is not what is measured.
    """
    for call in calls:
        call()
    run = _captured(calls) if device.type == "cuda" else lambda: [call() for call in calls]
    run()
    return median(_once(run, device) for _ in range(repeats)) / len(calls)


def wall(call: Callable[[], object], device: torch.device) -> float:
    """Seconds that ``call`` takes until the device has done it."""
    _wait(device)
    begin = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - begin


def copies_beyond_caches(size: int) -> int:
    """How many copies of ``size`` bytes are needed so that a round through them all is served by memory."""
    return max(1, min(64, -(-BEYOND_CACHES // size)))


def copy_bandwidth(device: torch.device, size: int) -> float:
    """Bytes a second, read and written, of copying ``size`` bytes within the device."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds([lambda: target.copy_(source)], device)


def read_bandwidth(device: torch.device, size: int) -> float:
    """Bytes a second of summing ``size`` bytes, which writes nothing to speak of."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device)
    out = torch.empty((), dtype=torch.float32, device=device)
    return size / seconds([lambda: torch.sum(source, dim=0, out=out)], device)


def _captured(calls: Sequence[Callable[[], object]]) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    results: list[object] = []  # alive as long as the graph: they are its outputs
    with torch.cuda.graph(graph):
        results += [call() for call in calls]

    def run() -> list[object]:
        graph.replay()
        return results

    return run


def _once(run: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        return wall(run, device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def random(shape: Sequence[int], dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    """Normal numbers, the same ones on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tuple(shape), generator=generator).to(device, dtype)
