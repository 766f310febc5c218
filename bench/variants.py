"""This engine with one thing off, transformers' static batches, and servers that others run: what a difference is to be
ascribed to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..ipc.vocabulary import Refused
from . import own, server_peer
from .drive import Outcome, drive
from .memory import MemoryWatch
from .peers import STATIC_BATCH, run_program, transformers_command
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

STATIC = "static"


def check_names(names: Sequence[str]) -> None:
    """Raises :class:`Refused` for a name that is none."""
    for name in names:
        if name not in VARIANTS and name != STATIC and not is_server(name):
            raise Refused.value("systems", name, ", ".join([*VARIANTS, STATIC, "the URL of a server"]))


def is_server(name: str) -> bool:
    """Whether a system is the URL of a server that speaks OpenAI's completions."""
    return name.startswith(("http://", "https://"))


def measure(
    name: str,
    model: Path,
    items: Sequence[Item],
    *,
    threads: int,
    settings: Sequence[tuple[str, str]] = (),
    report: Report,
) -> Run:
    """One system on one load: a fresh process, loaded and warm before the load begins; or a server that runs already.

    Raises:
        LaunchFailed, EngineError: it ended before it was done.
        Refused: it does not take such a load.
    """
    if name == STATIC:
        return static(model, items, threads=threads, report=report)
    if is_server(name):
        answered, memory = server_peer.drive(name, name, items, report)
        return Run(name, answered, precision="as served", memory_bytes=memory)
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
    return Run(name, outcomes, dict(chosen), memory_bytes=watch.most, engine=testimony.facts())


def static(model: Path, items: Sequence[Item], *, threads: int, report: Report) -> Run:
    """transformers.generate in batches of eight: whoever is there when a batch begins joins it, up to that many; a
    batch ends, for all, with its longest output.

    Raises:
        Refused: an item is due after another one, which this program cannot wait for.
        LaunchFailed: it ended before it was done.
    """
    if any(item.after is not None for item in items):
        text = "The static baseline takes loads whose times are known beforehand; here, requests wait for others."
        raise Refused(text, field="systems")
    job = {
        "model": str(model),
        "way": "generate",
        "batch": STATIC_BATCH,
        "threads": threads,
        "items": [(item.prompt, item.output_tokens) for item in items],
        "due": [item.at for item in items],
    }
    name = f"transformers, batches of {STATIC_BATCH}"
    facts, memory = run_program(name, transformers_command(), job, len(items), report)
    outcomes = [
        Outcome(item.at, item.at, ended, [ended], tokens, len(item.prompt))
        for item, ended, tokens in zip(items, facts["finished"], facts["outputs"], strict=True)
    ]
    return Run(STATIC, outcomes, memory_bytes=memory)
