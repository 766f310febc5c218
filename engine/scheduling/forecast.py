"""How much running sequences will still grow: learnt from how long outputs have been."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from ..request import Sequence

if TYPE_CHECKING:
    from ..cache.cache_groups import Amounts

#: Length buckets: so many to a doubling, up to about a million tokens.
_PER_DOUBLING = 8
_BUCKETS = 20 * _PER_DOUBLING

#: The last so many outputs are what is remembered.
MEMORY = 1_000

#: Before anything was seen: as if so many outputs had been, as likely of each doubling of these lengths.
PRIOR_WEIGHT = 16.0
PRIOR_RANGE = (16, 2_048)

#: The times ahead that are looked at, in tokens: spans between these, two to a doubling.
TIMES = np.array([0, *(8 * 2 ** (half / 2) for half in range(24))])

#: Standard deviations of room kept above what is expected, of what chance makes and what is not known of the lengths.
MARGIN = 3.0


class OutputLengths:
    """The distribution of output lengths, by Kaplan and Meier's estimator (1958): an output that was cut off says only
    that it would have been at least as long."""

    def __init__(self) -> None:
        low, high = (_bucket(length) for length in PRIOR_RANGE)
        self._ended = np.zeros(_BUCKETS)
        self._ended[low:high] = PRIOR_WEIGHT / (high - low)
        self._at_risk = np.cumsum(self._ended[::-1])[::-1].copy()
        self._running = np.zeros(_BUCKETS)  # of those still running, how many have come so far
        self._survival: np.ndarray | None = None

    @property
    def known(self) -> float:
        """How many outputs it was learnt from, those supposed at first included."""
        return float(self._at_risk[0])

    def watch(self, lengths: np.ndarray) -> None:
        """Outputs that are being made have these lengths so far: they too say that an output can be as long."""
        buckets = np.minimum(np.log2(lengths + 1) * _PER_DOUBLING, _BUCKETS - 1).astype(np.int64)
        counts = np.bincount(buckets, minlength=_BUCKETS)
        self._running = counts[::-1].cumsum()[::-1] - counts
        self._survival = None

    def add(self, length: int, *, cut_off: bool) -> None:
        """An output had ``length`` tokens, after which it ended by itself, or was ``cut_off``."""
        bucket = _bucket(length)
        for counts in (self._ended, self._at_risk):
            counts *= 1 - 1 / MEMORY
        self._at_risk[: bucket + (not cut_off)] += 1
        if not cut_off:
            self._ended[bucket] += 1
        self._survival = None

    def surviving(self, lengths: np.ndarray) -> np.ndarray:
        """The share of outputs that is longer than each of ``lengths``."""
        if self._survival is None:
            at_risk = self._at_risk + self._running
            hazard = np.divide(self._ended, at_risk, out=np.zeros(_BUCKETS), where=at_risk > 1e-9)
            self._survival = np.concatenate([[1.0], np.cumprod(1 - np.minimum(hazard, 1.0))])
        position = np.log2(np.maximum(lengths, 0) + 1) * _PER_DOUBLING
        return np.interp(position, np.arange(_BUCKETS + 1), self._survival)


class Forecast:
    """What sequences will take, beyond what they hold, in each span of :data:`TIMES` from now.

    A sequence that is alive when the span begins may grow until it ends; one that has ended gives back all its own. In
    tokens, as mean, variance, deviation (the sum of their standard deviations: what is wrong about the distribution
    is wrong about all alike) and, if none ended before its limit, the most: an array [4, spans].
    """

    def __init__(self, lengths: OutputLengths, sequences: Iterable[Sequence] = ()) -> None:
        self._lengths = lengths
        self._sums = np.zeros((4, len(TIMES) - 1))
        self._new = list(sequences)  # not in the sums yet
        self._limit = float(sum(_left(s) for s in self._new))  # what they take at most

    def include(self, sequence: Sequence) -> None:
        self._new.append(sequence)
        self._limit += _left(sequence)

    def peak(self, sequence: Sequence, room: float | Amounts) -> float:
        """The most tokens that all of them and ``sequence`` will come to take, with a margin for chance. Where there
        is ``room`` for a larger but simpler estimate, that one."""
        limit = self._limit + _left(sequence)
        if limit <= room:
            return limit
        if self._new:
            if not self._sums.any():
                self._lengths.watch(np.array([len(s.tokens) - len(s.request.prompt) for s in self._new]))
            self._sums += self._of(self._new)
            self._new = []
            self._limit = self._peak(self._sums)
        return self._peak(self._sums + self._of([sequence]))

    def _peak(self, sums: np.ndarray) -> float:
        mean, variance, deviation, most = sums
        expected = mean + MARGIN * np.sqrt(variance + deviation**2 / self._lengths.known)
        return max(0.0, float(np.minimum(expected, most).max()))

    def _of(self, sequences: list[Sequence]) -> np.ndarray:
        count = len(sequences)
        known = np.fromiter((s.length for s in sequences), np.float64, count)
        prompts = np.fromiter((len(s.request.prompt) for s in sequences), np.float64, count)
        longest = np.fromiter((s.request.longest for s in sequences), np.float64, count)
        found = np.fromiter((s.found for s in sequences), np.float64, count)
        produced, left = (known - prompts)[:, None], (longest - known)[:, None]
        alive = self._lengths.surviving(produced + TIMES[:-1]) / np.maximum(self._lengths.surviving(produced), 1e-12)
        alive[TIMES[:-1] >= left] = 0.0
        grown = np.minimum(TIMES[1:], left)
        own = (known - found)[:, None]
        mean = alive * grown - (1 - alive) * own
        variance = alive * (1 - alive) * (grown + own) ** 2
        most = np.where(TIMES[:-1] < left, grown, -own)
        return np.stack([part.sum(axis=0) for part in (mean, variance, np.sqrt(variance), most)])


def _left(sequence: Sequence) -> int:
    """Tokens until the sequence is cut off."""
    return sequence.request.longest - sequence.length


def _bucket(length: int) -> int:
    return min(int(np.log2(length + 1) * _PER_DOUBLING), _BUCKETS - 1)
