"""Numbers over time: the newest rows of named columns, in bounded memory. No Qt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class History:
    """The newest ``capacity`` rows of float columns. A column is one contiguous view, oldest first.

    Rows are written at the end of a buffer of twice the capacity, which is compacted when full.
    """

    def __init__(self, columns: Iterable[str], capacity: int) -> None:
        self.capacity = capacity
        self.total = 0  # rows ever added
        self._index = {name: i for i, name in enumerate(columns)}
        self._data = np.zeros((len(self._index), 2 * capacity))
        self._end = 0

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def append(self, row: dict[str, float]) -> None:
        if self._end == 2 * self.capacity:
            self._data[:, : self.capacity] = self._data[:, self.capacity :]
            self._end = self.capacity
        self._data[:, self._end] = [row[name] for name in self._index]
        self._end += 1
        self.total += 1

    def column(self, name: str) -> np.ndarray:
        """float64 ``[len(self)]``, oldest first; a view, valid until the next append."""
        return self._data[self._index[name], self._end - len(self) : self._end]

    def table(self, names: Sequence[str], start: int, stop: int) -> np.ndarray:
        """float64 ``[len(names), stop - start]``: a copy of the rows from ``start`` (0 is the oldest kept) to
        ``stop``."""
        first = self._end - len(self)
        return self._data[[self._index[name] for name in names], first + start : first + stop]

    def clear(self) -> None:
        self._end = self.total = 0
