"""Advice that was dismissed, of each engine and model, between starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QSettings

from .rule import Finding

_KEY = "advice/dismissed"

#: A number that differs by more than this factor from the dismissed one is other advice.
_ALIKE = 2.0


class Dismissals:
    """Which advice nobody wants to hear again: for each engine and model, rules with what they would have changed."""

    def __init__(self, settings: QSettings | None = None) -> None:
        """Without ``settings`` they are of this session alone."""
        self._settings = settings
        self._kept = _read(settings.value(_KEY)) if settings is not None else {}

    def of(self, engine: str) -> set[str]:
        """Keys of rules."""
        return set(self._kept.get(engine, {}))

    def add(self, engine: str, finding: Finding) -> None:
        self._kept.setdefault(engine, {})[finding.rule] = dict(finding.changes)
        self._keep()

    def clear(self, engine: str) -> None:
        self._kept.pop(engine, None)
        self._keep()

    def cover(self, engine: str, finding: Finding) -> bool:
        """Whether it was dismissed, and says much the same as it did then."""
        changes = self._kept.get(engine, {}).get(finding.rule)
        return changes is not None and _much_the_same(changes, finding.changes)

    def _keep(self) -> None:
        if self._settings is not None:
            self._settings.setValue(_KEY, json.dumps(self._kept))


def _much_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)


def _alike(one: object, other: object) -> bool:
    numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2 and min(numbers) > 0:
        return max(numbers) <= _ALIKE * min(numbers)
    return one == other


def _read(text: object) -> dict[str, dict[str, dict[str, Any]]]:
    """What was kept; nothing where something else stands in its place."""
    try:
        kept = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    engines = kept.items() if isinstance(kept, dict) else ()
    return {
        engine: {rule: changes for rule, changes in rules.items() if isinstance(changes, dict)}
        for engine, rules in engines
        if isinstance(rules, dict)
    }
