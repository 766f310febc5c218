"""What settings would do, by the real scheduler and cache on a device as fast as steps were measured to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...engine.simulator import VOCABULARY, Arrival, Simulation, SimulationReport, Speeds, simulate
from ...ipc.telemetry import StepRecord
from ...ipc.vocabulary import PRIORITIES
from ..workload import Item


@dataclass(frozen=True, slots=True)
class Device:
    """A device as it was measured. ``slots``: tokens that its pool holds; ``gib_slots``: tokens in a GiB of cache."""

    speeds: Speeds
    slots: int
    gib_slots: int


def fit(steps: Sequence[StepRecord], *, slots: int, slot_bytes: int) -> Device:
    """Least squares over steps: what one takes whatever is in it, and what a token adds. Reading keys and values is in
    what a token adds, since steps are not told apart by it."""
    tokens = np.array([step.prefill_tokens + step.decode_tokens for step in steps], np.float64)
    spent = np.array([step.forward_ms + step.sample_ms for step in steps])
    design = np.stack([np.ones_like(tokens), tokens], axis=1)
    (fixed, each), *_ = np.linalg.lstsq(design, spent, rcond=None)
    each = max(float(each), 1e-6)
    fixed = max(float(fixed), 0.0)
    speeds = Speeds(step_ms=fixed, tokens_per_s=1e3 / each, memory_gb_per_s=1e6, slot_bytes=slot_bytes)
    return Device(speeds, slots, 1024**3 // slot_bytes)


def predict(device: Device, settings: Mapping[str, Any], items: Sequence[Item]) -> SimulationReport:
    """The load under these settings. Turns of a conversation come one after the other's expected time."""
    size = settings["block_size"]
    simulation = Simulation(
        num_blocks=device.slots // size,
        block_size=size,
        num_host_blocks=int(settings["swap_space_gib"] * device.gib_slots) // size,
        live=settings["max_batch_size"],
        token_budget=settings["token_budget"],
        contiguous_blocks=settings["contiguous_blocks"],
        speeds=device.speeds,
    )
    return simulate(simulation, arrivals=_arrivals(items, device.speeds))


def _arrivals(items: Sequence[Item], speeds: Speeds) -> Iterator[Arrival]:
    """The items by their times. Whoever waits for another is taken to wait for twice what that one takes alone."""
    due: list[float] = []
    lengths: list[int] = []
    for item in items:
        before = due[item.after] + 2 * _alone(items[item.after], speeds) if item.after is not None else 0.0
        due.append(before + item.at)
        said = lengths[item.after] if item.continues and item.after is not None else 0
        lengths.append(said + len(item.prompt) + item.output_tokens)
    for at, place in sorted((at, place) for place, at in enumerate(due)):
        item = items[place]
        length = lengths[place] - item.output_tokens
        prompt = [1 + token % (VOCABULARY - 1) for token in item.prompt]
        prompt = [1] * (length - len(prompt)) + prompt
        yield Arrival(at, PRIORITIES[item.priority], prompt, item.output_tokens, item.output_tokens)


def _alone(item: Item, speeds: Speeds) -> float:
    return item.output_tokens * speeds.step_ms / 1e3 + (len(item.prompt) + item.output_tokens) / speeds.tokens_per_s
