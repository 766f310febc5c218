"""An engine over TokenMemory: real core, scheduler and cache, a device of plain numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from pagedeck.engine.cache.cache_groups import CacheGroups
from pagedeck.engine.cache.contiguous_cache import ContiguousCache
from pagedeck.engine.cache.kv_cache import KVCache
from pagedeck.engine.cache.layer_groups import group_layers
from pagedeck.engine.cache.storage import KVLayout, KVStorage
from pagedeck.engine.cache.windowed_cache import WindowedCache
from pagedeck.engine.config import EngineConfig, parse_class_limits
from pagedeck.engine.core import Engine, StepResult
from pagedeck.engine.flight import Flight
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.engine.request import Request, StepPlan
from pagedeck.ipc.vocabulary import SamplingParams
from pagedeck.kernels import Ops, ops_for

from .tiny_models import served
from .token_memory import Launch, Share, TokenMemory, generate

VOCABULARY = 1000

#: Steps that a device may have in flight besides the one awaited, where a test does not say.
DEPTH = 0

#: For a test that says what happens in just which step: without another one in flight.
one_at_a_time = pytest.mark.parametrize("depth", [0], indirect=True)


class NumberStream:
    """A detokenizer whose text of a token is its number and a blank; stop strings end it at once."""

    def __init__(self, sampling: SamplingParams) -> None:
        self.stop = sampling.stop

    def push(self, token: int) -> tuple[str, bool]:
        text = f"{token} "
        return ("", True) if text in self.stop else (text, False)

    def flush(self) -> str:
        return ""


class Troubled(TokenMemory):
    """A device that fails where, and only where, it is told to."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{"vocabulary": VOCABULARY, "depth": DEPTH, **more})
        self.memory = 10_000  # tokens that a step may have
        self.broken = ""  # the id of a request that no step survives
        self.not_finite = ""  # the id of one whose logits are not finite
        self.largest = 0

    def run(self, launch: Launch) -> None:
        plan = launch.plan
        if plan.tokens > self.memory:
            self.copy(launch)
            raise MemoryError
        self.largest = max(self.largest, plan.tokens)
        if any(work.sequence.request.id == self.broken for work in plan.work):
            raise RuntimeError("the device is on fire")
        super().run(launch)

    def sample(self, share: Share) -> int:
        return -1 if share.work.sequence.request.id == self.not_finite else super().sample(share)


class CrampedRunner(ModelRunner):
    """A real runner whose forward is denied its memory where it has more than ``memory`` tokens, and ``copy_denials``
    of whose launches are where there is something to copy."""

    memory = 10_000
    copy_denials = 0

    def launch(self, plan: StepPlan, cache: Any) -> Flight:
        if self.copy_denials and cache.journal:
            self.copy_denials -= 1
            raise torch.OutOfMemoryError("denied")
        return super().launch(plan, cache)

    def _forward(self, step: Any) -> Any:
        if len(step.ids) > self.memory:
            raise torch.OutOfMemoryError("denied")
        return super()._forward(step)


