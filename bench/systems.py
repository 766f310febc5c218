"""What a system did with a load, and several systems side by side."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .. import __version__
from .workload import Item, percentile


@dataclass(frozen=True, slots=True)
class System:
    """One system on one load. Times in seconds from the moment when all requests were there.

    ``arrivals``: when each of a request's tokens came, where the system tells them one by one. ``memory_bytes``: the
    most that its process held while it served, where that can be seen.
    """

    name: str
    output_tokens: int
    finished: list[float]  # one a request
    outputs: list[list[int]] = field(repr=False)  # token ids; empty where the system does not tell them
    arrivals: list[list[float]] | None = field(default=None, repr=False)
    memory_bytes: int | None = None
    precision: str = "float32"

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / max(self.finished)

    def latency(self, share: float) -> float:
        """A percentile of the seconds until a request's last token."""
        return percentile(self.finished, share)

    def inter_token(self, share: float) -> float | None:
        """A percentile of the seconds between two tokens of a request, over all of them."""
        gaps = [after - before for times in self.arrivals or () for before, after in pairwise(times)]
        return percentile(gaps, share) if gaps else None

    def agreement(self, other: System) -> int | None:
        """How many requests have the very same output tokens in both, where both tell them."""
        if not self.outputs or not other.outputs:
            return None
        return sum(mine == theirs for mine, theirs in zip(self.outputs, other.outputs, strict=True))

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "output_tokens_per_s": self.tokens_per_s,
            "latency_p50_s": self.latency(0.5),
            "latency_p95_s": self.latency(0.95),
            "inter_token_p50_s": self.inter_token(0.5),
            "inter_token_p95_s": self.inter_token(0.95),
            **asdict(self),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All systems on one load, ours first."""

    systems: list[System]
    items: list[Item]
    threads: int
    seed: int

    def facts(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        ours = self.systems[0]
        return {
            **surroundings(),
            "load": {
                "requests": len(self.items),
                "seed": self.seed,
                "threads": self.threads,
                "prompt_tokens": [len(item.prompt) for item in self.items],
                "output_tokens": [item.output_tokens for item in self.items],
            },
            "systems": [
                {
                    **system.facts(),
                    "ours_is_so_many_times_as_fast": ours.tokens_per_s / system.tokens_per_s,
                    "same_tokens_as_ours": system.agreement(ours),
                }
                for system in self.systems
            ],
        }


def surroundings() -> dict[str, Any]:
    """What results depend on: versions, the machine, the day."""
    return {
        "pagedeck": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()},
        "libraries": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
