"""``pagedeck status`` and ``pagedeck stop``."""

from __future__ import annotations

import json
import sys
import time

from ..ipc.client import Client, EngineError
from ..ipc.endpoint import Connection, find, list_connections
from ..ipc.protocol import EngineStatus
from ..ipc.telemetry import Percentiles, Stats, TierStats
from .terminal import duration, size

#: Seconds to wait for an answer to a shutdown: the engine finishes its step first.
PATIENCE_S = 120.0


def show_status(name: str | None, *, as_json: bool) -> int:
    """Print what each running engine (or the one of that name) does; 1 when none runs or one does not answer."""
    connections = [find(name)] if name else list_connections()
    answers = [(connection, _ask(connection)) for connection in connections]
    if as_json:
        print(json.dumps([_as_json(*answer) for answer in answers], indent=2))
    elif not answers:
        print("No engine runs; start one with `pagedeck serve`.", file=sys.stderr)
    else:
        print("\n\n".join(_describe(*answer) for answer in answers))
    return 0 if answers and all(isinstance(status, EngineStatus) for _, status in answers) else 1


def stop(name: str | None, *, drain: bool) -> int:
    """Stop an engine and wait until its process has ended."""
    connection = find(name)
    with Client(connection) as client:
        client.timeout = PATIENCE_S
        client.shutdown(drain=drain)
    while connection.process_alive():
        time.sleep(0.05)
    print(f"{connection.name} stopped.")
    return 0


def _ask(connection: Connection) -> EngineStatus | EngineError:
    try:
        with Client(connection) as client:
            return client.status()
    except EngineError as error:
        return error


def _as_json(connection: Connection, status: EngineStatus | EngineError) -> dict[str, object]:
    import msgspec

    if isinstance(status, EngineError):
        return {"name": connection.name, "pid": connection.pid, "state": "not_answering", "detail": str(status)}
    return {**msgspec.structs.asdict(status), "stats": msgspec.to_builtins(status.stats)}


def _describe(connection: Connection, status: EngineStatus | EngineError) -> str:
    if isinstance(status, EngineError):
        return f"{connection.name} · process {connection.pid} · does not answer: {status}"
    age = max(0.0, time.time() - status.started)
    up = f"{age:.0f} s" if age < 120 else duration(age)
    lines = [f"{status.name} · {status.model} · {status.state} · up {up} · process {status.pid}"]
    if status.detail:
        done = f" ({status.progress:.0%})" if status.progress is not None else ""
        lines.append(_row("now", status.detail + done))
    if status.context_length:
        parameters = f"{status.parameters / 1e6:,.0f} M parameters"
        lines.append(
            _row("model", f"{parameters}, {status.dtype} on {status.device}, context {status.context_length:,}")
        )
    if status.stats:
        lines += describe_stats(status.stats)
    if status.log:
        lines.append(_row("log", status.log))
    return "\n".join(lines)


def describe_stats(stats: Stats) -> list[str]:
    """An engine's figures as lines."""
    lines = _tier("device pool", stats.device)
    if stats.host.num_blocks:
        lines += _tier("host pool", stats.host)
    lines.append(
        _row(
            "requests",
            f"{stats.running} running, {stats.waiting} waiting, {stats.swapped} swapped; {stats.finished:,} finished, "
            f"{stats.failed:,} failed, {stats.cancelled:,} cancelled; {stats.preemptions:,} preemptions",
        )
    )
    lines.append(
        _row("speed", f"{stats.output_tokens_per_s:,.1f} output and {stats.prompt_tokens_per_s:,.1f} prompt tokens/s")
    )
    if stats.computed_tokens:
        lines.append(_row("work", _work(stats)))
    if stats.prefix_queried_tokens:
        share = stats.prefix_hit_tokens / stats.prefix_queried_tokens
        lines.append(
            _row("prefix cache", f"{share:.0%} of {stats.prefix_queried_tokens:,} prompt tokens were in the cache")
        )
    lines += [_row(title, _percentiles(stats.latency[key])) for key, title in _LATENCIES if key in stats.latency]
    memory = f"{size(stats.memory_bytes)} resident"
    if stats.device_memory_bytes:
        memory += f", {size(stats.device_memory_bytes)} on the device"
    lines.append(_row("process", f"{stats.cpu_percent:.0f} % CPU, {memory}"))
    return lines


_LATENCIES = (("ttft", "TTFT"), ("itl", "ITL"), ("queue", "queue time"), ("e2e", "E2E"))


def _row(title: str, text: str) -> str:
    return f"  {title:<14}{text}"


def _tier(title: str, tier: TierStats) -> list[str]:
    """How much of the pool is taken, and how much of that is put to use."""
    held = tier.used + tier.reserved
    lines = [
        _row(
            title,
            f"{tier.allocated:.0%} allocated · {held:,} of {tier.num_blocks:,} blocks of {tier.block_size} tokens · "
            f"{size(held * tier.block_bytes)} of {size(tier.num_blocks * tier.block_bytes)} · {tier.cached:,} cached",
        )
    ]
    if held:
        lines.append(
            _row(
                "",
                f"{tier.filled:.1%} of that filled · {tier.tokens:,} tokens · sharing saves {tier.saved:,} blocks · "
                f"runs of {tier.mean_run:,.1f} blocks",
            )
        )
    return lines


def _work(stats: Stats) -> str:
    again = stats.redone_tokens / stats.computed_tokens
    text = f"{stats.computed_tokens:,} tokens computed, {again:.1%} of them again after a preemption"
    if stats.computed_last_minute:
        text += f" ({stats.redone_last_minute / stats.computed_last_minute:.1%} in the last minute)"
    return text


def _percentiles(values: Percentiles) -> str:
    if not values.count:
        return "nothing in the last minute"
    return (
        f"P50 {duration(values.p50)}, P95 {duration(values.p95)}, P99 {duration(values.p99)} "
        f"({values.count:,} in the last minute)"
    )
