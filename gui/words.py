"""The engine's words in the user's language: states, classes, settings, reports, events, refusals.

The engine speaks English and stable keys. Keys that are known here are translated; anything else (a setting of a newer
engine, a line of its log) is shown as the engine said it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import QCoreApplication

from ..ipc.protocol import BlockDetail, Failed, ReconfigureReport, SettingInfo
from ..ipc.telemetry import Event, RequestRow
from ..ipc.vocabulary import PRIORITIES, BlockState, EngineState, RequestState, priority_name
from . import engine_texts, quantities
from .i18n import QT_TRANSLATE_NOOP, fill_in
from .quantities import NBSP

_REQUEST_STATES = {
    RequestState.WAITING: QT_TRANSLATE_NOOP("Words", "waiting"),
    RequestState.RUNNING: QT_TRANSLATE_NOOP("Words", "running"),
    RequestState.PREEMPTED: QT_TRANSLATE_NOOP("Words", "preempted"),
    RequestState.SWAPPED: QT_TRANSLATE_NOOP("Words", "swapped out"),
    RequestState.FINISHED: QT_TRANSLATE_NOOP("Words", "finished"),
    RequestState.CANCELLED: QT_TRANSLATE_NOOP("Words", "cancelled"),
    RequestState.FAILED: QT_TRANSLATE_NOOP("Words", "failed"),
}
_BLOCK_STATES = {
    BlockState.FREE: QT_TRANSLATE_NOOP("Words", "free"),
    BlockState.RESERVED: QT_TRANSLATE_NOOP("Words", "reserved"),
    BlockState.CACHED: QT_TRANSLATE_NOOP("Words", "cached"),
    BlockState.SWAPPED: QT_TRANSLATE_NOOP("Words", "swapped out"),
    BlockState.ACTIVE: QT_TRANSLATE_NOOP("Words", "active"),
    BlockState.SHARED: QT_TRANSLATE_NOOP("Words", "shared"),
}
_ENGINE_STATES = {
    EngineState.LOADING: QT_TRANSLATE_NOOP("Words", "loading"),
    EngineState.READY: QT_TRANSLATE_NOOP("Words", "ready"),
    EngineState.DRAINING: QT_TRANSLATE_NOOP("Words", "draining"),
    EngineState.FAILED: QT_TRANSLATE_NOOP("Words", "failed"),
    EngineState.STOPPED: QT_TRANSLATE_NOOP("Words", "stopped"),
}
_CONNECTIONS = {
    "disconnected": QT_TRANSLATE_NOOP("Words", "not connected"),
    "connecting": QT_TRANSLATE_NOOP("Words", "connecting"),
    "loading": QT_TRANSLATE_NOOP("Words", "loading"),
    "ready": QT_TRANSLATE_NOOP("Words", "running"),
    "draining": QT_TRANSLATE_NOOP("Words", "draining"),
    "not_answering": QT_TRANSLATE_NOOP("Words", "not answering"),
    "died": QT_TRANSLATE_NOOP("Words", "died"),
    "stopped": QT_TRANSLATE_NOOP("Words", "stopped"),
}
_CLASSES = {
    "interactive": QT_TRANSLATE_NOOP("Words", "interactive"),
    "normal": QT_TRANSLATE_NOOP("Words", "normal"),
    "batch": QT_TRANSLATE_NOOP("Words", "batch"),
}
_LEVELS = {
    "debug": QT_TRANSLATE_NOOP("Words", "debug"),
    "info": QT_TRANSLATE_NOOP("Words", "info"),
    "warning": QT_TRANSLATE_NOOP("Words", "warning"),
    "error": QT_TRANSLATE_NOOP("Words", "error"),
}
_TIERS = {"device": QT_TRANSLATE_NOOP("Words", "device"), "host": QT_TRANSLATE_NOOP("Words", "host")}
_GROUPS = {"full": QT_TRANSLATE_NOOP("Words", "all positions")}
_UNITS = {
    "tokens": QT_TRANSLATE_NOOP("Words", "tokens"),
    "blocks": QT_TRANSLATE_NOOP("Words", "blocks"),
    "sequences": QT_TRANSLATE_NOOP("Words", "sequences"),
    "requests": QT_TRANSLATE_NOOP("Words", "requests"),
    "clients": QT_TRANSLATE_NOOP("Words", "clients"),
    "threads": QT_TRANSLATE_NOOP("Words", "threads"),
}
#: Setting -> its title. The engine's names are for programs.
_TITLES = {
    "model": QT_TRANSLATE_NOOP("Words", "Model"),
    "load_format": QT_TRANSLATE_NOOP("Words", "Weights"),
    "device": QT_TRANSLATE_NOOP("Words", "Device"),
    "dtype": QT_TRANSLATE_NOOP("Words", "Precision"),
    "weights": QT_TRANSLATE_NOOP("Words", "Weight format"),
    "kv_dtype": QT_TRANSLATE_NOOP("Words", "Cache format"),
    "context_length": QT_TRANSLATE_NOOP("Words", "Context length"),
    "memory_utilization": QT_TRANSLATE_NOOP("Words", "Memory share"),
    "num_blocks": QT_TRANSLATE_NOOP("Words", "Device blocks"),
    "block_size": QT_TRANSLATE_NOOP("Words", "Block size"),
    "swap_space_gib": QT_TRANSLATE_NOOP("Words", "Swap space"),
    "max_batch_size": QT_TRANSLATE_NOOP("Words", "Batch size"),
    "class_limits": QT_TRANSLATE_NOOP("Words", "Class limits"),
    "token_budget": QT_TRANSLATE_NOOP("Words", "Token budget"),
    "prefix_caching": QT_TRANSLATE_NOOP("Words", "Prefix caching"),
    "contiguous_blocks": QT_TRANSLATE_NOOP("Words", "Blocks kept ahead"),
    "eviction": QT_TRANSLATE_NOOP("Words", "Eviction"),
    "allocation": QT_TRANSLATE_NOOP("Words", "Allocation"),
    "preemption": QT_TRANSLATE_NOOP("Words", "Preemption"),
    "max_queue": QT_TRANSLATE_NOOP("Words", "Queue length"),
    "max_clients": QT_TRANSLATE_NOOP("Words", "Clients"),
    "max_client_requests": QT_TRANSLATE_NOOP("Words", "Requests of a client"),
    "threads": QT_TRANSLATE_NOOP("Words", "CPU threads"),
    "seed": QT_TRANSLATE_NOOP("Words", "Weight seed"),
}
#: Setting -> what it does, as its owner feels it.
_MEANINGS = {
    "model": QT_TRANSLATE_NOOP(
        "Words", "The default model's name, a hub id, a folder with safetensors, or a GGUF file."
    ),
    "load_format": QT_TRANSLATE_NOOP("Words", "Read the model's weights, or make random ones of its shape."),
    "device": QT_TRANSLATE_NOOP("Words", "Where the model runs."),
    "dtype": QT_TRANSLATE_NOOP("Words", "Precision of the weights and the KV cache."),
    "weights": QT_TRANSLATE_NOOP(
        "Words", "How the CPU holds the weights: in the model's precision, or rounded to 8 or 4 bits, which is faster."
    ),
    "kv_dtype": QT_TRANSLATE_NOOP(
        "Words", "How the cache holds keys and values: in the model's precision, or in 8 bits, so that more tokens fit."
    ),
    "context_length": QT_TRANSLATE_NOOP("Words", "Longest prompt plus output."),
    "memory_utilization": QT_TRANSLATE_NOOP("Words", "Share of the free memory that the KV cache was given."),
    "num_blocks": QT_TRANSLATE_NOOP("Words", "Blocks in the device pool."),
    "block_size": QT_TRANSLATE_NOOP(
        "Words", "Tokens in a block of the KV cache. Small blocks waste less; large ones are read faster."
    ),
    "swap_space_gib": QT_TRANSLATE_NOOP(
        "Words", "Host memory that keeps the KV cache of preempted requests. With 0 they are recomputed instead."
    ),
    "max_batch_size": QT_TRANSLATE_NOOP("Words", "The most sequences in one step."),
    "class_limits": QT_TRANSLATE_NOOP(
        "Words",
        "The most sequences of a class in one step, as in batch=16,normal=48. A class that is not named has no limit.",
    ),
    "token_budget": QT_TRANSLATE_NOOP(
        "Words", "The most tokens in one step. Prompts are prefilled in chunks that fill what decoding leaves."
    ),
    "prefix_caching": QT_TRANSLATE_NOOP("Words", "Requests that begin alike share the blocks of that beginning."),
    "contiguous_blocks": QT_TRANSLATE_NOOP(
        "Words", "Free neighbouring blocks that a growing sequence keeps ahead for itself until others need them."
    ),
    "eviction": QT_TRANSLATE_NOOP(
        "Words",
        "Which cached block goes first: the least recently used one, or rather one of the least urgent priority.",
    ),
    "allocation": QT_TRANSLATE_NOOP(
        "Words",
        "How requests get memory: blocks as they grow or, to compare, all that they may ever need in one piece.",
    ),
    "preemption": QT_TRANSLATE_NOOP(
        "Words",
        "What a request that loses its blocks goes through: swapping to the host, recomputing, or the cheaper one.",
    ),
    "max_queue": QT_TRANSLATE_NOOP("Words", "Requests that may wait. One more is refused."),
    "max_clients": QT_TRANSLATE_NOOP("Words", "Programs that may be connected at once. One more is refused."),
    "max_client_requests": QT_TRANSLATE_NOOP(
        "Words", "Requests of one program that may run or wait. One more is refused."
    ),
    "threads": QT_TRANSLATE_NOOP("Words", "CPU threads that the model uses."),
    "seed": QT_TRANSLATE_NOOP("Words", "Seed of random weights."),
}
_VALUES = {
    "auto": QT_TRANSLATE_NOOP("Words", "automatic"),
    "dummy": QT_TRANSLATE_NOOP("Words", "random"),
    "paged": QT_TRANSLATE_NOOP("Words", "paged"),
    "contiguous": QT_TRANSLATE_NOOP("Words", "contiguous"),
    "swap": QT_TRANSLATE_NOOP("Words", "swap"),
    "recompute": QT_TRANSLATE_NOOP("Words", "recompute"),
    "lru": QT_TRANSLATE_NOOP("Words", "least recently used"),
    "priority": QT_TRANSLATE_NOOP("Words", "by priority"),
    "True": QT_TRANSLATE_NOOP("Words", "on"),
    "False": QT_TRANSLATE_NOOP("Words", "off"),
    "None": QT_TRANSLATE_NOOP("Words", "automatic"),
    "": QT_TRANSLATE_NOOP("Words", "none"),
}


#: By this name lupdate finds the texts.
translate = QCoreApplication.translate


class Counted:
    """Counted things. A class, since lupdate finds plural forms in calls of a method ``tr`` alone."""

    @staticmethod
    def tr(text: str, comment: str, amount: int) -> str:
        return QCoreApplication.translate("Counted", text, comment, amount)

    def blocks_moved(self, amount: int) -> str:
        return self.tr("%Ln block(s) moved", "", amount)

    def cached_given_up(self, amount: int) -> str:
        return self.tr("%Ln cached block(s) given up", "", amount)

    def cached_blocks(self, amount: int) -> str:
        return self.tr("%Ln more block(s) cached for later", "", amount)

    def blocks(self, amount: int) -> str:
        return self.tr("%Ln block(s)", "", amount)

    def preempted(self, amount: int) -> str:
        return self.tr("%Ln sequence(s) preempted", "", amount)

    def sequences(self, amount: int) -> str:
        return self.tr("%Ln sequence(s)", "", amount)

    def times(self, amount: int) -> str:
        return self.tr("%Ln time(s)", "", amount)

    def prompt_tokens(self, amount: int) -> str:
        return self.tr("%Ln prompt token(s)", "", amount)

    def output_tokens(self, amount: int) -> str:
        return self.tr("%Ln output token(s)", "", amount)


counted = Counted()


def _known(table: Mapping[Any, str], key: Any, fallback: str) -> str:
    source = table.get(key)
    return translate("Words", source) if source is not None else fallback


def request_state(state: str) -> str:
    return _known(_REQUEST_STATES, state, state)


def block_state(state: int) -> str:
    return _known(_BLOCK_STATES, state, str(state))


def engine_state(state: str) -> str:
    return _known(_ENGINE_STATES, state, state)


def connection(state: str) -> str:
    """The state of the line to an engine, as :class:`.state.ConnectionState` names it."""
    return _known(_CONNECTIONS, state, state)


def class_name(name: str) -> str:
    return _known(_CLASSES, name, name)


def tier(name: str) -> str:
    return _known(_TIERS, name, name)


def slots(block: int, block_size: int) -> str:
    """Where a block lies in its pool."""
    return f"{quantities.count(block * block_size)} – {quantities.count((block + 1) * block_size - 1)}"


def last_known() -> str:
    """Before figures of an engine that tells none any more."""
    return translate("Words", "last known")


def holder(request: int, sample: int, position: int) -> str:
    """A sequence that has a block in its table, and where there."""
    text = translate("Words", "#%1, sample %2, position %3")
    return fill_in(text, str(request), str(sample + 1), str(position))


def copy_of(block: BlockDetail) -> str:
    """Where else the block's content is; empty where it is nowhere else."""
    if block.copy < 0:
        return ""
    text = translate("Words", "host block %1") if block.tier == "device" else translate("Words", "device block %1")
    return fill_in(text, quantities.count(block.copy))


