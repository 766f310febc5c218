"""The token budget: too small, and prompts take many steps; too large, and everybody's next word waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evidence import Window
from .rule import ITL_P95, TTFT_P95, Finding, Rule

FULL_SHARE = 0.5  # of the steps that had no token to spare
CHEAP = 2.0  # a step with prompts takes so many times as long as one without, at most
DEAR = 4.0  # or at least
JITTER = 3.0  # of tokens: P99 ÷ P50
LARGEST, SMALLEST = 8_192, 32


class SmallBudget(Rule):
    key = "small_budget"
    seconds = 60
    quantity = TTFT_P95
    price = ITL_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        budget = settings.get("token_budget")
        full, dear = window.ratio("full_steps", "steps"), _dear(window)
        if not isinstance(budget, int) or budget >= LARGEST or not full >= FULL_SHARE or not dear <= CHEAP:
            return None
        figures = {"full": full, "dear": dear, "ttft": TTFT_P95.measure(window)}
        return Finding(self.key, {"token_budget": 2 * budget}, figures)


class LargeBudget(Rule):
    key = "large_budget"
    seconds = 60
    quantity = ITL_P95
    price = TTFT_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        budget = settings.get("token_budget")
        jitter = window.latency("itl", 0.99) / max(window.latency("itl", 0.5), 1e-9)
        if not isinstance(budget, int) or not (_dear(window) >= DEAR and jitter >= JITTER):
            return None
        then = budget // 2
        if then < max(SMALLEST, window.peak("sequences")):
            return None
        return Finding(self.key, {"token_budget": then}, {"dear": _dear(window), "jitter": jitter})


def _dear(window: Window) -> float:
    """How many times as long a step with prompts takes as one without; NaN where one kind is missing."""
    return window.ratio("prefill_ms", "prefill_steps") / window.ratio("decode_ms", "decode_steps")
