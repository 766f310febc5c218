"""What moved between two states of the pools, and how long it shows: flashes that fade. No Qt.

Kinds are read off the same deltas that the map is drawn from, in O(changed). A copy-on-write is not told by the engine:
it shows as a shared, partly filled block that loses a holder while a new block appears that is as full.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ..ipc.vocabulary import BlockState

#: The least state of a block that sequences hold, and others. Plain numbers: arrays are compared with them five times
#: faster than with members of an enumeration.
HELD = _SWAPPED = BlockState.SWAPPED.value
_SHARED = BlockState.SHARED.value
#: Seconds until a flash is gone, and how strong it begins.
FADE_S, STRONGEST = 0.7, 0.75
#: More flashes than this at once are thinned out evenly: they would be a blur, and each costs time in every frame.
FLASHES_MAX = 20_000
#: So many tokens may a copy have grown before it is told.
GROWN = 8


class Motion(IntEnum):
    NONE = 0
    ALLOCATED = 1
    FREED = 2
    COPIED = 3
    SWAPPED = 4


@dataclass(frozen=True)
class Delta:
    """Blocks that changed (``ids``), and what they were before and after: rows 0 and 1 of ``[2, len(ids)]``."""

    ids: np.ndarray
    state: np.ndarray
    ref: np.ndarray
    fill: np.ndarray
    owner: np.ndarray


#: What a tier tells in which nothing changed.
UNMOVED = Delta(np.zeros(0, np.uint32), *(np.zeros((2, 0), dtype) for dtype in ("u1", "u2", "u2", "u4")))


#: Of a block that nobody held and nobody holds, that somebody holds now; that somebody held, and holds still.
_TURNS = np.array([[Motion.NONE, Motion.ALLOCATED], [Motion.FREED, Motion.NONE]], np.uint8)


def motions(device: Delta, host: Delta, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """The :class:`Motion` (uint8) of each block of two deltas that belong together."""
    on_device, on_host = _taken_or_freed(device), _taken_or_freed(host)
    if len(host.ids):
        _mark_swapped(device, host, on_device, on_host)
    _mark_copied(device, on_device, block_size)
    return on_device, on_host


def _taken_or_freed(delta: Delta) -> np.ndarray:
    held, holds = (delta.state >= HELD).view(np.uint8)
    return _TURNS[held, holds]


def _mark_swapped(device: Delta, host: Delta, on_device: np.ndarray, on_host: np.ndarray) -> None:
    was_away, is_away = host.state == _SWAPPED
    out, back = is_away & ~was_away, was_away & ~is_away
    if out.any() or back.any():
        left = (on_device == Motion.FREED.value) & np.isin(device.owner[0], host.owner[1][out])
        came = (on_device == Motion.ALLOCATED.value) & np.isin(device.owner[1], host.owner[0][back])
        back &= np.isin(host.owner[0], device.owner[1][came])
        on_device[left | came] = Motion.SWAPPED
        on_host[out | back] = Motion.SWAPPED


def _mark_copied(device: Delta, kinds: np.ndarray, block_size: int) -> None:
    lost = (device.state[0] == _SHARED) & (device.ref[1] < device.ref[0]) & (device.fill[0] < block_size)
    if lost.any():
        new, grown = kinds == Motion.ALLOCATED.value, device.fill[1].astype(np.int64)
        for fill in set(device.fill[0][lost].tolist()):
            kinds[new & (grown >= fill) & (grown <= fill + GROWN)] = Motion.COPIED


class Flashes:
    """Blocks that moved lately. All costs are bounded by ``FLASHES_MAX``, however large the pool is."""

    def __init__(self) -> None:
        self.clear()

    def __bool__(self) -> bool:
        return len(self._ids) > 0

    def clear(self) -> None:
        self._ids = np.zeros(0, np.uint32)
        self._kinds = np.zeros(0, np.uint8)
        self._born = np.zeros(0)

    def add(self, ids: np.ndarray, kinds: np.ndarray, now: float) -> None:
        """Blocks that moved at ``now``; a block's later motion replaces its earlier one."""
        moved = kinds != Motion.NONE.value
        ids, kinds = ids[moved], kinds[moved]
        if not len(ids):
            return
        stride = -(-len(ids) // FLASHES_MAX)
        ids, kinds = ids[::stride], kinds[::stride]
        self._ids = np.concatenate([self._ids, ids])[-FLASHES_MAX:]
        self._kinds = np.concatenate([self._kinds, kinds])[-FLASHES_MAX:]
        self._born = np.concatenate([self._born, np.full(len(ids), now)])[-FLASHES_MAX:]

    def seen(self, now: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, kinds, and how strong each flash is (0 to 1), the newest last. Those that are gone are forgotten."""
        first = int(np.searchsorted(self._born, now - FADE_S, side="right"))
        self._ids, self._kinds, self._born = self._ids[first:], self._kinds[first:], self._born[first:]
        left = 1 - (now - self._born) / FADE_S
        return self._ids, self._kinds, STRONGEST * left * left


def blend(pixels: np.ndarray, colours: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """0xffRRGGBB ``pixels`` with so much (0 to 1) of ``colours`` in them."""
    share = np.round(strength * 256).astype(np.uint16)[:, None]
    below, above = (colour.view(np.uint8).reshape(-1, 4).astype(np.uint16) for colour in (pixels, colours))
    return ((below * (256 - share) + above * share) >> 8).astype(np.uint8).view(np.uint32).ravel()
