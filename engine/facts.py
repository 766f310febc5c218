"""What there is to tell about requests, pools, settings and the engine: plain values, named as on the wire."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..ipc.vocabulary import RequestState
from .cache.blocks import BlockPool
from .cache.cache_groups import CacheGroups
from .cache.kv_cache import KVCache
from .config import EngineConfig
from .request import Request


def request_facts(request: Request, cache: KVCache | CacheGroups) -> dict[str, Any]:
    """The fields of ``telemetry.RequestRow``. Blocks that samples share are counted once for each."""
    blocks = shared = host = saved = runs = 0
    first = cache.groups[0]  # of groups of layers, the one that a single figure tells of
    for sequence in request.sequences:
        if sequence.state in (RequestState.RUNNING, RequestState.SWAPPED):
            held, common = first.counts(sequence.number)
            saved += first.saved(sequence.number)
            runs += first.runs(sequence.number)
            if sequence.state is RequestState.RUNNING:
                blocks += held
                shared += common
            else:
                host += held
    return {
        "number": request.number,
        "id": request.id,
        "state": request.state.value,
        "priority": request.priority,
        "client": request.client,
        "prompt_tokens": request.prompt_length,
        "output_tokens": request.output_tokens,
        "max_tokens": request.sampling.max_tokens,
        "computed_tokens": sum(s.computed for s in request.sequences),
        "cached_tokens": request.cached_tokens,
        "samples": request.sampling.width,
        "blocks": blocks,
        "shared_blocks": shared,
        "host_blocks": host,
        "preemptions": request.preemptions,
        "arrival": request.arrival_unix,
        "queue_s": request.queue_s,
        "ttft_s": request.ttft_s,
        "e2e_s": request.e2e_s,
        "tokens_per_s": request.tokens_per_s,
        "error": request.error,
        "saved_blocks": saved,
        "mean_run": (blocks + host) / runs if runs else 0.0,
    }


def tier_facts(pool: BlockPool, slot_bytes: int) -> dict[str, Any]:
    """The fields of ``telemetry.TierStats``."""
    held = pool.used_count + pool.reserved_count
    return {
        "num_blocks": pool.num_blocks,
        "block_size": pool.block_size,
        "block_bytes": pool.block_size * slot_bytes,
        "free": pool.free_count,
        "reserved": pool.reserved_count,
        "cached": pool.cached_count,
        "used": pool.used_count,
        "tokens": pool.tokens_held,
        "saved": pool.saved_count,
        "mean_run": pool.references / pool.runs if pool.runs else 0.0,
        "filled": pool.tokens_held / (held * pool.block_size) if held else 0.0,
        "allocated": held / pool.num_blocks if pool.num_blocks else 0.0,
        "evicted": pool.evicted_count,
    }


def pool_facts(cache: KVCache | CacheGroups, slot_bytes: tuple[int, ...]) -> dict[str, Any]:
    """Those of ``telemetry.Stats`` that tell of the pools."""
    first, *groups = (
        {"name": g.name, "device": tier_facts(g.device, slot), "host": tier_facts(g.host, slot)}
        for g, slot in zip(cache.groups, slot_bytes, strict=True)
    )
    return {"device": first["device"], "host": first["host"], "groups": groups}


def setting_facts(config: EngineConfig) -> list[dict[str, Any]]:
    """The fields of ``protocol.SettingInfo``, one a setting."""
    facts = []
    for spec in dataclasses.fields(config):
        meta = dict(spec.metadata)
        choices = meta.pop("choices")
        facts.append(
            {
                "name": spec.name,
                "value": getattr(config, spec.name),
                "choices": None if choices is None else list(choices),
                **meta,
            }
        )
    return facts
