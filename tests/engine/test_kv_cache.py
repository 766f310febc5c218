"""The cache's promises one by one, and the cases that are known to have hurt others."""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from typing import Any

import pytest
from pagedeck.engine.cache import audit, kv_cache, prefix, reshape
from pagedeck.engine.cache.kv_cache import KVCache, OutOfBlocks, Transfer, TransferKind
from pagedeck.engine.cache.prefix import chain_digest
from pagedeck.engine.cache.reshape import Reshape
from pagedeck.engine.request import Request, Sequence, StepPlan, Work
from pagedeck.ipc.vocabulary import BlockState, SamplingParams

from .token_memory import TokenMemory, generate

SIZE = 4


class Run:
    """A cache, its memory, and sequences that run on them."""

    def __init__(self, num_blocks: int, host: int = 0, **options: Any) -> None:
        self.cache = KVCache(num_blocks, SIZE, host, **options)
        self.memory = TokenMemory(num_blocks * SIZE, host * SIZE)
        self.live: dict[int, Sequence] = {}

    def open(self, seq: int, tokens: list[int], salt: str = "", priority: int = 0) -> int:
        self.live[seq] = Sequence(seq, Request(seq, str(seq), list(tokens), SamplingParams(), 0), 0, list(tokens))
        return self.cache.open(seq, tokens, salt=salt, owner=seq, priority=priority)

    def fork(self, parent: int, child: int, index: int = 0) -> None:
        request = self.live[parent].request
        self.live[child] = Sequence(child, request, index, list(self.live[parent].tokens))
        self.cache.fork(parent, child, owner=child)

    def step(self, *seqs: int, count: int = 10**6) -> None:
        """One step of these sequences together, each up to ``count`` tokens."""
        works = []
        for seq in seqs:
            start, tokens = self.cache.computed(seq), self.live[seq].tokens
            stop = min(len(tokens), start + count)
            self.cache.grow(seq, stop)
            works.append(Work(self.live[seq], start, stop - start, stop == len(tokens)))
        sampled = iter(self.memory.execute(StepPlan(works), self.cache))
        for work in works:
            self.cache.commit(work.sequence.number, work.sequence.tokens, work.start + work.count)
            if work.samples:
                work.sequence.tokens.append(next(sampled))
        self.cache.check()

    def finish(self, *seqs: int) -> None:
        for seq in seqs:
            self.cache.close(seq)
            del self.live[seq]
        self.cache.check()

    def hog(self, blocks: int) -> None:
        """Take this many blocks for a moment; cached ones have to go, and nothing comes in their place."""
        self.cache.open(10**6, [0])
        self.cache.grow(10**6, blocks * SIZE)
        self.cache.close(10**6)

    def reshape(self, **geometry: int) -> Reshape:
        """Another geometry of the pools; sequences that do not fit give up their blocks, the youngest first."""
        self.memory.run_journal(self.cache)
        change = self.cache.plan_reshape(turns=list(self.live), **geometry)
        self.memory.reshape(change)
        for seq in change.victims:
            self.cache.close(seq)
            del self.live[seq]
        self.cache.reshape(change)
        self.cache.check()
        return change

    def output(self, seq: int) -> list[int]:
        return self.live[seq].tokens[self.live[seq].prompt_length :]

    def assert_right(self) -> None:
        for sequence in self.live.values():
            count = sequence.output_length
            assert sequence.tokens[sequence.prompt_length :] == generate(
                sequence.request.prompt, count, self.memory.vocabulary, sequence.index
            )


PROMPT = list(range(10, 20))  # two and a half blocks


def test_blocks_come_as_they_are_needed():
    run = Run(8)
    run.open(1, PROMPT)
    assert run.cache.counts(1) == (0, 0) and run.cache.available == 8
    assert run.cache.cost(1, 4) == 1 and run.cache.cost(1, 5) == 2
    run.step(1, count=5)
    assert run.cache.table(1).tolist() == [0, 1] and run.cache.computed(1) == 5
    assert run.cache.slots(1, 5, 8).tolist() == [5, 6, 7]
    assert run.cache.cost(1, 8) == 0
    run.finish(1)
    assert run.cache.device.free_count == 7 and run.cache.device.cached_count == 1


