"""A real runner whose device is as late as one can be.

Deferred evaluation stands for the device: a launch packs what a device would be told, and nothing is computed before
the flight lands. So whatever a launch reads too early, or a landing too late, shows in the tokens.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from pagedeck.engine.flight import Flight

from .harness import CrampedRunner


class Deferred:
    """A launch that is computed when it, or a later one, lands."""

    def __init__(self, runner: DeferredRunner, told: tuple[Any, ...]) -> None:
        self.runner = runner
        self.told = told
        self.flight: Flight | None = None
        self.error: Exception | None = None

    def tokens(self) -> list[int]:
        while self in self.runner.queue:
            self.runner.queue.popleft().run()
        if self.error is not None:
            raise self.error
        assert self.flight is not None
        return self.flight.tokens()

    def run(self) -> None:
        try:
            self.flight = CrampedRunner._start(self.runner, *self.told)
        except Exception as error:
            self.error = error


class DeferredRunner(CrampedRunner):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.depth = 1
        self.queue: deque[Deferred] = deque()
        self.overlaps = 0
        self.unknown = 0

    def _start(self, *told: Any) -> Flight:
        _, _, step, _ = told
        self.overlaps += bool(self.queue) and step is not None
        self.unknown += 0 if step is None else len(step.unknown)
        flight = Deferred(self, told)
        self.queue.append(flight)
        return flight
