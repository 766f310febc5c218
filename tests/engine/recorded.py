"""Runners that replay their decode steps: a graph is a function that was kept, with all the memory that it had then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagedeck.engine.model.graphs import DecodeGraphs
from torch import Tensor

from .deferred import DeferredRunner
from .harness import CrampedRunner


class FakeRecorder:
    """Stands for a device that records: as with a real graph, nothing but the memory that was there when it was made
    is read or written, and the result is always the same tensor."""

    def __init__(self) -> None:
        self.recordings = 0
        self.replays = 0

    def __call__(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recordings += 1
        result = compute().clone()

        def replay() -> Tensor:
            self.replays += 1
            return result.copy_(compute())

        return replay


class ReplayingRunner(CrampedRunner):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.recorder = FakeRecorder()
        self.graphs = DecodeGraphs(self.recorder, self._bind, self._device)


class LateReplayingRunner(DeferredRunner):
    """With a step in flight, too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.recorder = FakeRecorder()
        self.graphs = DecodeGraphs(self.recorder, self._bind, self._device)
