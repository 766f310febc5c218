"""Whatever happens to a request, its tokens are those of an undisturbed run, and everything ends.

Random arrivals, priorities, cancels, samples, budgets, pools, swapping, recomputing, repaging and resizing, on a real
core, scheduler and cache. The invariants of the cache are checked after every step.

``PAGEDECK_LONG=<examples>`` runs that many examples instead of the default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pagedeck.engine.config import GIB
from pagedeck.engine.core import Engine
from pagedeck.engine.forecast import Forecast
from pagedeck.engine.request import Request
from pagedeck.ipc.vocabulary import FinishReason, Refused, RequestState

from .harness import expected, make_engine, output, step, submit

EXAMPLES = int(os.environ.get("PAGEDECK_LONG", "100"))
EOS = frozenset({7, 8, 9})
SLOT_BYTES = 8


@dataclass
class World:
    """An engine, and what was asked of it."""

    engine: Engine
    eos: frozenset[int]
    submitted: list[Request] = field(default_factory=list)
    refused: int = 0
    ended: list[Request] = field(default_factory=list)
    steps: int = 0

    def submit(self, burst: list[dict[str, Any]]) -> None:
        for arguments in burst:
            try:
                self.submitted.append(submit(self.engine, f"r{len(self.submitted) + self.refused}", **arguments))
            except Refused as refusal:
                assert refusal.code in ("too_large", "too_long"), refusal
                self.refused += 1

    def limit_memory(self, tokens: int) -> None:
        """The device's working memory allows no larger step from now on."""
        self.engine.runner.memory = tokens

    def live(self, choice: int) -> str | None:
        ids = list(self.engine.requests)
        return ids[choice % len(ids)] if ids else None

    def cancel(self, choice: int) -> None:
        if (id := self.live(choice)) is not None:
            assert self.engine.cancel(id)
            assert id not in self.engine.requests

    def set_priority(self, choice: int, priority: int) -> None:
        if (id := self.live(choice)) is not None:
            self.engine.set_priority(id, priority)

    def reconfigure(self, changes: dict[str, Any]) -> None:
        before = self.engine.config
        try:
            foreseen = self.engine.reconfigure(changes, dry_run=True)
        except Refused:
            with pytest.raises(Refused):
                self.engine.reconfigure(changes)
            assert self.engine.config is before
            self.check()
            return
        self.check()
        done = self.engine.reconfigure(changes)
        self.check()
        for name in ("changes", "blocks_moved", "bytes_copied", "cached_dropped", "preempted"):
            assert getattr(done, name) == getattr(foreseen, name), name
        for name, value in changes.items():
            assert getattr(self.engine.config, name) == value

    def step(self, count: int) -> None:
        for _ in range(count):
            if not self.engine.has_work:
                return
            self.ended += step(self.engine).ended
            self.steps += 1
            if self.steps % 16 == 0:  # each step's tokens depend on all that was read, so this is for early finds
                self.check()

    def check(self) -> None:
        """What each sequence holds is what it should, byte for byte."""
        engine = self.engine
        engine.cache.check()
        for request in engine.requests.values():
            for sequence in request.sequences:
                if sequence.state in (RequestState.RUNNING, RequestState.SWAPPED):
                    assert engine.cache.computed(sequence.number) == sequence.computed
                    engine.runner.verify(sequence.number, sequence.tokens[: sequence.computed], engine.cache)

    def finish(self) -> None:
        tokens = sum(len(r.prompt) + r.sampling.n * r.sampling.max_tokens for r in self.submitted)
        limit = self.steps + 200 + 20 * tokens
        while self.engine.has_work:
            self.step(1)
            assert self.steps < limit, "the engine does not come to an end"
        assert sorted(r.number for r in self.ended) == sorted(r.number for r in self.submitted)
        assert self.engine.cache.device.used_count == 0
        assert self.engine.cache.host.used_count == 0
        assert not self.engine.cache.tables
        for request in self.submitted:
            for index in range(request.sampling.n):
                self.check_output(request, index)

    def check_output(self, request: Request, index: int) -> None:
        wanted, got = expected(request, index), output(request, index)
        wanted = wanted[: self.engine.context_length - len(request.prompt)]
        reason = request.sequences[index].finish_reason
        if request.state is RequestState.CANCELLED and reason is FinishReason.CANCELLED:
            assert got == wanted[: len(got)]
            return
        assert request.state in (RequestState.FINISHED, RequestState.CANCELLED), request.error
        for position, token in enumerate(wanted):
            if token in self.eos and not request.sampling.ignore_eos:
                wanted = wanted[: position + 1]
                assert reason is FinishReason.STOP
                break
        else:
            assert reason is FinishReason.LENGTH
        assert got == wanted


