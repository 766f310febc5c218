"""The quick comparison: this engine against ``transformers.generate``, one by one and in static batches.

Same prompts, same output lengths, same threads, float32, greedy, all requests there at the start; each system alone
in a process of its own, after its model is loaded and warm.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..ipc.client import Client, EngineError
from ..ipc.launch import Engine, LaunchFailed
from ..ipc.protocol import EngineMessage, Failed, Finished, Submit, Tokens
from ..ipc.vocabulary import SamplingParams
from .workload import Item, mixed, percentile

Report = Callable[[str, float | None], None]

STATIC_BATCH = 8


@dataclass(frozen=True, slots=True)
class System:
    """What one system did with the load. Times in seconds from the moment when all requests were there."""

    name: str
    output_tokens: int
    finished: list[float]  # one a request
    outputs: list[list[int]] = field(repr=False)

    @property
    def tokens_per_s(self) -> float:
        return self.output_tokens / max(self.finished)

    def latency(self, share: float) -> float:
        return percentile(self.finished, share)

    def agreement(self, other: System) -> int:
        """How many requests have the very same output tokens in both."""
        return sum(mine == theirs for mine, theirs in zip(self.outputs, other.outputs, strict=True))


@dataclass(frozen=True, slots=True)
class Comparison:
    """All systems on one load, ours first."""

    systems: list[System]
    items: list[Item]
    threads: int
    seed: int

    def facts(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        reference = self.systems[1]
        return {
            "pagedeck": __version__,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()},
            "libraries": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
            "load": {
                "requests": len(self.items),
                "seed": self.seed,
                "threads": self.threads,
                "prompt_tokens": [len(item.prompt) for item in self.items],
                "output_tokens": [item.output_tokens for item in self.items],
            },
            "systems": [
                {
                    "name": system.name,
                    "output_tokens_per_s": system.tokens_per_s,
                    "latency_p50_s": system.latency(0.5),
                    "latency_p95_s": system.latency(0.95),
                    "same_tokens_as_one_by_one": system.agreement(reference),
                    **asdict(system),
                }
                for system in self.systems
            ],
        }


def compare(model: Path, *, requests: int, threads: int | None, seed: int, report: Report) -> Comparison:
    """Measure all systems on the model at ``model`` (a folder, or a GGUF file).

    Raises:
        LaunchFailed, EngineError: a system ended or failed before it was done.
    """
    threads = threads or os.cpu_count() or 1
    with Engine(
        f"bench-{os.getpid()}", ["--model", str(model), "--dtype", "float32", "--threads", str(threads)]
    ) as own:
        connection = own.wait_ready(report)
        with Client(connection, name="bench") as client:
            items = mixed(requests, seed=seed, vocabulary=client.status().vocabulary)
            run_engine(client, [Item(item.prompt[:16], 4) for item in items[:STATIC_BATCH]])  # warm up
            report("Pagedeck", 0.0)
            systems = [run_engine(client, items, report)]
    for name, batch in (("transformers, one by one", 1), (f"transformers, batches of {STATIC_BATCH}", STATIC_BATCH)):
        systems.append(run_baseline(name, model, items, batch=batch, threads=threads, report=report))
    return Comparison(systems, items, threads, seed)


def run_engine(client: Client, items: Sequence[Item], report: Report | None = None) -> System:
    """Submit all items at once and wait for all; times are taken where answers arrive."""
    outputs: list[list[int]] = [[] for _ in items]
    finished = [0.0] * len(items)
    failures: list[str] = []
    left = len(items)
    ended = threading.Event()

    def receiver(index: int) -> Callable[[EngineMessage | EngineError], None]:
        def receive(answer: EngineMessage | EngineError) -> None:
            nonlocal left
            if isinstance(answer, Tokens):
                outputs[index] += answer.token_ids
            elif isinstance(answer, Finished | Failed | EngineError):
                finished[index] = time.perf_counter() - begin
                failures.extend([] if isinstance(answer, Finished) else [str(getattr(answer, "message", answer))])
                left -= 1
                if report:
                    report("Pagedeck", 1 - left / len(items))
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
    return System("Pagedeck", sum(map(len, outputs)), finished, outputs)


def run_baseline(name: str, model: Path, items: Sequence[Item], *, batch: int, threads: int, report: Report) -> System:
    """One of :mod:`.baselines`' ways to serve the items, in a process of its own."""
    job = {
        "model": str(model),
        "batch": batch,
        "threads": threads,
        "items": [(item.prompt, item.output_tokens) for item in items],
    }
    report(f"{name}: loading", None)
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "pagedeck.bench.baselines"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdin and child.stdout and child.stderr
        complaints: list[str] = []
        reader = threading.Thread(target=lambda: complaints.extend(child.stderr or ()), daemon=True)
        reader.start()
        child.stdin.write(json.dumps(job))
        child.stdin.close()
        facts: dict[str, Any] = {}
        for line in child.stdout:
            facts = json.loads(line)
            if "done" in facts:
                report(name, facts["done"] / len(items))
        reader.join()
    if child.returncode or "outputs" not in facts:
        raise LaunchFailed(f"{name} failed: {complaints[-1].strip() if complaints else 'no reason given'}")
    return System(name, sum(map(len, facts["outputs"])), facts["finished"], facts["outputs"])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
