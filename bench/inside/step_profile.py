"""Where the time of a decode step goes: the forward's parts timed one by one, in an engine in this process.

Every linear layer and every op is timed by the host's clock, so the forward's parts are known on the CPU only. They are
those of a forward op by op: what computes whole layers in one call can only be timed as a whole, and takes less.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

from ...engine.assembly import Assembled, assemble
from ...engine.config import EngineConfig
from ...engine.core import StepReport
from ...engine.model.fused import FusedNetwork
from ...ipc.vocabulary import SamplingParams

Report = Callable[[str, float | None], None]

BATCHES = (1, 8, 32)
PROMPT, STEPS, SET_UP = 64, 24, 4


@dataclass(frozen=True, slots=True)
class StepParts:
    """Milliseconds of the median decode step. ``step`` is all of it, ``forward`` the sum of the five after it, and what
    follows is outside: ``packing`` is all of a step that is not planned, computed or sampled."""

    batch: int
    step: float
    forward: float
    linear: float
    attention: float
    rotary_and_write: float
    norms_and_activations: float
    other_forward: float
    sampling: float
    scheduling: float
    journal: float
    packing: float

    @property
    def outside(self) -> float:
        """The share of a step that is not the forward."""
        return 1 - self.forward / self.step

    @property
    def over_products(self) -> float:
        """What the forward takes beyond its products and its attention, against the products."""
        return (self.forward - self.linear - self.attention) / self.linear


#: Which part an op of the table belongs to.
OP_PARTS = {
    "paged_attention": "attention",
    "write_kv": "rotary_and_write",
    "rotate_and_write_kv": "rotary_and_write",
    "rms_norm": "norms_and_activations",
    "silu_mul": "norms_and_activations",
}


def profile(config: EngineConfig, report: Report, batches: Sequence[int] = BATCHES) -> list[StepParts]:
    """The median decode step at each batch, by parts. Timing the forward's parts lengthens it a little, so the step and
    what is outside the forward are from steps before they were timed, and the forward's parts are scaled to them.

    Raises:
        Refused: the model cannot be had or served.
    """
    made = assemble(config, report)
    plain = []
    for done, batch in enumerate(batches):
        report(f"Batch {batch}", done / len(batches) / 2)
        plain.append(_steps(made, batch, dict))
    spent: dict[str, float] = defaultdict(float)
    _time_parts(made, spent)

    def taken() -> dict[str, float]:
        now = dict(spent)
        spent.clear()
        return now

    timed = []
    for done, batch in enumerate(batches):
        report(f"Batch {batch}, part by part", 0.5 + done / len(batches) / 2)
        timed.append(_steps(made, batch, taken))
    return [_parts(batch, *steps) for batch, *steps in zip(batches, plain, timed, strict=True)]


@dataclass(frozen=True, slots=True)
class _Step:
    seconds: float
    report: StepReport
    parts: dict[str, float]  # seconds


def _steps(made: Assembled, batch: int, taken: Callable[[], dict[str, float]]) -> list[_Step]:
    """Steps in which all of ``batch`` sequences decode, once they have settled."""
    engine = made.engine
    for number in range(batch):
        prompt = [(number * 7919 + i * 104_729) % made.model.vocabulary for i in range(PROMPT)]
        outputs = STEPS + SET_UP + batch  # prompts are read over several steps, while others decode
        sampling = SamplingParams(max_tokens=outputs, temperature=0.0, ignore_eos=True)
        engine.submit(id=str(number), prompt=prompt, sampling=sampling, priority="normal")
    steps = []
    while engine.has_work:
        taken()
        begin = time.perf_counter()
        report = engine.step().report
        seconds = time.perf_counter() - begin
        if report.decode_tokens == batch and not report.prefill_tokens:
            steps.append(_Step(seconds, report, taken()))
    return steps[SET_UP:]


def _parts(batch: int, plain: list[_Step], timed: list[_Step]) -> StepParts:
    def middle(steps: list[_Step], value: Callable[[_Step], float]) -> float:
        return median(value(step) for step in steps)

    forward = middle(plain, lambda s: s.report.forward_ms)
    scale = forward / middle(timed, lambda s: s.report.forward_ms)
    names = ("linear", *dict.fromkeys(OP_PARTS.values()))
    timed_ms = {name: middle(timed, lambda s: s.parts.get(name, 0.0) * 1e3) for name in (*names, "journal")}  # noqa: B023
    within = {name: scale * timed_ms[name] for name in names}
    return StepParts(
        batch=batch,
        step=middle(plain, lambda s: s.seconds * 1e3),
        forward=forward,
        **within,
        other_forward=forward - sum(within.values()),
        sampling=middle(plain, lambda s: s.report.sample_ms),
        scheduling=middle(plain, lambda s: s.report.schedule_ms),
        journal=timed_ms["journal"],
        packing=middle(plain, lambda s: s.report.other_ms) - timed_ms["journal"],
    )


def _time_parts(made: Assembled, spent: dict[str, float]) -> None:
    """From now on, add the seconds of each linear layer, op and journal to ``spent``, by part."""
    runner: Any = made.engine.runner
    if isinstance(runner.network, FusedNetwork):
        runner.network.whole = ()
    runner.ops = _TimedOps(runner.ops, spent)
    for module in runner.network.modules():
        if hasattr(module, "in_features") and hasattr(module, "out_features"):
            module.forward = _timed(module.forward, "linear", spent)
    for storage in runner.storages:
        storage.execute = _timed(storage.execute, "journal", spent)


class _TimedOps:
    """An op table that tells how long its ops take."""

    def __init__(self, ops: Any, spent: dict[str, float]) -> None:
        self._ops = ops
        self._spent = spent

    def __getattr__(self, name: str) -> Any:
        op, part = getattr(self._ops, name), OP_PARTS.get(name)
        return op if part is None else _timed(op, part, self._spent)


def _timed(call: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*arguments: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        result = call(*arguments, **options)
        spent[part] += time.perf_counter() - begin
        return result

    return timed


def part_names() -> list[str]:
    """The parts of a step, in the order in which they are told."""
    return [field.name for field in fields(StepParts) if field.name not in ("batch", "step", "forward")]
