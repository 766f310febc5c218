"""Free runs, and a pool's allocation, reference counts and order of eviction."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pagedeck.engine.cache.blocks import BlockPool
from pagedeck.engine.cache.free_runs import FreeRuns
from pagedeck.engine.cache.prefix import Entry, chain_digest, root_digest
from pagedeck.ipc.vocabulary import BlockState


@pytest.mark.parametrize("seed", range(30))
def test_free_runs_are_the_maximal_runs_of_what_is_free(seed):
    choose = random.Random(seed)
    size = choose.randint(1, 60)
    aside = set(choose.sample(range(size), choose.randint(0, size)))
    runs, free = FreeRuns(np.array([b not in aside for b in range(size)], bool)), set(range(size)) - aside
    for _ in range(300):
        if free and choose.random() < 0.5:
            used = sorted(set(range(size)) - free)
            after = choose.choice(used) if used and choose.random() < 0.7 else -1
            count = choose.randint(1, len(free))
            following = []
            while after >= 0 and after + len(following) + 1 in free and len(following) < count:
                following.append(after + len(following) + 1)
            taken = [b for start, length in runs.take(count, after) for b in range(start, start + length)]
            assert len(taken) == len(set(taken)) == count and set(taken) <= free
            assert taken[: len(following)] == following, "the free neighbours come first"
            free -= set(taken)
        elif len(free) < size:
            block = choose.choice(sorted(set(range(size)) - free))
            runs.give(block)
            free.add(block)
        assert runs.count == len(free)
        expected = [b for b in sorted(free) if b - 1 not in free]
        assert [start for start, _ in runs.runs()] == expected
        assert sum(length for _, length in runs.runs()) == len(free)


def test_the_same_calls_give_the_same_blocks():
    def history() -> list[int]:
        choose, pool, blocks = random.Random(1), BlockPool(64, 4), []
        for seq in range(40):
            blocks += pool.take(choose.randint(1, 3), seq, 0) if pool.available > 3 else []
            if choose.random() < 0.5:
                pool.release(blocks.pop(0), 0)
        return blocks

    assert history() == history()


def test_sequences_that_grow_in_turn_stay_in_one_piece():
    """The usual case of decoding: with room between them, nobody's next block is taken by another."""
    pool = BlockPool(256, 16)
    tables = [pool.take(1, seq, 0) for seq in range(8)]
    for _ in range(15):
        for seq, table in enumerate(tables):
            table += pool.take(1, seq, 0, after=table[-1])
    assert all(table == list(range(table[0], table[0] + 16)) for table in tables)


def full(pool: BlockPool, seq: int, before: bytes, depth: int, tokens: list[int]) -> tuple[int, bytes]:
    """A full block that can be found, held by ``seq``."""
    (block,) = pool.take(1, seq, seq)
    pool.write(block, 0, tokens)
    digest = chain_digest(before, np.array(tokens, np.int32).tobytes())
    pool.index.add(block, Entry(digest, before, depth))
    return block, digest


def test_the_longest_unused_is_given_up_first_and_a_use_renews():
    evicted = []
    pool = BlockPool(3, 2, evicting=evicted.append)
    root = root_digest("")
    blocks = [full(pool, seq, root, 0, [seq, seq])[0] for seq in range(3)]
    for seq, block in enumerate(blocks):
        pool.release(block, seq)
    assert pool.cached_count == 3 and pool.free_count == 0 and pool.available == 3
    pool.share(blocks[0], 9, 9)
    pool.release(blocks[0], 9)
    pool.take(2, 10, 10)
    assert evicted == [blocks[1], blocks[2]]
    assert pool.index.entry(blocks[0]) is not None and pool.index.entry(blocks[1]) is None


def test_a_block_that_was_never_full_is_free_at_once():
    pool = BlockPool(2, 4)
    (block,) = pool.take(1, 1, 1)
    assert pool.state[block] == BlockState.RESERVED and pool.reserved_count == 1 and pool.used_count == 0
    pool.write(block, 0, [5, 6])
    assert pool.state[block] == BlockState.ACTIVE and pool.tokens_held == 2
    pool.release(block, 1)
    assert pool.free_count == 2 and pool.tokens_held == 0 and not pool.owner.any()


def test_the_owner_is_the_first_holder_that_is_left():
    pool = BlockPool(1, 4)
    (block,) = pool.take(1, 1, 11)
    pool.write(block, 0, [1])
    pool.share(block, 2, 22)
    pool.share(block, 3, 33)
    assert pool.owner[block] == 11 and pool.state[block] == BlockState.SHARED and pool.saved_count == 2
    pool.release(block, 1)
    assert pool.owner[block] == 22 and pool.holders(block) == [2, 3]
    pool.release(block, 3)
    assert pool.owner[block] == 22 and pool.state[block] == BlockState.ACTIVE and pool.saved_count == 0


def test_changes_are_told_once():
    pool = BlockPool(1000, 4)
    first = pool.take(3, 1, 1)
    pool.write(first[0], 0, [1])
    assert sorted(pool.take_changed().tolist()) == sorted(first)
    assert len(pool.take_changed()) == 0
    pool.release(first[1], 1)
    changed = pool.take_changed()
    assert changed.tolist() == [first[1]] and changed.dtype == np.uint32
