"""Host memory is set aside for swapped requests, and none ever came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .evidence import Window
from .rule import MEMORY, Finding, Rule


class IdleHost(Rule):
    key = "idle_host"
    seconds = 600
    quantity = MEMORY

    def look(self, window: Window, settings: Mapping[str, Any]) -> Finding | None:
        size = window.last("host_bytes")
        touched = window.peak("host_busy_bytes") or window.gain("preemptions")
        if not settings.get("swap_space_gib") or not size or touched:
            return None
        return Finding(self.key, {"swap_space_gib": 0.0}, {"size": size, "minutes": window.seconds / 60})
