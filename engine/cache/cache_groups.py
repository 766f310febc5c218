"""The caches of a model whose layers do not all hold the same positions, as one.

Full layers keep every position, sliding ones the last of them. So layers fall into groups, and each group has pools, a
block table a sequence, and a prefix index of its own. What happens to a sequence happens in all groups or in none.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np

from .blocks import BlockPool
from .kv_cache import BlockFacts, KVCache, OutOfBlocks, Transfer
from .prefix import PrefixChain
from .reshape import Reshape
from .tables import BlockTable


@dataclasses.dataclass(frozen=True, slots=True)
class Amounts:
    """Blocks of each group's pool. Arithmetic goes group by group; a plain number stands for as many of each."""

    each: tuple[float, ...]

    def _with(self, other: Amounts | float, combine: Callable[[float, float], float]) -> Amounts:
        others = other.each if isinstance(other, Amounts) else (other,) * len(self.each)
        return Amounts(tuple(map(combine, self.each, others)))

    def __add__(self, other: Amounts | float) -> Amounts:
        return self._with(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Amounts | float) -> Amounts:
        return self._with(other, operator.sub)

    def __rsub__(self, other: float) -> Amounts:
        return self._with(other, lambda own, other: other - own)

    def __neg__(self) -> Amounts:
        return 0 - self

    def __mul__(self, other: float) -> Amounts:
        return self._with(other, operator.mul)

    def __gt__(self, other: Amounts | float) -> bool:
        """Whether it is more in any group: so many blocks of each would not do."""
        return any((self - other)._with(0, operator.gt).each)

    def __ge__(self, other: Amounts | float) -> bool:
        """Whether it is as much in every group."""
        return all((self - other)._with(0, operator.ge).each)

    def __le__(self, other: Amounts | float) -> bool:
        """Whether the other is as much in every group."""
        return all((self - other)._with(0, operator.le).each)


