"""What people would otherwise run, on the same load: same model, prompts, output lengths and threads.

Each is a program in a process of its own, alone, its times counted from when its model is loaded and warm; or a server
that runs already.
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
from ..ipc.vocabulary import Refused
from . import server_peer
from .drive import Outcome
from .memory import MemoryWatch
from .results import Run
from .workload import Item

Report = Callable[[str, float | None], None]

STATIC_BATCH = 8

#: What transformers itself offers, of which a user has already got the model: what it is called, and what is asked of
#: :mod:`.baselines`.
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "one-by-one": ("transformers, one by one", {"way": "generate", "batch": 1}),
    "static": (f"transformers, batches of {STATIC_BATCH}", {"way": "generate", "batch": STATIC_BATCH}),
    "continuous": ("transformers, continuous batching", {"way": "continuous"}),
}
OPENVINO = "openvino"


@dataclass(frozen=True, slots=True)
class Others:
    """What has to be said of peers that a user prepares: the model as optimum ``exported`` it for OpenVINO GenAI, a
    ``python`` that has it, and in which precision weights are there and on servers."""

    exported: str | None = None
    python: str = sys.executable
    openvino_precision: str = "as exported"
    served_precision: str = "as served"


def names(others: Others) -> list[str]:
    """Those that can be measured, beside servers."""
    return [*TRANSFORMERS, *([OPENVINO] if others.exported else [])]


def is_server(name: str) -> bool:
    """Whether a system is the URL of a server that speaks OpenAI's completions."""
    return name.startswith(("http://", "https://"))


def title(name: str) -> str:
    """What a peer is called."""
    known = {key: text for key, (text, _) in TRANSFORMERS.items()} | {OPENVINO: "OpenVINO GenAI, continuous batching"}
    return known.get(name, name)


def measure(
    name: str, model: Path, items: Sequence[Item], *, threads: int, report: Report, others: Others | None = None
) -> Run:
    """The peer of that name on a load of the model at ``model`` (a folder, or a GGUF file).

    Raises:
        Refused: it does not take such a load.
        LaunchFailed, EngineError: it ended before it was done.
    """
    others = others or Others()
    if is_server(name):
        answered, memory = server_peer.drive(name, name, items, report)
        return Run(name, answered, precision=others.served_precision, memory_bytes=memory)
    if name == OPENVINO:
        assert others.exported is not None
        command = [others.python, str(Path(__file__).with_name("openvino_peer.py"))]
        job = {"model": others.exported, "kv_precision": "f32"}
        return _program(name, command, job, items, threads, report, others.openvino_precision)
    job = TRANSFORMERS[name][1] | {"model": str(model)}
    command = [sys.executable, "-m", "pagedeck.bench.baselines"]
    return _program(name, command, job, items, threads, report, "float32")


def _program(
    name: str,
    command: Sequence[str],
    job: dict[str, Any],
    items: Sequence[Item],
    threads: int,
    report: Report,
    precision: str,
) -> Run:
    """A program that speaks as :mod:`.baselines` does."""
    if any(item.after is not None for item in items):
        text = f"The system {name} takes loads whose times are known beforehand; here, requests wait for others."
        raise Refused(text, field="systems")
    job |= {
        "threads": threads,
        "items": [(item.prompt, item.output_tokens) for item in items],
        "due": [item.at for item in items],
    }
    facts, memory = run_program(title(name), command, job, len(items), report)
    arrivals = facts["arrivals"] or [[ended] for ended in facts["finished"]]
    outcomes = [
        Outcome(item.at, item.at, ended, times, tokens, len(item.prompt))
        for item, ended, times, tokens in zip(items, facts["finished"], arrivals, facts["outputs"], strict=True)
    ]
    return Run(name, outcomes, precision=precision, memory_bytes=memory)


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
