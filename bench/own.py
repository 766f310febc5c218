"""This engine, as a system under measurement: a process of its own, asked through its sockets like by any client."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..ipc.client import Client, EngineError
from ..ipc.launch import Engine
from ..ipc.protocol import EngineMessage, Failed, Finished, Submit, Tokens
from ..ipc.vocabulary import SamplingParams
from .memory import MemoryWatch
from .systems import System
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
    run_engine(client, [Item(item.prompt[:16], 4) for item in items[:WARM_UP]])


def measure(client: Client, items: Sequence[Item], report: Report, precision: str = "float32") -> System:
    """The engine on ``items``, once warm."""
    warm_up(client, items)
    report(NAME, 0.0)
    with MemoryWatch(client.connection.pid) as watch:
        outputs, arrivals, finished = run_engine(client, items, report)
    return System(NAME, sum(map(len, outputs)), finished, outputs, arrivals, watch.most, precision)


def run_engine(
    client: Client, items: Sequence[Item], report: Report | None = None
) -> tuple[list[list[int]], list[list[float]], list[float]]:
    """Submit all items at once and wait for all. Each one's tokens, when each of them came, and when it had ended, in
    seconds; times are taken where answers arrive.

    Raises:
        EngineError: a request failed.
    """
    outputs: list[list[int]] = [[] for _ in items]
    arrivals: list[list[float]] = [[] for _ in items]
    finished = [0.0] * len(items)
    failures: list[str] = []
    left = len(items)
    ended = threading.Event()

    def receiver(index: int) -> Callable[[EngineMessage | EngineError], None]:
        def receive(answer: EngineMessage | EngineError) -> None:
            nonlocal left
            now = time.perf_counter() - begin
            if isinstance(answer, Tokens):
                outputs[index] += answer.token_ids
                arrivals[index] += [now] * len(answer.token_ids)
            elif isinstance(answer, Finished | Failed | EngineError):
                finished[index] = now
                failures.extend([] if isinstance(answer, Finished) else [str(getattr(answer, "message", answer))])
                left -= 1
                if report:
                    report(NAME, 1 - left / len(items))
                if not left:
                    ended.set()

        return receive

    begin = time.perf_counter()
    for index, item in enumerate(items):
        sampling = SamplingParams(max_tokens=item.output_tokens, temperature=0.0, ignore_eos=True)
        client.post(Submit(id=f"{begin}-{index}", token_ids=item.prompt, sampling=sampling), receiver(index))
    ended.wait()
    if failures:
        raise EngineError(failures[0])
    return outputs, arrivals, finished
