"""Runs of neighbouring blocks, so that copies between tiers are few and long."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def block_runs(first: Tensor, second: Tensor, block_size: int) -> list[tuple[int, int, int]]:
    """Pairs of blocks (int64 [N] each) joined where both sides are neighbours.

    Returns (first slot in the one pool, first slot in the other, number of slots) for each run, in order.
    """
    if len(first) == 0:
        return []
    a, b = first.cpu().numpy(), second.cpu().numpy()
    cuts = np.flatnonzero((np.diff(a) != 1) | (np.diff(b) != 1)) + 1
    starts = np.concatenate(([0], cuts))
    lengths = np.diff(np.concatenate((starts, [len(a)])))
    return [
        (int(a[i]) * block_size, int(b[i]) * block_size, int(n) * block_size)
        for i, n in zip(starts, lengths, strict=True)
    ]