def layer_group(name: str) -> str:
    """Which positions layers see, from the name of their group: ``full``, or ``window`` and its width."""
    kind, _, width = name.partition(" ")
    if kind != "window" or not width.isdigit():
        return _known(_GROUPS, name, name)
    return fill_in(QCoreApplication.translate("Words", "window of %1 tokens"), quantities.count(int(width)))


def priority(value: int) -> str:
    """A priority as its class; a number between the classes is shown too: ``normal (7)``."""
    name = priority_name(value)
    text = class_name(name)
    return text if value == PRIORITIES[name] else f"{text}{NBSP}({value})"


def title(setting: str) -> str:
    return _known(_TITLES, setting, setting)


def meaning(info: SettingInfo) -> str:
    return _known(_MEANINGS, info.name, info.meaning)


def unit(text: str) -> str:
    return _known(_UNITS, text, text)


def value(given: Any) -> str:
    """A setting's value, without its unit."""
    if isinstance(given, bool) or given is None or isinstance(given, str):
        return _known(_VALUES, str(given), str(given))
    return quantities.count(given) if isinstance(given, int) else f"{given:,.6g}"


def value_with_unit(info: SettingInfo, given: Any) -> str:
    text = value(given)
    return f"{text}{NBSP}{unit(info.unit)}" if info.unit and isinstance(given, int | float) else text


