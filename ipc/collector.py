"""Python's garbage collector, set for a process whose steps, or whose frames, must not wait for it."""

from __future__ import annotations

import atexit
import gc


def calm() -> None:
    """Look only now and then for cycles, and never again among what exists now.

    A step and a frame make thousands of objects that die with them, by their reference counts. By default they set the
    collector off several times, and every so often it walks through the tokens of all sequences, or all history.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.unfreeze)  # what is frozen at the end, native libraries report as leaked
