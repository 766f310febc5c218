"""Which layers hold the same positions, and how a memory for keys and values is divided among such groups."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...ipc.vocabulary import Refused
from .cache_groups import CacheGroups
from .contiguous_cache import ContiguousCache
from .kv_cache import KVCache
from .windowed_cache import WindowedCache, window_blocks

#: The length of requests that pools of several groups are balanced for. At full contexts alone, a window's pool would
#: be so small that short requests, which need as much of it as of the full layers', could hardly run side by side; for
#: short ones alone, it would leave the full layers too few slots for long contexts.
TYPICAL_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that see the last ``window`` positions, or all if it is 0."""

    window: int
    layers: tuple[int, ...]


def group_layers(windows: Sequence[int], context_length: int) -> tuple[LayerGroup, ...]:
    """Groups of layers, given each one's window (0: none): full ones first, then from the widest window down. A window
    that no context outgrows is none."""
    kinds: dict[int, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(window if window < context_length else 0, []).append(layer)
    return tuple(LayerGroup(w, tuple(kinds[w])) for w in sorted(kinds, key=lambda w: (w > 0, -w)))


@dataclass(frozen=True, slots=True)
class Division:
    """How a memory for keys and values is divided among groups of layers."""

    groups: tuple[LayerGroup, ...]
    layer_bytes: int  # what a slot takes in one layer
    context_length: int
    max_batch_size: int
    token_budget: int

    def blocks(self, num_blocks: int, block_size: int) -> tuple[int, ...]:
        """Blocks of each group's device pool, for ``num_blocks`` of the first's.

        A window's pool has what those requests need of it that fill the first group's pool with
        :data:`TYPICAL_LENGTH` tokens each (or the whole context, if that is shorter), at most ``max_batch_size`` of
        them: a window each, and the tokens of a step. So neither runs out long before the other.
        """
        length = min(TYPICAL_LENGTH, self.context_length)
        requests = min(self.max_batch_size, -(-num_blocks * block_size // length))
        step = -(-self.token_budget // block_size)
        windows = [requests * window_blocks(g.window, 1, block_size) + step for g in self.groups[1:]]
        return num_blocks, *(min(num_blocks, blocks) for blocks in windows)

    def bytes(self, num_blocks: int, block_size: int) -> int:
        """What all device pools take together, with ``num_blocks`` in the first."""
        return self._bytes(self.blocks(num_blocks, block_size), block_size)

    def fit(self, memory: int, block_size: int) -> int:
        """The most blocks of the first group's device pool with which all of them fit into ``memory`` bytes."""
        most = memory // (len(self.groups[0].layers) * block_size * self.layer_bytes)
        return bisect_right(range(1, most + 1), memory, key=lambda blocks: self.bytes(blocks, block_size))

    def host_blocks(self, device: Sequence[int], block_size: int, memory: int) -> tuple[int, ...]:
        """Blocks of each group's host pool, in proportion to its ``device`` pool, that ``memory`` bytes hold."""
        blocks = memory * device[0] // self._bytes(device, block_size)
        return tuple(blocks * own // device[0] for own in device)

    def _bytes(self, blocks: Sequence[int], block_size: int) -> int:
        slots = sum(number * len(group.layers) for group, number in zip(self.groups, blocks, strict=True))
        return slots * block_size * self.layer_bytes


def make_cache(
    division: Division,
    blocks: Sequence[int],
    block_size: int,
    host_blocks: Sequence[int],
    *,
    contiguous: bool = False,
    **settings: Any,
) -> KVCache | CacheGroups:
    """The cache of a model's groups of layers, with so many blocks in each one's device and host pool. One group needs
    no more than a cache of its own. ``settings`` are those of :class:`KVCache`; there are none if it is
    ``contiguous``.

    Raises:
        Refused: it should be contiguous, and not all layers hold the same positions.
    """
    if contiguous:
        if len(division.groups) > 1 or division.groups[0].window:
            raise Refused.value("allocation", "contiguous", "paged for a model with sliding windows")
        return ContiguousCache(blocks[0], block_size)
    caches = [
        WindowedCache(device, block_size, host, window=group.window, **settings)
        if group.window
        else KVCache(device, block_size, host, **settings)
        for group, device, host in zip(division.groups, blocks, host_blocks, strict=True)
    ]
    return caches[0] if len(caches) == 1 else CacheGroups(caches, division.blocks)
