"""When a device began and finished the parts of a step."""

from __future__ import annotations

from time import perf_counter
from typing import Protocol

import torch


class Clock(Protocol):
    """Marks in the order of a device's work."""

    def mark(self) -> None:
        """The device has done what it was given so far."""

    def laps(self) -> list[float]:
        """Wait for the last mark. Milliseconds from each mark to the next."""


class HostClock:
    """For a device that has finished when the call returns."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def mark(self) -> None:
        self._marks.append(perf_counter())

    def laps(self) -> list[float]:
        return [(stop - start) * 1e3 for start, stop in zip(self._marks, self._marks[1:], strict=False)]


class CudaClock:
    """Events on a CUDA device's current stream; nothing waits before :meth:`laps`."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        self._marks.append(event)

    def laps(self) -> list[float]:
        self._marks[-1].synchronize()
        return [start.elapsed_time(stop) for start, stop in zip(self._marks, self._marks[1:], strict=False)]


def clock_of(device: torch.device) -> Clock:
    return CudaClock(device) if device.type == "cuda" else HostClock()
