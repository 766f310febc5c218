"""The scheduler, the cache and the core at work on a device of stated speeds, in virtual time.

Everything but the arithmetic is real, so what it costs is measured on this machine, and what it decides is what it
would decide there. Loads are seeded and heavy-tailed: most prompts and outputs are short, a few are very long, some
prompts share a beginning, and nobody knows beforehand how long an output gets.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..ipc.collector import calm
from ..ipc.vocabulary import PRIORITIES, Refused, SamplingParams, priority_name
from .cache.cache_groups import CacheGroups
from .cache.contiguous_cache import ContiguousCache
from .cache.kv_cache import KVCache
from .cache.reshape import Reshape
from .config import BLOCK_SIZES, EngineConfig
from .core import Engine, StepResult
from .model.detokenizer import TextStream
from .request import Request, StepPlan

EOS = 0
VOCABULARY = 32_000
CONTEXT_LENGTH = 32_768

#: No token has any text.
_SILENT = frozenset(range(VOCABULARY))

#: The longest prompt (without a shared beginning) and the longest output, in tokens.
MAX_PROMPT, MAX_OUTPUT = 8_192, 4_096

#: Shares of the classes among requests.
CLASSES = {"interactive": 0.3, "normal": 0.5, "batch": 0.2}

#: So many different beginnings of so many tokens, one of which this share of all prompts has.
BEGINNINGS, BEGINNING_TOKENS, BEGINNING_SHARE = 32, 384, 0.4

#: Steps in which the batch fills up, before the cost of steps is measured.
_WARM_UP = 60

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True, slots=True)
class Speeds:
    """What a step takes: a fixed time, the time to compute its tokens, to read all keys and values, to copy blocks.

    The defaults are about those of a model of 8 billion parameters on one large GPU.
    """

    step_ms: float = 6.0
    tokens_per_s: float = 40_000.0
    memory_gb_per_s: float = 4_000.0
    link_gb_per_s: float = 50.0
    slot_bytes: int = 131_072


@dataclass(frozen=True, slots=True)
class Simulation:
    """What to simulate."""

    num_blocks: int = 200_000
    block_size: int = 16
    num_host_blocks: int = 20_000
    live: int = 2_000  # sequences in a step at most
    token_budget: int = 8_192
    requests: int = 50_000
    load: float = 1.05  # arriving work per unit of what the device can do with all places taken
    seed: int = 0
    prefix_caching: bool = True
    contiguous_blocks: int = 0
    contiguous: bool = False  # as EngineConfig.allocation
    speeds: Speeds = field(default_factory=Speeds)

    def check(self) -> None:
        """Raises :class:`Refused` for the first field that is out of range."""
        if self.block_size not in BLOCK_SIZES:
            raise Refused.value("block_size", self.block_size, "one of " + ", ".join(map(str, BLOCK_SIZES)))
        for name, least in (("live", 1), ("requests", 1), ("token_budget", 1), ("num_host_blocks", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise Refused.value(name, getattr(self, name), f"an integer from {least}")
        if not 0 < self.load <= 100:
            raise Refused.value("load", self.load, "a number above 0, up to 100")
        longest = MAX_PROMPT + BEGINNING_TOKENS + MAX_OUTPUT
        if self.num_blocks * self.block_size < longest:
            raise Refused.value("num_blocks", self.num_blocks, f"enough for the longest request, {longest:,} tokens")


@dataclass(frozen=True, slots=True)
class Arrival:
    time: float  # virtual seconds
    priority: int
    prompt: list[int]
    output_tokens: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class _Launch:
    """What the device has done in virtual time, told when it lands."""

    device: SimulatedDevice
    bytes_copied: int
    copy_ms: float
    forward_ms: float
    sampled: list[int]

    def tokens(self) -> list[int]:
        device = self.device
        device.bytes_copied, device.copy_ms, device.forward_ms = self.bytes_copied, self.copy_ms, self.forward_ms
        return self.sampled


class SimulatedDevice:
    """The ``Runner`` protocol without tensors. ``now`` is its clock, in seconds, which only its own work moves on."""

    depth = 0

    def __init__(self, speeds: Speeds, num_slots: int) -> None:
        self.slot_bytes: tuple[int, ...] = (speeds.slot_bytes,)  # one group of layers, that see all positions
        self.forward_ms = 0.0
        self.sample_ms = 0.0
        self.copy_ms = 0.0
        self.bytes_copied = 0
        self.now = 0.0
        self.cpu_s = 0.0  # this thread's time in here
        self.lengths: dict[int, int] = {}  # output tokens of each request, by its number
        self._speeds = speeds
        self._num_slots = num_slots

    def launch(self, plan: StepPlan, cache: KVCache | CacheGroups) -> _Launch:
        begun = time.thread_time()
        speeds, lengths = self._speeds, self.lengths
        copied = len(cache.journal) * cache.block_size * speeds.slot_bytes
        for group in cache.groups:
            group.journal.clear()
        copy_ms = copied / (speeds.link_gb_per_s * 1e6)
        forward_ms = 0.0
        tokens: list[int] = []
        if plan.work:
            read_s = cache.device.tokens_held * speeds.slot_bytes / (speeds.memory_gb_per_s * 1e9)
            forward_ms = speeds.step_ms + 1e3 * (plan.tokens / speeds.tokens_per_s + read_s)
            for work in plan.work:
                if work.samples:
                    sequence = work.sequence
                    position = len(sequence.tokens)
                    last = position - len(sequence.request.prompt) + 1 >= lengths[sequence.request.number]
                    tokens.append(EOS if last else 1 + (sequence.number * 7_919 + position * 31) % (VOCABULARY - 1))
        self.now += (copy_ms + forward_ms) / 1e3
        self.cpu_s += time.thread_time() - begun
        return _Launch(self, copied, copy_ms, forward_ms, tokens)

    def execute(self, plan: StepPlan, cache: KVCache | CacheGroups) -> list[int]:
        return self.launch(plan, cache).tokens()

    def room(self) -> int:
        return self._num_slots * self._speeds.slot_bytes

    def reshape(self, change: Reshape) -> int:
        return 0  # there is nothing to move

    def forget(self, seq: int) -> None:
        """Nothing is kept for a sequence."""


def trace(simulation: Simulation) -> Iterator[Arrival]:
    """Arrivals in order: as many as there are places at once, then a Poisson process of the stated load."""
    draw = np.random.default_rng(simulation.seed)
    beginnings = draw.integers(1, VOCABULARY, (BEGINNINGS, BEGINNING_TOKENS)).tolist()
    prompts, outputs = _lengths(draw, simulation.requests)
    gaps = draw.exponential(1 / (simulation.load * _capacity(simulation, prompts, outputs)), simulation.requests)
    gaps[: simulation.live] = 0.0
    times = np.cumsum(gaps).tolist()
    limits = np.minimum(MAX_OUTPUT, outputs * draw.choice((1, 2, 4, 16), simulation.requests)).tolist()
    names = draw.choice(list(CLASSES), simulation.requests, p=list(CLASSES.values())).tolist()
    for number, (length, output) in enumerate(zip(prompts.tolist(), outputs.tolist(), strict=True)):
        prompt = draw.integers(1, VOCABULARY, length).tolist()
        if draw.random() < BEGINNING_SHARE:
            prompt = beginnings[draw.integers(BEGINNINGS)] + prompt
        yield Arrival(times[number], PRIORITIES[names[number]], prompt, output, limits[number])


def _lengths(draw: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompt tokens (Pareto) and output tokens (log-normal) of so many requests."""
    prompts = np.minimum(MAX_PROMPT, 128 * (1 + draw.pareto(0.8, count)))
    outputs = np.clip(draw.lognormal(5.0, 1.1, count), 4, MAX_OUTPUT)
    return prompts.astype(np.int64), outputs.astype(np.int64)