def test_nothing_changes_where_there_is_no_room():
    run = Run(2)
    run.open(1, PROMPT)
    run.step(1, count=5)
    with pytest.raises(OutOfBlocks) as full:
        run.cache.grow(1, 10)
    assert (full.value.needed, full.value.available, full.value.tier) == (1, 0, "device")
    assert run.cache.table(1).tolist() == [0, 1]


def test_a_prefix_is_found_once_it_is_computed_and_not_before():
    run = Run(16)
    run.open(1, PROMPT)
    run.cache.grow(1, 10)
    assert run.cache.match(PROMPT) == 0
    run.step(1)
    assert run.cache.match(PROMPT) == 8
    assert run.cache.match([*PROMPT[:4], 0, 0, 0, 0, 0]) == 4
    assert run.cache.match([0, *PROMPT[1:]]) == 0
    assert run.open(2, PROMPT) == 8
    assert run.cache.counts(2) == (2, 2) and run.cache.device.saved_count == 2
    assert run.cache.device.state[run.cache.table(1)].tolist() == [BlockState.SHARED] * 2 + [BlockState.ACTIVE]


def test_a_wholly_cached_prompt_still_runs_its_last_token_and_writes_nothing():
    run = Run(16)
    run.open(1, PROMPT[:8])
    run.step(1)
    free = run.cache.available
    assert run.open(2, PROMPT[:8]) == 7
    assert run.open(3, PROMPT[:8]) == 7
    assert run.cache.cost(2, 8) == 0
    assert run.cache.slots(2, 7, 8).tolist() == [-1]
    run.step(2, 3)
    assert run.cache.available == free and not run.cache.journal
    for _ in range(6):
        run.step(1, 2, 3)
    run.assert_right()
    assert run.output(1)[:7] == run.output(2)[:7] == run.output(3)[:7]


def test_a_prompt_of_one_token_finds_nothing():
    cache = KVCache(8, 1)
    cache.open(1, [5, 6])
    cache.grow(1, 2)
    cache.commit(1, [5, 6], 2)
    assert cache.match([5]) == 0 and cache.match([5, 6]) == 1 and cache.match([]) == 0


@pytest.mark.parametrize("salts", [("a", "b"), ("", "a")])
def test_other_salts_never_share(salts):
    run = Run(16)
    run.open(1, PROMPT, salts[0])
    run.step(1)
    assert run.open(2, PROMPT, salts[1]) == 0
    run.step(2)
    assert run.cache.device.saved_count == 0
    assert run.cache.match(PROMPT, salt=salts[0]) == run.cache.match(PROMPT, salt=salts[1]) == 8
    assert run.cache.match(PROMPT, salt="c") == 0


def test_two_that_compute_the_same_at_once_end_up_with_one_copy():
    run = Run(16)
    run.open(1, PROMPT)
    run.open(2, PROMPT)
    run.step(1, 2)
    assert run.cache.table(1)[:2].tolist() == run.cache.table(2)[:2].tolist()
    assert run.cache.table(1)[2] != run.cache.table(2)[2]
    assert run.cache.device.used_count == 4
    for _ in range(9):
        run.step(1, 2)
    run.assert_right()
    run.finish(1)
    run.step(2)
    run.assert_right()
    run.finish(2)
    assert run.cache.device.used_count == 0 and run.cache.match(PROMPT) == 8


def test_a_fork_shares_all_and_copies_only_the_tail_that_is_written():
    run = Run(16)
    run.open(1, PROMPT)
    run.step(1, count=9)  # all but the last token
    run.fork(1, 2, index=1)
    run.fork(1, 3, index=2)
    assert run.cache.device.used_count == 3
    assert [run.cache.cost(seq, 10) for seq in (1, 2, 3)] == [1, 1, 1]
    tail = int(run.cache.table(1)[2])
    run.cache.grow(1, 10)
    assert run.cache.journal == [Transfer(TransferKind.COPY, tail, int(run.cache.table(1)[2]))]
    run.cache.grow(2, 10)
    assert run.cache.cost(3, 10) == 0, "the last holder keeps the block"
    for _ in range(6):
        run.step(1, 2, 3)
    run.assert_right()
    assert len({tuple(run.output(seq)) for seq in (1, 2, 3)}) == 3
    assert run.cache.table(3)[2] == tail