def accepted(info: SettingInfo) -> str:
    """What a setting may be: its choices, or its range with the unit."""
    if info.choices is not None:
        return " · ".join(value(choice) for choice in info.choices)
    text = bounds(info)
    return f"{text}{NBSP}{unit(info.unit)}" if text and info.unit else text


#: A limit that is as good as none: what no float tells from the next integer.
_ENDLESS = 2.0**53


def bounds(info: SettingInfo) -> str:
    """A setting's range, without its unit."""
    if info.minimum is None or info.maximum is None:
        return ""
    if info.maximum >= _ENDLESS:
        return f"≥ {info.minimum:,.15g}"
    return f"{info.minimum:,.15g} – {info.maximum:,.15g}"


def out_of_range(info: SettingInfo, given: Any) -> str:
    """Why a number is none that a setting may be; empty where it may be, or what it may be is not a range."""
    if info.minimum is None or info.maximum is None or given is None:
        return ""
    if isinstance(given, int | float) and info.minimum <= given <= info.maximum:
        return ""
    return fill_in(translate("Words", "%1 is not accepted; it may be %2."), value(given), accepted(info))


def failure(failed: Failed) -> str:
    """Why something failed: known reasons in the user's language, the rest as the engine said it."""
    reasons = {
        "gone": translate("Words", "The engine is gone."),
        "loading": translate("Words", "The model is still loading."),
        "draining": translate("Words", "The engine is stopping and takes nothing new."),
        "queue_full": translate("Words", "The queue is full; wait, or raise the queue length."),
        "shutdown": translate("Words", "The engine was stopped."),
    }
    return reasons.get(failed.code) or engine_texts.say(failed.message)