def _capacity(simulation: Simulation, prompts: np.ndarray, outputs: np.ndarray) -> float:
    """Requests a second that the device serves with all places taken by requests like these."""
    speeds = simulation.speeds
    context = (outputs * (prompts + outputs / 2)).mean() / outputs.mean()  # of those that run at any time
    held = min(simulation.live * context, simulation.num_blocks * simulation.block_size)
    running = held / context
    step_s = speeds.step_ms / 1e3 + held * speeds.slot_bytes / (speeds.memory_gb_per_s * 1e9)
    computed_s = (prompts.mean() + outputs.mean()) / speeds.tokens_per_s
    return float(1 / (outputs.mean() * step_s / running + computed_s))


# --- running --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ClassReport:
    """How the requests of one class fared. Times in virtual seconds. ``jain``: the index of Jain, Chiu and Hawe (1984)
    over output tokens a second of each request's whole life; 1 is equal treatment."""

    requests: int
    waiting_mean_s: float
    waiting_p50_s: float
    waiting_p95_s: float
    waiting_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    jain: float


@dataclass(slots=True)
class SimulationReport:
    """What came of it. Shares from 0 to 1; means are over steps."""

    requests: int
    steps: int
    virtual_s: float
    wall_s: float
    output_tokens: int
    running_mean: float
    running_most: int
    allocated: float  # blocks held ÷ pool
    allocated_most: float
    filled: float  # tokens ÷ slots of the blocks held
    wasted_blocks: float  # a sequence
    prefix_hits: float  # of all prompt tokens
    preemptions: int
    swaps: int  # of them
    computed_tokens: int
    redone_tokens: int
    thrash: float  # work redone ÷ work done
    classes: dict[str, ClassReport]
    jain: float  # over the requests of all classes
    ttft_p95_s: float  # virtual
    e2e_p95_s: float
    schedule_us_p50: float  # planning a step
    schedule_us_p99: float
    core_us_p50: float  # all of a step but the device: also what commits, reads and reports it
    core_us_p99: float

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def simulate(
    simulation: Simulation,
    report: Progress = lambda text, share: None,
    *,
    arrivals: Iterable[Arrival] | None = None,
    watch: Callable[[Engine], None] = lambda engine: None,
) -> SimulationReport:
    """Run the whole trace, or other ``arrivals`` in order, until the last request has ended. ``watch`` is shown the
    engine before."""
    begun = time.perf_counter()
    calm()
    device = SimulatedDevice(simulation.speeds, simulation.num_blocks * simulation.block_size)
    engine = make_engine(simulation, device)
    watch(engine)
    watcher = _Watch(engine)
    coming = iter(arrivals if arrivals is not None else trace(simulation))
    upcoming = next(coming, None)
    while upcoming is not None or engine.has_work:
        while upcoming is not None and (upcoming.time <= device.now or not engine.has_work):
            device.now = max(device.now, upcoming.time)
            submit(engine, upcoming)
            upcoming = next(coming, None)
        result = watcher.step()
        for request in result.ended:
            del device.lengths[request.number]
        if engine.step_number % 100 == 0:
            done = engine.metrics.counters.finished
            report(f"{done:,} of {simulation.requests:,} requests", done / simulation.requests)
    return watcher.report(time.perf_counter() - begun)


