"""A configuration to a running engine: model, pools sized to the machine, cache, runner, core."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from ..ipc.vocabulary import Refused, SamplingParams
from ..kernels import Ops, ops_for
from .config import GIB, EngineConfig
from .core import Engine
from .detokenizer import make_text_stream
from .kv_cache import KVCache
from .linear import pack_linears
from .model import LoadedModel, load_model
from .request import Request, Sequence, StepPlan, Work
from .runner import ModelRunner
from .storage import KVLayout, KVStorage

Report = Callable[[str, float | None], None]

#: What None means in a configuration, by kind of device.
MEMORY_UTILIZATION = {"cpu": 0.25, "cuda": 0.9}
TOKEN_BUDGET = {"cpu": 256, "cuda": 2048}


@dataclass(slots=True)
class Assembled:
    """An engine that can step, and what it was made of."""

    engine: Engine
    model: LoadedModel
    config: EngineConfig  # with every None replaced by what was chosen
    storage: KVStorage
    ops: Ops


def assemble(config: EngineConfig, report: Report) -> Assembled:
    """Load the model, give the KV cache its memory, warm the kernels up. ``report`` is told what and how far (0 to 1).

    Raises:
        Refused: a setting, the model, or the memory there is does not do.
    """
    threads = config.threads or usable_cores()
    torch.set_num_threads(threads)
    model = load_model(config, report)
    pack_linears(model.model)
    kind = model.device.type
    config = dataclasses.replace(
        config,
        threads=threads,
        device=kind,
        dtype=str(model.dtype).removeprefix("torch."),
        context_length=model.context_length,
        memory_utilization=config.memory_utilization or MEMORY_UTILIZATION[kind],
        token_budget=config.token_budget or TOKEN_BUDGET[kind],
    )
    config = dataclasses.replace(config, num_blocks=pool_blocks(config, model.layout, free_memory(model.device)))
    report("Reserving the KV cache", None)
    check_swap_space(config, host_left(config, model))
    storage, cache = _tiers(config, model)
    ops = ops_for(model.device)
    runner = ModelRunner(model.model, storage, ops)
    report("Warming up the kernels", None)
    ops.warm_up(model.layout.head_dim, model.layout.dtype)
    _warm_up(runner, config)
    engine = Engine(
        config,
        cache,
        runner,
        eos_ids=model.eos_ids,
        context_length=model.context_length,
        vocabulary=model.vocabulary,
        text_stream=make_text_stream(model.tokenizer),
    )
    return Assembled(engine, model, config, storage, ops)


def usable_cores() -> int:
    """Physical cores that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device."""
    return int(torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available)


def pool_blocks(config: EngineConfig, layout: KVLayout, free: int) -> int:
    """Blocks of the device pool: as stated, or what the stated share of ``free`` bytes holds.

    Raises:
        Refused: the stated number takes more than is free, or the share holds not one block.
    """
    block = layout.slot_bytes * config.block_size
    if config.num_blocks is not None:
        if config.num_blocks * block > free:
            raise Refused(
                f"num_blocks is {config.num_blocks:,}, which takes {config.num_blocks * block / GIB:,.2f} GiB; "
                f"{free / GIB:,.2f} GiB are free, enough for {free // block:,} blocks.",
                field="num_blocks",
                code="memory",
            )
        return config.num_blocks
    share = config.memory_utilization or 0.0
    blocks = int(free * share) // block
    if blocks < 1:
        raise Refused(
            f"memory_utilization {share:g} of {free / GIB:,.2f} GiB free holds no block: "
            f"{config.block_size} tokens take {block / GIB:,.3f} GiB.",
            field="memory_utilization",
            code="memory",
        )
    return blocks


def host_left(config: EngineConfig, model: LoadedModel) -> int:
    """Bytes of host memory that the device pool will leave free."""
    device_pool = (config.num_blocks or 0) * config.block_size * model.layout.slot_bytes
    return free_memory(torch.device("cpu")) - (device_pool if model.device.type == "cpu" else 0)


def check_swap_space(config: EngineConfig, free: int) -> None:
    """Raises :class:`Refused` for a host pool that takes more than ``free`` bytes."""
    if config.swap_space_gib * GIB > free:
        raise Refused(
            f"swap_space_gib is {config.swap_space_gib:g}; accepted is up to {max(free, 0) / GIB:.2f} GiB, the host "
            "memory that is free beside the device pool.",
            field="swap_space_gib",
            code="memory",
        )


def _tiers(config: EngineConfig, model: LoadedModel) -> tuple[KVStorage, KVCache]:
    blocks, size = config.num_blocks or 0, config.block_size
    host_blocks = int(config.swap_space_gib * GIB) // (model.layout.slot_bytes * size)
    storage = KVStorage(model.layout, blocks * size, host_blocks * size, model.device, ops_for(model.device))
    return storage, KVCache(
        blocks,
        size,
        host_blocks,
        prefix_caching=config.prefix_caching,
        contiguous_blocks=config.contiguous_blocks,
        eviction=config.eviction,
    )


def _warm_up(runner: ModelRunner, config: EngineConfig) -> None:
    """A prefill and a decode, so that no kernel is compiled while somebody waits. Its slots are free again after it."""
    scratch = KVCache(1, config.block_size, prefix_caching=False)
    request = Request(0, "warm-up", [0, 1, 2, 3], SamplingParams(temperature=0.0), priority=0)
    sequence = Sequence(0, request, 0, [*request.prompt, 0])
    scratch.open(0, sequence.tokens)
    scratch.grow(0, len(sequence.tokens))
    for start, count in ((0, 4), (4, 1)):
        runner.execute(StepPlan([Work(sequence, start, count, samples=True)]), scratch)
