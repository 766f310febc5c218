"""Caches of sliding windows and of several groups of layers, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pagedeck.engine.cache.cache_groups import Amounts, CacheGroups
from pagedeck.engine.cache.kv_cache import KVCache, OutOfBlocks
from pagedeck.engine.cache.layer_groups import Division, LayerGroup, group_layers, make_cache
from pagedeck.engine.cache.tables import HOLE
from pagedeck.engine.cache.windowed_cache import WindowedCache, window_blocks
from pagedeck.ipc.vocabulary import Refused

from .harness import make_engine, output, run, step, submit

SIZE = 4


def fill(cache: Any, seq: int, tokens: Sequence[int], chunk: int = 4) -> int:
    """Open a sequence and compute all its tokens; returns how many were found."""
    found = cache.open(seq, list(tokens))
    for stop in range(found + 1, len(tokens) + chunk, chunk):
        stop = min(stop, len(tokens))
        cache.grow(seq, stop)
        cache.commit(seq, list(tokens), stop)
        cache.check()
    for group in cache.groups:
        group.journal.clear()
    return found


def groups(num_blocks: int = 16, window_blocks: int = 12, host: int = 0, window: int = 10) -> CacheGroups:
    caches = [KVCache(num_blocks, SIZE, host), WindowedCache(window_blocks, SIZE, host, window=window)]
    return CacheGroups(caches, lambda blocks, _: (blocks, blocks * window_blocks // num_blocks))


# --- one window -------------------------------------------------------------------------------------------------------


def test_a_table_keeps_the_places_of_what_it_let_go() -> None:
    cache = WindowedCache(16, SIZE, window=10)
    fill(cache, 1, range(30))
    # The token at position 30 sees positions 21 to 30, so blocks 0 to 4 are let go.
    assert (cache.table(1)[:5] == HOLE).all() and (cache.table(1)[5:] >= 0).all()
    assert len(cache.table(1)) == 8 and cache.counts(1) == (3, 0)
    assert cache.device.used_count == 3 and cache.device.cached_count == 5
    assert cache.slots(1, 28, 30).tolist() == [-1, -1]
    cache.grow(1, 33)
    assert cache.slots(1, 31, 33).tolist()[1] == int(cache.table(1)[8]) * SIZE
    cache.close(1)
    cache.check()


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("chunk", [1, 3, 4, 9])
def test_no_more_is_held_than_window_and_chunk_take(window: int, chunk: int) -> None:
    bound = window_blocks(window, chunk, SIZE)
    cache = WindowedCache(bound, SIZE, window=window, prefix_caching=False)
    cache.open(1, list(range(60)))
    most = 0
    for stop in range(chunk, 61, chunk):
        cache.grow(1, stop)  # in a pool of just that many blocks
        most = max(most, cache.counts(1)[0])
        cache.commit(1, list(range(60)), stop)
        cache.check()
        assert cache.counts(1)[0] <= -(-window // SIZE) + 1
    assert most == bound or chunk == 4, "the bound is met where chunks fall everywhere"


def test_of_a_prefix_only_the_last_window_is_needed() -> None:
    cache = WindowedCache(16, SIZE, window=9)
    fill(cache, 1, range(32))
    cache.close(1)
    by_depth = {entry.depth: block for block, entry in cache.device.index.entries().items()}
    for depth in (0, 1, 2, 3, 4):
        cache.device.drop([by_depth[depth]])
    assert cache.match([*range(32), 7]) == 32
    assert cache.match(list(range(28))) == 0, "the window before position 28 is not there"
    assert fill(cache, 2, [*range(32), 7, 8]) == 32
    assert (cache.table(2)[:6] == HOLE).all()
    cache.close(2)
    cache.check()


def test_a_shorter_prefix_is_found_where_a_longer_one_lacks_a_block() -> None:
    cache = WindowedCache(16, SIZE, window=6)
    fill(cache, 1, range(40))
    cache.close(1)
    by_depth = {entry.depth: block for block, entry in cache.device.index.entries().items()}
    cache.device.drop([by_depth[8]])
    assert cache.match([*range(40), 1]) == 32
    cache.device.drop([by_depth[6]])
    assert cache.match([*range(40), 1]) == 24


def test_a_prefix_without_room_is_shortened() -> None:
    """Host blocks are swapped in as far as there is room on the device."""
    cache = WindowedCache(4, SIZE, 16, window=9)
    fill(cache, 1, range(24))
    cache.close(1)
    fill(cache, 2, [90 + i for i in range(16)])  # all of the device, so that the others go to the host tier
    cache.close(2)
    cache.check()
    assert cache.match([*range(24), 5]) == 24
    cache.open(3, [200 + i for i in range(12)])
    cache.grow(3, 12)  # three of four blocks
    assert cache.match([*range(24), 5]) == cache.open(4, [*range(24), 5]) == 4
    cache.check()


def test_merged_blocks_may_lack_their_beginning_and_are_not_found() -> None:
    cache = WindowedCache(16, SIZE, window=5)
    fill(cache, 1, range(30))
    assert cache.tables[1].first == 6  # of positions 24 and 25, nothing is needed
    cache.reshape(cache.plan_reshape(block_size=16))
    cache.check()
    assert cache.tables[1].first == 1 and cache.counts(1) == (1, 0)
    for stop in range(31, 50):
        cache.grow(1, stop)
        cache.commit(1, list(range(60)), stop)
        cache.check()
    assert cache.match([*range(32), 5]) == 16, "the second block lacks its beginning; the first was cached whole"
    assert cache.match([*range(48), 5]) == 48, "what was computed since then is whole"
    cache.reshape(cache.plan_reshape(block_size=SIZE))
    cache.check()
    assert cache.match([*range(48), 5]) == 48


def test_a_window_of_one_token_needs_nothing_of_a_prefix() -> None:
    assert WindowedCache(4, SIZE, window=1).match(list(range(40))) == 36


def test_samples_let_go_one_by_one() -> None:
    cache = WindowedCache(16, SIZE, window=6)
    fill(cache, 1, range(14))
    cache.fork(1, 2)
    cache.check()
    assert cache.device.ref[cache.table(2)[2:]].tolist() == [2, 2]
    for seq, more in ((1, 5), (2, 6)):
        tokens = [*range(14), *[more] * 14]
        for stop in range(15, 28):
            cache.grow(seq, stop)
            cache.commit_next([seq], [tokens[stop - 1]])
            cache.check()
        assert cache.counts(seq)[0] <= 3
    for seq in (1, 2):
        cache.close(seq)
    assert cache.device.used_count == 0


# --- several groups ---------------------------------------------------------------------------------------------------


def test_amounts_compare_by_group() -> None:
    some = Amounts((3, 5))
    assert some + 1 - Amounts((4, 2)) == Amounts((0, 4))
    assert 1 - some == Amounts((-2, -4)) == -(some - 1)
    assert some > 4 and not some > 5
    assert some >= 3 and not some >= 4
    assert Amounts((4, 1)) <= 4 and not Amounts((4, 1)) <= 3
    assert sum([some, some]) == some * 2


def test_all_groups_or_none() -> None:
    cache = groups(num_blocks=16, window_blocks=4)
    cache.open(1, list(range(60)))
    with pytest.raises(OutOfBlocks) as full:
        cache.grow(1, 17)
    assert (full.value.needed, full.value.available) == (5, 4)
    cache.check()
    assert cache.counts(1)[0] == Amounts((0, 0))
    cache.grow(1, 16)
    assert cache.counts(1)[0] == Amounts((4, 4))
    assert cache.available == Amounts((12, 0))


def test_swapping_needs_room_in_every_host_pool() -> None:
    caches = [KVCache(16, SIZE, 8), WindowedCache(16, SIZE, 2, window=10)]
    cache = CacheGroups(caches, lambda blocks, _: (blocks, blocks))
    fill(cache, 1, range(20))
    with pytest.raises(OutOfBlocks):
        cache.swap_out(1)
    cache.check()
    assert cache.tier(1) == "device" and not cache.journal


def test_what_one_group_lacks_is_found_by_none() -> None:
    cache = groups()
    fill(cache, 1, range(24))
    cache.close(1)
    assert cache.match([*range(24), 1]) == 24
    window = cache.groups[1]
    by_depth = {entry.depth: block for block, entry in window.device.index.entries().items()}
    window.device.drop([by_depth[5]])
    assert cache.match([*range(24), 1]) == 20
    assert fill(cache, 2, [*range(24), 1]) == 20
    assert [group.computed(2) for group in cache.groups] == [25, 25]


def test_a_change_of_shape_takes_the_same_victims_from_all() -> None:
    """The window's pool becomes too small for four, the full layers' is large enough: yet all groups lose the same."""
    caches = [KVCache(40, SIZE), WindowedCache(12, SIZE, window=10)]
    cache = CacheGroups(caches, lambda blocks, _: (blocks, 8))
    for seq in range(4):
        fill(cache, seq, [seq * 100 + i for i in range(12)])
    change = cache.plan_reshape(num_blocks=30, turns=[0, 1, 2, 3])
    assert change.victims == change.others[0].victims == [3, 2]
    for seq in change.victims:
        cache.close(seq)
    cache.reshape(change)
    cache.check()
    assert [group.device.num_blocks for group in cache.groups] == [30, 8]


def test_cached_content_of_all_groups_is_found_in_blocks_of_another_size() -> None:
    cache = groups(num_blocks=24, window_blocks=24)
    fill(cache, 1, range(32))
    cache.close(1)
    cache.reshape(cache.plan_reshape(block_size=2 * SIZE))
    cache.check()
    assert cache.match([*range(32), 5]) == 32
    cache.reshape(cache.plan_reshape(block_size=SIZE // 2))
    cache.check()
    assert cache.match([*range(32), 5]) == 32


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_far_longer_than_a_windows_pool_is_served() -> None:
    """16 blocks of 8 for a window of 40: neither the prompt nor the output would fit whole."""
    engine = make_engine(num_blocks=16, windows=(40,), token_budget=64)
    request = submit(engine, "long", [i % 50 for i in range(300)], 200)
    held = []
    while engine.has_work:
        step(engine)
        held += [engine.cache.counts(seq)[0] for seq in engine.cache.tables]
    assert len(output(request)) == 200
    assert max(held) <= 16


def test_many_samples_beyond_a_windows_pool_are_refused_with_the_numbers() -> None:
    engine = make_engine(num_blocks=16, windows=(40,))
    with pytest.raises(Refused, match=r"needs 59 blocks of 8 tokens; accepted are up to 16"):
        submit(engine, "wide", [1] * 100, 100, n=9)
    submit(engine, "narrow", [1] * 100, 100)
    run(engine)


# --- dividing the memory ----------------------------------------------------------------------------------------------


def test_layers_are_grouped_by_what_they_see() -> None:
    assert group_layers([0, 0], 100) == (LayerGroup(0, (0, 1)),)
    assert group_layers([8, 0, 8, 16], 100) == (LayerGroup(0, (1,)), LayerGroup(16, (3,)), LayerGroup(8, (0, 2)))
    assert group_layers([8, 8], 100) == (LayerGroup(8, (0, 1)),)
    assert group_layers([8, 0, 100], 100) == (LayerGroup(0, (1, 2)), LayerGroup(8, (0,))), "never outgrown"


def division(**changes: Any) -> Division:
    windows = [512, 512, 512, 512, 512, 0] * 4
    settings = {"context_length": 8192, "max_batch_size": 64, "token_budget": 256} | changes
    return Division(groups=group_layers(windows, 8192), layer_bytes=1024, **settings)


def test_pools_take_the_memory_that_there_is() -> None:
    for memory in (1 << 27, 1 << 30, 1 << 33):
        blocks = division().fit(memory, 32)
        assert division().bytes(blocks, 32) <= memory < division().bytes(blocks + 1, 32)
    assert division().fit(1000, 32) == 0


def test_a_windows_pool_serves_as_many_requests_as_the_full_layers() -> None:
    full, window = division().blocks(1280, 32)  # ten typical requests
    assert (full, window) == (1280, 10 * 17 + 8)
    assert division(max_batch_size=4).blocks(1280, 32) == (1280, 4 * 17 + 8)
    assert division().blocks(20, 32) == (20, 20), "short contexts need as much of either"


def test_the_host_memory_is_divided_likewise() -> None:
    device = division().blocks(1280, 32)
    host = division().host_blocks(device, 32, 1 << 28)
    assert host[1] == host[0] * device[1] // device[0] > 0
    taken = (host[0] * 4 + host[1] * 20) * 32 * 1024
    assert (1 << 28) * 0.98 < taken <= 1 << 28


def test_one_group_needs_no_groups() -> None:
    plain = Division(group_layers([0, 0], 64), 8, 64, 4, 16)
    assert type(make_cache(plain, [8], 8, [0])) is KVCache
    sliding = Division(group_layers([9, 9], 64), 8, 64, 4, 16)
    assert type(make_cache(sliding, [8], 8, [0])) is WindowedCache
    mixed = Division(group_layers([9, 0], 64), 8, 64, 4, 16)
    cache = make_cache(mixed, [8, 4], 8, [2, 1], eviction="priority")
    assert isinstance(cache, CacheGroups) and cache.eviction == "priority"
    assert [(g.name, g.device.num_blocks, g.host.num_blocks) for g in cache.groups] == [
        ("full", 8, 2),
        ("window 9", 4, 1),
    ]