def test_leaves_are_evicted_before_the_blocks_that_lead_to_them():
    run = Run(5)
    run.open(1, PROMPT[:8])
    run.step(1)
    run.finish(1)
    run.open(2, [*PROMPT[:4], *range(50, 54)])
    run.step(2)
    run.finish(2)
    assert run.cache.device.cached_count == 3
    run.open(3, [0] * 12)
    run.cache.grow(3, 12)  # two free blocks and one cached
    assert run.cache.match([*PROMPT[:8], 0]) == 4 and run.cache.match([*PROMPT[:4], *range(50, 54), 0]) == 8
    run.cache.close(3)
    run.open(3, [0] * 16)
    run.cache.grow(3, 16)
    assert run.cache.match([*PROMPT[:4], *range(50, 54), 0]) == 4


def test_preempted_for_recompute_it_finds_its_own_blocks_again():
    run = Run(8)
    run.open(1, PROMPT)
    for _ in range(4):
        run.step(1)
    tokens = run.live[1].tokens
    run.cache.close(1)
    assert run.cache.open(1, tokens) == 12
    run.step(1)
    run.assert_right()


def test_scheduled_and_preempted_in_the_same_step():
    run = Run(8, host=8)
    run.open(1, PROMPT)
    run.step(1)
    run.cache.grow(1, 20)
    run.cache.swap_out(1)
    assert run.cache.counts(1) == (3, 0) and run.cache.device.reserved_count == 0
    run.cache.swap_in(1)
    run.step(1)
    run.cache.grow(1, 20)
    run.cache.close(1)
    run.cache.check()


def test_a_swapped_sequence_goes_on_as_if_nothing_had_happened():
    run = Run(4, host=4)
    run.open(1, PROMPT)
    run.step(1)
    run.cache.swap_out(1)
    assert run.cache.tier(1) == "host" and run.cache.computed(1) == 10
    assert run.cache.host.state[run.cache.table(1)].tolist() == [BlockState.SWAPPED] * 3
    run.open(2, [0] * 15)
    run.step(2)  # overwrites all that the device held
    with pytest.raises(OutOfBlocks) as full:
        run.cache.swap_in(1)
    assert full.value.needed == run.cache.swap_in_cost(1) == 3
    run.finish(2)
    run.cache.swap_in(1)
    for _ in range(4):
        run.step(1)
    run.assert_right()


def test_shared_blocks_are_swapped_once():
    for options in ({}, {"prefix_caching": False}):
        run = Run(8, host=4, **options)
        run.open(1, PROMPT)
        run.step(1, count=9)
        for child in (2, 3):
            run.fork(1, child, index=child - 1)
        for seq in (1, 2, 3):
            run.cache.swap_out(seq)
        assert [kind for kind, _, _ in run.cache.journal] == [TransferKind.SWAP_OUT] * 3
        assert run.cache.host.used_count == 3 and run.cache.host.saved_count == 6
        assert run.cache.device.used_count == 0
        for seq in (3, 1, 2):
            run.cache.swap_in(seq)
        assert run.cache.device.used_count == 3 and run.cache.device.saved_count == 6
        for _ in range(5):
            run.step(1, 2, 3)
        run.assert_right()


def test_what_others_use_stays_for_them_while_one_is_swapped_out():
    """The shared tail is written by the one that stays; what was swapped out must keep the old content."""
    run = Run(8, host=8, prefix_caching=False)
    run.open(1, PROMPT)
    run.step(1, count=9)
    run.fork(1, 2, index=1)
    run.cache.swap_out(1)
    assert run.cache.counts(2) == (3, 0)
    run.step(2)
    run.step(2)
    run.cache.swap_out(2)
    assert run.cache.host.used_count == 4, "two full blocks are shared, the tails differ"
    run.cache.swap_in(1)
    run.cache.swap_in(2)
    for _ in range(4):
        run.step(1, 2)
    run.assert_right()