BLOCK_SIZES = st.sampled_from([8, 16, 32])

#: Few distinct tokens and shared beginnings make prefix hits common.
PROMPTS = st.builds(
    lambda beginning, repeats, rest: [beginning + 1] * repeats + rest,
    st.integers(0, 2),
    st.sampled_from([0, 1, 7, 8, 16, 17, 32, 40]),
    st.lists(st.integers(10, 12), min_size=1, max_size=12),
)

REQUESTS = st.fixed_dictionaries(
    {
        "prompt": PROMPTS,
        "max_tokens": st.sampled_from([1, 2, 20, 30, 40, 50, 60]),
        "priority": st.sampled_from([0, 10, 10, 20, -3]),
        "n": st.sampled_from([1, 1, 1, 2, 3]),
        "ignore_eos": st.booleans(),
        "cache_salt": st.sampled_from(["", "", "salt"]),
    }
)

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "block_size": BLOCK_SIZES,
        "swap_space_gib": st.integers(0, 40).map(lambda blocks: blocks * 8 * SLOT_BYTES / GIB),
        "max_batch_size": st.sampled_from([1, 3, 8, 16]),
        "token_budget": st.sampled_from([2, 16, 64, 64]),
        "prefix_caching": st.booleans(),
        "preemption": st.sampled_from(["auto", "swap", "recompute"]),
    },
)

ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.lists(REQUESTS, min_size=1, max_size=5)),
    st.tuples(st.just("submit"), st.lists(REQUESTS, min_size=1, max_size=5)),
    st.tuples(st.just("step"), st.integers(1, 25)),
    st.tuples(st.just("step"), st.integers(1, 25)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("set_priority"), st.integers(0, 50), st.sampled_from([0, 10, 20, 5])),
    st.tuples(st.just("reconfigure"), CHANGES),
    st.tuples(st.just("limit_memory"), st.integers(9, 64)),
)

#: Pools of which a few requests take all.
SETTINGS = st.builds(
    lambda slots, block_size, rest: {"num_blocks": slots // block_size, "block_size": block_size, **rest},
    st.sampled_from([120, 130, 200]),
    BLOCK_SIZES,
    st.fixed_dictionaries(
        {
            "host_blocks": st.sampled_from([0, 0, 3, 12, 40]),
            "token_budget": st.sampled_from([1, 7, 20, 64, 64, 64]),
            "max_batch_size": st.sampled_from([2, 8, 8, 16]),
            "prefix_caching": st.booleans(),
            "preemption": st.sampled_from(["auto", "swap", "recompute"]),
            "context_length": st.sampled_from([48, 4096, 4096]),
        }
    ),
)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="PAGEDECK_LONG" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
@given(SETTINGS, st.lists(ACTIONS, min_size=10, max_size=40), st.booleans())
def test_tokens_do_not_depend_on_what_else_happens(chosen: dict[str, Any], actions: list[Any], foresees: bool) -> None:
    peak = Forecast.peak if foresees else lambda *_: 0.0
    with patch.object(Forecast, "peak", peak):  # without room to grow, preemptions are everyday
        world = World(make_engine(eos_ids=EOS, **chosen), EOS)
        for name, *arguments in actions:
            getattr(world, name)(*arguments)
        world.finish()
