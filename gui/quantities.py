"""Numbers as people read them: grouped digits, binary sizes, durations. Every number comes with its unit.

The space before a unit is a no-break space, so that a figure never falls apart over two lines.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QLocale

NBSP = "\u00a0"
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def count(value: float) -> str:
    """A whole number with grouped digits: ``2,580``."""
    return QLocale().toString(round(value))


def number(value: float) -> str:
    """About three significant digits, without an exponent: ``0.31``, ``14.8``, ``1,480``."""
    magnitude = abs(value)
    if magnitude >= 100 or value == 0:
        return count(value)
    return QLocale().toString(float(value), "f", 1 if magnitude >= 10 else 2)


def short(value: float) -> str:
    """About two significant digits: ``0.31``, ``4.4``, ``38``."""
    magnitude = abs(value)
    if magnitude >= 9.95 or magnitude < 0.005:
        return count(value)
    return QLocale().toString(float(value), "f", 1 if magnitude >= 0.995 else 2)


def percent(share: float) -> str:
    """A share from 0 to 1: ``63 %``; one decimal below ten."""
    value = 100 * share
    digits = 1 if 0 < value < 9.95 else 0
    return f"{QLocale().toString(float(value), 'f', digits)}{NBSP}%"


def size(value: float) -> str:
    """Bytes in binary units: ``41 MiB``."""
    step = 0
    while abs(value) >= 1024 and step < len(_SIZES) - 1:
        value /= 1024
        step += 1
    return f"{count(value) if step == 0 else short(value)}{NBSP}{_SIZES[step]}"


def duration(seconds: float) -> str:
    """A duration in the unit that suits it: ``38 ms``, ``0.31 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if not math.isfinite(seconds) or seconds < 0:
        return "–"
    if seconds < 0.1:
        return f"{short(seconds * 1000)}{NBSP}ms"
    if seconds < 60:
        return f"{short(seconds)}{NBSP}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}{NBSP}min{NBSP}{rest:02}{NBSP}s"
    return f"{minutes // 60}{NBSP}h{NBSP}{minutes % 60:02}{NBSP}min"
