"""Measured speeds, and what they say about swapping against recomputing."""

from __future__ import annotations


class Rate:
    """Units a second, as a mean that follows the newest measurements: each one counts by its duration against the
    last ``memory`` seconds of measuring."""

    def __init__(self, memory: float = 2.0) -> None:
        self._memory = memory
        self._units = 0.0
        self._seconds = 0.0

    def add(self, units: float, seconds: float) -> None:
        if units <= 0 or seconds <= 0:
            return
        self._units += units
        self._seconds += seconds
        if self._seconds > self._memory:
            self._units *= self._memory / self._seconds
            self._seconds = self._memory

    @property
    def value(self) -> float | None:
        """``None`` until something was measured."""
        return self._units / self._seconds if self._seconds else None


class Speeds:
    """What the engine has measured of its device: the link to the host pool, copies within a pool, prefill."""

    def __init__(self) -> None:
        self.link = Rate()  # bytes/s between the tiers
        self.copy = Rate()  # bytes/s moved within a tier
        self.prefill = Rate()  # tokens/s
        self.mixed = Rate()  # tokens/s of steps with prompts in them, those of decodes beside them included

    def tokens_within(self, seconds: float, otherwise: int) -> int:
        """Tokens of a step with prompts in it that takes so long; ``otherwise`` until one was measured."""
        rate = self.mixed.value
        return otherwise if rate is None else int(rate * seconds)

    def swap_is_cheaper(self, swapped_bytes: int, tokens: int) -> bool:
        """Whether copying ``swapped_bytes`` out and back takes less time than computing ``tokens`` again.

        Where a speed is not measured yet the answer is yes: the owner set host memory aside for this, and the first
        swap measures the link.
        """
        link, prefill = self.link.value, self.prefill.value
        if link is None or prefill is None:
            return True
        return 2 * swapped_bytes / link < tokens / prefill
