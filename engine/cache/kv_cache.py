"""KVCache: which sequence's tokens stand in which blocks, over the device tier and the host tier.

Bookkeeping only; no tensor is touched here. Copies that must happen are written to a journal, in order, and whoever
owns the tensors carries them out in that order before the next forward. The order is all it takes to make reuse safe:
a block is entered as a source before it is freed, and as a target only after it was taken, so whatever overwrites it
stands behind whatever reads it.

Four rules hold after every call (``check`` tests them, and more):

- a sequence's full blocks are, with prefix caching on, the very ones that the prefix index of their tier names. So no
  content is held twice, and a block in use has all its predecessors in use;
- on the device a cached block's predecessor is on the device, held or released later: leaves are evicted first;
- in the host tier it is in either tier, and unless it is on the device, released later;
- a block that more than one sequence holds, or that the index knows by its hash, is never written.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import repeat
from math import inf
from typing import NamedTuple

import numpy as np

from .audit import audit
from .blocks import BlockPool
from .prefix import Entry, PrefixChain, chain_digest
from .reshape import Reshape, TierPlan
from .tables import BlockTable, TableRows

#: Holds blocks of the host tier while others are offloaded there; no sequence has that number.
_OFFLOADING = -1


class TransferKind(Enum):
    COPY = "copy"  # device block to device block
    SWAP_OUT = "swap_out"  # device block to host block
    SWAP_IN = "swap_in"  # host block to device block


class Transfer(NamedTuple):
    kind: TransferKind
    source: int  # block ids
    target: int


class OutOfBlocks(Exception):
    """A tier has too few blocks for what was asked; everything is as it was before."""

    def __init__(self, tier: str, needed: int, available: int) -> None:
        super().__init__(f"{needed:,} blocks of the {tier} tier are needed and {available:,} are available")
        self.tier = tier
        self.needed = needed
        self.available = available


@contextmanager
def taken_journals(groups: Sequence[KVCache]) -> Iterator[list[list[Transfer]]]:
    """The journals of these caches, to be carried out. What is left in them if that fails is theirs again."""
    journals = [group.journal for group in groups]
    for group in groups:
        group.journal = []
    try:
        yield journals
    except BaseException:
        for group, left in zip(groups, journals, strict=True):
            group.journal = left + group.journal
        raise


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """All that is known of one block."""

    state: int
    ref: int
    fill: int
    owners: list[tuple[int, int]]  # sequence, position in its block table
    token_ids: list[int]
    digest: str  # chained hash in hex; empty for a block that the prefix index does not know
    last_used: int


class PrefixNode(NamedTuple):
    """A block of the prefix tree: its tier, its id, and what the index knows of it."""

    pool: BlockPool
    block: int
    entry: Entry


class Found(NamedTuple):
    """A prefix in the cache, ``end`` blocks long: where its blocks from ``first`` on are. Those before are not
    needed."""

    first: int
    end: int
    blocks: list[tuple[BlockPool, int]]


class KVCache:
    """Block tables over a device pool and a host pool of blocks of ``block_size`` tokens.

    Sequences are named by integers. Arrays returned by :meth:`table` are views: read them before the next change.
    With ``contiguous_blocks`` a sequence that grows keeps so many free neighbours ahead for itself, until somebody
    needs them. ``eviction`` is ``lru`` or ``priority``, as in :class:`CachedBlocks`.
    """

    name = "full"  # which positions it holds
    window = 0  # positions that a token sees; 0 is all
    leaves_first = True  # a block that can be found can be reached from the beginning: the second and third rule above

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_host_blocks: int = 0,
        *,
        prefix_caching: bool = True,
        contiguous_blocks: int = 0,
        eviction: str = "lru",
    ) -> None:
        self.num_slots = num_blocks * block_size
        self.num_host_slots = num_host_blocks * block_size
        self.block_size = block_size
        self.device = BlockPool(num_blocks, block_size, evicting=self._offload)
        self.host = BlockPool(num_host_blocks, block_size, host=True)
        self.journal: list[Transfer] = []
        self.tables: dict[int, BlockTable] = {}
        self.contiguous_blocks = contiguous_blocks
        self.eviction = eviction
        self._rows = TableRows()
        self._row_of: dict[int, int] = {}
        self._prefix_caching = prefix_caching
        self._names = 0  # integer keys given so far

    # --- settings and counts ---------------------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[KVCache, ...]:
        """One cache for each group of layers that hold the same positions: this one alone."""
        return (self,)

    @property
    def chunk(self) -> int:
        """Tokens of one sequence that a step may compute."""
        return self.num_slots

    def shape(self, block_size: int, num_blocks: int | None = None) -> tuple[int, ...]:
        """Blocks of each group's device pool at that size, with ``num_blocks`` in the first or with today's slots."""
        return (self.num_slots // block_size if num_blocks is None else num_blocks,)

    def bound(self, samples: int, num_blocks: int, block_size: int) -> float:
        """Blocks that a request of so many samples never exceeds in a pool of that shape, however long it is."""
        return inf

    def growth(self, tokens: float) -> float:
        """Blocks that the sequences take for so many more tokens between them."""
        return tokens / self.block_size

    @property
    def step(self) -> int:
        return self.device.step

    @step.setter
    def step(self, step: int) -> None:
        self.device.step = self.host.step = step

    @property
    def available(self) -> int:
        """Device blocks that are free, kept ahead, or can be evicted."""
        return self.device.available

    @property
    def eviction(self) -> str:
        return "priority" if self.device.by_priority else "lru"

    @eviction.setter
    def eviction(self, order: str) -> None:
        self.device.by_priority = self.host.by_priority = order == "priority"

    @property
    def prefix_caching(self) -> bool:
        return self._prefix_caching

    @prefix_caching.setter
    def prefix_caching(self, on: bool) -> None:
        """Switching it off drops what is cached; switching it on makes what is held findable."""
        if on == self._prefix_caching:
            return
        self._prefix_caching = on
        if not on:
            for pool in (self.device, self.host):
                pool.drop(pool.cached())
                pool.index.remove(np.flatnonzero(pool.index.hashed).tolist())
        for table in self.tables.values():
            self._register_all(table)

    # --- a sequence's life -----------------------------------------------------------------------------------------

    def match(self, tokens: list[int], *, salt: str = "") -> int:
        """How many tokens :meth:`open` would find computed."""
        found = self.find(PrefixChain(tokens, self.block_size, salt))
        return self.computed_by(found.end, len(tokens))

    def open(
        self,
        seq: int,
        tokens: list[int],
        *,
        salt: str = "",
        owner: int = 0,
        priority: int = 0,
        longest: int = sys.maxsize,
    ) -> int:
        """Begin a block table for ``seq`` with the longest prefix of ``tokens`` that the cache holds.

        Blocks on the device are shared; after them, blocks of the host tier are swapped in as far as there is room.
        What the sequence used is remembered as used with this ``priority``, of which a lower number is more urgent.
        It will not come to more than ``longest`` tokens.
        Returns how many tokens are thus computed, at most all but the last.
        """
        chain = PrefixChain(tokens, self.block_size, salt)
        return self.begin(seq, chain, self.find(chain), owner=owner, priority=priority, longest=longest)

    def find(self, chain: PrefixChain, limit: int | None = None) -> Found:
        """The longest cached prefix of ``chain``, at most ``limit`` blocks, that there is room for on the device."""
        blocks: list[tuple[BlockPool, int]] = []
        room, wanted = self.device.available, len(chain) if limit is None else limit
        while self._prefix_caching and len(blocks) < wanted:
            place = self._place(chain, len(blocks))
            room -= place is not None and self._is_taken(*place)
            if place is None or room < 0:
                break
            blocks.append(place)
        return Found(0, len(blocks), blocks)

    def begin(self, seq: int, chain: PrefixChain, found: Found, *, owner: int, priority: int, longest: int) -> int:
        """As :meth:`open`, with what :meth:`find` found just now."""
        digest = chain.root if self._prefix_caching else None
        table = self._new_table(seq, owner, priority, chain.root, longest, digest)
        table.skip(chain.tokens[: found.first * self.block_size])
        here, away = ([block for pool, block in found.blocks if pool is tier] for tier in (self.device, self.host))
        self.device.share(here, seq, owner)
        self.host.share(away, seq, owner)  # held until read, so that making room cannot evict them
        self._adopt(table, found, chain)
        self.host.release(away[::-1], seq, priority)
        if found.end:
            table.digest, table.hashed = _digest(chain.entry(found.end - 1)), found.end
        table.held = found.end * self.block_size
        table.computed = self.computed_by(found.end, len(chain.tokens))
        return table.computed

    def computed_by(self, blocks: int, length: int) -> int:
        """Of ``length`` tokens, how many need not run when so many blocks of them are found."""
        return max(0, min(blocks * self.block_size, length - 1))

    def cost(self, seq: int, length: int) -> int:
        """Device blocks that :meth:`grow` would take now: new ones, and one for a copy of a shared tail."""
        table = self.tables[seq]
        if length <= table.writable:
            return 0
        return sum(self._needs(table, length))

    def claim(self, seq: int, length: int, chunk: int) -> int:
        """Device blocks that a sequence takes, swapped in first if it must be, until ``length`` tokens of it are
        computed, at most ``chunk`` of them in a step."""
        table = self.tables[seq]
        if table.pool is self.host:
            return self.swap_in_cost(seq) + max(0, self._blocks_for(length) - table.count)
        return self.cost(seq, length)

    def grow(self, seq: int, length: int) -> None:
        """Make room for ``length`` tokens. Slots of positions from what is held up to ``length`` exist then, and no
        other sequence sees them.

        Raises:
            OutOfBlocks: fewer blocks are available than :meth:`cost` says; nothing has changed.
        """
        table = self.tables[seq]
        if length <= table.writable:
            return
        assert table.pool is self.device, f"sequence {seq} is swapped out"
        fresh, copy = self._needs(table, length)
        if fresh + copy > self.device.available:
            raise OutOfBlocks("device", fresh + copy, self.device.available)
        tail, offset = divmod(table.held, self.block_size)
        if offset and length > table.held:
            if copy:
                self._copy_on_write(table, tail)
            else:
                self.device.index.remove((table.at(tail),))  # what a host block holds too is about to change
        if fresh:
            table.extend(self.device.take(fresh, seq, table.owner, table.last))
            ahead = min(self.contiguous_blocks, self._blocks_for(table.longest) - table.count)
            if ahead > 0:
                self.device.keep_ahead(ahead, seq, table.owner, table.last)
        if length > table.held:
            table.writable = table.count * self.block_size

    def grow_all(self, seqs: Sequence[int], lengths: Sequence[int]) -> None:
        """Make room for ``lengths`` tokens of ``seqs``, which are different ones: the same as so many calls of
        :meth:`grow`, in the time of a few where each of them begins its next block. All of them grow or none.

        Raises:
            OutOfBlocks: fewer blocks are available than :meth:`cost` says for all together; nothing has changed.
        """
        cost = self.cost_all(seqs, lengths)
        if cost > self.device.available:
            raise OutOfBlocks("device", cost, self.device.available)
        beginning = []
        for seq, length in zip(seqs, lengths, strict=True):
            table = self.tables[seq]
            if self._begins_block(table, length) and not self.contiguous_blocks:
                beginning.append(table)
            else:
                self.grow(seq, length)
        owners, after = [table.owner for table in beginning], [table.last for table in beginning]
        blocks = self.device.take_each([table.seq for table in beginning], owners, after)
        for table, block in zip(beginning, blocks, strict=True):
            table.append(block)
            table.writable = table.count * self.block_size

    def cost_all(self, seqs: Sequence[int], lengths: Sequence[int]) -> int:
        """Device blocks that :meth:`grow_all` takes at most: the sum of :meth:`cost`."""
        tables = map(self.tables.__getitem__, seqs)
        return sum(
            1 if self._begins_block(table, length) else self.cost(table.seq, length)
            for table, length in zip(tables, lengths, strict=True)
        )

    def commit(self, seq: int, tokens: list[int], computed: int) -> None:
        """``tokens[:computed]`` are in the cache now. Blocks that became full can be found by others from here on;
        one whose content the cache already holds is given back for the one that holds it, which changes the table."""
        table = self.tables[seq]
        table.computed = computed
        if computed <= table.held:
            return
        first, offset = divmod(table.held, self.block_size)
        blocks = table.blocks[first : self._blocks_for(computed)]
        self.device.write(blocks, offset, tokens[table.held : computed])
        table.held = computed
        self._register([table])

    def commit_next(self, seqs: Sequence[int], tokens: Sequence[int]) -> None:
        """The next one of each sequence's tokens is in the cache now; the same as so many calls of :meth:`commit`,
        in the time of a few. ``seqs`` are different ones."""
        rows, size = self.rows(seqs), self.block_size
        position = self._rows.computed[rows]
        self._rows.computed[rows] = position + 1
        stored = self._rows.held[rows] == position  # else it was found in the cache, and ran for its logits only
        rows, position, added = rows[stored], position[stored], np.array(tokens, np.int32)[stored]
        self._rows.held[rows] = position + 1
        blocks, offsets = self._rows.ids[rows, position // size].astype(np.intp), position % size
        self.device.append(blocks, offsets, added)
        self._register([self.tables[seqs[at]] for at in np.flatnonzero(stored)[offsets == size - 1].tolist()])

    def fork(self, parent: int, child: int, *, owner: int = 0) -> None:
        """``child`` begins with all that ``parent`` holds, in the same blocks."""
        source = self.tables[parent]
        table = self._new_table(child, owner, source.priority, source.root, source.longest, source.digest)
        table.pool, table.hashed, table.held, table.computed = source.pool, source.hashed, source.held, source.computed
        source.writable = 0
        table.skip(source.passed)
        blocks = self._filled(source)
        source.pool.share(blocks, child, owner)
        table.extend(blocks)

    def close(self, seq: int) -> None:
        """Give all blocks back. Those that others may want again stay cached."""
        table = self.tables.pop(seq)
        self._release(table)
        table.clear()
        self._rows.give(self._row_of.pop(seq))

    def set_priority(self, seq: int, priority: int) -> None:
        """The sequence, if it is open, uses its blocks with another priority from now on."""
        if seq in self.tables:
            self.tables[seq].priority = priority

    # --- swapping --------------------------------------------------------------------------------------------------

    def swap_out(self, seq: int) -> None:
        """Move a sequence to the host tier. What others use stays on the device for them, and what the host tier
        holds already is not copied again.

        Raises:
            OutOfBlocks: the host tier has no room, even without its cached blocks; nothing has changed.
        """
        table = self.tables[seq]
        assert table.pool is self.device, f"sequence {seq} is swapped out already"
        blocks = self._filled(table)
        there = [self._counterpart(self.device, block, self.host) for block in blocks]
        self._move_table(table, blocks, there, self.host, TransferKind.SWAP_OUT)

    def swap_out_cost(self, seq: int) -> int:
        """Host blocks that :meth:`swap_out` would take from those available."""
        blocks = self._filled(self.tables[seq])
        return self._taken(self.host, [self._counterpart(self.device, block, self.host) for block in blocks])

    def swap_in_cost(self, seq: int) -> int:
        """Device blocks that :meth:`swap_in` would take from those available."""
        blocks = self.tables[seq].kept.tolist()
        return self._taken(self.device, [self._counterpart(self.host, block, self.device) for block in blocks])

    def swap_in(self, seq: int) -> None:
        """Bring a sequence back to the device. Its full blocks stay in the host tier as cached ones.

        Raises:
            OutOfBlocks: fewer blocks are available than :meth:`swap_in_cost` says; nothing has changed.
        """
        table = self.tables[seq]
        assert table.pool is self.host, f"sequence {seq} is not swapped out"
        blocks = table.kept.tolist()
        there = [self._counterpart(self.host, block, self.device) for block in blocks]
        self._move_table(table, blocks, there, self.device, TransferKind.SWAP_IN)

    # --- changes of shape ------------------------------------------------------------------------------------------

    def plan_reshape(
        self,
        *,
        block_size: int | None = None,
        num_blocks: int | None = None,
        num_host_blocks: int | None = None,
        turns: Sequence[int] = (),
        leaving: Collection[int] = (),
        reached: set[bytes] | None = None,
    ) -> Reshape:
        """What another block size, or other numbers of blocks, would do; changes nothing.

        All sharing and all that sequences hold is kept; blocks that :meth:`grow` gave but that hold no token yet are
        given back. Where what is held does not fit, sequences of ``turns`` have to give up their blocks, the last
        first; ``leaving`` are those that must for other reasons. Without numbers of blocks, both tiers keep their
        slots. ``reached`` are chain hashes that end a new block in the cache of another group of layers; those of this
        one are added. The journal must be empty.

        Raises:
            OutOfBlocks: not even without ``turns`` does it fit.
        """
        assert not self.journal, "the journal must be carried out before blocks change their size or number"
        size = block_size or self.block_size
        if num_blocks == self.device.num_blocks and size == self.block_size:
            num_blocks = None
        device = num_blocks if num_blocks is not None else self.num_slots // size
        host = num_host_blocks if num_host_blocks is not None else self.num_host_slots // size
        reached = set() if reached is None else reached
        return Reshape(
            old_size=self.block_size,
            block_size=size,
            device=self._plan_tier(self.device, device, size, turns, leaving, reached),
            host=self._plan_tier(self.host, host, size, turns, leaving, reached),
            num_slots=self.num_slots if num_blocks is None else device * size,
            num_host_slots=self.num_host_slots if num_host_blocks is None else host * size,
            old_slots=self.num_slots,
            old_host_slots=self.num_host_slots,
        )

    def reshape(self, change: Reshape, renamed: dict[bytes, bytes] | None = None) -> None:
        """Make ``change``, once its victims are closed and its moves carried out, and nothing else has changed since
        it was planned. ``renamed`` maps old chain hashes to new ones, for the caches of several groups of layers; those
        of this one are added."""
        self.block_size = change.block_size
        self.num_slots, self.num_host_slots = change.num_slots, change.num_host_slots
        renamed = {} if renamed is None else renamed
        if change.device is not None:
            self.device = self._rebuild(change.device, self.device, renamed)
        if change.host is not None:
            self.host = self._rebuild(change.host, self.host, renamed)

    def _plan_tier(
        self,
        pool: BlockPool,
        num_blocks: int,
        block_size: int,
        turns: Sequence[int],
        leaving: Collection[int],
        reached: set[bytes],
    ) -> TierPlan | None:
        if pool is self.device and (pool.num_blocks, pool.block_size) == (num_blocks, block_size):
            reached.update(entry.key for entry in pool.index.entries().values() if isinstance(entry.key, bytes))
            return None
        plan = TierPlan(pool, self._tables_in(pool), num_blocks, block_size, turns, leaving, reached)
        if plan.needed > num_blocks:
            raise OutOfBlocks("host" if pool.is_host else "device", plan.needed, num_blocks)
        return plan

    def _rebuild(self, plan: TierPlan, old: BlockPool, renamed: dict[bytes, bytes]) -> BlockPool:
        evicting = None if old.is_host else self._offload
        new = BlockPool(
            plan.num_blocks, plan.block_size, host=old.is_host, evicting=evicting, by_priority=old.by_priority
        )
        new.step = old.step
        tables = self._tables_in(old)
        plan.build(old, new, tables)
        if plan.renames:
            for table in tables:
                self._register_all(table)
            plan.find_again(new, tables, renamed)
        return new

    def _tables_in(self, pool: BlockPool) -> list[BlockTable]:
        return [table for table in self.tables.values() if table.pool is pool]

    # --- looking ---------------------------------------------------------------------------------------------------

    def tier(self, seq: int) -> str:
        """``device`` or ``host``."""
        return "host" if self.tables[seq].pool.is_host else "device"

    def table(self, seq: int) -> np.ndarray:
        """Block ids (int32) of the sequence's tier, in order; holes are negative. A view."""
        return self.tables[seq].blocks

    def computed(self, seq: int) -> int:
        """Tokens that need not run."""
        return self.tables[seq].computed

    def slots(self, seq: int, start: int, stop: int) -> np.ndarray:
        """Where the keys and values of positions ``start`` to ``stop`` go (int64), -1 for those already held: they
        may stand in a block that others read."""
        return self.slots_at(np.full(stop - start, self.tables[seq].row), np.arange(start, stop))

    def rows(self, seqs: Sequence[int]) -> np.ndarray:
        """Rows (int64) of the sequences' block tables, for :meth:`block_tables` and :meth:`slots_at`."""
        return np.fromiter(map(self._row_of.__getitem__, seqs), np.int64, len(seqs))

    def block_tables(self, rows: np.ndarray, width: int) -> np.ndarray:
        """The first ``width`` block ids of each row, int32 [len(rows), width]; zeros after its last."""
        self._rows.make_wide(width)
        return self._rows.ids[rows, :width]

    def slots_at(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """As :meth:`slots`, of one position (int64) a row."""
        blocks = self._rows.ids[rows, positions // self.block_size].astype(np.int64)
        slots = blocks * self.block_size + positions % self.block_size
        slots[positions < self._rows.held[rows]] = -1
        return slots

    def counts(self, seq: int) -> tuple[int, int]:
        """Blocks of the sequence, and how many of them others hold too."""
        table = self.tables[seq]
        return table.count - table.first, int(np.count_nonzero(table.pool.ref[table.kept] > 1))

    def saved(self, seq: int) -> int:
        """Blocks that the sequence would have of its own if nothing were shared: those that another one held before.
        Over all sequences of a tier that makes its ``saved_count``."""
        table = self.tables[seq]
        return int(np.count_nonzero(table.pool.holder[table.kept] != seq))

    def runs(self, seq: int) -> int:
        """Runs of neighbouring blocks that make up the sequence's block table."""
        return self.tables[seq].runs

    def describe(self, tier: str, block: int) -> BlockFacts:
        """All that is known of a block of ``tier``."""
        pool = self.device if tier == "device" else self.host
        entry = pool.index.entry(block)
        return BlockFacts(
            state=int(pool.state[block]),
            ref=int(pool.ref[block]),
            fill=int(pool.fill[block]),
            owners=[(seq, self.tables[seq].blocks.tolist().index(block)) for seq in pool.holders(block)],
            token_ids=pool.contents(block).tolist(),
            digest=entry.key.hex() if entry is not None and isinstance(entry.key, bytes) else "",
            last_used=int(pool.last_used[block]),
        )

    def family(self, tier: str, block: int) -> tuple[list[PrefixNode], list[PrefixNode]]:
        """The blocks that lead to ``block``, from the first on as far as they are still known, and those that continue
        it; of what is in both tiers, the device's."""
        pools = (self.device, self.host)
        entry = (self.device if tier == "device" else self.host).index.entry(block)
        if entry is None or isinstance(entry.key, int):
            return [], []
        ancestors: list[PrefixNode] = []
        before = entry.before
        while (node := self._node(before)) is not None:
            ancestors.append(node)
            before = node.entry.before
        children: dict[bytes | int, PrefixNode] = {}
        for pool in pools:
            for follower in pool.index.followers(entry):
                known = pool.index.entry(follower)
                if known is not None:
                    children.setdefault(known.key, PrefixNode(pool, follower, known))
        return ancestors[::-1], list(children.values())

    def copy_of(self, tier: str, block: int) -> int | None:
        """The block of the other tier that holds the same full block of tokens."""
        mine, other = (self.device, self.host) if tier == "device" else (self.host, self.device)
        entry = mine.index.entry(block)
        return other.index.find(entry.key) if entry is not None else None

    def _node(self, key: bytes) -> PrefixNode | None:
        for pool in (self.device, self.host):
            block = pool.index.find(key)
            entry = pool.index.entry(block) if block is not None else None
            if block is not None and entry is not None:
                return PrefixNode(pool, block, entry)
        return None

    def check(self) -> None:
        """Raises ``AssertionError, saying what is wrong, unless all invariants hold. Costs time in proportion to
        the pools."""
        audit(self)

    # --- the prefix index ------------------------------------------------------------------------------------------

    def _place(self, chain: PrefixChain, depth: int) -> tuple[BlockPool, int] | None:
        """Where block ``depth`` of ``chain`` is: on the device, else in the host tier, else nowhere."""
        entry, piece = chain.entry(depth), chain.piece(depth)
        for pool in (self.device, self.host):
            block = self._holding(pool, entry, piece)
            if block is not None:
                return pool, block
        return None

    def _is_taken(self, pool: BlockPool, block: int) -> bool:
        """Whether a sequence that begins with this block takes one of the device's available blocks for it."""
        return pool is self.host or not pool.ref[block]

    @staticmethod
    def _holding(pool: BlockPool, entry: Entry, content: bytes) -> int | None:
        """The block of ``pool`` that holds ``entry``, compared token by token."""
        block = pool.index.find(entry.key)
        if block is None or pool.index.entry(block) != entry or pool.contents(block).tobytes() != content:
            return None
        return block

    def _register_all(self, table: BlockTable) -> None:
        table.hashed, table.digest = 0, table.root if self._prefix_caching else None
        self._register([table])

    def _register(self, tables: Sequence[BlockTable]) -> None:
        """Make full blocks of ``tables``, which are in one tier, findable; where that holds the same content already,
        they hold that block instead."""
        size = self.block_size
        tables = [table for table in tables if table.digest is not None and table.hashed < table.held // size]
        if not tables:
            return
        spans = [table.blocks[table.hashed : table.held // size] for table in tables]
        contents, at = tables[0].pool.contents_of(np.concatenate(spans)).tobytes(), 0
        for table, length in zip(tables, map(len, spans), strict=True):
            stop = at + length * size * 4
            self._register_run(table, contents[at:stop])
            at = stop

    def _register_run(self, table: BlockTable, contents: bytes) -> None:
        """Register the next full blocks of a table, which hold the tokens ``contents``."""
        size, index = self.block_size, table.pool.index
        each, start, stop = 4 * size, table.hashed, table.held // size
        whole = -(-len(table.passed) // size)  # of blocks before, the beginning is not there
        while table.hashed < stop:
            assert table.digest is not None
            position, rest = table.hashed, contents[(table.hashed - start) * each :]
            if position >= whole:  # in one go up to the next block whose content is known already
                added, table.digest = index.add_run(table.blocks[position:stop].tolist(), rest, table.digest, position)
                if added:
                    table.hashed += added
                    continue
            piece = rest[:each] if position >= whole else table.tokens(position).tobytes()
            entry = Entry(chain_digest(table.digest, piece), table.digest, position)
            if position >= whole and not self._index(table, position, entry, piece):
                table.digest = None
                return
            table.digest, table.hashed = _digest(entry), position + 1

    def _index(self, table: BlockTable, position: int, entry: Entry, content: bytes) -> bool:
        """Make a table's full block findable, or replace it by the one that is; False if another content has the same
        hash, so that neither this block nor what follows can be found."""
        pool, block = table.pool, table.at(position)
        if pool.index.find(entry.key) is None:
            pool.index.add(block, entry)
            return True
        same = self._holding(pool, entry, content)
        if same is not None and same != block:
            pool.share((same,), table.seq, table.owner)
            pool.release((block,), table.seq)
            table.put(position, same)
        return same is not None

    def _offload(self, blocks: np.ndarray) -> None:
        """Cached ``blocks`` are about to leave the device, in this order: to the host tier, as far as there is room.

        The outcome is that of one after another. A block whose content is there already is used again; else it takes a
        place, perhaps that of one which came before it.
        """
        device, host = self.device, self.host
        if not host.num_blocks:
            return
        known = device.index.entries()
        entries = [known[block] for block in blocks.tolist()]
        there = host.index.find_all(entry.key for entry in entries)
        idle = np.flatnonzero((there < 0) | (host.ref[there] == 0))  # others are held there
        there, blocks = there[idle], blocks[idle]
        again = there >= 0
        host.share(there[again], _OFFLOADING, 0)  # held, so that making room cannot evict them
        lacking = int(np.count_nonzero(~again)) - host.free_count
        gone = host.outranked(device.priority[blocks], lacking)
        late = there[:gone][again[:gone]]
        host.release(late, _OFFLOADING)
        host.drop(late)
        idle, there, blocks, again = idle[gone:], there[gone:], blocks[gone:], again[gone:]
        there[~again] = fresh = host.take(int(np.count_nonzero(~again)), _OFFLOADING, 0)
        self._transfer(TransferKind.SWAP_OUT, device, blocks[~again], host, np.array(fresh, np.int64))
        for block, number in zip(fresh, idle[~again].tolist(), strict=True):
            host.index.add(block, entries[number])
        host.release(there, _OFFLOADING, device.priority[blocks])

    # --- moving content --------------------------------------------------------------------------------------------

    def _transfer(
        self,
        kind: TransferKind,
        pool: BlockPool,
        blocks: Sequence[int] | np.ndarray,
        to: BlockPool,
        there: Sequence[int] | np.ndarray,
    ) -> None:
        """What ``blocks`` hold goes to ``there``, which hold nothing yet."""
        blocks, there = np.asarray(blocks, np.int64), np.asarray(there, np.int64)
        self.journal += map(Transfer, repeat(kind), blocks.tolist(), there.tolist())
        to.copy(there, pool, blocks)

    def _adopt(self, table: BlockTable, found: Found, chain: PrefixChain) -> None:
        """Append what was found, copies of host blocks included, to a table on the device."""
        after = next((block for pool, block in reversed(found.blocks) if pool is self.device), -1)
        away = [block for pool, block in found.blocks if pool is self.host]
        fresh = self.device.take(len(away), table.seq, table.owner, after)
        self._transfer(TransferKind.SWAP_IN, self.host, away, self.device, fresh)
        taken = iter(fresh)
        blocks = []
        for depth, (pool, block) in enumerate(found.blocks, found.first):
            there = block
            if pool is self.host:
                there = next(taken)
                self.device.index.add(there, chain.entry(depth))
            blocks.append(there)
        table.extend(blocks)

    def _copy_on_write(self, table: BlockTable, position: int) -> None:
        block = table.at(position)
        after = table.at(position - 1) if position else -1
        own = self.device.take(1, table.seq, table.owner, after)
        self._transfer(TransferKind.COPY, self.device, (block,), self.device, own)
        self.device.release((block,), table.seq, table.priority)
        table.put(position, own[0])

    def _counterpart(self, pool: BlockPool, block: int, other: BlockPool) -> int | None:
        """The block of the ``other`` tier with the same content."""
        entry = pool.index.entry(block)
        return None if entry is None else other.index.find(entry.key)

    def _filled(self, table: BlockTable) -> list[int]:
        """The blocks of a table that hold something."""
        return table.blocks[table.first : self._blocks_for(table.held)].tolist()

    @staticmethod
    def _taken(pool: BlockPool, blocks: list[int | None]) -> int:
        """How many of a pool's available blocks it takes to hold these (none: a new one)."""
        return sum(block is None or not pool.ref[block] for block in blocks)

    def _move_table(
        self,
        table: BlockTable,
        blocks: list[int],
        there: list[int | None],
        to: BlockPool,
        kind: TransferKind,
    ) -> None:
        """Hold ``there`` (where none: copies of ``blocks``) in ``to`` instead of the table's ``blocks``."""
        pool, needed = table.pool, self._taken(to, there)
        if needed > to.available:
            raise OutOfBlocks("host" if to is self.host else "device", needed, to.available)
        # Before anything is taken, so that making room cannot evict them.
        to.share([same for same in there if same is not None], table.seq, table.owner)
        copied = [block for block, same in zip(blocks, there, strict=True) if same is None]
        fresh = to.take(len(copied), table.seq, table.owner)
        self._transfer(kind, pool, copied, to, fresh)
        for block, own in zip(copied, fresh, strict=True):
            self._name(pool, block, to, own)
        taken = iter(fresh)
        target = [next(taken) if same is None else same for same in there]
        self._release(table)
        table.move(to, target)

    def _name(self, pool: BlockPool, block: int, to: BlockPool, there: int) -> None:
        """``there`` holds the same as ``block``: what is known of one is known of the other. Content without a hash
        gets a name if others hold it too, so that they will find that it is in the other tier already."""
        entry = pool.index.entry(block)
        if entry is None and pool.ref[block] > 1:
            self._names += 1
            entry = Entry(self._names)
            pool.index.add(block, entry)
        if entry is not None:
            to.index.add(there, entry)

    def _release(self, table: BlockTable) -> None:
        table.pool.give_back(table.seq)
        table.pool.release(table.kept[::-1], table.seq, table.priority)

    def _new_table(
        self, seq: int, owner: int, priority: int, root: bytes, longest: int, digest: bytes | None
    ) -> BlockTable:
        assert seq not in self.tables, f"sequence {seq} is open already"
        row = self._rows.take()
        table = BlockTable(self._rows, row, self.device, seq, owner, priority, root, longest, digest)
        table.held = table.computed = 0
        self.tables[seq], self._row_of[seq] = table, row
        return table

    # --- sizes -----------------------------------------------------------------------------------------------------

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _begins_block(self, table: BlockTable, length: int) -> bool:
        """Whether the last of ``length`` tokens is the first of the table's next block, and those it has are its own as
        far as they are still to be written."""
        end = table.count * self.block_size
        return length == end + 1 and (table.held == end or table.writable == end)

    def _needs(self, table: BlockTable, length: int) -> tuple[int, bool]:
        """New blocks for ``length`` tokens, and whether a shared tail must be copied."""
        fresh = max(0, self._blocks_for(length) - table.count)
        tail, offset = divmod(table.held, self.block_size)
        shared = offset and length > table.held and self.device.ref[table.at(tail)] > 1
        return fresh, bool(shared)


def _digest(entry: Entry) -> bytes:
    assert isinstance(entry.key, bytes)
    return entry.key
