"""Long contexts in small blocks that lie apart: reading them takes long, and tokens come unevenly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evidence import Window
from .rule import ITL_P95, WASTE, Finding, Rule

ENTRIES = 64  # in a block table
RUN = 8  # neighbouring blocks in a row, at most
JITTER = 1.5  # of tokens: P99 ÷ P50
LARGEST = 128


class Scattered(Rule):
    key = "scattered"
    seconds = 60
    quantity = ITL_P95
    price = WASTE

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        size = settings.get("block_size")
        tokens = window.ratio("held_tokens", "sequences")
        run = window.mean("mean_run")
        jitter = window.latency("itl", 0.99) / max(window.latency("itl", 0.5), 1e-9)
        if not isinstance(size, int) or size >= LARGEST or settings.get("allocation") == "contiguous":
            return None
        if not (tokens / size >= ENTRIES and 0 < run <= RUN and jitter >= JITTER):
            return None
        figures = {"tokens": tokens, "entries": tokens / size, "run": run, "jitter": jitter}
        return Finding(self.key, {"block_size": 2 * size}, figures)