class CacheGroups:
    """Several caches of one block size with the interface of one :class:`KVCache`.

    The first group is the one that is meant where a single pool or table is asked for; counts of blocks are
    :class:`Amounts`.
    """

    def __init__(self, groups: Sequence[KVCache], divide: Callable[[int, int], tuple[int, ...]]) -> None:
        """``divide`` gives the blocks of each group's device pool for so many of the first's, and a block size."""
        self.groups = tuple(groups)
        self._divide = divide

    # --- settings and counts ---------------------------------------------------------------------------------------

    @property
    def block_size(self) -> int:
        return self.groups[0].block_size

    @property
    def num_slots(self) -> int:
        return self.groups[0].num_slots

    @property
    def device(self) -> BlockPool:
        return self.groups[0].device

    @property
    def host(self) -> BlockPool:
        return self.groups[0].host

    @property
    def tables(self) -> dict[int, BlockTable]:
        return self.groups[0].tables

    @property
    def journal(self) -> list[Transfer]:
        """Copies that are still to be carried out, to look at: each group's are in its own journal."""
        return [transfer for group in self.groups for transfer in group.journal]

    @property
    def step(self) -> int:
        return self.groups[0].step

    @step.setter
    def step(self, step: int) -> None:
        for group in self.groups:
            group.step = step

    @property
    def prefix_caching(self) -> bool:
        return self.groups[0].prefix_caching

    @prefix_caching.setter
    def prefix_caching(self, on: bool) -> None:
        for group in self.groups:
            group.prefix_caching = on

    @property
    def contiguous_blocks(self) -> int:
        return self.groups[0].contiguous_blocks

    @contiguous_blocks.setter
    def contiguous_blocks(self, count: int) -> None:
        for group in self.groups:
            group.contiguous_blocks = count

    @property
    def eviction(self) -> str:
        return self.groups[0].eviction

    @eviction.setter
    def eviction(self, order: str) -> None:
        for group in self.groups:
            group.eviction = order

    @property
    def available(self) -> Amounts:
        return self._amounts(lambda group: group.available)

    @property
    def chunk(self) -> int:
        return min(group.chunk for group in self.groups)

    def growth(self, tokens: float) -> Amounts:
        return self._amounts(lambda group: group.growth(tokens))

    # --- a sequence's life -----------------------------------------------------------------------------------------

    def match(self, tokens: list[int], *, salt: str = "") -> int:
        chain = PrefixChain(tokens, self.block_size, salt)
        return self.groups[0].computed_by(self._common(chain), len(tokens))

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
        chain = PrefixChain(tokens, self.block_size, salt)
        end = self._common(chain)
        for group in self.groups:
            group.begin(seq, chain, group.find(chain, end), owner=owner, priority=priority, longest=longest)
        return self.computed(seq)

    def cost(self, seq: int, length: int) -> Amounts:
        return self._amounts(lambda group: group.cost(seq, length))

    def claim(self, seq: int, length: int, chunk: int) -> Amounts:
        chunk = min(chunk, self.chunk)
        return self._amounts(lambda group: group.claim(seq, length, chunk))

    def grow(self, seq: int, length: int) -> None:
        for group in self.groups:
            cost = group.cost(seq, length)
            if cost > group.available:
                raise OutOfBlocks("device", cost, group.available)
        for group in self.groups:
            group.grow(seq, length)

    def grow_all(self, seqs: Sequence[int], lengths: Sequence[int]) -> None:
        for group in self.groups:
            cost = group.cost_all(seqs, lengths)
            if cost > group.available:
                raise OutOfBlocks("device", cost, group.available)
        for group in self.groups:
            group.grow_all(seqs, lengths)

    def commit(self, seq: int, tokens: list[int], computed: int) -> None:
        for group in self.groups:
            group.commit(seq, tokens, computed)

    def commit_next(self, seqs: Sequence[int], tokens: Sequence[int]) -> None:
        for group in self.groups:
            group.commit_next(seqs, tokens)

    def set_priority(self, seq: int, priority: int) -> None:
        for group in self.groups:
            group.set_priority(seq, priority)

    def fork(self, parent: int, child: int, *, owner: int = 0) -> None:
        for group in self.groups:
            group.fork(parent, child, owner=owner)

    def close(self, seq: int) -> None:
        for group in self.groups:
            group.close(seq)

    # --- swapping --------------------------------------------------------------------------------------------------

    def swap_out(self, seq: int) -> None:
        for group in self.groups:
            cost = group.swap_out_cost(seq)
            if cost > group.host.available:
                raise OutOfBlocks("host", cost, group.host.available)
        for group in self.groups:
            group.swap_out(seq)

    def swap_in_cost(self, seq: int) -> Amounts:
        return self._amounts(lambda group: group.swap_in_cost(seq))

    def swap_in(self, seq: int) -> None:
        for group in self.groups:
            cost = group.swap_in_cost(seq)
            if cost > group.available:
                raise OutOfBlocks("device", cost, group.available)
        for group in self.groups:
            group.swap_in(seq)

    # --- changes of shape ------------------------------------------------------------------------------------------

    def shape(self, block_size: int, num_blocks: int | None = None) -> tuple[int, ...]:
        if num_blocks is None:
            return tuple(group.num_slots // block_size for group in self.groups)
        return self._divide(num_blocks, block_size)

    def plan_reshape(
        self,
        *,
        block_size: int | None = None,
        num_blocks: int | None = None,
        num_host_blocks: int | None = None,
        turns: Sequence[int] = (),
    ) -> Reshape:
        size = block_size or self.block_size
        device: Sequence[int | None] = [None] * len(self.groups)
        host: Sequence[int | None] = device
        pools = self.shape(size, num_blocks)
        if num_blocks is not None:
            device = pools
        if num_host_blocks is not None:
            host = [num_host_blocks * own // pools[0] for own in pools]
        victims: set[int] = set()
        while True:  # until all groups lose the same sequences
            # What the first group keeps tells the others how a prefix is called in blocks of the new size.
            reached: set[bytes] = set()
            parts = [
                group.plan_reshape(
                    block_size=block_size,
                    num_blocks=blocks,
                    num_host_blocks=spare,
                    turns=turns,
                    leaving=victims,
                    reached=reached,
                )
                for group, blocks, spare in zip(self.groups, device, host, strict=True)
            ]
            found = {seq for part in parts for seq in part.victims}
            if found == victims:
                return dataclasses.replace(parts[0], others=tuple(parts[1:]))
            victims = found

    def reshape(self, change: Reshape) -> None:
        renamed: dict[bytes, bytes] = {}
        for group, part in zip(self.groups, change.parts, strict=True):
            group.reshape(part, renamed)

    # --- looking ---------------------------------------------------------------------------------------------------

    def tier(self, seq: int) -> str:
        return self.groups[0].tier(seq)

    def table(self, seq: int) -> np.ndarray:
        return self.groups[0].table(seq)

    def computed(self, seq: int) -> int:
        return self.groups[0].computed(seq)

    def counts(self, seq: int) -> tuple[Amounts, Amounts]:
        counts = [group.counts(seq) for group in self.groups]
        return Amounts(tuple(held for held, _ in counts)), Amounts(tuple(shared for _, shared in counts))

    def describe(self, tier: str, block: int) -> BlockFacts:
        return self.groups[0].describe(tier, block)

    def check(self) -> None:
        first = self.groups[0]
        for group in self.groups:
            group.check()
            assert group.block_size == first.block_size, "groups of several block sizes"
            assert group.tables.keys() == first.tables.keys(), "groups do not have the same sequences"
            for seq, table in first.tables.items():
                other = group.tables[seq]
                facts = [(t.held, t.computed, t.pool.is_host) for t in (table, other)]
                assert facts[0] == facts[1], f"sequence {seq} is not the same in all groups: {facts}"

    # --- inside ----------------------------------------------------------------------------------------------------

    def _amounts(self, of: Callable[[KVCache], float]) -> Amounts:
        return Amounts(tuple(of(group) for group in self.groups))

    def _common(self, chain: PrefixChain) -> int:
        """Blocks of the longest prefix that every group holds and has room for."""
        end, agreed = len(chain), 0
        for group in cycle(self.groups):
            found = group.find(chain, end).end
            agreed = agreed + 1 if found == end else 1
            end = found
            if agreed == len(self.groups):
                return end
        return 0