def level(name: str) -> str:
    return _known(_LEVELS, name, name)


def colon() -> str:
    return translate("Words", ": ")


def changes(given: Mapping[str, Sequence[Any]], settings: Mapping[str, SettingInfo]) -> str:
    """Changed settings: "Block size 32 → 64"."""
    parts = []
    for name, (before, after) in given.items():
        info = settings.get(name)
        shown = value_with_unit(info, after) if info is not None and info.unit == "GiB" else value(after)
        parts.append(f"{title(name)} {value(before)} → {shown}")
    return translate("Words", ", ").join(parts)


def report(done: ReconfigureReport, settings: Iterable[SettingInfo]) -> str:
    """What a change did, in one sentence: "Block size 32 → 64: 212 blocks moved, 41 MiB copied, 38 ms pause"."""
    changed = changes(done.changes, {info.name: info for info in settings})
    if not changed:
        return translate("Words", "Nothing changed.")
    effects = _moved(done.blocks_moved, done.bytes_copied)
    if done.cached_dropped:
        effects.append(counted.cached_given_up(done.cached_dropped))
    if done.preempted:
        effects.append(counted.preempted(done.preempted))
    return changed + colon() + translate("Words", ", ").join([*effects, _paused(done.pause_ms)])


def _moved(blocks: int, copied: float) -> list[str]:
    if not blocks and not copied:
        return []
    return [counted.blocks_moved(blocks), fill_in(translate("Words", "%1 copied"), quantities.size(copied))]


