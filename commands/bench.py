"""``pagedeck bench``: measure, print a table, keep the numbers in a file."""

from __future__ import annotations

import json
from pathlib import Path

from ..bench.quick import Comparison, compare
from ..engine.checkpoint import locate
from ..engine.config import EngineConfig
from ..ipc.vocabulary import Refused
from .terminal import Progress, duration, table


def quick(*, requests: int, threads: int | None, seed: int, output: str) -> int:
    if requests < 1:
        raise Refused.value("requests", requests, "an integer from 1")
    if threads is not None and threads < 1:
        raise Refused.value("threads", threads, "an integer from 1")
    if not Path(output).absolute().parent.is_dir():
        raise Refused(f"output is {output!r}; accepted is a file in a folder that exists.", field="output")
    with Progress() as progress:
        model = locate(EngineConfig(), progress).folder
        comparison = compare(model, requests=requests, threads=threads, seed=seed, report=progress)
    Path(output).write_text(json.dumps(comparison.facts(), indent=1), encoding="utf-8")
    print(render(comparison))
    print(f"All numbers: {output}")
    return 0


def render(comparison: Comparison) -> str:
    ours, reference = comparison.systems[:2]
    rows = [["system", "output tokens/s", "Pagedeck is", "latency P50", "P95", "same tokens as one by one"]]
    for system in comparison.systems:
        ratio = ours.tokens_per_s / system.tokens_per_s
        rows.append(
            [
                system.name,
                f"{system.tokens_per_s:.1f}",
                "" if system is ours else f"{ratio:.1f} × as fast",
                duration(system.latency(0.5)),
                duration(system.latency(0.95)),
                "" if system is reference else f"{system.agreement(reference)} of {len(comparison.items)} requests",
            ]
        )
    prompt_tokens = sum(len(item.prompt) for item in comparison.items)
    heading = (
        f"{len(comparison.items)} requests at once, {prompt_tokens:,} prompt and {ours.output_tokens:,} output tokens, "
        f"float32, greedy, {comparison.threads} threads"
    )
    return f"{heading}\n\n{table(rows, right=frozenset({1, 3, 4}))}"
