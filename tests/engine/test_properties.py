"""Whatever happens to a request, its tokens are those of an undisturbed run, and everything ends.

Random arrivals, priorities, cancels, samples, penalties, beams, budgets, limits, pools, swapping, recomputing,
repaging, resizing, and memory that is denied, on a real core, scheduler and cache: over a device of plain numbers for
the bulk, and over a real (tiny, float64) model with its real runner and storage. The cache's invariants are checked
after every step.

The same examples every time; ``pytest --long MINUTES`` looks for others.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pagedeck.engine.config import GIB
from pagedeck.engine.core import Engine
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.engine.request import Request
from pagedeck.engine.rules import Rules
from pagedeck.engine.scheduling.forecast import Forecast
from pagedeck.ipc.vocabulary import FinishReason, Refused, RequestState

from . import harness
from .deferred import DeferredRunner
from .harness import VOCABULARY, CrampedRunner, make_engine, model_engine, output, step, submit
from .oracle import ModelOracle, NumberOracle, Oracle, results
from .recorded import LateReplayingRunner, ReplayingRunner
from .tiny_models import VOCABULARY as MODEL_VOCABULARY
from .tiny_models import tiny_model

EXAMPLES = 90
MODEL_EXAMPLES = EXAMPLES // 6

#: What the examples of both devices must add up to.
STEPS = 10_000

EOS = frozenset({7, 8, 9})

taken = {"steps": 0}


@dataclass
class World:
    """An engine, what was asked of it, and who knows the answers."""

    engine: Engine
    eos: frozenset[int]
    oracle: Oracle
    slot_bytes: int
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

    def preempt(self, choices: list[int]) -> None:
        """Sequences lose their blocks, as they would to more urgent ones."""
        self.engine.land()  # between steps; a plan preempts with a step in flight too
        for choice in choices:
            running = [s for s in self.engine.scheduler.running if not s.owes]
            if running:
                self.engine.scheduler.preempt(running[choice % len(running)])
        self.copy_blocks()  # so that what they hold can be looked at before the next step

    def deny_copies(self, count: int) -> None:
        """So many times from now on, there is no memory in which to copy blocks."""
        self.engine.runner.copy_denials = count

    def copy_blocks(self) -> None:
        while self.engine.cache.journal:
            with suppress(MemoryError, torch.OutOfMemoryError):
                self.engine.run_journal()

    def set_priority(self, choice: int, priority: int) -> None:
        if (id := self.live(choice)) is not None:
            try:
                self.engine.set_priority(id, priority)
            except Refused as refusal:
                assert refusal.field == "beam_width"

    def resize_host(self, blocks: int) -> None:
        self.reconfigure({"swap_space_gib": blocks * 8 * self.slot_bytes / GIB})

    def reconfigure(self, changes: dict[str, Any]) -> None:
        self.engine.land()
        self.copy_blocks()
        before = self.engine.config
        try:
            foreseen = reconfigure(self.engine, changes, dry_run=True)
        except Refused:
            with pytest.raises(Refused):
                reconfigure(self.engine, changes)
            assert self.engine.config is before
            self.check()
            return
        self.check()
        done = reconfigure(self.engine, changes)
        self.check()
        for name in ("changes", "blocks_moved", "bytes_copied", "cached_dropped", "preempted"):
            assert getattr(done, name) == getattr(foreseen, name), name
        for name, value in changes.items():
            assert getattr(self.engine.config, name) == value

    def reconfigure_denied(self, changes: dict[str, Any]) -> None:
        """The same where the machine does not give the memory: then nothing has changed."""
        engine = self.engine
        before, shape = engine.config, (engine.cache.block_size, engine.cache.host.num_blocks)
        with patch.object(engine.runner, "reshape", side_effect=MemoryError("denied")):
            try:
                reconfigure(engine, changes)
            except Refused:
                assert engine.config is before
                assert (engine.cache.block_size, engine.cache.host.num_blocks) == shape
        self.check()

    def step(self, count: int) -> None:
        for _ in range(count):
            if not self.engine.has_work:
                return
            self.ended += step(self.engine).ended
            self.steps += 1
            # Each step's tokens depend on all that was read, so this is for early finds. It lands what is in flight.
            if self.steps % 16 == 0:
                self.check()

    def check(self) -> None:
        """What each sequence holds is what it should, byte for byte."""
        engine = self.engine
        engine.land()
        self.copy_blocks()
        engine.cache.check()
        for request in engine.requests.values():
            for sequence in request.sequences:
                if sequence.state in (RequestState.RUNNING, RequestState.SWAPPED):
                    assert engine.cache.computed(sequence.number) == sequence.computed
                    if isinstance(self.oracle, NumberOracle):
                        engine.runner.verify(sequence.number, sequence.tokens[: sequence.computed], engine.cache)

    def finish(self) -> None:
        tokens = sum(len(r.prompt) + r.sampling.width * r.sampling.max_tokens for r in self.submitted)
        limit = self.steps + 200 + 20 * tokens
        while self.engine.has_work:
            self.step(1)
            assert self.steps < limit, "the engine does not come to an end"
        taken["steps"] += self.steps
        assert sorted(r.number for r in self.ended) == sorted(r.number for r in self.submitted)
        for group in self.engine.cache.groups:
            assert group.device.used_count == 0
            assert group.host.used_count == 0
            assert not group.tables
        assert not any(s.in_flight for r in self.submitted for s in r.sequences)
        for request in self.submitted:
            self.check_outputs(request)

    def check_outputs(self, request: Request) -> None:
        assert request.state in (RequestState.FINISHED, RequestState.CANCELLED), request.error
        wanted = results(self.oracle, request, self.eos, self.engine.context_length)
        assert len(request.sequences) == len(wanted) == request.sampling.n
        for index, (sample, result) in enumerate(zip(request.sequences, wanted, strict=True)):
            got = output(request, index)
            if sample.finish_reason is FinishReason.CANCELLED:
                assert request.state is RequestState.CANCELLED
                assert got == result.tokens[: 0 if request.sampling.ranked else len(got)]
            else:
                assert (got, sample.finish_reason) == (result.tokens, result.reason)
                if request.sampling.ranked:
                    assert sample.score == pytest.approx(result.score, rel=1e-5)  # sines are float32 in all models


BLOCK_SIZES = st.sampled_from([8, 16, 32])

#: Few distinct tokens and shared beginnings make prefix hits common.
PROMPTS = st.builds(
    lambda beginning, repeats, rest: [beginning + 1] * repeats + rest,
    st.integers(0, 2),
    st.sampled_from([0, 1, 7, 8, 16, 17, 32, 40]),
    st.lists(st.integers(10, 12), min_size=1, max_size=12),
)

#: One sample, several, the best of several, beams.
WAYS = st.sampled_from(
    [
        *[{}] * 5,
        {"n": 2},
        {"n": 3},
        {"n": 2, "best_of": 3},
        {"beam_width": 2},
        {"beam_width": 3, "n": 2, "length_penalty": 0.0},
        {"beam_width": 3, "n": 3, "early_stopping": True},
    ]
)


NO_EDITS: st.SearchStrategy[dict[str, Any]] = st.just({})

#: What a request may want changed of a model's logits.
TOKENS = st.integers(0, MODEL_VOCABULARY - 1)
WORDS = st.one_of(st.tuples(TOKENS), st.tuples(st.sampled_from([7, 10, 11]), TOKENS))
EDITS = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.sampled_from([0.7, 1.2, 5.0]),
        "presence_penalty": st.sampled_from([-1.0, 0.5, 2.0]),
        "frequency_penalty": st.sampled_from([-0.3, 0.4, 2.0]),
        "logit_bias": st.dictionaries(TOKENS, st.floats(-20, 20), max_size=5),
        "min_tokens": st.sampled_from([1, 8]),
        "rules": st.builds(Rules, st.lists(WORDS, max_size=6).map(tuple)),
    },
)


def asked(way: dict[str, Any], rest: dict[str, Any], edits: dict[str, Any]) -> dict[str, Any]:
    """A request's arguments. Beams and samples that are compared go without edits."""
    if way.keys() & {"beam_width", "best_of"}:
        return {**rest, **way}
    if "min_tokens" in edits:
        edits = {**edits, "min_tokens": min(edits["min_tokens"], rest["max_tokens"])}
    return {**rest, **way, **edits}