def test_a_full_host_tier_refuses_and_its_cached_blocks_make_room():
    run = Run(8, host=3)
    run.open(1, [1] * 12)
    run.step(1)
    run.open(2, [2] * 12)
    run.step(2)
    run.cache.swap_out(1)
    with pytest.raises(OutOfBlocks) as full:
        run.cache.swap_out(2)
    assert (full.value.tier, full.value.needed, full.value.available) == ("host", 3, 0)
    assert run.cache.tier(2) == "device"
    run.cache.swap_in(1)
    assert run.cache.host.cached_count == 3
    run.cache.swap_out(2)
    run.cache.swap_in(2)
    run.step(1, 2)
    run.assert_right()


def test_an_evicted_prefix_moves_to_the_host_tier_and_comes_back():
    run = Run(4, host=4)
    run.open(1, PROMPT)
    run.step(1)
    run.finish(1)
    run.open(2, [0] * 15)
    run.step(2)
    assert run.cache.host.cached_count == 2 and run.cache.device.cached_count == 0
    run.finish(2)
    assert run.cache.match(PROMPT) == 8
    assert run.open(3, PROMPT) == 8
    assert [kind for kind, _, _ in run.cache.journal].count(TransferKind.SWAP_IN) == 2
    for _ in range(4):
        run.step(3)
    run.assert_right()


def test_a_host_hit_is_not_evicted_between_lookup_and_load():
    """Bringing it in evicts device blocks, which go to a host tier that is full of the very blocks being read."""
    run = Run(3, host=3)
    run.open(1, [1] * 12)
    run.step(1)
    run.finish(1)
    run.open(2, [2] * 12)
    run.step(2)
    run.finish(2)
    assert run.cache.device.cached_count == run.cache.host.cached_count == 3
    assert run.open(3, [1] * 12) == 11
    run.step(3)
    run.assert_right()


def test_host_blocks_come_in_only_as_far_as_there_is_room():
    run = Run(4, host=4)
    run.open(1, PROMPT)
    run.step(1)
    run.finish(1)
    run.open(2, [0] * 11)
    run.step(2)
    run.open(3, [9] * 3)
    run.step(3)
    run.finish(3)
    assert run.cache.available == 1 and run.cache.host.cached_count == 2
    assert run.cache.match(PROMPT) == 4 == run.open(4, PROMPT)


CHAIN = list(range(10, 26))  # four blocks


def test_the_host_tier_too_gives_up_leaves_first():
    run = Run(6, host=4)
    for prompt in (CHAIN[:8], CHAIN[:4], CHAIN[:8]):  # the last finds one block on the device, one in the host tier
        run.open(1, [*prompt, 99])
        run.step(1)
        run.finish(1)
        run.hog(6 if prompt == CHAIN[:8] else 5)
        run.cache.check()
    run.memory.run_journal(run.cache)
    run.reshape(num_host_blocks=1)
    assert run.cache.match([*CHAIN[:8], 0]) == 4


def test_a_merge_gives_up_what_nothing_leads_to_any_more():
    """The chain stands in both tiers; its first new block would have to come from both, so its second is lost too."""
    run = Run(6, host=4)
    for prompt, blocks in ((CHAIN, 6), (CHAIN[:4], 5), (CHAIN, 0)):
        run.open(1, [*prompt, 99])
        run.step(1)
        run.finish(1)
        run.hog(blocks)
    run.memory.run_journal(run.cache)
    run.reshape(num_host_blocks=3)
    run.hog(5)
    assert (run.cache.device.cached_count, run.cache.host.cached_count) == (1, 3)
    assert run.cache.match([*CHAIN, 0]) == 16
    assert run.reshape(block_size=2 * SIZE).cached_dropped == 4
    run.cache.check()
    assert run.cache.match([*CHAIN, 0]) == 0


