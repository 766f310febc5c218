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
from .cache.cache_groups import CacheGroups
from .cache.kv_cache import KVCache
from .cache.layer_groups import Division, LayerGroup, group_layers, make_cache
from .cache.storage import KVStorage, free_memory
from .config import GIB, EngineConfig
from .core import Engine
from .model.detokenizer import make_text_stream
from .model.fused import FusedNetwork
from .model.fusing import fuse
from .model.linear import pack_linears
from .model.loading import LoadedModel, choose_device, load_model
from .model.network import Network
from .model.runner import ModelRunner
from .model.whole import whole_layers
from .model.words import make_rules
from .request import Request, Sequence, StepPlan, Work

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
    groups: tuple[LayerGroup, ...]
    storages: list[KVStorage]
    ops: Ops


def assemble(config: EngineConfig, report: Report) -> Assembled:
    """Load the model, give the KV cache its memory, warm the kernels up. ``report`` is told what and how far (0 to 1).

    Raises:
        Refused: a setting, the model, or the memory there is does not do.
    """
    check_weights(config)
    threads = config.threads or usable_cores()
    torch.set_num_threads(threads)
    model = load_model(config, report)
    report("Fitting the layers to this machine", None)
    ops = ops_for(model.device)
    network = fuse(model.model, model.layout.kv_heads, model.layout.head_dim, model.context_length, ops)
    _fit_linears(network, config.weights)
    if isinstance(network, FusedNetwork) and model.device.type == "cpu":
        network.whole = whole_layers(network, model.layout.dtype)
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
    groups = group_layers(model.windows, model.context_length)
    division = Division(
        groups=groups,
        layer_bytes=model.layout.slot_bytes // model.layout.layers,
        context_length=model.context_length,
        max_batch_size=config.max_batch_size,
        token_budget=config.token_budget or 0,
    )
    config = dataclasses.replace(config, num_blocks=pool_blocks(config, division, free_memory(model.device)))
    report("Reserving the KV cache", None)
    check_swap_space(config, host_left(config, division, model.device))
    storages, cache = _pools(config, model, division, ops)
    runner = ModelRunner(network, groups, storages, ops)
    report("Warming up the kernels", None)
    ops.warm_up(model.layout.head_dim, model.dtype)
    warm_up(runner, division, config)
    for storage in storages:
        storage.rehearse(config.block_size)
    engine = Engine(
        config,
        cache,
        runner,
        eos_ids=model.eos_ids,
        context_length=model.context_length,
        vocabulary=model.vocabulary,
        text_stream=make_text_stream(model.tokenizer),
        rules=make_rules(model.tokenizer, model.vocabulary, model.eos_ids),
    )
    return Assembled(engine, model, config, groups, storages, ops)


def check_weights(config: EngineConfig) -> None:
    """Raises :class:`Refused` for rounded weights elsewhere than on the CPU, which is where their products run."""
    if config.weights != "auto" and choose_device(config.device).type != "cpu":
        raise Refused.value("weights", config.weights, "auto on a GPU; int8 and int4 are for the CPU (device cpu)")


def _fit_linears(network: Network, weights: str) -> None:
    """Give the linear layers the format that was asked for, or the fastest one in the model's own precision."""
    if weights == "auto":
        pack_linears(network)
        return
    from .model.quantized import quantize_linears  # needs what compiles for the CPU

    quantize_linears(network, {"int8": 8, "int4": 4}[weights])


