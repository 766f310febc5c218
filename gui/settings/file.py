"""Settings in a file: TOML, a line each, as the engine names them. What is wrong in it is told by line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication

from ...ipc.protocol import SettingInfo
from .. import words
from ..i18n import fill_in
from ..whole_file import write_whole

#: By this name lupdate finds the texts.
translate = QCoreApplication.translate

SUFFIX = ".toml"

#: A longer file is none of settings.
_MAX_BYTES = 1_000_000


def write(path: Path, settings: Iterable[SettingInfo], engine: str) -> None:
    """Raises ``OSError``. What the engine chooses by itself stays out, so that the next one chooses anew."""
    lines = [f"# Settings of the Pagedeck engine {engine!r}."]
    for info in settings:
        unit = f" ({info.unit})" if info.unit else ""
        lines += ["", f"# {info.meaning}{unit}"]
        lines.append(f"# {info.name}" if info.value is None else f"{info.name} = {_toml(info.value)}")
    write_whole(path, lambda part: part.write_text("\n".join(lines) + "\n", encoding="utf-8"))


def read(path: Path, settings: Iterable[SettingInfo]) -> tuple[dict[str, Any], list[str]]:
    """The file's settings that may be had, and a sentence on each line that is wrong. Raises ``OSError``."""
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        return {}, [translate("SettingsFile", "This is no file of settings: it is too long.")]
    try:
        text = content.decode("utf-8")
        found = tomllib.loads(text)
    except UnicodeDecodeError:
        return {}, [translate("SettingsFile", "This is no file of settings: it is no text.")]
    except tomllib.TOMLDecodeError as error:
        return {}, [fill_in(translate("SettingsFile", "This is no TOML: %1"), str(error))]
    known = {info.name: info for info in settings}
    lines = text.splitlines()
    wrong = {name: problem for name, value in found.items() if (problem := _problem(known.get(name), name, value))}
    told = sorted((_line(lines, name), problem) for name, problem in wrong.items())
    values = {name: value for name, value in found.items() if name not in wrong}
    return values, [_located(number, problem) for number, problem in told]


def _problem(info: SettingInfo | None, name: str, value: Any) -> str:
    """Why a value cannot be taken; empty where it can, as far as the window knows."""
    if info is None:
        return fill_in(translate("SettingsFile", "There is no setting %1."), name)
    accepted = words.accepted(info)
    if info.choices is not None:
        fine = any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in info.choices)
    elif info.minimum is not None and info.maximum is not None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        whole = isinstance(info.value, float) or isinstance(value, int)
        fine = number and whole and info.minimum <= value <= info.maximum
    else:
        fine, accepted = isinstance(value, str), translate("SettingsFile", "text in quotation marks")
    given = words.value(value) if isinstance(value, bool | int | float | str) else str(value)
    text = translate("SettingsFile", "%1: %2 is not accepted; it may be %3.")
    return "" if fine else fill_in(text, name, given, accepted)


def _line(lines: list[str], name: str) -> int:
    """The number of the line that states a setting, from 1; 0 where none does."""
    pattern = re.compile(rf"""\s*\[?["']?{re.escape(name)}["']?\s*[.=\]]""")
    return next(_matching(lines, pattern), 0)


def _matching(lines: list[str], pattern: re.Pattern[str]) -> Iterator[int]:
    return (number for number, line in enumerate(lines, 1) if pattern.match(line))


def _located(number: int, problem: str) -> str:
    return fill_in(translate("SettingsFile", "Line %1: %2"), str(number), problem) if number else problem


def _toml(value: Any) -> str:
    """A setting's value; JSON's strings, numbers and truth values are TOML's."""
    return json.dumps(value, ensure_ascii=False)
