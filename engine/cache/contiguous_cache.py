"""The cache as it is without paging, to compare with: whoever begins is given all the memory that it may ever come to
need, in one piece, and keeps it until it ends."""

from __future__ import annotations

from .kv_cache import KVCache, OutOfBlocks
from .tables import BlockTable


class ContiguousCache(KVCache):
    """A :class:`KVCache` whose sequences take the blocks of their ``longest`` length at once, as one run of neighbours,
    at their first growth. Nothing is shared, nothing is swapped, and who began never waits for memory."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size, prefix_caching=False)

    def growth(self, tokens: float) -> float:
        """Nothing: what running sequences will come to need is theirs already."""
        return 0

    def cost(self, seq: int, length: int) -> int:
        """The blocks of its reservation, unless it has them; more than there are where no run is long enough."""
        table = self.tables[seq]
        if table.count:
            return 0
        blocks = self._reservation(table)
        return blocks if blocks <= self.device.longest_run else self.device.num_blocks + 1

    def claim(self, seq: int, length: int, chunk: int) -> int:
        return self.cost(seq, length)

    def grow(self, seq: int, length: int) -> None:
        table = self.tables[seq]
        if not table.count:
            cost = self.cost(seq, length)
            if cost > self.device.num_blocks:
                raise OutOfBlocks("device", self._reservation(table), self.device.longest_run)
            table.extend(self.device.take_run(cost, seq, table.owner))
            table.writable = table.count * self.block_size

    def fork(self, parent: int, child: int, *, owner: int = 0) -> None:
        raise AssertionError("without paging nothing is shared; requests of several samples are refused")

    def _reservation(self, table: BlockTable) -> int:
        """Blocks of the longest that the sequence can get; its last token is never computed."""
        return self._blocks_for(max(1, table.longest - 1))