def divide(groups: int, num_blocks: int) -> tuple[int, ...]:
    return num_blocks, *[-(-num_blocks * 3 // 4)] * (groups - 1)


def make_cache(
    windows: tuple[int, ...], num_blocks: int, block_size: int, host_blocks: int, **settings: Any
) -> KVCache | CacheGroups:
    pools = zip(windows, divide(len(windows), num_blocks), divide(len(windows), host_blocks), strict=True)
    caches = [
        WindowedCache(blocks, block_size, host, window=window, **settings)
        if window
        else KVCache(blocks, block_size, host, **settings)
        for window, blocks, host in pools
    ]
    return caches[0] if len(caches) == 1 else CacheGroups(caches, lambda blocks, _: divide(len(windows), blocks))


def make_engine(
    *,
    num_blocks: int = 64,
    block_size: int = 8,
    host_blocks: int = 0,
    context_length: int = 4096,
    eos_ids: frozenset[int] = frozenset(),
    runner: Any = None,
    windows: tuple[int, ...] = (0,),
    hasty: bool = False,
    **settings: Any,
) -> Engine:
    """A ``hasty`` one admits whatever fits now, without a thought for how it may grow: preemptions are everyday.
    ``windows``: what each group of layers sees; there are three quarters of the blocks for those after the first."""
    config = EngineConfig(block_size=block_size, **{"token_budget": 32, "max_batch_size": 16, **settings})
    cache = (
        ContiguousCache(num_blocks, block_size)
        if config.allocation == "contiguous"
        else make_cache(windows, num_blocks, block_size, host_blocks, prefix_caching=config.prefix_caching)
    )
    if runner is None:
        first, *others = [(group.num_slots, group.num_host_slots) for group in cache.groups]
        runner = Troubled(*first, others=tuple(TokenMemory(*slots) for slots in others))
    engine = Engine(
        config,
        cache,
        runner,
        eos_ids=eos_ids,
        context_length=context_length,
        vocabulary=VOCABULARY,
        text_stream=NumberStream,
    )
    if hasty:
        engine.scheduler._reserve = lambda sequence, room: 0.0
    return engine


def model_engine(
    model: Any,
    *,
    num_blocks: int = 64,
    block_size: int = 8,
    host_blocks: int = 0,
    context_length: int = 4096,
    kind: type[ModelRunner] = CrampedRunner,
    ops: Ops | None = None,
    **more: Any,
) -> Engine:
    """An engine over a real (tiny, float64) model, its storages and its runner. Slots begin as NaN, so that whatever
    reads one that was not written becomes visible."""
    ops = ops or ops_for("cpu")
    network, shape, seen = served(model)
    groups = group_layers(seen, context_length)
    pools = zip(groups, divide(len(groups), num_blocks), divide(len(groups), host_blocks), strict=True)
    storages = []
    for group, blocks, host in pools:
        layout = KVLayout(len(group.layers), shape.kv_heads, shape.head_dim, torch.float64)
        storage = KVStorage(layout, blocks * block_size, host * block_size, "cpu", ops)
        storage.pool.fill_(float("nan"))
        storage.host.fill_(float("nan"))
        storages.append(storage)
    return make_engine(
        num_blocks=num_blocks,
        block_size=block_size,
        host_blocks=host_blocks,
        context_length=context_length,
        runner=kind(network, groups, storages, ops),
        windows=tuple(group.window for group in groups),
        **more,
    )


def submit(engine: Engine, id: str, prompt: list[int], max_tokens: int, priority: int = 10, **more: Any) -> Request:
    apart = {name: more.pop(name) for name in ("cache_salt", "client", "rules") if name in more}
    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, **more)
    return engine.submit(id=id, prompt=prompt, sampling=sampling, priority=priority, **apart)


def step(engine: Engine) -> StepResult:
    """One step, after which the invariants hold."""
    landed = bool(engine._results)  # planned before the settings changed, perhaps
    result = engine.step()
    engine.cache.check()
    report = result.report
    assert report.prefill_tokens + report.decode_tokens <= report.budget
    if not landed:
        assert len(report.entries) <= engine.config.max_batch_size
        running = Counter(s.class_name for s in engine.scheduler.running)
        for name, limit in parse_class_limits(engine.config.class_limits).items():
            assert running[name] <= limit
    return result


def run(engine: Engine, limit: int = 10_000) -> list[StepResult]:
    """Steps until there is nothing left to do."""
    results = []
    while engine.has_work:
        results.append(step(engine))
        assert len(results) < limit, "the engine does not come to an end"
    return results


def output(request: Request, index: int = 0) -> list[int]:
    return request.sequences[index].tokens[len(request.prompt) :]


def expected(request: Request, index: int = 0) -> list[int]:
    """What the request must say, undisturbed, if nothing but max_tokens ends it."""
    return generate(request.prompt, request.sampling.max_tokens, VOCABULARY, index)
