"""The settings that the tuner may change: all of them change while an engine runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Settings = dict[str, Any]

#: Setting -> the values that are tried, in order: neighbours in this list are neighbours in the search.
VALUES: dict[str, tuple[Any, ...]] = {
    "block_size": (8, 16, 32, 64, 128, 256),
    "max_batch_size": (4, 8, 16, 32, 64, 128),
    "token_budget": (64, 128, 256, 512, 1024),
    "swap_space_gib": (0.0, 1.0, 4.0),
    "contiguous_blocks": (0, 4, 16),
}

#: What the sweep combines.
COARSE: dict[str, tuple[Any, ...]] = {
    "block_size": (16, 32, 64),
    "max_batch_size": (8, 32, 128),
    "token_budget": (128, 256, 512),
    "swap_space_gib": (0.0, 1.0),
    "contiguous_blocks": (0, 4),
}


def coarse(start: Settings, allowed: dict[str, tuple[Any, ...]]) -> list[Settings]:
    """What the sweep looks at: ``start``, then every combination of a few of the ``allowed`` values."""
    few = {name: [value for value in values if value in allowed[name]] for name, values in COARSE.items()}
    all_of_them = [dict(zip(few, values, strict=True)) for values in itertools.product(*few.values())]
    return [start, *(settings for settings in all_of_them if settings != start)]


def neighbours(settings: Settings, allowed: dict[str, tuple[Any, ...]]) -> Iterator[Settings]:
    """Settings that differ in one value, by one step of the allowed ones."""
    for name, values in allowed.items():
        value = settings[name]
        below = [other for other in values if other < value]
        above = [other for other in values if other > value]
        for other in (*above[:1], *below[-1:]):
            yield settings | {name: other}