def test_switching_prefix_caching_off_and_on_under_live_sequences():
    run = Run(16, host=4)
    run.open(1, PROMPT)
    run.open(2, PROMPT)
    run.step(1, 2)
    run.open(3, [3] * 9)
    run.step(3)
    run.finish(3)
    run.cache.prefix_caching = False
    assert run.cache.device.cached_count == 0 and run.cache.match(PROMPT) == 0
    run.cache.check()
    run.step(1, 2)
    run.cache.prefix_caching = True
    assert run.cache.match(PROMPT) == 8
    run.cache.check()
    for _ in range(3):
        run.step(1, 2)
    run.assert_right()


def test_colliding_hashes_never_share(monkeypatch):
    """With a hash of three values nearly everything collides; tokens decide."""

    def weak(before: bytes, tokens: bytes) -> bytes:
        return bytes([chain_digest(before, tokens)[0] % 3]) * 16

    for module in (kv_cache, prefix, reshape, audit):
        monkeypatch.setattr(module, "chain_digest", weak)
    run = Run(40, host=10)
    for seq in range(1, 9):
        run.open(seq, [seq] * 9)
        run.step(seq)
    for _ in range(6):
        run.step(*range(1, 9))
    run.assert_right()
    run.finish(*range(1, 5))
    for seq in range(11, 15):
        run.open(seq, [seq - 10] * 9)
        run.step(seq)
    run.assert_right()


def test_a_block_tells_its_whole_story():
    run = Run(8)
    run.cache.step = 7
    run.open(1, PROMPT)
    run.step(1)
    run.open(2, PROMPT)
    block = int(run.cache.table(1)[1])
    facts = run.cache.describe("device", block)
    assert facts.owners == [(1, 1), (2, 1)] and facts.ref == 2 and facts.state == BlockState.SHARED
    assert facts.token_ids == PROMPT[4:8] and facts.fill == 4 and facts.last_used == 7
    assert len(bytes.fromhex(facts.digest)) == 16
    tail = run.cache.describe("device", int(run.cache.table(1)[2]))
    assert tail.token_ids == PROMPT[8:] and tail.digest == "" and tail.owners == [(1, 2)]


def test_a_block_knows_what_leads_to_it_and_what_continues_it():
    run = Run(12, host=4)
    run.open(1, [*PROMPT[:8], 1, 2, 3, 4, 5])
    run.open(2, [9] * 5)
    run.step(1, 2)
    run.open(3, [*PROMPT[:8], 5, 6, 7, 8, 9])
    run.step(3)
    first, second, third = run.cache.table(1)[:3].tolist()
    other = int(run.cache.table(3)[2])
    assert [run.cache.device.index.depth[block] for block in (first, second, third, other)] == [1, 2, 3, 3]
    ancestors, children = run.cache.family("device", second)
    assert [node.block for node in ancestors] == [first]
    assert {node.block for node in children} == {third, other}
    assert [node.block for node in run.cache.family("device", third)[0]] == [first, second]
    assert run.cache.family("device", first)[0] == []
    assert run.cache.family("device", int(run.cache.table(1)[3])) == ([], [])
    run.finish(3)
    run.cache.swap_out(1)
    run.memory.run_journal(run.cache)
    mine = run.cache.table(1)[:3].tolist()
    assert run.cache.copy_of("host", mine[0]) == first and run.cache.copy_of("device", first) == mine[0]
    assert [node.block for node in run.cache.family("host", mine[2])[0]] == [first, second]


def test_cost_does_not_depend_on_the_size_of_the_pool():
    """Counted in executed Python lines, not in seconds."""

    def lines(num_blocks: int) -> int:
        run, count = Run(num_blocks), 0
        run.memory.poison = False

        def trace(frame, event, argument):
            nonlocal count
            count += event == "line" and "pagedeck" in frame.f_globals.get("__name__", "")
            return trace

        run.open(1, PROMPT)
        run.step(1)
        run.open(2, PROMPT)
        run.cache.check = lambda: None
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            for _ in range(10):
                run.step(1, 2)
            run.cache.close(1)
            run.cache.device.take_changed()
        finally:
            sys.settrace(before)
        return count

    assert lines(100) == lines(20_000)