def requests(lengths: list[int], edits: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        asked,
        WAYS,
        st.fixed_dictionaries(
            {
                "prompt": PROMPTS,
                "max_tokens": st.sampled_from(lengths),
                "priority": st.sampled_from([0, 10, 10, 20, -3]),
                "ignore_eos": st.booleans(),
                "cache_salt": st.sampled_from(["", "", "salt"]),
            }
        ),
        edits,
    )


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "block_size": BLOCK_SIZES,
        "max_batch_size": st.sampled_from([1, 3, 8, 16]),
        "class_limits": st.sampled_from(["", "batch=1", "normal=3,interactive=3"]),
        "token_budget": st.sampled_from([2, 16, 64, 64]),
        "prefix_caching": st.booleans(),
        "contiguous_blocks": st.sampled_from([0, 2]),
        "eviction": st.sampled_from(["lru", "priority"]),
        "preemption": st.sampled_from(["auto", "swap", "recompute"]),
    },
)


def action(lengths: list[int], edits: st.SearchStrategy[dict[str, Any]] = NO_EDITS) -> st.SearchStrategy[Any]:
    burst = st.lists(requests(lengths, edits), min_size=1, max_size=5)
    return st.one_of(
        st.tuples(st.just("submit"), burst),
        st.tuples(st.just("submit"), burst),
        st.tuples(st.just("step"), st.integers(1, 25)),
        st.tuples(st.just("step"), st.integers(1, 3)),
        st.tuples(st.just("preempt"), st.lists(st.integers(0, 50), min_size=1, max_size=4)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("set_priority"), st.integers(0, 50), st.sampled_from([0, 10, 20, 5])),
        st.tuples(st.just("reconfigure"), CHANGES),
        st.tuples(st.just("reconfigure_denied"), CHANGES),
        st.tuples(st.just("resize_host"), st.integers(0, 40)),
        st.tuples(st.just("limit_memory"), st.integers(9, 64)),
        st.tuples(st.just("deny_copies"), st.integers(1, 5)),
    )


