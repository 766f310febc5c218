"""A setting's value as a person reads and writes it."""

from __future__ import annotations

from typing import Any

_WORDS: dict[str, Any] = {
    "none": None,
    "true": True,
    "on": True,
    "yes": True,
    "false": False,
    "off": False,
    "no": False,
}


def parse_value(text: str) -> Any:
    """None, on/off or a number where the text says one, else the text itself. Whether it is acceptable is for the
    settings to say."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if value == "":
        return '""'
    return f"{value:,}" if isinstance(value, int) else str(value)