def make_engine(simulation: Simulation, device: SimulatedDevice) -> Engine:
    config = EngineConfig(
        block_size=simulation.block_size,
        max_batch_size=simulation.live,
        token_budget=simulation.token_budget,
        max_queue=10_000_000,
        prefix_caching=simulation.prefix_caching and not simulation.contiguous,
        allocation="contiguous" if simulation.contiguous else "paged",
    )
    cache = (
        ContiguousCache(simulation.num_blocks, simulation.block_size)
        if simulation.contiguous
        else KVCache(
            simulation.num_blocks,
            simulation.block_size,
            simulation.num_host_blocks,
            prefix_caching=simulation.prefix_caching,
            contiguous_blocks=simulation.contiguous_blocks,
        )
    )
    return Engine(
        config,
        cache,
        device,
        eos_ids=frozenset({EOS}),
        context_length=CONTEXT_LENGTH,
        vocabulary=VOCABULARY,
        text_stream=lambda sampling: TextStream(lambda tokens: "", silent=_SILENT),
        clock=lambda: device.now,
    )


_ids = itertools.count()


def submit(engine: Engine, arrival: Arrival) -> Request:
    request = engine.submit(
        id=str(next(_ids)),
        prompt=arrival.prompt,
        sampling=SamplingParams(max_tokens=arrival.max_tokens, temperature=0.0),
        priority=arrival.priority,
    )
    request.arrival = arrival.time
    engine.runner.lengths[request.number] = arrival.output_tokens  # type: ignore[attr-defined]
    return request


