"""A decode step of the whole engine against the time in which memory can give its bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from ...engine.assembly import Assembled, assemble
from ...engine.config import EngineConfig
from ...ipc.vocabulary import SamplingParams
from .rows import Row
from .scale import LLAMA_1B, LLAMA_8B, TINY, Scale, Shape
from .timing import copy_bandwidth

STEP_AIM = 0.8  # of the bound
CONTEXT = 1024  # tokens
STEPS = 24  # measured
SET_UP = 4


def step(scale: Scale) -> Iterator[Row]:
    """For models of 8B and 1B, batches of 1 to 64."""
    bandwidth = copy_bandwidth(scale.device, scale.pick(2 << 30, 16 << 20))
    for shape in scale.pick([LLAMA_1B, LLAMA_8B], [TINY]):
        yield from _steps(scale, shape, bandwidth)


def _steps(scale: Scale, shape: Shape, bandwidth: float) -> Iterator[Row]:
    context = scale.pick(CONTEXT, 64)
    batches = scale.pick((1, 4, 16, 64), (1, 4))
    longest = context + _outputs(max(batches), context)
    made = engine_of(scale, shape, tokens=longest * max(batches))
    # Of an embedding that is not also the head, a step reads only its tokens' rows.
    read = made.model.parameters - (0 if shape.tied else shape.vocabulary * shape.hidden)
    weights = read * made.model.dtype.itemsize
    for batch in batches:
        taken = _step_seconds(made, batch, context, shape.vocabulary)
        bytes_read = weights + batch * (context + STEPS) * made.model.layout.slot_bytes
        bound = bytes_read / bandwidth
        yield Row(
            "step", f"{shape.name}, batch {batch}, context {context:,}", bound / taken, "%",
            at_least=scale.aim(STEP_AIM),
            note=f"{taken * 1e3:.2f} ms, bound {bound * 1e3:.2f} ms, {batch / taken:,.0f} tokens/s",
        )  # fmt: skip


def engine_of(scale: Scale, shape: Shape, tokens: int, **settings: bool | int | str) -> Assembled:
    """An engine with random weights of ``shape`` and room for so many tokens."""
    config = EngineConfig(
        model=str(shape.write(scale.folder)),
        load_format="dummy",
        device=scale.device.type,
        context_length=min(shape.context_length, 8192),
        num_blocks=tokens // 32 + 256,
        prefix_caching=False,
        **settings,  # type: ignore[arg-type]
    )
    return assemble(config, lambda *_: None)


def _outputs(batch: int, context: int) -> int:
    """Tokens that a sequence of a batch may make: those of the steps that are measured, and of the many steps before
    in which the prompts of the others are read."""
    return 2 * STEPS + batch * context // 64


def _step_seconds(made: Assembled, batch: int, context: int, vocabulary: int) -> float:
    """The median time between two steps in which all of ``batch`` decode. The first steps of a shape set things up."""
    engine = made.engine
    for number in range(batch):
        prompt = [(number * 7919 + i * 104_729) % vocabulary for i in range(context)]
        sampling = SamplingParams(max_tokens=_outputs(batch, context), temperature=0.0, ignore_eos=True)
        engine.submit(id=str(number), prompt=prompt, sampling=sampling, priority="normal")
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < STEPS + SET_UP:
        if not engine.requests:
            raise RuntimeError(f"{batch} sequences never decoded all at once")
        report = engine.step().report
        now = time.perf_counter()
        if report.decode_tokens == batch and not report.prefill_tokens:
            times.append(now - begin)
        begin = now
    for number in range(batch):
        engine.cancel(str(number))
    while engine.has_work:
        engine.step()
    return median(times[SET_UP:])
