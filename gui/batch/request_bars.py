"""Bars of many parts, as pixels. No Qt."""

from __future__ import annotations

import numpy as np


def stacked(
    columns: np.ndarray, amounts: np.ndarray, colours: np.ndarray, count: int, height: int, scale: float
) -> np.ndarray:
    """uint32 ``[height, count]``: bars that stand on the last row, each of parts above each other.

    Part *i* belongs to bar ``columns[i]``, which is sorted, and is ``scale * amounts[i]`` pixels high.
    """
    pixels = np.zeros((height, count), np.uint32)
    if len(columns):
        top = np.cumsum(amounts * scale)
        first = np.searchsorted(columns, np.arange(count))  # of each bar's parts
        below = np.concatenate([[0.0], top])[first]  # what all bars before have together
        upper = np.minimum(np.rint(top - below[columns]).astype(np.int64), height)
        lower = np.concatenate([[0], upper[:-1]])
        lower[first[np.unique(columns)]] = 0
        sizes = upper - lower
        row = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - lower, sizes)
        pixels[height - 1 - row, np.repeat(columns, sizes)] = np.repeat(colours, sizes)
    return pixels