def _paused(milliseconds: float) -> str:
    return fill_in(translate("Words", "%1 pause"), quantities.duration(milliseconds / 1000))


#: How an engine tells everybody of a change: the settings, as programs name them, and what it took.
_RECONFIGURED = re.compile(r"(.+): ([\d,]+) blocks moved, ([\d.]+) MiB copied, ([\d.]+) ms pause\.")
_CHANGED = re.compile(r"(\w+) (.*?) → (.*?)(?:, (?=\w+ .*? → )|$)")


def _reconfigured(text: str) -> str:
    """An engine's sentence about a change of its settings, as :func:`report` says it."""
    told = _RECONFIGURED.fullmatch(text)
    if told is None:
        return engine_texts.say(text)
    given = {name: (_read(before), _read(after)) for name, before, after in _CHANGED.findall(told[1])}
    if not given:
        return translate("Words", "Nothing changed.")
    effects = [*_moved(int(told[2].replace(",", "")), float(told[3]) * 2**20), _paused(float(told[4]))]
    return changes(given, {}) + colon() + translate("Words", ", ").join(effects)


def _read(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def refusal(failed: Failed, settings: Iterable[SettingInfo]) -> str:
    """Why a setting was refused: in the user's language where the reason or the range is known."""
    if failed.code == "gone":  # whatever the line says of it, the reader's engine is what is gone
        return failure(failed)
    if engine_texts.known(failed.message):
        return engine_texts.say(failed.message)
    info = next((info for info in settings if info.name == failed.field), None)
    given = re.match(r"\w+ is (.+?); accepted is ", failed.message)
    if info is None or given is None or not accepted(info):
        return engine_texts.say(failed.message)
    return fill_in(translate("Words", "%1 is not accepted; it may be %2."), given[1].strip("'"), accepted(info))


def refused(failed: Failed, settings: Iterable[SettingInfo]) -> str:
    """As a sentence of its own: of which setting, and why."""
    why = refusal(failed, settings)
    return f"{title(failed.field)}{colon()}{why}" if failed.field else why


def request_event(kind: str, row: RequestRow) -> str | None:
    """A request's event as a sentence, or none for a kind that is not known here."""
    name = f"#{row.number}"
    if kind == "submitted":
        prompt = counted.prompt_tokens(row.prompt_tokens)
        return fill_in(translate("Words", "Request %1 arrived: %2, %3"), name, prompt, priority(row.priority))
    if kind == "started":
        return fill_in(translate("Words", "Request %1 started"), name)
    if kind == "preempted":
        return fill_in(translate("Words", "Request %1 was preempted"), name)
    if kind == "resumed":
        return fill_in(translate("Words", "Request %1 resumed"), name)
    if kind == "finished":
        took = quantities.duration(row.e2e_s or 0.0)
        return fill_in(
            translate("Words", "Request %1 finished: %2 in %3"), name, counted.output_tokens(row.output_tokens), took
        )
    if kind == "cancelled":
        return fill_in(
            translate("Words", "Request %1 was cancelled after %2"), name, counted.output_tokens(row.output_tokens)
        )
    if kind == "failed":
        return fill_in(translate("Words", "Request %1 failed: %2"), name, row.error or "–")
    return None


def event(what: Event) -> str:
    """An engine's event in words."""
    if what.row is not None:
        return request_event(what.kind, what.row) or what.text
    if what.kind == "state" and what.state:
        text = fill_in(translate("Words", "The engine is %1"), engine_state(what.state))
        return f"{text}{colon()}{engine_texts.say(what.text)}" if what.text else text
    return _reconfigured(what.text) if what.kind == "reconfigured" else engine_texts.say(what.text)
