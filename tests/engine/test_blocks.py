"""Free runs, and a pool's allocation, reference counts and order of eviction."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pagedeck.engine.cache.blocks import BlockPool
from pagedeck.engine.cache.eviction import CachedBlocks
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
                pool.release([blocks.pop(0)], 0)
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
    pool.write([block], 0, tokens)
    digest = chain_digest(before, np.array(tokens, np.int32).tobytes())
    pool.index.add(block, Entry(digest, before, depth))
    return block, digest


def test_the_longest_unused_is_given_up_first_and_a_use_renews():
    evicted = []
    pool = BlockPool(3, 2, evicting=lambda blocks: evicted.extend(blocks.tolist()))
    root = root_digest("")
    blocks = [full(pool, seq, root, 0, [seq, seq])[0] for seq in range(3)]
    for seq, block in enumerate(blocks):
        pool.release([block], seq)
    assert pool.cached_count == 3 and pool.free_count == 0 and pool.available == 3
    pool.share([blocks[0]], 9, 9)
    pool.release([blocks[0]], 9)
    pool.take(2, 10, 10)
    assert evicted == [blocks[1], blocks[2]]
    assert pool.index.entry(blocks[0]) is not None and pool.index.entry(blocks[1]) is None


@pytest.mark.parametrize("by_priority", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_cached_blocks_go_in_the_order_of_their_releases_however_many_at_a_time(seed: int, by_priority: bool):
    """Against a list that is sorted anew each time; more blocks come and go than a queue keeps in one piece."""
    choose, size = random.Random(seed), 3_000
    priority = np.zeros(size, np.int32)
    cached, turns, turn = CachedBlocks(priority, by_priority=by_priority), {}, 0
    for _ in range(80):
        free = [block for block in range(size) if block not in turns]
        for _ in range(2):
            blocks = [free.pop(choose.randrange(len(free))) for _ in range(min(len(free), choose.choice((1, 5, 900))))]
            priority[blocks] = [choose.choice((0, 10, 10, 20)) for _ in blocks]
            cached.add(np.array(blocks, np.int64))
            for block in blocks:
                turns[block] = turn = turn + 1
        if choose.random() < 0.1:
            cached.by_priority = by_priority = not by_priority
        order = sorted(turns, key=lambda block: (-priority[block] if by_priority else 0, turns[block]))
        first = cached.first(choose.choice((1, 3, 700)))
        assert first.tolist() == order[: len(first)] and cached.order().tolist() == order
        gone = [*first.tolist(), *choose.sample(order[len(first) :], min(len(order) - len(first), 50))]
        cached.remove(np.array(gone, np.int64))
        for block in gone:
            del turns[block]
        assert len(cached) == len(turns)


def test_evicting_in_a_large_pool_makes_some_room_ahead():
    """One call for many blocks instead of many for one each; nothing less is available than before."""
    passes = []
    pool = BlockPool(4 * 512, 1, evicting=lambda blocks: passes.append(len(blocks)))
    for seq in range(2):
        blocks = pool.take(1024, seq, seq)
        pool.write(blocks, 0, range(seq * 1024, seq * 1024 + 1024))
        for depth, block in enumerate(blocks):
            pool.index.add(block, Entry(bytes([seq, depth % 256, depth // 256]), b"", depth))
        pool.release(blocks[::-1], seq)
    held = []
    for left in reversed(range(2048)):
        held += pool.take(1, 9, 9)
        assert pool.available == left and pool.free_count < 4
    assert passes == [4] * 512 and len(set(held)) == 2048


def test_a_block_that_was_never_full_is_free_at_once():
    pool = BlockPool(2, 4)
    (block,) = pool.take(1, 1, 1)
    assert pool.state[block] == BlockState.RESERVED and pool.reserved_count == 1 and pool.used_count == 0
    pool.write([block], 0, [5, 6])
    assert pool.state[block] == BlockState.ACTIVE and pool.tokens_held == 2
    pool.release([block], 1)
    assert pool.free_count == 2 and pool.tokens_held == 0 and not pool.owner.any()


def test_the_owner_is_the_first_holder_that_is_left():
    pool = BlockPool(1, 4)
    (block,) = pool.take(1, 1, 11)
    pool.write([block], 0, [1])
    pool.share([block], 2, 22)
    pool.share([block], 3, 33)
    assert pool.owner[block] == 11 and pool.state[block] == BlockState.SHARED and pool.saved_count == 2
    pool.release([block], 1)
    assert pool.owner[block] == 22 and pool.holders(block) == [2, 3]
    pool.release([block], 3)
    assert pool.owner[block] == 22 and pool.state[block] == BlockState.ACTIVE and pool.saved_count == 0


def test_changes_are_told_once():
    pool = BlockPool(1000, 4)
    first = pool.take(3, 1, 1)
    pool.write([first[0]], 0, [1])
    assert sorted(pool.take_changed().tolist()) == sorted(first)
    assert len(pool.take_changed()) == 0
    pool.release([first[1]], 1)
    changed = pool.take_changed()
    assert changed.tolist() == [first[1]] and changed.dtype == np.uint32
