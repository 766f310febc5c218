"""Large blocks and many short requests: much of what is allocated holds no token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evidence import Window
from .rule import ITL_P95, WASTE, Finding, Rule

WASTED = 0.12  # from which on it is worth a word
USED = 0.25  # of the pool: where it is empty, waste costs nothing
AIM = 0.06
SIZES = (128, 64, 32, 16, 8)


class Waste(Rule):
    key = "waste"
    seconds = 30
    quantity = WASTE
    price = ITL_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        size = settings.get("block_size")
        tokens = window.ratio("held_tokens", "sequences")
        wasted = WASTE.measure(window)
        if not isinstance(size, int) or not (wasted >= WASTED and tokens > 0):
            return None
        if not window.ratio("used", "num_blocks") >= USED or settings.get("allocation") == "contiguous":
            return None
        # A sequence leaves half of its last block empty on average.
        smaller = [one for one in SIZES if one < size]
        then = next((one for one in smaller if one / 2 <= AIM * tokens), smaller[-1] if smaller else None)
        if then is None:
            return None
        return Finding(self.key, {"block_size": then}, {"wasted": wasted, "tokens": tokens, "size": size})