def usable_cores() -> int:
    """Physical cores that this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def pool_blocks(config: EngineConfig, division: Division, free: int) -> int:
    """Blocks of the (first group's) device pool: as stated, or what the stated share of ``free`` bytes holds.

    Raises:
        Refused: the stated number takes more than is free, or the share holds not one block.
    """
    size = config.block_size
    if config.num_blocks is not None:
        taken = division.bytes(config.num_blocks, size)
        if taken > free:
            raise Refused(
                f"num_blocks is {config.num_blocks:,}, which takes {taken / GIB:,.2f} GiB; "
                f"{free / GIB:,.2f} GiB are free, enough for {division.fit(free, size):,} blocks.",
                field="num_blocks",
                code="memory",
            )
        return config.num_blocks
    share = config.memory_utilization or 0.0
    blocks = division.fit(int(free * share), size)
    if blocks < 1:
        raise Refused(
            f"memory_utilization {share:g} of {free / GIB:,.2f} GiB free holds no block: "
            f"{size} tokens take {division.bytes(1, size) / GIB:,.3f} GiB.",
            field="memory_utilization",
            code="memory",
        )
    return blocks


def host_left(config: EngineConfig, division: Division, device: torch.device) -> int:
    """Bytes of host memory that the device pools will leave free."""
    taken = division.bytes(config.num_blocks or 0, config.block_size)
    return free_memory(torch.device("cpu")) - (taken if device.type == "cpu" else 0)


def check_swap_space(config: EngineConfig, free: int) -> None:
    """Raises :class:`Refused` for a host pool that takes more than ``free`` bytes."""
    if config.swap_space_gib * GIB > free:
        raise Refused(
            f"swap_space_gib is {config.swap_space_gib:g}; accepted is up to {max(free, 0) / GIB:.2f} GiB, the host "
            "memory that is free beside the device pool.",
            field="swap_space_gib",
            code="memory",
        )


def _pools(
    config: EngineConfig, model: LoadedModel, division: Division, ops: Ops
) -> tuple[list[KVStorage], KVCache | CacheGroups]:
    """The tensors of each group of layers, and the cache over them."""
    size = config.block_size
    device = division.blocks(config.num_blocks or 0, size)
    host = division.host_blocks(device, size, int(config.swap_space_gib * GIB))
    layouts = [dataclasses.replace(model.layout, layers=len(group.layers)) for group in division.groups]
    storages = [
        KVStorage(layout, blocks * size, spare * size, model.device, ops)
        for layout, blocks, spare in zip(layouts, device, host, strict=True)
    ]
    settings = {name: getattr(config, name) for name in ("prefix_caching", "contiguous_blocks", "eviction")}
    if config.allocation == "contiguous":
        cache = make_cache(division, device, size, host, contiguous=True)
    else:
        cache = make_cache(division, device, size, host, **settings)
    return storages, cache


def warm_up(runner: ModelRunner, division: Division, config: EngineConfig) -> None:
    """A prefill and a decode, and a decode of every shape that is recorded, so that nothing is compiled while somebody
    waits. Their slots are free again after it."""
    blocks = min(division.blocks(config.num_blocks or 1, config.block_size))
    rows = [] if runner.graphs is None else runner.graphs.sizes(min(config.max_batch_size, blocks))
    scratch = _scratch(division, max([1, *rows]), config)
    first = _stranger(0, [0, 1, 2, 3, 0], scratch)
    for start, count in ((0, 4), (4, 1)):
        runner.execute(StepPlan([Work(first, start, count, samples=True)]), scratch)
    scratch.close(0)
    others = [_stranger(1 + i, [0], scratch) for i in range(max(rows, default=0))]
    for size in rows:
        runner.execute(StepPlan([Work(other, 0, 1, samples=True) for other in others[:size]]), scratch)


def _scratch(division: Division, blocks: int, config: EngineConfig) -> KVCache | CacheGroups:
    """A cache of few blocks over the pools of the real one."""
    groups = len(division.groups)
    return make_cache(division, [blocks] * groups, config.block_size, [0] * groups, prefix_caching=False)


def _stranger(number: int, tokens: list[int], cache: KVCache | CacheGroups) -> Sequence:
    """A sequence that nobody asked for, with its blocks."""
    request = Request(number, "warm-up", tokens, SamplingParams(temperature=0.0), priority=0)
    sequence = Sequence(number, request, 0, list(tokens))
    cache.open(number, sequence.tokens)
    cache.grow(number, len(tokens))
    return sequence
