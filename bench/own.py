"""This engine, as a system under measurement: a process of its own, asked through its sockets like by any client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..ipc.client import Client, EngineError
from ..ipc.launch import Engine
from .drive import Outcome, drive
from .workload import Item

Report = Callable[[str, float | None], None]

NAME = "Pagedeck"
WARM_UP = 8  # requests


@contextmanager
def started(model: Path, threads: int, report: Report, settings: Sequence[str] = ()) -> Iterator[Client]:
    """A client of an engine that has loaded ``model`` in float32; ``settings`` are further options of
    ``pagedeck serve``.

    Raises:
        LaunchFailed: it does not become ready.
    """
    options = ["--model", str(model), "--dtype", "float32", "--threads", str(threads), *settings]
    with (
        Engine(f"bench-{os.getpid()}", options) as engine,
        Client(engine.wait_ready(report), name="bench") as client,
    ):
        yield client


def warm_up(client: Client, items: Sequence[Item]) -> None:
    serve(client, [Item(item.prompt[:16], 4) for item in items[:WARM_UP]])


def serve(client: Client, items: Sequence[Item], report: Report | None = None) -> list[Outcome]:
    """Run a load on an engine in which every request must be answered.

    Raises:
        EngineError: a request failed.
    """
    outcomes = drive(client, items, (lambda share: report(NAME, share)) if report else lambda share: None)
    for outcome in outcomes:
        if outcome.error:
            raise EngineError(outcome.error)
    return outcomes