class _Watch:
    """Steps an engine on a simulated device and keeps what is to be reported. Times are those of this thread, so that
    other processes do not count."""

    def __init__(self, engine: Engine) -> None:
        self.schedule_us: list[float] = []
        self.core_us: list[float] = []
        self._engine = engine
        self._device: Any = engine.runner
        self._plan = engine.scheduler.plan
        engine.scheduler.plan = self._timed_plan  # type: ignore[method-assign]
        self._states: list[tuple[int, int, int]] = []  # sequences running, blocks held, tokens in them
        self._waits: dict[str, list[float]] = defaultdict(list)
        self._ttfts: dict[str, list[float]] = defaultdict(list)
        self._speeds: dict[str, list[float]] = defaultdict(list)
        self._ends: list[float] = []

    def step(self) -> StepResult:
        device, pool = self._device, self._engine.cache.device
        before, begun = device.cpu_s, time.thread_time()
        result = self._engine.step()
        self.core_us.append(1e6 * (time.thread_time() - begun - (device.cpu_s - before)))
        self._states.append((len(self._engine.scheduler.running), pool.used_count + pool.reserved_count,
                             pool.tokens_held))  # fmt: skip
        for request in result.ended:
            name = priority_name(request.priority)
            self._waits[name].append(request.queue_s or 0.0)
            self._ttfts[name].append(request.ttft_s or 0.0)
            self._ends.append(request.e2e_s or 0.0)
            self._speeds[name].append(request.output_tokens / max(request.e2e_s or 0.0, 1e-9))
        return result

    def _timed_plan(self, step: int) -> StepPlan:
        begun = time.thread_time()
        plan = self._plan(step)
        self.schedule_us.append(1e6 * (time.thread_time() - begun))
        return plan

    def report(self, wall_s: float) -> SimulationReport:
        engine, counters = self._engine, self._engine.metrics.counters
        running, held, tokens = np.array(self._states, np.float64).T
        slots = held * engine.cache.block_size
        busy = held > 0
        everyone = [speed for speeds in self._speeds.values() for speed in speeds]
        return SimulationReport(
            requests=counters.finished,
            steps=counters.steps,
            virtual_s=self._device.now,
            wall_s=wall_s,
            output_tokens=counters.output_tokens,
            running_mean=float(running.mean()),
            running_most=int(running.max()),
            allocated=float(held.mean()) / engine.cache.device.num_blocks,
            allocated_most=float(held.max()) / engine.cache.device.num_blocks,
            filled=float((tokens[busy] / slots[busy]).mean()),
            wasted_blocks=float(((slots - tokens)[busy] / engine.cache.block_size / running[busy].clip(1)).mean()),
            prefix_hits=counters.prefix_hit_tokens / max(1, counters.prefix_queried_tokens),
            preemptions=counters.preemptions,
            swaps=counters.swaps,
            computed_tokens=counters.computed_tokens,
            redone_tokens=counters.redone_tokens,
            thrash=counters.redone_tokens / max(1, counters.computed_tokens),
            classes={name: self._class(name) for name in CLASSES if name in self._waits},
            jain=jain(everyone),
            ttft_p95_s=float(np.percentile([ttft for ttfts in self._ttfts.values() for ttft in ttfts], 95)),
            e2e_p95_s=float(np.percentile(self._ends, 95)),
            schedule_us_p50=float(np.percentile(self.schedule_us, 50)),
            schedule_us_p99=float(np.percentile(self.schedule_us, 99)),
            core_us_p50=float(np.percentile(self.core_us, 50)),
            core_us_p99=float(np.percentile(self.core_us, 99)),
        )

    def _class(self, name: str) -> ClassReport:
        waits = np.array(self._waits[name])
        p50, p95, p99 = np.percentile(waits, [50, 95, 99]).tolist()
        first, last = np.percentile(self._ttfts[name], [50, 99]).tolist()
        return ClassReport(len(waits), float(waits.mean()), p50, p95, p99, first, last, jain(self._speeds[name]))


def jain(values: list[float]) -> float:
    """(Σx)² ÷ (n Σx²): 1 where all are equal, 1/n where one has everything."""
    x = np.array(values)
    return float(x.sum() ** 2 / (len(x) * (x * x).sum())) if len(x) and x.any() else 1.0


# --- what a step costs, against the number of sequences and the size of the pool --------------------------------------


@dataclass(frozen=True, slots=True)
class StepCost:
    """Microseconds of a step's planning, and of all of it but the device, with ``running`` sequences."""

    running: int
    num_blocks: int
    schedule_us_p50: float
    schedule_us_p99: float
    core_us_p50: float
    core_us_p99: float


def step_costs(running: int, pools: list[int], *, steps: int = 400, seed: int = 0) -> list[StepCost]:
    """What steps of ``running`` sequences cost in pools of so many blocks. The pools take turns at the same load, so
    that whatever else the machine does falls on all alike. Nothing is cached: only the size differs."""
    watches = []
    calm()
    for num_blocks in pools:
        simulation = Simulation(num_blocks=num_blocks, num_host_blocks=0, live=running, prefix_caching=False)
        device = SimulatedDevice(simulation.speeds, num_blocks * simulation.block_size)
        watches.append((_Watch(make_engine(simulation, device)), random.Random(seed)))
    for _ in range(steps + _WARM_UP):
        for watch, draw in watches:
            engine = watch._engine
            while len(engine.requests) < running:
                output = draw.randrange(20, 400)
                prompt = draw.choices(range(1, VOCABULARY), k=draw.randrange(50, 150))
                submit(engine, Arrival(0.0, draw.choice((0, 10, 20)), prompt, output, output))
            watch.step()
    costs = []
    for num_blocks, (watch, _) in zip(pools, watches, strict=True):
        schedule, core = (np.percentile(us[_WARM_UP:], [50, 99]) for us in (watch.schedule_us, watch.core_us))
        costs.append(StepCost(running, num_blocks, *schedule.tolist(), *core.tolist()))
    return costs
