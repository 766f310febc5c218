"""What the rules look at: one row a second of what the engine measured, and windows of such rows. No Qt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...ipc.telemetry import Stats, TierStats
from ...ipc.vocabulary import PRIORITIES, Hold, RequestState
from ..durations import Durations, percentiles
from ..history import History
from ..state import EngineView

KEPT = 3_600  # rows: an hour
#: A window is cut into so many pieces to see how much a quantity varies by itself.
PIECES = 6

_STATS = (
    "time", "running", "waiting", "swapped", "preemptions", "computed_tokens", "redone_tokens", "output_tokens_per_s",
    "prefix_queried_tokens", "prefix_hit_tokens", "memory_bytes",
)  # fmt: skip
_DEVICE = ("num_blocks", "block_size", "block_bytes", "free", "cached", "used", "tokens", "evicted", "mean_run")
_HOLDS = tuple(hold for hold in Hold if hold)
_STEPS = ("steps", "full_steps", "prefill_steps", "prefill_ms", "decode_steps", "decode_ms")
_REST = (
    "host_bytes", "host_busy_bytes", "spare_bytes", "host_spare_bytes", "token_bytes", "parked_tokens", "sequences",
    "held_tokens",
)  # fmt: skip
COLUMNS = (*_STATS, *_DEVICE, *_STEPS, *(f"held_{hold}" for hold in _HOLDS), *_REST)


class Evidence(History):
    """One row for each message of the engine.

    Of the steps since the message before: how many there were (``steps``), had no token to spare (``full_steps``), had
    prompts in them (``prefill_steps``) or none (``decode_steps``) and what these took, and for what the first in line
    waited (``held_blocks`` …). ``spare_bytes`` is memory that nobody uses where the pool lies, ``host_spare_bytes`` the
    machine's own; ``parked_tokens`` are those of requests that lost their blocks; ``sequences`` run, with
    ``held_tokens`` computed.
    """

    def __init__(self) -> None:
        super().__init__(COLUMNS, KEPT)
        self._seen = 0.0  # time of the last step that was counted

    def take(self, view: EngineView, stats: Stats) -> None:
        row = {name: float(getattr(stats, name)) for name in _STATS}
        row |= {name: float(getattr(stats.device, name)) for name in _DEVICE}
        row |= self._steps(view)
        tiers = [(stats.device, stats.host), *((group.device, group.host) for group in stats.groups)]
        row["host_bytes"] = sum(host.num_blocks * host.block_bytes for _, host in tiers)
        row["host_busy_bytes"] = sum((host.used + host.cached) * host.block_bytes for _, host in tiers)
        row["token_bytes"] = sum(device.block_bytes / max(device.block_size, 1) for device, _ in tiers)
        row |= _spare(stats)
        row |= _requests(view, stats.device)
        self.append(row)

    def _steps(self, view: EngineView) -> dict[str, float]:
        steps = view.steps
        first = int(np.searchsorted(steps.column("time"), self._seen, side="right"))
        time = steps.column("time")[first:]
        if len(time):
            self._seen = float(time[-1])
        prefill = steps.column("prefill_tokens")[first:]
        total = prefill + steps.column("decode_tokens")[first:]
        took = sum(steps.column(f"{part}_ms")[first:] for part in ("schedule", "forward", "sample", "other"))
        row = {
            "steps": float(len(time)),
            "full_steps": float(np.count_nonzero(total >= steps.column("budget")[first:])),
            "prefill_steps": float(np.count_nonzero(prefill)),
            "prefill_ms": float(np.sum(took, where=prefill > 0)) if len(time) else 0.0,
            "decode_steps": float(np.count_nonzero(prefill == 0)),
            "decode_ms": float(np.sum(took, where=prefill == 0)) if len(time) else 0.0,
        }
        holds = steps.holds(first)
        return row | {f"held_{hold}": float(holds.count(hold)) for hold in _HOLDS}


def _spare(stats: Stats) -> dict[str, float]:
    machine = stats.machine
    if machine is None:
        return {"spare_bytes": math.nan, "host_spare_bytes": math.nan}
    host, device = float(machine.memory_total - machine.memory_used), machine.device
    if device is None:
        return {"spare_bytes": host, "host_spare_bytes": host}
    known = device.memory_total is not None and device.memory_used is not None
    spare = float(device.memory_total - device.memory_used) if known else math.nan  # type: ignore[operator]
    return {"spare_bytes": spare, "host_spare_bytes": host}


def _requests(view: EngineView, device: TierStats) -> dict[str, float]:
    live = view.live()
    running = [row for row in live if row.state == RequestState.RUNNING]
    parked = [row for row in live if row.state == RequestState.PREEMPTED]
    return {
        "parked_tokens": sum(row.prompt_tokens + row.output_tokens for row in parked),
        "sequences": sum(row.samples for row in running),
        "held_tokens": sum(row.computed_tokens for row in running),
    }


@dataclass(frozen=True)
class Window:
    """The rows of some seconds in which the engine had work, and the latencies of that time."""

    rows: dict[str, np.ndarray]
    durations: Durations

    @property
    def seconds(self) -> float:
        """In which there was work: a row is a second."""
        return float(len(self.rows["time"]))

    @property
    def start(self) -> float:
        """Unix seconds."""
        return float(self.rows["time"][0]) - 1

    @property
    def end(self) -> float:
        return float(self.rows["time"][-1])

    def mean(self, name: str) -> float:
        return float(self.rows[name].mean()) if self.seconds else math.nan

    def peak(self, name: str) -> float:
        return float(self.rows[name].max()) if self.seconds else math.nan

    def last(self, name: str) -> float:
        return float(self.rows[name][-1]) if self.seconds else math.nan

    def total(self, name: str) -> float:
        return float(self.rows[name].sum())

    def gain(self, name: str) -> float:
        """How much a counter has counted."""
        column = self.rows[name]
        return float(max(0.0, column[-1] - column[0])) if self.seconds else 0.0

    def ratio(self, part: str, whole: str) -> float:
        """Of two sums; NaN of nothing."""
        return self.total(part) / self.total(whole) if self.total(whole) else math.nan

    def gain_ratio(self, part: str, whole: str) -> float:
        return self.gain(part) / self.gain(whole) if self.gain(whole) else math.nan

    def latency(self, name: str, share: float) -> float:
        """A percentile in seconds, of all classes; NaN where nothing was measured."""
        counts = self.durations.counts(name, PRIORITIES, self.start, self.end)
        return percentiles(counts, [share])[0]

    def pieces(self) -> Iterator[Window]:
        """It in parts of equal length, each of at least five seconds."""
        count = min(PIECES, int(self.seconds) // 5)
        for part in np.array_split(np.arange(int(self.seconds)), count) if count > 1 else ():
            yield Window({name: column[part] for name, column in self.rows.items()}, self.durations)


def window(evidence: Evidence, durations: Durations, seconds: int, since: float, until: float = math.inf) -> Window:
    """The last ``seconds`` in which there was work, at most, after ``since`` and not after ``until`` (Unix seconds)."""
    time = evidence.column("time")
    busy = (evidence.column("steps") > 0) | (evidence.column("running") > 0)
    chosen: Sequence[int] | np.ndarray = np.flatnonzero((time > since) & (time <= until) & busy)[-seconds:]
    return Window({name: evidence.column(name)[chosen] for name in COLUMNS}, durations)
