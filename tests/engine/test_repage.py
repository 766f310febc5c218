"""Other block sizes and another host tier under live sequences: what moves, what is kept, what is refused."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pagedeck.engine.cache.kv_cache import KVCache, OutOfBlocks
from pagedeck.engine.cache.moves import Move, in_batches
from pagedeck.engine.request import Request, Sequence, StepPlan, Work
from pagedeck.ipc.vocabulary import SamplingParams

from .token_memory import TokenMemory


@pytest.mark.parametrize("seed", range(60))
def test_moves_in_batches_are_as_if_at_once(seed):
    """Any moves, whatever overlaps: sources read by several, chains, cycles longer than a batch."""
    choose = random.Random(seed)
    count, unit = choose.randint(1, 80), choose.choice((1, 2, 4))
    scratch = choose.choice((1, 2, 3, 8, 1000)) * unit
    if seed % 3:
        targets = choose.sample(range(count), choose.randint(0, count))
        moves = [Move(choose.randrange(count), target, choose.randint(1, unit)) for target in targets]
        moves = [move for move in moves if move.source != move.target]
    else:  # one cycle through everything
        order = choose.sample(range(count), count)
        moves = [Move(a, b, unit) for a, b in zip(order, order[1:] + order[:1], strict=True) if a != b]
    memory = np.arange(count * unit)
    expected = memory.copy()
    for source, target, length in moves:
        expected[target * unit : target * unit + length] = memory[source * unit : source * unit + length]
    meant = np.zeros(count * unit, bool)
    for _, target, length in moves:
        meant[target * unit : target * unit + length] = True
    untouched = np.ones(count * unit, bool)
    for _, target, _ in moves:
        untouched[target * unit : (target + 1) * unit] = False
    for source, target in in_batches(np.array(moves, np.int64).reshape(-1, 3), unit, scratch):
        assert len(source) == len(target) <= max(scratch, 2 * unit)
        assert len(np.unique(target)) == len(target)
        memory[target] = memory[source]
    assert (memory[meant | untouched] == expected[meant | untouched]).all()


class Bench:
    """A cache and its memory."""

    def __init__(self, num_blocks: int, block_size: int, host: int = 0) -> None:
        self.cache = KVCache(num_blocks, block_size, host)
        self.memory = TokenMemory(num_blocks * block_size, host * block_size)
        self.tokens: dict[int, list[int]] = {}

    def hold(self, seq: int, tokens: list[int]) -> int:
        found = self.cache.open(seq, tokens, owner=seq)
        self.tokens[seq] = tokens
        self.cache.grow(seq, len(tokens))
        sequence = Sequence(seq, Request(seq, str(seq), tokens, SamplingParams(), 0), 0, tokens)
        self.memory.execute(StepPlan([Work(sequence, found, len(tokens) - found, True)]), self.cache)
        self.cache.commit(seq, tokens, len(tokens))
        return found

    def reshape(self, size: int | None = None, *, blocks: int | None = None, host: int | None = None, turns=()):
        self.memory.run_journal(self.cache)
        done = self.cache.plan_reshape(block_size=size, num_blocks=blocks, num_host_blocks=host, turns=turns)
        self.memory.reshape(done)
        for seq in done.victims:
            self.cache.close(seq)
        self.cache.reshape(done)
        self.verify()
        return done

    def repage(self, size: int):
        return self.reshape(size)

    def resize_host(self, blocks: int):
        return self.reshape(host=blocks)

    def verify(self) -> None:
        self.cache.check()
        self.memory.run_journal(self.cache)
        for seq in self.cache.tables:
            self.memory.verify(seq, self.tokens[seq], self.cache)


def test_splitting_moves_nothing_and_keeps_all_that_is_cached():
    bench = Bench(8, 32)
    bench.hold(1, list(range(100)))
    bench.hold(2, list(range(1000, 1070)))
    bench.cache.close(2)
    done = bench.repage(8)
    assert (done.slots_copied, done.blocks_moved, done.cached_dropped, done.device.num_blocks) == (0, 0, 0, 32)
    assert bench.cache.match(list(range(1000, 1070))) == 64
    assert bench.cache.match([*range(100), 7]) == 96


def test_merging_neighbours_moves_nothing():
    bench = Bench(16, 8)
    bench.hold(1, list(range(64)))
    assert bench.cache.table(1).tolist() == list(range(8))
    done = bench.repage(32)
    assert done.slots_copied == 0 and bench.cache.table(1).tolist() == [0, 1]


def test_there_and_back_again_keeps_sharing():
    bench = Bench(64, 8)
    system = list(range(64))
    for seq in range(1, 5):
        bench.hold(seq, system + [100 + seq] * (5 * seq))
    assert bench.cache.counts(3)[1] == 8
    assert bench.cache.device.saved_count == 3 * 8
    for size, shared in ((16, 4), (32, 2), (8, 8), (64, 1), (256, 0), (8, 0)):
        if size == 256:
            with pytest.raises(OutOfBlocks) as full:
                bench.repage(size)
            assert (full.value.needed, full.value.available) == (4, 2)
            break
        bench.repage(size)
        assert [bench.cache.counts(seq)[1] for seq in range(1, 5)] == [shared] * 4


def test_merging_scattered_blocks_moves_them_and_the_dry_run_tells_how_many():
    bench = Bench(12, 8)
    for seq in range(1, 4):
        bench.cache.open(seq, [seq] * 32)
    for length in range(8, 33, 8):  # in turn, in a pool too small to stay apart
        for seq in range(1, 4):
            bench.cache.grow(seq, length)
    for seq in range(1, 4):
        bench.tokens[seq] = [seq] * 32
        sequence = Sequence(seq, Request(seq, "", [seq] * 32, SamplingParams(), 0), 0, [seq] * 32)
        bench.memory.execute(StepPlan([Work(sequence, 0, 32, True)]), bench.cache)
        bench.cache.commit(seq, [seq] * 32, 32)
    told = bench.cache.plan_reshape(block_size=32)
    assert bench.cache.block_size == 8
    done = bench.repage(32)
    assert done.slots_copied == told.slots_copied > 0 and done.blocks_moved == told.blocks_moved > 0
    assert sorted(int(bench.cache.table(seq)[0]) for seq in range(1, 4)) == [0, 1, 2]


def test_a_merge_keeps_the_last_used_of_what_is_cached():
    bench = Bench(8, 8)
    bench.hold(1, [1] * 16)
    bench.hold(2, [2] * 16)
    bench.hold(3, [3] * 24)
    for seq in (1, 2, 3):
        bench.cache.close(seq)
    done = bench.repage(32)
    assert done.cached_dropped == 7 and done.device.num_blocks == 2  # none of them fills a block of 32
    bench = Bench(8, 8)
    bench.hold(1, [1] * 16)
    bench.hold(2, [2] * 16)
    bench.hold(3, [3] * 9)
    bench.cache.close(2)
    bench.cache.close(1)
    done = bench.repage(16)
    assert done.cached_dropped == 0
    assert bench.cache.match([2] * 17) == bench.cache.match([1] * 17) == 16
    bench.cache.grow(3, 48)  # takes the one free block and one that is cached: that of 2, closed before 1
    assert bench.cache.match([2] * 17) == 0 and bench.cache.match([1] * 17) == 16


def test_slots_that_do_not_fill_a_block_come_back_with_the_old_size():
    bench = Bench(10, 8)
    assert bench.repage(32).device.num_blocks == 2
    bench.hold(1, list(range(60)))
    assert bench.repage(8).device.num_blocks == 10


def test_what_was_swapped_out_is_repaged_too():
    bench = Bench(8, 8, host=8)
    bench.hold(1, list(range(40)))
    bench.cache.fork(1, 2)
    bench.tokens[2] = bench.tokens[1]
    bench.cache.swap_out(1)
    bench.cache.swap_out(2)
    assert bench.cache.host.used_count == 5
    done = bench.repage(32)
    assert done.host.num_blocks == 2 and bench.cache.host.used_count == 2 == bench.cache.host.saved_count
    bench.cache.swap_in(2)
    bench.verify()


def test_the_host_tier_shrinks_as_far_as_what_is_swapped_out_allows():
    bench = Bench(8, 8, host=8)
    bench.hold(1, list(range(16)))
    bench.hold(2, list(range(100, 124)))
    bench.cache.swap_out(1)
    bench.cache.swap_out(2)
    bench.memory.run_journal(bench.cache)
    bench.cache.close(1)  # its blocks are cached in the host tier
    with pytest.raises(OutOfBlocks) as full:
        bench.cache.plan_reshape(num_host_blocks=2)
    assert (full.value.needed, full.value.available) == (3, 2)
    done = bench.resize_host(4)
    assert done.cached_dropped == 1
    assert bench.cache.plan_reshape(num_host_blocks=3).cached_dropped == 1
    assert bench.resize_host(3).num_host_slots == 3 * 8 and bench.cache.host.cached_count == 0
    assert bench.resize_host(100).cached_dropped == 0
    bench.cache.swap_in(2)
    bench.verify()


def test_a_journal_must_be_carried_out_first():
    bench = Bench(8, 8, host=8)
    bench.hold(1, list(range(40)))
    bench.cache.swap_out(1)
    with pytest.raises(AssertionError, match="journal"):
        bench.cache.plan_reshape(block_size=16)