# --- cases known to have hurt others --------------------------------------------------------------------------------


def test_a_duplicate_block_is_not_freed_while_a_table_still_names_it():
    """Two compute the same; the second's copies are given back at once, and nobody who comes gets a block in use."""
    run = Run(7)
    run.open(1, PROMPT)
    run.open(2, PROMPT)
    run.step(1, 2)
    assert run.cache.available == 7 - 4
    run.open(3, [7] * 12)
    run.step(3)
    assert not set(run.cache.table(3).tolist()) & {*run.cache.table(1).tolist(), *run.cache.table(2).tolist()}
    run.finish(1)
    for _ in range(2):
        run.step(2)
    run.assert_right()


@pytest.mark.parametrize("options", [{}, {"prefix_caching": False}])
def test_two_groups_of_samples_are_swapped_and_resumed(options: dict[str, bool]):
    run = Run(24, host=12, **options)
    for parent, prompt in ((1, PROMPT), (11, [9, *PROMPT])):
        run.open(parent, prompt)
        run.step(parent, count=len(prompt) - 1)
        for index in (1, 2):
            run.fork(parent, parent + index, index=index)
        run.step(parent, parent + 1, parent + 2)
    groups = [1, 2, 3, 11, 12, 13]
    for seq in groups:
        run.cache.swap_out(seq)
    run.cache.check()
    assert run.cache.device.used_count == 0 and run.cache.host.used_count == 10
    for seq in (13, 2, 1, 12, 3, 11):
        run.cache.swap_in(seq)
    for _ in range(6):
        run.step(*groups)
    run.assert_right()
    assert run.cache.device.saved_count == 2 * (2 + 2)


def test_a_shrunken_pool_gives_no_block_beyond_its_end():
    run = Run(16)
    run.open(1, PROMPT)
    run.open(2, [5] * 10)
    run.step(1, 2)
    run.finish(1)
    run.reshape(num_blocks=5)
    assert run.cache.table(2).max() < 5 and run.cache.device.cached_count == 2
    run.open(3, [6] * 7)
    for _ in range(2):
        run.step(2, 3)
    run.assert_right()


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_growing_sequence_keeps_a_run_ahead_and_grows_into_it():
    run = Run(40, contiguous_blocks=6)
    run.open(1, PROMPT)
    run.open(2, [3] * 5)
    run.step(1, 2)
    pool, last = run.cache.device, int(run.cache.table(1)[-1])
    assert pool.state[last + 1 : last + 7].tolist() == [BlockState.RESERVED] * 6 and pool.ahead_count == 12
    assert pool.owner[last + 1 : last + 7].tolist() == [1] * 6
    assert run.cache.available == 40 - pool.used_count, "what is kept ahead is there for whoever needs it"
    for _ in range(24):
        run.step(1, 2)
    assert run.cache.runs(1) == run.cache.runs(2) == 1
    assert pool.references / pool.runs == pool.used_count / 2
    run.assert_right()


def test_what_is_kept_ahead_goes_before_anything_cached():
    run = Run(12, contiguous_blocks=8)
    run.open(1, PROMPT[:8])
    run.step(1)
    run.finish(1)
    run.open(2, [4] * 4)
    run.step(2)
    assert run.cache.device.ahead_count == 8 and run.cache.device.free_count == 1
    run.open(3, [6] * 28)
    run.step(3)
    assert run.cache.match(PROMPT[:9]) == 8 and run.cache.device.cached_count == 2
    assert 2 not in run.cache.device.ahead()


@pytest.mark.parametrize("way", ["swap", "close", "reshape"])
def test_what_is_kept_ahead_is_given_back(way: str):
    run = Run(20, host=8, contiguous_blocks=5)
    run.open(1, PROMPT)
    run.step(1)
    assert run.cache.device.ahead_count == 5
    if way == "swap":
        run.cache.swap_out(1)
    elif way == "close":
        run.finish(1)
    else:
        run.reshape(block_size=2 * SIZE)
    assert run.cache.device.ahead_count == 0 == run.cache.device.reserved_count
    run.cache.check()


