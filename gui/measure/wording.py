"""Words for what is measured: figures, systems, loads, stages. They are looked up where they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import QCoreApplication

from .. import quantities, words
from ..i18n import QT_TRANSLATE_NOOP, fill_in

#: By this name lupdate finds the texts.
translate = QCoreApplication.translate

_FIGURES = {
    "tokens_per_s": QT_TRANSLATE_NOOP("Measure", "Output tokens a second"),
    "requests_per_s": QT_TRANSLATE_NOOP("Measure", "Requests a second"),
    "goodput": QT_TRANSLATE_NOOP("Measure", "Requests a second within the limits"),
    "ttft": QT_TRANSLATE_NOOP("Measure", "Time to the first token"),
    "itl": QT_TRANSLATE_NOOP("Measure", "Time between two tokens"),
    "e2e": QT_TRANSLATE_NOOP("Measure", "Time to the last token"),
}
_RATES = ("tokens_per_s", "requests_per_s", "goodput")

SYSTEMS = {
    "pagedeck": QT_TRANSLATE_NOOP("Measure", "Pagedeck"),
    "contiguous": QT_TRANSLATE_NOOP("Measure", "Reserved in one piece"),
    "no-sharing": QT_TRANSLATE_NOOP("Measure", "Without sharing"),
    "no-swap": QT_TRANSLATE_NOOP("Measure", "Without swap"),
    "fifo": QT_TRANSLATE_NOOP("Measure", "First come, first served"),
    "static": QT_TRANSLATE_NOOP("Measure", "Static batches"),
    "one-by-one": QT_TRANSLATE_NOOP("Measure", "transformers, one by one"),
    "continuous": QT_TRANSLATE_NOOP("Measure", "transformers, continuous batching"),
    "openvino": QT_TRANSLATE_NOOP("Measure", "OpenVINO GenAI"),
    "start": QT_TRANSLATE_NOOP("Measure", "As it was"),
    "chosen": QT_TRANSLATE_NOOP("Measure", "Chosen"),
}
LOADS = {
    "chat": QT_TRANSLATE_NOOP("Measure", "Chat: short questions under one system prompt"),
    "multi-turn": QT_TRANSLATE_NOOP("Measure", "Conversations of four turns"),
    "documents": QT_TRANSLATE_NOOP("Measure", "Long documents, short answers"),
    "batch": QT_TRANSLATE_NOOP("Measure", "Offline tasks, all there at the start"),
    "burst": QT_TRANSLATE_NOOP("Measure", "Short questions that come in crowds"),
    "mixed": QT_TRANSLATE_NOOP("Measure", "Chat beside documents and tasks"),
}
OBJECTIVES = {
    "latency": QT_TRANSLATE_NOOP("Measure", "Latency: 95 % of the answers as early as can be"),
    "throughput": QT_TRANSLATE_NOOP("Measure", "Throughput: output tokens a second"),
    "goodput": QT_TRANSLATE_NOOP("Measure", "Goodput: requests a second that keep the limits"),
}
_STAGES = {
    "sweep": QT_TRANSLATE_NOOP("Measure", "Sweep"),
    "half traffic": QT_TRANSLATE_NOOP("Measure", "Half traffic"),
    "full load": QT_TRANSLATE_NOOP("Measure", "Full load"),
}
_KINDS = {
    "run": QT_TRANSLATE_NOOP("Measure", "A load, measured"),
    "peers": QT_TRANSLATE_NOOP("Measure", "Systems side by side"),
    "claims": QT_TRANSLATE_NOOP("Measure", "Claims, measured"),
    "tune": QT_TRANSLATE_NOOP("Measure", "Settings, tuned"),
}


def _known(table: Mapping[str, str], key: str) -> str:
    return translate("Measure", table[key]) if key in table else key


def figure(key: str) -> str:
    """``ttft_p95`` as *Time to the first token, P95*."""
    name, _, quantile = key.rpartition("_p")
    return f"{_known(_FIGURES, name)}, P{quantile}" if name in _FIGURES else _known(_FIGURES, key)


def system(name: str) -> str:
    return _known(SYSTEMS, name)


def load(name: str) -> str:
    return _known(LOADS, name)


def objective(name: str) -> str:
    return _known(OBJECTIVES, name)


def stage(name: str) -> str:
    return _known(_STAGES, name)


def kind(name: str) -> str:
    return _known(_KINDS, name)


def value(key: str, seconds_or_rate: float) -> str:
    """A figure in its unit; but for goodput, none has the value nought."""
    if not seconds_or_rate and key != "goodput":
        return "–"
    rate = key in _RATES
    return quantities.number(seconds_or_rate) if rate else quantities.duration(seconds_or_rate)


def with_interval(key: str, ends: Sequence[float] | None) -> str:
    """A figure over the interval that holds it with 95 % confidence."""
    if not ends or not any(ends):
        return value(key, 0.0) if ends else "–"
    middle, low, high = (value(key, end) for end in ends)
    return f"{middle}\n{low} … {high}"


def ratio(ends: Sequence[float]) -> str:
    """``1.24 × (1.10 … 1.31)``."""
    middle, low, high = (quantities.number(end) for end in ends)
    return f"{middle}{quantities.NBSP}×{quantities.NBSP}({low}{quantities.NBSP}…{quantities.NBSP}{high})"


def settings(values: Mapping[str, Any]) -> str:
    """Settings with their values, a line each."""
    return "\n".join(f"{words.title(name)}{words.colon()}{words.value(value)}" for name, value in values.items())


def verdict(better: bool | None) -> str:
    texts = {
        True: QT_TRANSLATE_NOOP("Measure", "better"),
        False: QT_TRANSLATE_NOOP("Measure", "worse"),
        None: QT_TRANSLATE_NOOP("Measure", "within noise"),
    }
    return translate("Measure", texts[better])


def met(kept: bool | None) -> str:
    if kept is None:
        return ""
    return translate("Measure", "met") if kept else translate("Measure", "missed")


def surroundings(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """On what and when it was measured, and which load: names and texts."""
    around, about = summary["surroundings"], summary["load"]
    machine = around.get("machine", {})
    cores = fill_in(translate("Measure", "%1, %2 cores"), str(machine.get("processor", "")), str(machine.get("cores")))
    libraries = ", ".join(f"{name} {version}" for name, version in around.get("libraries", {}).items())
    rows = [
        (translate("Measure", "Measured"), f"{around.get('time', '').replace('T', ' ').removesuffix('Z')} UTC"),
        (translate("Measure", "Machine"), cores),
        (translate("Measure", "Versions"), f"Pagedeck {around.get('pagedeck', '')}, {libraries}"),
        (translate("Measure", "Load"), _load(about)),
    ]
    if summary["limits"]:
        rows.append((translate("Measure", "Good answers"), _limits(summary["limits"])))
    aim = summary["objective"]
    if aim:
        rows.append((translate("Measure", "Objective"), objective(aim["name"])))
    return rows


def _limits(stated: Mapping[str, float]) -> str:
    titles = {
        "ttft_s": translate("Measure", "first token within %1"),
        "itl_s": translate("Measure", "tokens at most %1 apart"),
    }
    return " · ".join(fill_in(titles[name], quantities.duration(limit)) for name, limit in stated.items())


def _load(about: Mapping[str, Any]) -> str:
    told = [load(str(about["name"]))] if "name" in about else []
    titles = {
        "requests": translate("Measure", "requests"),
        "arrivals": translate("Measure", "arrivals"),
        "speed": translate("Measure", "speed"),
        "model": translate("Measure", "model"),
        "repeat": translate("Measure", "runs"),
        "threads": translate("Measure", "threads"),
        "seed": translate("Measure", "seed"),
    }
    told += [f"{title} {about[key]}" for key, title in titles.items() if about.get(key) is not None]
    return " · ".join(told)
