"""The cache under any order of calls, against a model that knows only which tokens each sequence has.

Every call is followed by a check of all invariants. What the blocks really hold is seen through :class:`TokenMemory`,
which carries out the journal to the letter and poisons whatever holds nothing.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule
from pagedeck.engine.kv_cache import KVCache, OutOfBlocks
from pagedeck.engine.request import Request, Sequence, StepPlan, Work
from pagedeck.ipc.vocabulary import SamplingParams

from .token_memory import TokenMemory

SIZES = (1, 2, 4, 8, 16)
LONG = int(os.environ.get("PAGEDECK_LONG", "1"))  # how many times as many examples


def sequence(number: int, tokens: list[int]) -> Sequence:
    return Sequence(number, Request(number, str(number), list(tokens), SamplingParams(), 0), 0, list(tokens))


def state_of(cache: KVCache) -> object:
    """All of a cache that a caller can see, to compare."""
    pools = [
        (p.state.tolist(), p.ref.tolist(), p.fill.tolist(), p.owner.tolist(), p.cached(), p.free_runs())
        for p in (cache.device, cache.host)
    ]
    tables = {
        seq: (t.blocks.tolist(), t.held, t.computed, t.hashed, t.digest, t.on_host) for seq, t in cache.tables.items()
    }
    index = [dict(p.index.entries()) for p in (cache.device, cache.host)]
    return pools, tables, index, list(cache.journal), cache.block_size


class CacheMachine(RuleBasedStateMachine):
    sequences = Bundle("sequences")

    @initialize(
        blocks=st.integers(1, 24),
        size=st.sampled_from(SIZES),
        host=st.integers(0, 16),
        prefix=st.booleans() | st.just(True),
    )
    def start(self, blocks: int, size: int, host: int, prefix: bool) -> None:
        self.cache = KVCache(blocks, size, host, prefix_caching=prefix)
        self.memory = TokenMemory(blocks * size, host * size)
        self.live: dict[int, Sequence] = {}
        self.salts: dict[int, str] = {}
        self.next = 1
        self.mirror = [self.columns(pool) for pool in (self.cache.device, self.cache.host)]

    # --- calls -----------------------------------------------------------------------------------------------------

    @rule(
        target=sequences,
        head=st.lists(st.integers(0, 1), max_size=3),
        repeat=st.integers(1, 12),
        tail=st.lists(st.integers(0, 1), min_size=1, max_size=9),
        salt=st.sampled_from(("", "", "", "other")),
    )
    def open(self, head: list[int], repeat: int, tail: list[int], salt: str) -> int:
        tokens = head * repeat + tail
        expected = self.cache.match(tokens, salt=salt)
        number = self.next
        found = self.cache.open(number, tokens, salt=salt, owner=number)
        assert found == expected == self.cache.computed(number)
        assert 0 <= found < len(tokens)
        self.next += 1
        self.live[number] = sequence(number, tokens)
        self.salts[number] = salt
        return number

    @rule(
        wanted=st.lists(st.tuples(sequences, st.integers(1, 20)), min_size=1, max_size=4, unique_by=lambda w: w[0]),
        more=st.integers(0, 1),
    )
    def step(self, wanted: list[tuple[int, int]], more: int) -> None:
        """One step with several sequences at once, each as far as there is room."""
        self.cache.step += 1
        plan = StepPlan()
        for number, count in wanted:
            seq = self.live.get(number)
            if seq is None or self.cache.tier(number) == "host":
                continue
            start = self.cache.computed(number)
            if start == len(seq.tokens):
                seq.tokens.append(more)
            stop = min(start + count, len(seq.tokens))
            if self.grow(number, stop):
                plan.work.append(Work(seq, start, stop - start, samples=stop == len(seq.tokens)))
        for work in plan.work:
            self.assert_writable(work)
        self.memory.execute(plan, self.cache)
        for work in plan.work:
            self.cache.commit(work.sequence.number, work.sequence.tokens, work.start + work.count)

    @rule(number=sequences, count=st.integers(1, 20))
    def grow_only(self, number: int, count: int) -> None:
        """Scheduled, and then not run."""
        if number in self.live and self.cache.tier(number) == "device":
            self.grow(number, self.cache.computed(number) + count)

    @rule(target=sequences, parent=sequences)
    def fork(self, parent: int) -> object:
        if parent not in self.live:
            return multiple()
        child = self.next
        self.next += 1
        self.cache.fork(parent, child, owner=child)
        self.live[child] = sequence(child, self.live[parent].tokens)
        self.salts[child] = self.salts[parent]
        assert self.cache.computed(child) == self.cache.computed(parent)
        return child

    @rule(number=sequences)
    def close(self, number: int) -> None:
        if self.live.pop(number, None) is not None:
            self.cache.close(number)

    @rule(number=sequences)
    def swap(self, number: int) -> None:
        if number not in self.live:
            return
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

    @rule(size=st.sampled_from(SIZES))
    def repage(self, size: int) -> None:
        self.memory.run_journal(self.cache)
        before = state_of(self.cache)
        held = {number: self.cache.tables[number].held for number in self.live}
        cached = self.cache.device.cached_count + self.cache.host.cached_count
        try:
            expected = self.cache.repage(size, dry_run=True)
        except OutOfBlocks as full:
            assert full.needed > full.available
            with pytest.raises(OutOfBlocks):
                self.cache.repage(size)
            assert state_of(self.cache) == before
            return
        assert state_of(self.cache) == before
        done = self.cache.repage(size)
        assert (done.blocks_moved, done.slots_moved, done.cached_dropped, done.num_blocks) == (
            expected.blocks_moved,
            expected.slots_moved,
            expected.cached_dropped,
            expected.num_blocks,
        )
        assert 0 <= done.cached_dropped <= cached
        assert size > done.old_size or not done.slots_moved, "splitting blocks moves nothing"
        self.memory.move(done)
        assert {number: self.cache.tables[number].held for number in self.live} == held
        self.mirror = [self.columns(pool) for pool in (self.cache.device, self.cache.host)]

    @rule(blocks=st.integers(0, 24))
    def resize_host(self, blocks: int) -> None:
        self.memory.run_journal(self.cache)
        before = state_of(self.cache)
        try:
            expected = self.cache.resize_host(blocks, dry_run=True)
        except OutOfBlocks as full:
            assert full.needed > blocks
            assert state_of(self.cache) == before
            return
        assert state_of(self.cache) == before
        done = self.cache.resize_host(blocks)
        assert (done.old, done.new, done.cached_dropped) == (expected.old, blocks, expected.cached_dropped)
        self.memory.resize_host(done, self.cache.block_size)
        self.mirror = [self.columns(pool) for pool in (self.cache.device, self.cache.host)]

    @rule(on=st.booleans())
    def switch_prefix_caching(self, on: bool) -> None:
        self.cache.prefix_caching = on
        if not on:
            assert not self.cache.device.cached_count and not self.cache.host.cached_count

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
            for number in list(self.live):
                self.close(number)
            self.holds()

    # --- helpers ---------------------------------------------------------------------------------------------------

    @staticmethod
    def columns(pool: object) -> np.ndarray:
        return np.stack(
            [np.asarray(getattr(pool, n), np.int64) for n in ("state", "ref", "fill", "owner", "last_used")]
        )

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

    def assert_writable(self, work: Work) -> None:
        number, size, device = work.sequence.number, self.cache.block_size, self.cache.device
        slots = self.cache.slots(number, work.start, work.start + work.count)
        for slot in slots[slots >= 0]:
            entry = device.index.entry(int(slot) // size)
            assert device.ref[slot // size] == 1 and entry is None, "a block that others may read is written"

    def describe(self, number: int) -> None:
        tier, tokens, size = self.cache.tier(number), self.live[number].tokens, self.cache.block_size
        for position, block in enumerate(self.cache.table(number).tolist()):
            facts = self.cache.describe(tier, block)
            assert (number, position) in facts.owners and facts.ref == len(facts.owners)
            assert facts.token_ids == tokens[position * size : position * size + facts.fill]


CacheMachine.TestCase.settings = settings(
    max_examples=150 * LONG,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestCache = CacheMachine.TestCase
