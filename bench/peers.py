"""This engine against what people would otherwise run: same model, prompts, output lengths and threads.

Greedy, all requests there at the start, one system after the other, each alone in a process of its own after its model
is loaded and warm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ipc.launch import LaunchFailed
from . import own, server_peer
from .memory import MemoryWatch
from .systems import Comparison, System
from .workload import Item, mixed

Report = Callable[[str, float | None], None]

STATIC_BATCH = 8


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to serve the load that is not ours. ``run`` takes the items, the threads and whom to report to."""

    name: str
    run: Callable[[Sequence[Item], int, Report], System]


def transformers_peers(model: Path) -> dict[str, Peer]:
    """What transformers itself offers, of which a user has already got the model."""
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        "one-by-one": ("transformers, one by one", {"way": "generate", "batch": 1}),
        "static": (f"transformers, batches of {STATIC_BATCH}", {"way": "generate", "batch": STATIC_BATCH}),
        "continuous": ("transformers, continuous batching", {"way": "continuous"}),
    }
    command = transformers_command()
    return {key: process_peer(name, command, job | {"model": str(model)}) for key, (name, job) in ways.items()}


def transformers_command() -> list[str]:
    """The program that serves with transformers alone."""
    return [sys.executable, "-m", "pagedeck.bench.baselines"]


def openvino_peer(exported: Path, python: str, precision: str = "as exported", kv_precision: str = "f32") -> Peer:
    """OpenVINO GenAI's continuous batching of an ``exported`` model, run by a ``python`` that has it."""
    program = Path(__file__).with_name("openvino_peer.py")
    job = {"model": str(exported), "kv_precision": kv_precision}
    return process_peer("OpenVINO GenAI, continuous batching", [python, str(program)], job, precision)


def server(name: str, url: str, precision: str) -> Peer:
    """A server that is already running."""
    return Peer(name, lambda items, threads, report: server_peer.measure(name, url, items, report, precision))


def process_peer(name: str, command: Sequence[str], job: dict[str, Any], precision: str = "float32") -> Peer:
    """A program that speaks as :mod:`.baselines` does, with weights of ``precision``."""

    def run(items: Sequence[Item], threads: int, report: Report) -> System:
        load = [(item.prompt, item.output_tokens) for item in items]
        facts, memory = run_program(name, command, job | {"threads": threads, "items": load}, len(items), report)
        outputs = facts["outputs"]
        return System(name, sum(map(len, outputs)), facts["finished"], outputs, facts["arrivals"], memory, precision)

    return Peer(name, run)


def compare(
    model: Path,
    peers: Sequence[Peer],
    *,
    requests: int,
    outputs: tuple[int, int],
    threads: int | None,
    seed: int,
    report: Report,
    settings: Sequence[str] = (),
    precision: str = "float32",
) -> Comparison:
    """Measure this engine and ``peers`` on the model at ``model`` (a folder, or a GGUF file) with outputs of the given
    lengths (tokens). ``settings`` are options for our engine, after which its weights have ``precision``.

    Raises:
        LaunchFailed, EngineError: a system ended or failed before it was done.
    """
    threads = threads or os.cpu_count() or 1
    with own.started(model, threads, report, settings) as client:
        items = mixed(requests, seed=seed, vocabulary=client.status().vocabulary, outputs=outputs)
        systems = [own.measure(client, items, report, precision)]
    systems += [peer.run(items, threads, report) for peer in peers]
    return Comparison(systems, items, threads, seed)


def run_program(
    name: str, command: Sequence[str], job: dict[str, Any], requests: int, report: Report
) -> tuple[dict[str, Any], int | None]:
    """What the program said in the end, and the most memory (bytes) that it held from when it was warm.

    Raises:
        LaunchFailed: it ended before it was done.
    """
    report(f"{name}: loading", None)
    environment = os.environ | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "3000",
        "OMP_NUM_THREADS": str(job["threads"]),
    }
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
    except OSError as error:
        raise LaunchFailed(f"{name} cannot be started: {error}") from error
    with child, ExitStack() as serving:
        assert child.stdin and child.stdout and child.stderr
        complaints: list[str] = []
        reader = threading.Thread(target=lambda: complaints.extend(child.stderr or ()), daemon=True)
        reader.start()
        with suppress(BrokenPipeError):  # it has ended, and says why
            child.stdin.write(json.dumps(job))
            child.stdin.close()
        watch = MemoryWatch(child.pid)
        facts: dict[str, Any] = {}
        for line in child.stdout:
            facts = json.loads(line)
            if facts.get("done") == 0:
                serving.enter_context(watch)
            if "done" in facts:
                report(name, facts["done"] / requests)
        reader.join()
    if child.returncode or "outputs" not in facts:
        said = [line.strip() for line in complaints if line.strip()]
        raise LaunchFailed(f"{name} failed: {said[-1] if said else 'no reason given'}")
    return facts, watch.most
