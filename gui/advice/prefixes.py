"""Beginnings that later requests ask for are given up for want of room: host memory would keep them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evidence import Window
from .rule import GIB, HITS, TTFT_P95, Finding, Rule, in_quarters

HIT_SHARE = 0.05  # of the prompts' tokens: beginnings do come again
TURNOVER = 0.05  # of the pool's blocks given up in a minute
MINUTES = 2  # for which they are to be kept
#: Of the machine's free memory, at most.
SHARE = 0.5


class Prefixes(Rule):
    key = "prefixes"
    seconds = 60
    quantity = HITS
    price = TTFT_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        hits = HITS.measure(window)
        per_minute = 60 * window.gain("evicted") / window.seconds
        if not hits >= HIT_SHARE or not per_minute >= TURNOVER * window.last("num_blocks"):
            return None
        lost = per_minute * window.last("token_bytes") * window.last("block_size")
        if window.last("host_bytes") - window.peak("host_busy_bytes") >= lost or not settings.get("prefix_caching"):
            return None
        now = float(settings.get("swap_space_gib", 0.0))
        then = in_quarters(now + MINUTES * lost / GIB)
        if not (then - now) * GIB <= SHARE * window.last("host_spare_bytes"):
            return None
        return Finding(self.key, {"swap_space_gib": then}, {"hits": hits, "per_minute": per_minute, "lost": lost})
