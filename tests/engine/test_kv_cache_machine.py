"""The cache under any order of calls, against a model that knows only which tokens each sequence has.

Every call is followed by a check of all invariants. What the blocks really hold is seen through :class:`TokenMemory`,
which carries out the journal to the letter and poisons whatever holds nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pagedeck.engine.cache.kv_cache import KVCache, OutOfBlocks
from pagedeck.engine.cache.tables import HOLE
from pagedeck.engine.cache.windowed_cache import WindowedCache, window_blocks
from pagedeck.engine.request import Request, Sequence, StepPlan, Work
from pagedeck.ipc.vocabulary import SamplingParams

from .token_memory import TokenMemory

SIZES = (1, 2, 4, 8, 16)


def sequence(number: int, tokens: list[int]) -> Sequence:
    return Sequence(number, Request(number, str(number), list(tokens), SamplingParams(), 0), 0, list(tokens))


def state_of(cache: KVCache) -> object:
    """All of a cache that a caller can see, to compare."""
    pools = [
        (p.state.tolist(), p.ref.tolist(), p.fill.tolist(), p.owner.tolist(), p.cached(), p.free_runs(), p.ahead())
        for p in (cache.device, cache.host)
    ]
    tables = {
        seq: (t.blocks.tolist(), t.held, t.computed, t.hashed, t.digest, t.pool.is_host)
        for seq, t in cache.tables.items()
    }
    index = [dict(p.index.entries()) for p in (cache.device, cache.host)]
    return pools, tables, index, list(cache.journal), cache.block_size


#: What prompts begin with, so that many have the same beginning.
STREAMS = [[(i * k) % 5 for i in range(40)] for k in (1, 2)]

which = st.integers(0, 1000)  # of the sequences that are there
urgency = st.sampled_from((0, 10, 20))
slots = st.integers(1, 90)  # of a pool: few enough that a handful of sequences fill it
policies = st.tuples(st.sampled_from(("lru", "priority")), st.integers(0, 4))  # eviction, blocks kept ahead


class CacheMachine(RuleBasedStateMachine):
    @initialize(
        slots=slots,
        size=st.sampled_from(SIZES),
        host=slots,
        caching=st.sampled_from((True, True, True, False)),
        policy=policies,
    )
    def start(self, slots: int, size: int, host: int, caching: bool, policy: tuple[str, int]) -> None:
        blocks, host = max(1, slots // size), host // size
        self.cache = self.make_cache(
            blocks, size, host, prefix_caching=caching, eviction=policy[0], contiguous_blocks=policy[1]
        )
        self.memory = TokenMemory(blocks * size, host * size)
        self.live: dict[int, Sequence] = {}
        self.known: list[tuple[list[int], str]] = []  # tokens and salt of sequences that were closed
        self.salts: dict[int, str] = {}
        self.numbers = 0
        self.mirror = [self.columns(pool) for pool in (self.cache.device, self.cache.host)]

    def make_cache(self, *shape: int, **settings: Any) -> KVCache:
        return KVCache(*shape, **settings)

    # --- calls -----------------------------------------------------------------------------------------------------

    @rule(
        stream=st.integers(0, 1),
        length=st.integers(1, 40),
        salt=st.sampled_from(("", "", "", "other")),
        priority=urgency,
    )
    def open(self, stream: int, length: int, salt: str, priority: int) -> None:
        if len(self.live) < 12:
            self.begin(STREAMS[stream][:length], salt, priority)

    @precondition(lambda self: self.known and len(self.live) < 12)
    @rule(at=which, tail=st.lists(st.integers(0, 1), max_size=3), priority=urgency)
    def open_again(self, at: int, tail: list[int], priority: int) -> None:
        """The next turn of a conversation, or a request that comes back after it lost its blocks."""
        tokens, salt = self.known[at % len(self.known)]
        self.begin(tokens + tail, salt, priority)

    @precondition(lambda self: self.on("device"))
    @rule(
        at=st.lists(st.tuples(which, st.integers(1, 40)), min_size=1, max_size=4),
        more=st.integers(0, 1),
        together=st.booleans(),
    )
    def step(self, at: list[tuple[int, int]], more: int, together: bool) -> None:
        self.run([(self.on("device")[i % len(self.on("device"))], count) for i, count in at], more, together)

    @precondition(lambda self: self.on("device"))
    @rule(count=st.sampled_from((1, 1, 2, 7, 40)), more=st.integers(0, 1), together=st.booleans())
    def step_all(self, count: int, more: int, together: bool) -> None:
        self.run([(number, count) for number in self.on("device")], more, together)

    @precondition(lambda self: self.on("device"))
    @rule(at=which, count=st.integers(1, 20))
    def grow_only(self, at: int, count: int) -> None:
        """Scheduled, and then not run."""
        number = self.on("device")[at % len(self.on("device"))]
        self.grow(number, self.cache.computed(number) + count)

    @precondition(lambda self: 0 < len(self.live) < 12)
    @rule(at=which)
    def fork(self, at: int) -> None:
        parent = list(self.live)[at % len(self.live)]
        self.numbers += 1
        self.cache.fork(parent, self.numbers, owner=self.numbers)
        self.live[self.numbers] = sequence(self.numbers, self.live[parent].tokens)
        self.salts[self.numbers] = self.salts[parent]
        assert self.cache.computed(self.numbers) == self.cache.computed(parent)

    @precondition(lambda self: self.live)
    @rule(at=which)
    def close(self, at: int) -> None:
        number = list(self.live)[at % len(self.live)]
        self.known.append((self.live.pop(number).tokens, self.salts[number]))
        self.cache.close(number)

    @precondition(lambda self: self.on("device"))
    @rule(at=which)
    def swap_out(self, at: int) -> None:
        self.swap(self.on("device")[at % len(self.on("device"))])

    @precondition(lambda self: self.on("host"))
    @rule(at=which)
    def swap_in(self, at: int) -> None:
        self.swap(self.on("host")[at % len(self.on("host"))])

    @precondition(lambda self: self.live)
    @rule(at=which, priority=urgency)
    def set_priority(self, at: int, priority: int) -> None:
        self.cache.set_priority(list(self.live)[at % len(self.live)], priority)

    @precondition(lambda self: self.live)
    @rule(
        kind=st.integers(0, 5),
        size=st.sampled_from((None, *SIZES)),
        slots=st.one_of(st.none(), slots),
        host=st.one_of(st.none(), slots),
        may_give_up=st.sampled_from((True, False, False, False)),
        denied=st.sampled_from((True, False, False)),
        caching=st.booleans(),
        policy=policies,
    )
    def change(self, kind: int, caching: bool, policy: tuple[str, int], **geometry: Any) -> None:
        if kind == 0:
            self.switch_caching(caching)
        elif kind == 1:
            self.cache.eviction, self.cache.contiguous_blocks = policy
        else:
            self.reshape(**geometry)

    def reshape(self, size: int | None, slots: int | None, host: int | None, may_give_up: bool, denied: bool) -> None:
        """Another block size and other pools, in one change; at times it does not fit, or its memory is denied."""
        unit = size or self.cache.block_size
        blocks = None if slots is None else max(1, slots // unit)
        host = None if host is None else host // unit
        self.memory.run_journal(self.cache)
        before = state_of(self.cache)
        held = {number: self.cache.tables[number].held for number in self.live}
        cached = self.cache.device.cached_count + self.cache.host.cached_count
        try:
            change = self.cache.plan_reshape(
                block_size=size, num_blocks=blocks, num_host_blocks=host, turns=list(self.live) if may_give_up else ()
            )
        except OutOfBlocks as full:
            assert full.needed > full.available and not may_give_up
            assert state_of(self.cache) == before
            return
        assert state_of(self.cache) == before, "a plan changes nothing"
        if denied:
            self.memory.denials = 1
            with pytest.raises(MemoryError):
                self.memory.reshape(change)
            self.look()
            return
        moved, copied, dropped = change.blocks_moved, change.slots_copied, change.cached_dropped
        assert self.memory.reshape(change) == copied * self.memory.slot_bytes[0]
        for number in change.victims:
            cached += len(self.cache.table(number))
            self.known.append((self.live.pop(number).tokens, self.salts[number]))
            self.cache.close(number)
        self.cache.reshape(change)
        assert (moved, copied, dropped) == (change.blocks_moved, change.slots_copied, change.cached_dropped)
        assert 0 <= dropped <= cached
        if blocks is None and host is None and change.block_size <= change.old_size:
            assert not copied and not change.victims, "splitting blocks moves nothing"
        assert all(self.cache.tables[number].held == held[number] for number in self.live)
        assert self.cache.device.num_blocks == (blocks or self.cache.num_slots // self.cache.block_size)
        self.mirror = [self.columns(pool) for pool in (self.cache.device, self.cache.host)]

    def switch_caching(self, again: bool) -> None:
        self.cache.prefix_caching = False
        assert not self.cache.device.cached_count and not self.cache.host.cached_count
        self.cache.check()
        self.cache.prefix_caching = again

    @precondition(lambda self: self.live)
    @rule()
    def look(self) -> None:
        """Everything that a sequence is said to hold is there, byte for byte."""
        self.memory.run_journal(self.cache)
        for number, seq in self.live.items():
            self.memory.verify(number, seq.tokens[: self.cache.tables[number].held], self.cache)
            self.describe(number)

    # --- after every call ------------------------------------------------------------------------------------------

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "cache"):
            self.cache.check()
            assert set(self.cache.tables) == set(self.live)

    @invariant()
    def changes_are_reported(self) -> None:
        """A viewer that applies every delta knows what one knows who looks at everything."""
        if hasattr(self, "cache"):
            for mirror, pool in zip(self.mirror, (self.cache.device, self.cache.host), strict=True):
                changed, now = pool.take_changed(), self.columns(pool)
                assert len(set(changed.tolist())) == len(changed)
                mirror[:, changed] = now[:, changed]
                assert (mirror == now).all(), "a block changed and was not reported"

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.look()
            for _ in list(self.live):
                self.close(0)
            self.holds()
            assert not self.cache.device.used_count and not self.cache.host.used_count

    # --- parts of the calls ------------------------------------------------------------------------------------------

    @staticmethod
    def columns(pool: object) -> np.ndarray:
        names = ("state", "ref", "fill", "owner", "last_used")
        return np.stack([np.asarray(getattr(pool, name), np.int64) for name in names])

    def on(self, tier: str) -> list[int]:
        return [number for number in self.live if self.cache.tier(number) == tier]

    def begin(self, tokens: list[int], salt: str, priority: int) -> None:
        self.numbers += 1
        expected = self.cache.match(tokens, salt=salt)
        found = self.cache.open(self.numbers, tokens, salt=salt, owner=self.numbers, priority=priority)
        assert found == expected == self.cache.computed(self.numbers)
        assert 0 <= found < len(tokens)
        self.live[self.numbers] = sequence(self.numbers, tokens)
        self.salts[self.numbers] = salt

    def run(self, wanted: list[tuple[int, int]], more: int, together: bool) -> None:
        """One step with several sequences at once, each as far as there is room."""
        self.cache.step += 1
        plan = StepPlan()
        stops = {}
        for number, count in dict(wanted).items():
            seq, start = self.live[number], self.cache.computed(number)
            if start == len(seq.tokens):
                seq.tokens.append(more)
            stops[number] = min(start + count, len(seq.tokens))
        if together:
            self.grow_all(stops)
        for number, stop in stops.items():
            seq, start = self.live[number], self.cache.computed(number)
            if self.grow(number, stop):
                plan.work.append(Work(seq, start, stop - start, samples=stop == len(seq.tokens)))
        for work in plan.work:
            self.assert_writable(work)
        self.memory.execute(plan, self.cache)
        nexts = [work for work in plan.work if work.count == 1] if together else []
        for work in plan.work:
            if work not in nexts:
                self.cache.commit(work.sequence.number, work.sequence.tokens, work.start + work.count)
        self.cache.commit_next([w.sequence.number for w in nexts], [w.sequence.tokens[w.start] for w in nexts])

    def swap(self, number: int) -> None:
        computed, before = self.cache.computed(number), state_of(self.cache)
        try:
            if self.cache.tier(number) == "device":
                room = self.cache.host.available
                self.cache.swap_out(number)
            else:
                room, cost = self.cache.available, self.cache.swap_in_cost(number)
                self.cache.swap_in(number)
                assert cost <= room and self.cache.available == room - cost
        except OutOfBlocks as full:
            assert full.needed > full.available == room
            assert state_of(self.cache) == before
        assert self.cache.computed(number) == computed

    def grow(self, number: int, length: int) -> bool:
        cost, room, before = self.cache.cost(number, length), self.cache.available, state_of(self.cache)
        try:
            self.cache.grow(number, length)
        except OutOfBlocks as full:
            assert (full.needed, full.available) == (cost, room) and cost > room
            assert state_of(self.cache) == before
            return False
        assert cost <= room and self.cache.available == room - cost
        assert self.cache.cost(number, length) == 0
        return True

    def grow_all(self, stops: dict[int, int]) -> None:
        cost, room, before = (
            self.cache.cost_all([*stops], [*stops.values()]),
            self.cache.available,
            state_of(self.cache),
        )
        try:
            self.cache.grow_all([*stops], [*stops.values()])
        except OutOfBlocks as full:
            assert (full.needed, full.available) == (cost, room) and cost > room
            assert state_of(self.cache) == before
        else:
            assert room - cost <= self.cache.available
            assert not any(self.cache.cost(number, stop) for number, stop in stops.items())

    def assert_writable(self, work: Work) -> None:
        number, size, device = work.sequence.number, self.cache.block_size, self.cache.device
        slots = self.cache.slots(number, work.start, work.start + work.count)
        for slot in slots[slots >= 0]:
            entry = device.index.entry(int(slot) // size)
            assert device.ref[slot // size] == 1 and entry is None, "a block that others may read is written"

    def describe(self, number: int) -> None:
        tier, tokens, size = self.cache.tier(number), self.live[number].tokens, self.cache.block_size
        passed = len(self.cache.tables[number].passed)
        for position, block in enumerate(self.cache.table(number).tolist()):
            if block == HOLE:
                continue
            facts = self.cache.describe(tier, block)
            assert (number, position) in facts.owners and facts.ref == len(facts.owners)
            missing = max(0, passed - position * size)
            assert facts.token_ids[missing:] == tokens[position * size + missing : position * size + facts.fill]


class WindowedMachine(CacheMachine):
    """Layers with a window of 7 tokens, and nothing but the last 7 tokens' blocks held."""

    WINDOW = 7

    def make_cache(self, *shape: int, **settings: Any) -> KVCache:
        return WindowedCache(*shape, window=self.WINDOW, **settings)

    @invariant()
    def keeps_no_more_than_the_window(self) -> None:
        if hasattr(self, "cache"):
            size = self.cache.block_size
            for number in self.on("device"):
                table = self.cache.tables[number]
                ahead = table.count * size - table.computed  # slots that were taken for tokens to come
                assert len(table.kept) <= window_blocks(self.WINDOW, max(1, ahead), size), number


@pytest.mark.random
@pytest.mark.parametrize(("machine", "examples"), [(CacheMachine, 150), (WindowedMachine, 100)])
def test_any_order_of_calls(machine: type[CacheMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
