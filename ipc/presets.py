"""Presets: settings for a way to use an engine, each value with its reason. The data is ``assets/presets.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from .vocabulary import Refused

_LANGUAGES = ("en", "zh_CN")


@dataclass(frozen=True, slots=True)
class Text:
    """One text in the languages that ship."""

    en: str
    zh_CN: str

    def said_in(self, language: str) -> str:
        """The text in a language named like a locale (``zh_CN``); in English for any other."""
        return str(getattr(self, language)) if language in _LANGUAGES else self.en


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting's value, and why."""

    value: Any
    reason: Text


@dataclass(frozen=True, slots=True)
class Preset:
    """``when`` says what it is for. ``settings`` are in the order in which to explain them; all change live."""

    name: str
    title: Text
    when: Text
    settings: dict[str, Choice]

    @property
    def values(self) -> dict[str, Any]:
        """Setting -> value, as a reconfiguration takes them."""
        return {name: choice.value for name, choice in self.settings.items()}


@cache
def presets() -> dict[str, Preset]:
    """All presets by name."""
    package = __package__.rpartition(".")[0]
    text = resources.files(package).joinpath("assets", "presets.toml").read_text(encoding="utf-8")
    return {name: _preset(name, facts) for name, facts in tomllib.loads(text).items()}


def find_preset(name: str) -> Preset:
    """Raises :class:`Refused` for a name that no preset has."""
    known = presets()
    if name not in known:
        raise Refused.value("preset", name, "one of " + ", ".join(known))
    return known[name]


def _preset(name: str, facts: dict[str, Any]) -> Preset:
    settings = {
        setting: Choice(choice.pop("value"), Text(**choice)) for setting, choice in facts["settings"].items()
    }  # fmt: skip
    return Preset(name, Text(**facts["title"]), Text(**facts["when"]), settings)
