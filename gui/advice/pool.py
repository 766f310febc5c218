"""Requests wait for blocks, while memory lies idle beside the pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ipc.vocabulary import Hold
from .evidence import Window
from .rule import ITL_P95, QUEUE_P95, Finding, Rule

HELD_SHARE = 0.5  # of the steps in which a request waited for blocks
GROWTH = 1.5
#: Of the memory that is free, at most: a pool is copied into the larger one.
SHARE = 0.4


class Pool(Rule):
    key = "pool"
    seconds = 60
    quantity = QUEUE_P95
    price = ITL_P95

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        held = window.ratio(f"held_{Hold.BLOCKS}", "steps")
        blocks, size = window.last("num_blocks"), window.last("block_size")
        spare = window.last("spare_bytes")
        if not held >= HELD_SHARE or not spare > 0:
            return None
        block_bytes = window.last("token_bytes") * size
        more = min((GROWTH - 1) * blocks, SHARE * spare / block_bytes)
        if more < 0.1 * blocks:
            return None
        then = int(blocks + more) // 16 * 16
        figures = {"waiting": window.mean("waiting"), "held": held, "more": (then - blocks) * block_bytes}
        return Finding(self.key, {"num_blocks": then}, figures | {"spare": spare})