def test_the_contiguity_figure_counts_runs():
    run = Run(8)
    for seq in (1, 2):
        run.open(seq, [seq] * 16)
    for length in (4, 8, 12, 16):  # in turn, without room to stay in one piece
        for seq in (1, 2):
            run.cache.grow(seq, length)
    for seq in (1, 2):
        blocks = run.cache.table(seq).tolist()
        assert run.cache.runs(seq) == 1 + sum(b != a + 1 for a, b in pairwise(blocks))
    assert run.cache.device.runs == run.cache.runs(1) + run.cache.runs(2) > 2
    run.cache.close(1)
    assert run.cache.device.runs == run.cache.runs(2)


# --- eviction by priority -------------------------------------------------------------------------------------------


def served(run: Run, seq: int, tokens: list[int], priority: int) -> None:
    run.open(seq, tokens, priority=priority)
    run.step(seq)
    run.finish(seq)


@pytest.mark.parametrize(("eviction", "kept"), [("lru", 0), ("priority", 8)])
def test_a_batch_job_cannot_wash_out_interactive_prefixes(eviction: str, kept: int):
    run = Run(8, eviction=eviction)
    served(run, 1, PROMPT, 0)
    for job in range(10):
        served(run, 10 + job, [30 + job] * 17, 20)
    assert run.cache.match(PROMPT) == kept


def test_the_most_urgent_use_is_remembered():
    run = Run(8, eviction="priority")
    served(run, 1, PROMPT, 20)
    served(run, 2, [1] * 9, 10)
    served(run, 3, PROMPT, 0)
    served(run, 4, PROMPT, 20)
    run.hog(8 - 2)
    assert run.cache.match(PROMPT) == 8 and run.cache.match([1] * 9) == 0


@pytest.mark.parametrize(("eviction", "first", "then"), [("lru", 2, 1), ("priority", 1, 2)])
def test_a_beginning_outlives_its_ends_whoever_used_them(eviction: str, first: int, then: int):
    run = Run(10, eviction=eviction)
    ends = {end: [*PROMPT[:4], *[end] * 5] for end in (1, 2)}
    served(run, 2, ends[2], 0)
    served(run, 1, ends[1], 20)
    served(run, 3, [*PROMPT[:4], 3], 20)
    for blocks, found in ((8, {first: 4, then: 8}), (9, {first: 4, then: 4}), (10, {first: 0, then: 0})):
        run.hog(blocks)
        run.cache.check()
        assert {end: run.cache.match(ends[end]) for end in (first, then)} == found


def test_a_prefix_stays_urgent_through_the_host_tier():
    run = Run(8, host=8, eviction="priority")
    served(run, 1, PROMPT, 0)
    run.hog(8)
    served(run, 2, PROMPT, 20)  # brings it back
    device = run.cache.device
    assert device.priority[device.cached()].tolist() == [0, 0]


def test_an_urgent_use_on_the_device_counts_in_the_host_tier_too():
    run = Run(8, host=8, eviction="priority")
    served(run, 1, PROMPT, 20)
    run.hog(8)
    served(run, 2, PROMPT, 20)
    served(run, 3, PROMPT, 0)
    run.hog(8)
    host = run.cache.host
    assert host.priority[host.cached()].tolist() == [0, 0]


# --- savings and utilisation ----------------------------------------------------------------------------------------


def test_savings_add_up():
    run = Run(32)
    for seq in (1, 2, 3):
        run.open(seq, [*PROMPT, seq])
        run.step(seq)
    run.fork(3, 4, index=1)
    run.step(1, 2, 3, 4)
    alone = sum(len(run.cache.table(seq)) for seq in run.live)
    assert run.cache.device.saved_count == alone - run.cache.device.used_count > 0
    assert sum(run.cache.saved(seq) for seq in run.live) == run.cache.device.saved_count
    assert run.cache.saved(1) == 0 and run.cache.saved(2) == 2