def actions(lengths: list[int], edits: st.SearchStrategy[dict[str, Any]] = NO_EDITS) -> st.SearchStrategy[list[Any]]:
    return st.lists(action(lengths, edits), min_size=10, max_size=40)


#: Pools of which a few requests take all.
SETTINGS = st.builds(
    lambda slots, block_size, rest: {"num_blocks": slots // block_size, "block_size": block_size, **rest},
    st.sampled_from([120, 130, 200]),
    BLOCK_SIZES,
    st.fixed_dictionaries(
        {
            "host_blocks": st.sampled_from([0, 0, 3, 12, 40]),
            "token_budget": st.sampled_from([1, 2, 7, 20, 64, 64]),
            "max_batch_size": st.sampled_from([2, 8, 8, 16]),
            "prefix_caching": st.booleans(),
            "preemption": st.sampled_from(["auto", "swap", "recompute"]),
            "context_length": st.sampled_from([48, 200, 200]),
        }
    ),
)

#: Steps in flight besides the one awaited.
DEPTHS = st.sampled_from([0, 1, 1])

#: Without and with a step in flight; computed as planned, or padded and replayed.
RUNNERS = st.sampled_from([LateReplayingRunner, CrampedRunner, ReplayingRunner, DeferredRunner])


def random_examples(count: int) -> Any:
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def play(world: World, script: list[Any], foresees: bool) -> None:
    """``foresees`` is whether admission leaves room to grow; without it, preemptions are everyday."""
    peak = Forecast.peak if foresees else lambda *_: 0.0
    with patch.object(Forecast, "peak", peak):
        for name, *arguments in script:
            getattr(world, name)(*arguments)
        world.finish()


@pytest.mark.random
@random_examples(EXAMPLES)
@given(SETTINGS, actions([1, 2, 20, 30, 40, 50, 60]), st.booleans(), DEPTHS)
def test_tokens_do_not_depend_on_what_else_happens(
    chosen: dict[str, Any], script: list[Any], foresees: bool, depth: int
) -> None:
    with patch.object(harness, "DEPTH", depth):
        engine = make_engine(eos_ids=EOS, **chosen)
    play(World(engine, EOS, NumberOracle(VOCABULARY), sum(engine.runner.slot_bytes)), script, foresees)


@pytest.mark.random
@random_examples(EXAMPLES // 2)
@given(
    SETTINGS,
    actions([1, 2, 20, 30, 40, 50, 60]),
    st.booleans(),
    DEPTHS,
    st.sampled_from([(0, 11), (0, 17), (13,), (0, 30, 5)]),
)
def test_nor_with_layers_that_keep_a_window(
    chosen: dict[str, Any], script: list[Any], foresees: bool, depth: int, windows: tuple[int, ...]
) -> None:
    """Groups of layers, each of which must be right for the tokens to be."""
    with patch.object(harness, "DEPTH", depth):
        engine = make_engine(eos_ids=EOS, windows=windows, **chosen)
    play(World(engine, EOS, NumberOracle(VOCABULARY, windows), sum(engine.runner.slot_bytes)), script, foresees)


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def models(request: pytest.FixtureRequest) -> tuple[Any, ModelOracle]:
    return tiny_model(request.param, ATTENTION_NAME), ModelOracle(tiny_model(request.param, "eager"))


@pytest.mark.random
@random_examples(MODEL_EXAMPLES)
@given(SETTINGS, actions([1, 2, 12, 20, 30], st.one_of(NO_EDITS, EDITS)), st.booleans(), RUNNERS)
def test_nor_do_those_of_a_real_model(
    models: tuple[Any, ModelOracle], chosen: dict[str, Any], script: list[Any], foresees: bool, kind: type[ModelRunner]
) -> None:
    model, oracle = models
    engine = model_engine(model, kind=kind, eos_ids=EOS, **chosen)
    play(World(engine, EOS, oracle, sum(engine.runner.slot_bytes)), script, foresees)


def test_those_were_steps_enough() -> None:
    if not taken["steps"]:
        pytest.skip("the steps are those of the tests above")
    assert taken["steps"] >= STEPS
