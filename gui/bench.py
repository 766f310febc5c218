"""Frame time of the block map: ``python -m pagedeck.gui.bench`` draws live deltas offscreen, from small to large pools.

A frame is what a step costs the window: the delta is applied, the map is drawn anew, and the view is painted.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from statistics import median

import numpy as np

SIZES = (1_000, 64_000, 1_000_000)
CHANGED = 256  # blocks a frame
_FIELDS = {"state": "<u1", "ref": "<u2", "fill": "<u2", "owner": "<u4", "last_used": "<u4", "depth": "<u2"}


def frame_times(num_blocks: int, frames: int, *, moving: bool = False, ghost: str = "none") -> list[float]:
    """Milliseconds of each of ``frames`` frames of a map of ``num_blocks`` blocks, 1,280 by 800 pixels."""
    from PySide6.QtWidgets import QApplication

    from ..ipc.protocol import SnapshotReply
    from ..ipc.telemetry import TOPIC_BLOCKS, BlocksUpdate, RequestRow, TierBlocks
    from .link import EngineLink
    from .map.block_map import BlockMap
    from .map.ghosts import GhostKind
    from .selection import Selection

    app = QApplication.instance() or QApplication([])
    rng = np.random.default_rng(1)
    link = EngineLink()
    view = BlockMap(link, Selection())
    view.motion.setChecked(moving)
    view.resize(1280, 800)

    def blocks(count: int, ids: np.ndarray | None = None) -> TierBlocks:
        state = rng.integers(0, 6, count)
        arrays = {
            "state": state, "ref": np.maximum(0, state - 3), "fill": np.where(state > 1, 16, 0),
            "owner": rng.integers(1, 200, count), "last_used": rng.integers(0, 100, count),
            "depth": rng.integers(0, 99, count),
        }  # fmt: skip
        parts = {name: arrays[name].astype(dtype).tobytes() for name, dtype in _FIELDS.items()}
        return TierBlocks(num_blocks, 16, 16, ids=b"" if ids is None else ids.astype("<u4").tobytes(), **parts)

    empty = TierBlocks(0, 16, 16)
    link.view.begin("bench")
    rows = [RequestRow(n, str(n), "running", 10, prompt_tokens=500, max_tokens=500) for n in range(200)]
    whole = BlocksUpdate("bench", 0, True, blocks(num_blocks), empty)
    link.view.apply_snapshot(SnapshotReply(epoch="bench", sequences={}, blocks=whole, requests=rows))
    view.show()
    view.set_ghost(GhostKind(ghost))
    app.processEvents()
    canvas, times = view.pools["device"].canvas, []
    for frame in range(frames):
        ids = rng.choice(num_blocks, min(CHANGED, num_blocks), replace=False)
        update = BlocksUpdate("bench", frame, False, blocks(len(ids), ids), empty)
        start = time.perf_counter()
        link.view.apply(TOPIC_BLOCKS, frame + 1, update)
        view.refresh()
        canvas.viewport().repaint()
        times.append((time.perf_counter() - start) * 1000)
    view.close()
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pagedeck.gui.bench", description=__doc__)
    parser.add_argument("--frames", type=int, default=100)
    options = parser.parse_args(arguments)
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    print(f"{'blocks':>10}  {'what':<22}{'median ms':>10}{'P95 ms':>10}")
    for size in SIZES:
        for moving, ghost in ((False, "none"), (True, "none"), (True, "contiguous"), (True, "unshared")):
            times = frame_times(size, options.frames, moving=moving, ghost=ghost)
            what = ("flashing" if moving else "still") + ("" if ghost == "none" else f", {ghost}")
            print(f"{size:>10,}  {what:<22}{median(times):>10.1f}{np.percentile(times, 95):>10.1f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
