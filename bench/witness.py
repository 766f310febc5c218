"""What an engine tells of itself while it is measured."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from ..ipc.client import Client
from ..ipc.telemetry import TOPIC_STATS, TOPIC_STEP, Stats, StepRecord, Steps
from . import own
from .workload import FIRST_TOKEN, Item

#: Telemetry of steps comes at most so long after them, in seconds; statistics come once a second.
STEPS_SETTLE_S = 0.2
STATS_SETTLE_S = 1.2
LATE_S = 10.0


class Witness:
    """Hears of every step of an engine, and of its statistics, inside a ``with`` block."""

    def __init__(self, client: Client) -> None:
        self.steps: list[StepRecord] = []
        self.stats: list[Stats] = []
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self.steps:  # until telemetry is heard at all; what runs for it warms the engine up
            own.serve(self._client, [Item([FIRST_TOKEN] * 8, 8)])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def steps_since(self, begin: float) -> list[StepRecord]:
        """Every step since ``begin`` (Unix seconds), once no more are told of; a busy machine tells late."""
        until, heard = time.monotonic() + LATE_S, 0
        while True:
            time.sleep(STEPS_SETTLE_S)
            found = [step for step in self.steps if step.time >= begin]
            if (found and len(found) == heard) or time.monotonic() > until:
                return found
            heard = len(found)

    def since(self, begin: float) -> Testimony:
        """All that was told of the time since ``begin`` (Unix seconds), once it has arrived."""
        time.sleep(STATS_SETTLE_S)
        return Testimony(
            [step for step in self.steps if step.time >= begin], [stats for stats in self.stats if stats.time >= begin]
        )

    def _listen(self) -> None:
        with self._client.subscribe([TOPIC_STEP, TOPIC_STATS]) as telemetry:
            while not self._over.is_set():
                received = telemetry.receive(timeout=0.1)
                if received is None:
                    continue
                if isinstance(received[2], Steps):
                    self.steps += received[2].steps
                elif isinstance(received[2], Stats):
                    self.stats.append(received[2])


class Testimony:
    """The steps and statistics of a time in which an engine was at work."""

    def __init__(self, steps: list[StepRecord], stats: list[Stats]) -> None:
        self.steps = steps
        self.stats = stats
        # Only steps that follow one another tell how long one took.
        self._pairs = [
            (a, b) for a, b in pairwise(steps) if b.step == a.step + 1 and (b.prefill_tokens + b.decode_tokens)
        ]
        self._busy_s = sum(b.time - a.time for a, b in self._pairs)

    def share(self, *parts: str) -> float:
        """Which share of the time that steps followed one another in, these parts of them took, as ``forward``."""
        spent = sum(getattr(step, f"{part}_ms") for _, step in self._pairs for part in parts) / 1e3
        return spent / self._busy_s if self._busy_s else 0.0

    @property
    def filled(self) -> float:
        """Tokens ÷ slots of the blocks that sequences held, over all statistics."""
        held = [(s.device.tokens, (s.device.used + s.device.reserved) * s.device.block_size) for s in self.stats]
        slots = sum(size for _, size in held)
        return sum(tokens for tokens, _ in held) / slots if slots else 0.0

    @property
    def saved(self) -> float:
        """Blocks that sharing saved ÷ blocks that there would have been without."""
        saved = sum(s.device.saved for s in self.stats)
        whole = saved + sum(s.device.used for s in self.stats)
        return saved / whole if whole else 0.0

    @property
    def running_most(self) -> int:
        return max((step.running for step in self.steps), default=0)

    @property
    def preempted(self) -> set[int]:
        """Requests that lost their blocks once or oftener."""
        return {number for step in self.steps for number in (*step.preempted, *step.swapped_out)}

    @property
    def recomputed(self) -> set[int]:
        """Those whose blocks were given up for good, once or oftener."""
        return {number for step in self.steps for number in step.preempted}

    @property
    def swapped(self) -> set[int]:
        """Those whose blocks went to the host tier."""
        return {number for step in self.steps for number in step.swapped_out}

    def facts(self) -> dict[str, Any]:
        """For a file of results."""
        return {
            "steps": len(self.steps),
            "forward_share": self.share("forward"),
            "device_share": self.share("forward", "sample"),
            "schedule_share": self.share("schedule"),
            "filled": self.filled,
            "saved_by_sharing": self.saved,
            "running_most": self.running_most,
            "preempted": len(self.preempted),
            "swapped": len(self.swapped),
        }
