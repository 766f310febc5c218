"""How the engine's speed goes with the batch and its step time with the context, seen through its own telemetry."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import correlation, linear_regression, median
from typing import Any

from ..ipc.client import Client
from . import own
from .surroundings import surroundings
from .witness import Witness
from .workload import FIRST_TOKEN, Item

Report = Callable[[str, float | None], None]

BATCHES = (1, 2, 4, 8, 16, 32, 64)
FIRST_CONTEXT, LAST_CONTEXT = 128, 8192
PROMPT = 64  # tokens, where the batch is what varies
OUTPUTS = 24  # tokens of each sequence: the steps that are measured


@dataclass(frozen=True, slots=True)
class StepTime:
    """The median step in which ``batch`` sequences of about ``context`` tokens decode, in milliseconds: the time from
    one such step's end to the next one's, and what it was spent on. ``between`` is what the engine's process does
    between steps: taking requests in, sending tokens."""

    batch: int
    context: int
    step_ms: float
    forward_ms: float
    sample_ms: float
    schedule_ms: float
    other_ms: float
    between_ms: float
    steps: int

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.step_ms * 1e3

    @property
    def outside(self) -> float:
        """The share of a step that is not the forward."""
        return 1 - self.forward_ms / self.step_ms


@dataclass(frozen=True, slots=True)
class Scaling:
    """``contexts`` are of one sequence. A line through them tells what a step costs whatever the context, and what a
    token of context costs, which is attention."""

    batches: list[StepTime]
    contexts: list[StepTime]
    threads: int

    def attention(self, context: int) -> float:
        """Attention's share of a step at a context, from the line."""
        slope, intercept = self._line()
        return slope * context / (intercept + slope * context)

    @property
    def linearity(self) -> float:
        """The share of the variance of step times that the line explains."""
        xs, ys = self._points()
        return correlation(xs, ys) ** 2

    def facts(self) -> dict[str, Any]:
        return {
            **surroundings(),
            "threads": self.threads,
            "batches": [
                asdict(point) | {"tokens_per_s": point.tokens_per_s, "outside_forward": point.outside}
                for point in self.batches
            ],
            "contexts": [asdict(point) | {"attention_share": self.attention(point.context)} for point in self.contexts],
            "linearity": self.linearity,
        }

    def _line(self) -> tuple[float, float]:
        line = linear_regression(*self._points())
        return line.slope, line.intercept

    def _points(self) -> tuple[list[float], list[float]]:
        return [float(p.context) for p in self.contexts], [p.step_ms for p in self.contexts]


def measure(
    model: Path, *, threads: int, report: Report, batches: Sequence[int] = BATCHES, settings: Sequence[str] = ()
) -> Scaling:
    """Run steps of each batch, then of each context from 128 tokens on, doubled up to 8,192 or the model's limit.

    Raises:
        LaunchFailed, EngineError: the engine ended or failed before it was done.
    """
    options = [*settings, "--max-batch-size", str(max(batches))]
    with own.started(model, threads, report, options) as client, Witness(client) as witness:
        status = client.status()
        room = min(status.context_length, LAST_CONTEXT)
        contexts = [FIRST_CONTEXT << i for i in range(16) if FIRST_CONTEXT << i <= room]
        tokens = [FIRST_TOKEN + i * 7919 % (status.vocabulary - FIRST_TOKEN) for i in range(LAST_CONTEXT)]
        by_batch, by_context = [], []
        for done, batch in enumerate(batches):
            report(f"Batch {batch}", done / len(batches))
            outputs = OUTPUTS + batch  # prompts are read over several steps, while others decode
            items = [Item(tokens[number : number + PROMPT], outputs) for number in range(batch)]
            by_batch.append(_step_time(client, witness, items, PROMPT + OUTPUTS // 2))
        for done, context in enumerate(contexts):
            report(f"Context {context:,}", done / len(contexts))
            # A prompt begins with the one before it, of which the cache has kept the blocks.
            by_context.append(_step_time(client, witness, [Item(tokens[: context - OUTPUTS], OUTPUTS)], context))
    return Scaling(by_batch, by_context, threads)


def _step_time(client: Client, witness: Witness, items: Sequence[Item], context: int) -> StepTime:
    """The median step of ``items`` while all of them decode and nothing else runs."""
    begin = time.time()
    own.serve(client, items)
    pairs = [
        (before, after)
        for before, after in pairwise(witness.steps_since(begin))
        if after.step == before.step + 1
        and all(r.decode_tokens == len(items) and not r.prefill_tokens for r in (before, after))
    ]
    step_ms = median((after.time - before.time) * 1e3 for before, after in pairs)
    names = ("forward_ms", "sample_ms", "schedule_ms", "other_ms")
    parts = {name: median(getattr(after, name) for _, after in pairs) for name in names}
    return StepTime(
        batch=len(items),
        context=context,
        step_ms=step_ms,
        between_ms=max(0.0, step_ms - sum(parts.values())),
        steps=len(pairs),
        **parts,
    )
