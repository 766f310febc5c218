"""Requests wait for a place in the batch, while there are blocks for more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ipc.vocabulary import Hold
from .evidence import Window
from .rule import ITL_P95, QUEUE_P95, Finding, Rule

HELD_SHARE = 0.5  # of the steps in which a request waited for a place
FREE_SHARE = 0.25  # of the blocks that nobody holds
FILL = 0.9  # of the blocks that the larger batch would hold


class Batch(Rule):
    key = "batch"
    seconds = 60
    quantity = QUEUE_P95
    price = ITL_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        held = window.ratio(f"held_{Hold.BATCH}", "steps")
        used = window.ratio("used", "num_blocks")
        limit = settings.get("max_batch_size")
        if not isinstance(limit, int) or not held >= HELD_SHARE or not used <= 1 - FREE_SHARE:
            return None
        most = min(2 * limit, int(limit * FILL / max(used, 1e-9)), settings.get("token_budget") or 2 * limit)
        then = most - most % 4 if most >= 8 else most
        if then <= limit:
            return None
        figures = {"waiting": window.mean("waiting"), "limit": limit, "held": held, "free": 1 - used}
        return Finding(self.key, {"max_batch_size": then}, figures)
