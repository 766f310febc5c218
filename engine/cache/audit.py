"""What must be true of a cache between any two calls. For tests, and for an engine that has nothing else to do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ...ipc.vocabulary import BlockState
from .blocks import BlockPool
from .prefix import Entry, chain_digest
from .tables import HOLE

if TYPE_CHECKING:
    from .kv_cache import KVCache
    from .tables import BlockTable


def audit(cache: KVCache) -> None:
    """Raises ``AssertionError`` that says what is wrong."""
    tables = {False: [], True: []}  # type: dict[bool, list[BlockTable]]
    for table in cache.tables.values():
        tables[table.pool is cache.host].append(table)
    for pool, name, held in ((cache.device, "device", tables[False]), (cache.host, "host", tables[True])):
        assert pool.block_size == cache.block_size, f"{name}: blocks of {pool.block_size}, not {cache.block_size}"
        _conserved(pool, name, held)
        _counted(pool, name, held)
        _index_true(pool, name)
    for table in cache.tables.values():
        _table_true(cache, table)
    if cache.leaves_first:
        _device_order(cache.device)
        _host_order(cache)
    assert cache.device.num_blocks == cache.num_slots // cache.block_size, "the device pool changed its size"


def _conserved(pool: BlockPool, name: str, tables: list[BlockTable]) -> None:
    """Each block is free, cached, or held by just the sequences whose tables name it."""
    refs = Counter(block for table in tables for block in table.kept.tolist())
    wrong = [block for block in range(pool.num_blocks) if pool.ref[block] != refs[block]]
    assert not wrong, f"{name} block {wrong[0]}: ref {pool.ref[wrong[0]]}, in {refs[wrong[0]]} tables"
    cached = pool.cached()
    free = [block for start, length in pool.free_runs() for block in range(start, start + length)]
    ahead = [block for start, length in pool.ahead().values() for block in range(start, start + length)]
    assert len(ahead) == pool.ahead_count, f"{name}: ahead_count {pool.ahead_count}, {len(ahead)} blocks kept ahead"
    assert set(pool.ahead()) <= {table.seq for table in tables}, f"{name}: blocks kept ahead for nobody"
    places = Counter([*free, *cached, *refs, *ahead])
    assert places == Counter(range(pool.num_blocks)), f"{name}: blocks lost or in two places"
    for block in free:
        clean = pool.state[block] == BlockState.FREE and not pool.fill[block] and not pool.owner[block]
        assert clean and pool.index.entry(block) is None, f"{name} block {block} is free, but something is left of it"
    for block in ahead:
        empty = not pool.fill[block] and pool.index.entry(block) is None
        assert empty and pool.state[block] == BlockState.RESERVED, f"{name} block {block} is kept ahead, but not empty"
    for block in cached:
        known = pool.index.entry(block)
        assert pool.state[block] == BlockState.CACHED, f"{name} block {block} is cached, state {pool.state[block]}"
        assert known is not None and isinstance(known.key, bytes), f"{name} block {block} is cached and cannot be found"
    for table in tables:
        kept = table.kept.tolist()
        runs = 1 + np.count_nonzero(np.diff(table.kept) != 1) if kept else 0
        assert table.runs == runs, f"sequence {table.seq}: {table.runs} runs, not {runs}"
        assert len(set(kept)) == len(kept), f"sequence {table.seq} holds a block twice"
        for block in kept:
            assert table.seq in pool.holders(block), f"{name} block {block} does not know its holder {table.seq}"
    for block in refs:
        holders = pool.holders(block)
        assert len(holders) == refs[block], f"{name} block {block}: {len(holders)} holders, ref {refs[block]}"


def _counted(pool: BlockPool, name: str, tables: list[BlockTable]) -> None:
    held = np.flatnonzero(pool.ref > 0)
    used = held[pool.fill[held] > 0]
    assert pool.used_count == len(used), f"{name}: used_count {pool.used_count}, {len(used)} blocks used"
    assert pool.empty_count == len(held) - len(used), f"{name}: empty_count {pool.empty_count}"
    assert pool.tokens_held == pool.fill[used].sum(), f"{name}: tokens_held {pool.tokens_held}"
    assert pool.references == pool.ref.sum(), f"{name}: references {pool.references}"
    assert pool.runs == sum(table.runs for table in tables), f"{name}: runs {pool.runs}"
    total = pool.free_count + pool.cached_count + pool.reserved_count + pool.used_count
    assert total == pool.num_blocks, f"{name}: {total} blocks of {pool.num_blocks}"
    for block in held.tolist():
        if not pool.fill[block]:
            state = BlockState.RESERVED
        elif name == "host":
            state = BlockState.SWAPPED
        else:
            state = BlockState.ACTIVE if pool.ref[block] == 1 else BlockState.SHARED
        assert pool.state[block] == state, f"{name} block {block}: state {pool.state[block]}, should be {state!r}"


def _index_true(pool: BlockPool, name: str) -> None:
    """The index and its inverse agree, and each hash is that of the block's tokens after its predecessor's."""
    entries = pool.index.entries()
    assert np.count_nonzero(pool.index.depth) == len(_hashed(pool)), f"{name}: depths of blocks that cannot be found"
    for block, entry in entries.items():
        assert pool.index.find(entry.key) == block, f"{name} block {block}: the index does not find it"
        if isinstance(entry.key, bytes):
            digest = chain_digest(entry.before, pool.contents(block).tobytes())
            assert pool.index.depth[block] == entry.depth + 1, f"{name} block {block}: its depth"
            assert digest == entry.key, f"{name} block {block}: its tokens are not those of its hash"
            assert pool.fill[block] == pool.block_size, f"{name} block {block}: found, but not full"


def _table_true(cache: KVCache, table: BlockTable) -> None:
    pool, size = table.pool, cache.block_size
    assert table.held <= table.count * size, f"sequence {table.seq}: {table.held} tokens in {table.count} blocks"
    assert table.held - table.computed in (0, 1) or table.computed == 0, f"sequence {table.seq}: computed"
    assert (table.blocks[: table.first] == HOLE).all(), f"sequence {table.seq}: a hole that names a block"
    for position, block in enumerate(table.kept.tolist(), table.first):
        fill = max(0, min(size, table.held - position * size))
        assert pool.fill[block] == fill, f"sequence {table.seq}, block {block}: fill {pool.fill[block]}, not {fill}"
        assert fill or pool.ref[block] == 1, f"sequence {table.seq} shares block {block}, which holds nothing"
    if table.writable > table.held and table.held % size:
        tail = table.at(table.held // size)
        assert pool.ref[tail] == 1 and pool.index.entry(tail) is None, f"sequence {table.seq} would write block {tail}"
    assert table.writable <= table.count * size, f"sequence {table.seq}: writable beyond its blocks"
    if table.digest is not None:
        assert table.hashed == table.held // size, f"sequence {table.seq}: {table.hashed} hashed of {table.held} tokens"
    digest = table.root
    whole = -(-len(table.passed) // size)  # blocks before it lack their beginning, and cannot be found
    for position in range(whole, table.hashed):
        entry = pool.index.entry(table.at(position))
        follows = entry is not None and (entry.before == digest or position == whole > 0)
        assert entry is not None and follows and entry.depth == position, (
            f"sequence {table.seq}: block {position} of its table is not the one that the index names"
        )
        assert isinstance(entry.key, bytes)
        digest = entry.key


def _hashed(pool: BlockPool) -> dict[int, Entry]:
    return {block: entry for block, entry in pool.index.entries().items() if isinstance(entry.key, bytes)}


def _device_order(pool: BlockPool) -> None:
    turn = {block: turn for turn, block in enumerate(pool.cached())}
    for block, entry in _hashed(pool).items():
        if entry.depth:
            before = pool.index.find(entry.before)
            assert before is not None, f"device block {block} can be found, its predecessor cannot"
            later = pool.ref[before] or (not pool.ref[block] and turn[before] > turn[block])
            assert later, f"device block {before} would be evicted before its successor {block}"


def _host_order(cache: KVCache) -> None:
    pool = cache.host
    turn = {block: turn for turn, block in enumerate(pool.cached())}
    for block, entry in _hashed(pool).items():
        if not entry.depth or cache.device.index.find(entry.before) is not None:
            continue
        before = pool.index.find(entry.before)
        assert before is not None, f"host block {block} can be found, its predecessor cannot"
        later = pool.ref[before] or (not pool.ref[block] and turn[before] > turn[block])
        assert later, f"host block {before} would be evicted before its successor {block}"
