"""Requests lose their blocks and are computed again: host memory would have kept them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evidence import Window
from .rule import GIB, ITL_P95, REDONE, Finding, Rule, in_quarters

PER_MINUTE = 1.0  # preemptions from which on it is worth a word
REDONE_SHARE = 0.01
#: Of the machine's free memory, at most.
SHARE = 0.5


class Swap(Rule):
    key = "swap"
    seconds = 60
    quantity = REDONE
    price = ITL_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        preempted = window.gain("preemptions")
        per_minute = 60 * preempted / window.seconds
        redone = REDONE.measure(window)
        if per_minute < PER_MINUTE or not redone >= REDONE_SHARE or settings.get("preemption") == "recompute":
            return None
        # What requests without their blocks would have kept at once; or one of them, where they came back too soon
        # to be seen without.
        tokens = max(window.peak("parked_tokens"), window.gain("redone_tokens") / preempted)
        wanted = tokens * window.last("token_bytes")
        if window.last("host_bytes") - window.peak("host_busy_bytes") >= wanted:
            return None  # there is room: the engine finds it cheaper to compute them again
        now = float(settings.get("swap_space_gib", 0.0))
        then = in_quarters(now + 1.25 * wanted / GIB)
        if not (then - now) * GIB <= SHARE * window.last("host_spare_bytes"):
            return None
        return Finding(
            self.key, {"swap_space_gib": then}, {"per_minute": per_minute, "redone": redone, "wanted": wanted}
        )
