"""The upper end of an axis that does not jump: it grows at once, and shrinks only after staying far too large."""

from __future__ import annotations

import math

_NICE = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def nice_ceiling(value: float) -> float:
    """The smallest round number that is at least ``value``; 1 for nothing."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(nice * power for nice in _NICE if nice * power >= value * (1 - 1e-9))


class CalmScale:
    """Give it the largest visible value at each update; it gives the axis' upper end."""

    def __init__(self, lowest: float = 0.0, *, patience: int = 20, shrink_below: float = 0.5) -> None:
        self._lowest = lowest
        self._patience = patience
        self._shrink_below = shrink_below
        self._idle = 0
        self.top = nice_ceiling(lowest)

    def restart(self) -> None:
        """Forget what was shown: the next values are others, or nobody saw the last ones."""
        self.top, self._idle = nice_ceiling(self._lowest), 0

    def update(self, largest: float) -> float:
        wanted = nice_ceiling(max(largest, self._lowest))
        self._idle = self._idle + 1 if wanted < self.top * self._shrink_below else 0
        if wanted > self.top or self._idle >= self._patience:
            self.top, self._idle = wanted, 0
        return self.top
