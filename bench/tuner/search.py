"""The search, in three stages.

A *sweep* over all combinations of a few values: the simulator, on a device as fast as this engine's steps were measured
to be, discards what cannot win; what is left is measured on part of the load. The best few are measured under *half* of
the traffic. From the best of those on, single settings are changed under the *full* load, each change made while the
engine runs, as long as one of them gains more than noise.

No machine is equally fast at all times. So what looks better is believed when it is better a second time, and in the
end the start and the choice are measured again in turns. Those runs alone tell what was gained: the ones before were
what the choice was made for, which flatters it.

All of it is measured on one engine that never restarts. Each run is kept as soon as it is measured, so a search that
was interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...ipc.client import Client, EngineError
from ..drive import Outcome, drive
from ..figures import span
from ..inside.predict import Device, fit, predict
from ..results import FULL, Changed, Run, Trial
from ..witness import Witness
from ..workload import Item
from .objective import Objective
from .space import VALUES, Settings, coarse, neighbours

Report = Callable[[str, float | None], None]

SWEEP, HALF = "sweep", "half traffic"

#: How many are measured in the sweep and under half of the traffic, and shares of the load that these run.
SWEPT, HALVED, SHARE = 6, 3, 0.5

#: What is predicted to be so much worse than the best cannot win: the simulator is not that wrong.
HOPELESS = 0.8

#: How often the start and the choice are measured again in the end, and for how often time is set aside.
TURNS, TURNS_SET_ASIDE = 3, 2

#: Where the arrivals alone take so much of the time, throughput is theirs.
KEPT_UP = 0.9


@dataclass(eq=False, slots=True)
class Tried:
    """Settings under a stage's traffic, with what became of the requests in each run."""

    settings: Settings
    stage: str
    runs: list[list[Outcome]] = field(default_factory=list)


class OutOfTime(Exception):
    """The search has used up its time."""