def test_the_next_token_of_many_at_once_is_as_of_each():
    runs = [Run(64), Run(64)]
    for run in runs:
        for seq in range(1, 9):
            run.open(seq, PROMPT[: 3 + seq % 6])
        run.step(*run.live)
        run.open(9, PROMPT[:4])  # all of it is cached: its last token runs, and is not stored
        for _ in range(9):
            run.cache.step += 1
            for seq in run.live:
                run.cache.grow(seq, run.cache.computed(seq) + 1)
            if run is runs[0]:
                run.cache.commit_next(list(run.live), [s.tokens[run.cache.computed(n)] for n, s in run.live.items()])
            else:
                for seq, sequence in run.live.items():
                    run.cache.commit(seq, sequence.tokens, run.cache.computed(seq) + 1)
            for sequence in run.live.values():
                sequence.tokens.append(sequence.number)
            run.cache.check()
    one, other = (run.cache for run in runs)
    for column in ("state", "ref", "fill", "owner", "last_used", "tokens"):
        assert (getattr(one.device, column) == getattr(other.device, column)).all(), column
    assert one.device.index.entries() == other.device.index.entries()
    assert one.device.tokens_held == other.device.tokens_held
    assert [one.table(seq).tolist() for seq in range(1, 10)] == [other.table(seq).tolist() for seq in range(1, 10)]


# --- many at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eviction", ["lru", "priority"])
@pytest.mark.parametrize("seed", range(12))
def test_evicting_many_blocks_is_evicting_one_after_another(seed: int, eviction: str):
    """What stays on the device and what comes to a host tier of any size, some of which is held or there already."""
    outcomes = []
    for together in (True, False):
        choose = random.Random(seed)
        run = Run(40, choose.choice((0, 3, 9, 30)), eviction=eviction)
        beginnings = [[start] * choose.choice((SIZE, 3 * SIZE)) for start in range(4)]
        for seq in range(30):
            tokens = choose.choice(beginnings) + [choose.randrange(5)] * choose.randrange(1, 20)
            run.open(seq, tokens, priority=choose.choice((0, 20)))
            run.step(seq)
            if choose.random() < 0.2 and run.cache.swap_out_cost(seq) <= run.cache.host.available:
                run.cache.swap_out(seq)
            else:
                run.finish(seq)
            count = choose.randrange(min(run.cache.available, 25))
            before = run.cache.device.cached()
            need = max(0, count - run.cache.device.free_count)
            for part in (need,) if together else (1,) * need:
                run.cache.device.evict(part)
            run.cache.check()
            assert run.cache.device.cached() == before[need:]
        run.memory.run_journal(run.cache)
        for seq in list(run.live):
            run.memory.verify(seq, run.live[seq].tokens[:-1], run.cache)
        pools = (run.cache.device, run.cache.host)
        outcomes.append([[pool.index.entry(block) for block in pool.cached()] for pool in pools])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("settings", [{}, {"contiguous_blocks": 2}])
def test_growing_many_sequences_is_growing_one_after_another(settings: dict[str, int]):
    caches = []
    for together in (True, False):
        run = Run(60, **settings)
        for seq in range(9):
            run.open(seq, [seq] * (SIZE - 3 + seq % 5))
            run.step(seq)
        run.fork(0, 10)
        for _ in range(6):
            seqs, lengths = list(run.live), [len(sequence.tokens) for sequence in run.live.values()]
            if together:
                run.cache.grow_all(seqs, lengths)
            run.step(*seqs)
        caches.append(run.cache)
    one, other = caches
    assert {seq: one.table(seq).tolist() for seq in one.tables} == {
        seq: other.table(seq).tolist() for seq in other.tables
    }
    assert one.device.free_runs() == other.device.free_runs()


def test_of_many_that_do_not_all_fit_none_grows():
    run = Run(6)
    for seq in range(4):
        run.open(seq, [seq] * SIZE)
        run.step(seq)
    with pytest.raises(OutOfBlocks) as full:
        run.cache.grow_all([0, 1, 2], [SIZE + 1] * 3)
    assert (full.value.needed, full.value.available) == (3, 2)
    assert all(run.cache.counts(seq) == (1, 0) for seq in range(4)) and run.cache.available == 2
    run.cache.grow_all([0, 2], [SIZE + 1] * 2)
    assert run.cache.available == 0
