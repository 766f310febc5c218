"""What a check on a machine found: one figure against its aim."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """``measured`` should be at least ``at_least``, or at most ``at_most``; without either it is only told.

    ``note`` says what the figure was made of. ``error`` says why there is no figure.
    """

    part: str
    what: str
    measured: float | None = None
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    error: str = ""

    @property
    def good(self) -> bool | None:
        """Whether the aim is reached; ``None`` if there is none."""
        if self.error:
            return False
        if self.measured is None or (self.at_least is None and self.at_most is None):
            return None
        # Not the other way round: NaN reaches no aim.
        low = self.at_least is None or self.measured >= self.at_least
        return low and (self.at_most is None or self.measured <= self.at_most)

    @property
    def aim(self) -> str:
        if self.at_least is not None:
            return f"≥ {show(self.at_least, self.unit)}"
        return f"≤ {show(self.at_most, self.unit)}" if self.at_most is not None else ""


def show(value: float, unit: str) -> str:
    """A figure with its unit; shares as percentages."""
    if unit == "%":
        return f"{value:.1%}"
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()