class Search:
    """Looks for the best settings of ``client``'s engine for ``items``.

    ``kept`` are trials of an interrupted search over the same load; ``keep`` is given each new run. ``deadline`` is
    monotonic.
    """

    def __init__(
        self,
        client: Client,
        witness: Witness,
        items: Sequence[Item],
        objective: Objective,
        *,
        deadline: float,
        report: Report,
        kept: Sequence[Tried] = (),
        keep: Callable[[Run], None] = lambda run: None,
    ) -> None:
        self.tried: list[Tried] = list(kept)
        self.notes: dict[str, str] = {}
        self.base = self.best = Tried({}, FULL)
        self._client = client
        self._witness = witness
        self._items = items
        self._objective = objective
        self._deadline = deadline
        self._report = report
        self._keep = keep
        self._values = VALUES
        self._set_aside = 0.0  # seconds, for the runs in turns
        self.turns: list[
            tuple[list[Outcome], list[Outcome]]
        ] = []  # runs of the choice and the start, one after the other

    def run(self) -> Tried:
        """The best trial under the full load; within the deadline, as far as the search got."""
        start = self._current()
        self._values = self._allowed()
        self.base = self.best = self._trial(start, FULL)
        self._set_aside = 2 * TURNS_SET_ASIDE * self._expected(FULL)
        self._look_at_load()
        try:
            halved = [self._trial(tried.settings, HALF) for tried in self._best_of(self._sweep(start), HALVED)]
            self._consider(self._trial(self._best_of(halved, 1)[0].settings, FULL))
            self._simplify()
            while self._climb():
                pass
        except OutOfTime:
            self.notes["end"] = "Time was up before the search had ended."
        self._confirm()
        return self.best

    def gain(self) -> list[float]:
        """How many times as good the choice is as the start, with the ends of the interval; nothing for the start
        itself."""
        if self.best is self.base:
            return []
        mine, theirs = zip(*self.turns, strict=True) if self.turns else (self.best.runs, self.base.runs)
        gain = self._objective.gain(mine, theirs)
        return [gain.value, gain.low, gain.high]

    def changed(self) -> list[Changed]:
        """The settings that differ from the start, and what each alone gained, where that was measured."""
        names = self._changed_names()
        if len(names) == 1:
            return [self._change(names[0], self.gain(), FULL)]
        return [self._change(name, *self._alone(name)) for name in names]

    def told(self, settings: Settings) -> str:
        """Settings by what is different from the start."""
        changed = {name: value for name, value in settings.items() if value != self.base.settings.get(name, value)}
        return name_of(changed) or "as it was"

    def _changed_names(self) -> list[str]:
        return [name for name, value in self.best.settings.items() if value != self.base.settings[name]]

    def _change(self, name: str, gain: list[float] | None, stage: str) -> Changed:
        return Changed(name, self.base.settings[name], self.best.settings[name], gain, stage)

    def _alone(self, name: str) -> tuple[list[float] | None, str]:
        """What a setting's change gained between two trials that differ in nothing else, the most measured ones of the
        latest stage; and that stage."""
        after, before = self.best.settings[name], self.base.settings[name]
        pairs = [
            (one, other)
            for one in self.tried
            for other in self.tried
            if one.stage == other.stage and one.settings == other.settings | {name: after}
            and one.settings[name] == after and other.settings[name] == before
        ]  # fmt: skip
        if not pairs:
            return None, ""
        stages = (SWEEP, HALF, FULL)
        one, other = max(pairs, key=lambda pair: (stages.index(pair[0].stage), sum(len(t.runs) for t in pair)))
        gain = self._objective.gain(one.runs, other.runs)
        return [gain.value, gain.low, gain.high], one.stage

    # --- stages -----------------------------------------------------------------------------------------------------

    def _look_at_load(self) -> None:
        arrivals = max(item.at for item in self._items)
        waits = any(item.after is not None for item in self._items)
        if self._objective.name == "throughput" and not waits and arrivals >= KEPT_UP * span(self.base.runs[0]):
            self.notes["load"] = (
                "The engine keeps up with this load as it comes, so no settings can give more throughput; its latency "
                "may differ."
            )

    def _sweep(self, start: Settings) -> list[Tried]:
        """What an interrupted search has swept counts, though the simulator may think otherwise by now."""
        swept = [tried for tried in self.tried if tried.stage == SWEEP]
        for settings in self._promising(start) if len(swept) < SWEPT else ():
            if len(swept) < SWEPT and (tried := self._trial(settings, SWEEP)) not in swept:
                swept.append(tried)
        return swept

    def _promising(self, start: Settings) -> list[Settings]:
        """What the simulator does not discard, the best predictions first; ``start`` is always among them."""
        device = self._measure_device()
        candidates = coarse(start, self._values)
        values = []
        for done, settings in enumerate(candidates):
            self._check_time(SWEEP)
            self._report(f"Simulating {len(candidates)} combinations", done / len(candidates))
            values.append(self._predicted(device, settings))
        best = values[self._objective.best(values)]
        hopeful = [
            (value, settings)
            for value, settings in zip(values, candidates, strict=True)
            if (value / best if self._objective.more_is_better else best / max(value, 1e-9)) >= HOPELESS
        ]
        self.notes["sweep"] = (
            f"The simulator discarded {len(candidates) - len(hopeful)} of {len(candidates)} combinations."
        )
        hopeful.sort(key=lambda pair: -pair[0] if self._objective.more_is_better else pair[0])
        spread = _spread([settings for _, settings in hopeful if settings != start], SWEPT - 1)
        return [start, *spread]

    def _simplify(self) -> None:
        """Take back, one after the other, changes without which it is as good."""
        names = self._changed_names()
        for name in names if len(names) > 1 else ():
            without = self._trial(self.best.settings | {name: self.base.settings[name]}, FULL)
            if self._objective.gain(without.runs, self.best.runs).value >= 1.0:
                self.best = without

    def _climb(self) -> bool:
        """Look at what is one step of one setting away; whether something gained by it."""
        before = self.best
        for settings in neighbours(before.settings, self._values):
            self._consider(self._trial(settings, FULL))
        return self.best is not before

    def _consider(self, other: Tried) -> None:
        """Take it only where it gains more than noise, and does so a second time."""
        if other is self.best or not self._gains(other):
            return
        for tried in (self.best, other):
            if len(tried.runs) < 2:
                self._measure(tried)
        if self._gains(other):
            self.best = other

    def _gains(self, other: Tried) -> bool:
        return self._objective.gain(other.runs, self.best.runs).low > 1.0

    def _confirm(self) -> None:
        """Measure the choice and the start again, in turns, while there is time."""
        if self.best is self.base:
            return
        self._set_aside = 0.0
        try:
            for _ in range(TURNS):
                self.turns.append((self._measure(self.best), self._measure(self.base)))
        except OutOfTime:
            pass
        if not self.turns:
            self.notes["turns"] = "There was no time to measure the choice again, so its gain may be luck."
        elif self.gain()[1] <= 1.0:
            self.notes["turns"] = (
                f"What looked better was not when it was measured again: {self.told(self.best.settings)}."
            )
            self.best = self.base

    # --- measuring --------------------------------------------------------------------------------------------------

    def _trial(self, settings: Settings, stage: str) -> Tried:
        """These settings under a stage's traffic, measured once or oftener."""
        for tried in self.tried:
            if tried.settings == settings and tried.stage == stage:
                return tried
        tried = Tried(settings, stage)
        self._measure(tried)
        return tried

    def _measure(self, tried: Tried) -> list[Outcome]:
        """One more run of these settings."""
        self._check_time(tried.stage)
        if not tried.runs:
            self.tried.append(tried)
        number = 1 + [other for other in self.tried if other.stage == tried.stage].index(tried)
        again = f", run {len(tried.runs) + 1}" if tried.runs else ""
        text = f"{tried.stage}, trial {number}{again}: {self.told(tried.settings)}"
        self._configure(tried.settings)
        outcomes = drive(self._client, traffic(self._items, tried.stage), lambda share: self._report(text, share))
        for outcome in outcomes:
            if outcome.error:
                raise EngineError(outcome.error)
        tried.runs.append(outcomes)
        self._keep(Run(f"{tried.stage}: {name_of(tried.settings)}", outcomes, dict(tried.settings)))
        return outcomes

    def _configure(self, settings: Settings) -> None:
        """Set them, with nothing in the cache that trials before have left."""
        self._client.reconfigure({**settings, "prefix_caching": False})
        self._client.reconfigure({"prefix_caching": True})

    def _current(self) -> Settings:
        known = {setting.name: setting.value for setting in self._client.config()}
        return {name: known[name] for name in VALUES}

    def _allowed(self) -> dict[str, tuple[Any, ...]]:
        """The values that this engine would take, as a machine may lack the memory for some."""
        return {name: tuple(v for v in values if self._takes(name, v)) for name, values in VALUES.items()}

    def _takes(self, name: str, value: Any) -> bool:
        try:
            self._client.reconfigure({name: value}, dry_run=True)
        except EngineError:
            return False
        return True

    def _measure_device(self) -> Device:
        """From the steps of the first trials."""
        steps = [step for step in self._witness.steps if step.prefill_tokens + step.decode_tokens]
        if len(steps) < 20:  # all trials so far were an interrupted search's
            drive(self._client, traffic(self._items, SWEEP), lambda share: self._report("Measuring steps", share))
            steps = [step for step in self._witness.steps if step.prefill_tokens + step.decode_tokens]
        stats = self._client.status().stats
        assert stats is not None, "an engine that has served has statistics"
        tier = stats.device
        return fit(steps, slots=tier.num_blocks * tier.block_size, slot_bytes=tier.block_bytes // tier.block_size)

    def _predicted(self, device: Device, settings: Settings) -> float:
        report = predict(device, settings, self._items)
        if self._objective.name == "latency":
            return report.e2e_p95_s
        return report.output_tokens / max(report.virtual_s, 1e-9)

    def _best_of(self, tried: Sequence[Tried], count: int) -> list[Tried]:
        sign = -1 if self._objective.more_is_better else 1
        return sorted(tried, key=lambda one: sign * self._objective.value(one.runs[0]))[:count]

    def _expected(self, stage: str) -> float:
        """Seconds that a run of a stage takes."""
        known = [span(run) for tried in self.tried if tried.stage == stage for run in tried.runs]
        return max(known) if known else max(map(span, self.base.runs), default=0.0)

    def _check_time(self, stage: str) -> None:
        """The start is measured whatever the time is."""
        if self.base.runs and time.monotonic() + self._expected(stage) + self._set_aside > self._deadline:
            raise OutOfTime


def traffic(items: Sequence[Item], stage: str) -> list[Item]:
    """A stage's part of a load. The sweep runs its first requests, and so does half of the traffic, in twice the time
    where they are not all due at once."""
    if stage == FULL:
        return list(items)
    first = items[: max(1, round(SHARE * len(items)))]
    return list(first) if stage == SWEEP else [replace(item, at=2 * item.at) for item in first]


def _spread(ranked: Sequence[Settings], count: int) -> list[Settings]:
    """``count`` of ``ranked``, which begins with the best: the first one, then always one that differs from those taken
    in as many values as can be. What the simulator cannot tell apart is not all looked at."""
    taken: list[Settings] = []
    left = list(ranked)
    while left and len(taken) < count:
        best = max(left, key=lambda one: min((_distance(one, other) for other in taken), default=0))
        taken.append(best)
        left.remove(best)
    return taken


def _distance(one: Settings, other: Settings) -> int:
    return sum(one[name] != other[name] for name in one)


def trials(search_: Search, objective: Objective) -> list[Trial]:
    """All that was tried, for a file of results."""
    return [Trial(tried.settings, tried.stage, objective.figures(tried.runs)) for tried in search_.tried]


def name_of(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())
