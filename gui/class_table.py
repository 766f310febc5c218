"""The class of every request that may hold blocks, to be looked up for a million blocks at once. No Qt."""

from __future__ import annotations

import numpy as np

from ..ipc.vocabulary import PRIORITIES

#: Requests this far apart share a place; they do not hold blocks at the same time.
_PLACES = 65_536

_PLACE_OF_CLASS = {name: place for place, name in enumerate(PRIORITIES)}


class ClassTable:
    """``version`` grows whenever a class changes."""

    def __init__(self) -> None:
        self._places = np.full(_PLACES, _PLACE_OF_CLASS["normal"], np.uint8)
        self.version = 0

    def put(self, number: int, class_name: str) -> None:
        place = _PLACE_OF_CLASS[class_name]
        if self._places[number % _PLACES] != place:
            self._places[number % _PLACES] = place
            self.version += 1

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """uint8: each request's class, as its place in :data:`PRIORITIES`; ``normal`` where it is not known."""
        return self._places[numbers % _PLACES]
