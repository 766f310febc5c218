"""This engine with one thing off: what a difference is to be ascribed to. And others, by their names."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..ipc.vocabulary import Refused
from . import own, peers
from .drive import drive
from .memory import MemoryWatch
from .peers import Others
from .results import Run
from .witness import Witness
from .workload import Item

Report = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Variant:
    """``settings``: what of the engine's is different; ``fifo``: all requests are of one class."""

    meaning: str
    settings: tuple[tuple[str, str], ...] = ()
    fifo: bool = False


VARIANTS = {
    "pagedeck": Variant("as it is"),
    "contiguous": Variant(
        "each request reserves its longest length in one piece; nothing shared, no swapping",
        (
            ("allocation", "contiguous"),
            ("prefix-caching", "false"),
            ("swap-space-gib", "0"),
            ("contiguous-blocks", "0"),
        ),
    ),
    "no-sharing": Variant("no block is shared", (("prefix-caching", "false"),)),
    "no-swap": Variant("who loses its blocks is computed again", (("swap-space-gib", "0"),)),
    "fifo": Variant("first come, first served", fifo=True),
}


def check_names(names: Sequence[str], others: Others) -> None:
    """Raises :class:`Refused` for a name that is none."""
    known = [*VARIANTS, *peers.names(others)]
    for name in names:
        if name not in known and not peers.is_server(name):
            needs = "" if others.exported else "; openvino needs --openvino-model"
            raise Refused.value("systems", name, f"{', '.join(known)}, the URL of a server{needs}")


def measure(
    name: str,
    model: Path,
    items: Sequence[Item],
    *,
    threads: int,
    settings: Sequence[tuple[str, str]] = (),
    others: Others | None = None,
    report: Report,
) -> Run:
    """One system on one load: a fresh process, loaded and warm before the load begins; or a server that runs already.
    ``settings`` are this engine's.

    Raises:
        LaunchFailed, EngineError: it ended before it was done.
        Refused: it does not take such a load.
    """
    if name not in VARIANTS:
        return peers.measure(name, model, items, threads=threads, report=report, others=others)
    variant = VARIANTS[name]
    chosen = dict(settings) | dict(variant.settings)
    load = [replace(item, priority="normal") for item in items] if variant.fifo else items
    options = [part for setting, value in chosen.items() for part in (f"--{setting}", value)]
    with own.started(model, threads, report, options) as client, Witness(client) as witness:
        own.warm_up(client, load)
        begin = time.time()
        with MemoryWatch(client.connection.pid) as watch:
            outcomes = drive(client, load, lambda share: report(name, share))
        testimony = witness.since(begin)
    return Run(name, outcomes, dict(chosen), _precision(chosen), memory_bytes=watch.most, engine=testimony.facts())


def _precision(settings: Mapping[str, str]) -> str:
    """How this engine holds numbers: float32, which all are measured in, unless its settings say otherwise."""
    held = [f"{name} {settings[name]}" for name in ("weights", "kv-dtype") if name in settings]
    return ", ".join([settings.get("dtype", "float32"), *held])


def static(model: Path, items: Sequence[Item], *, threads: int, report: Report) -> Run:
    """transformers.generate in batches: whoever is there when a batch begins joins it, up to eight; a batch ends, for
    all, with its longest output.

    Raises:
        Refused: an item is due after another one, which this program cannot wait for.
        LaunchFailed: it ended before it was done.
    """
    return peers.measure("static", model, items, threads=threads, report=report)
