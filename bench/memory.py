"""How much memory another process holds while it works."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import psutil

_INTERVAL_S = 0.1


class MemoryWatch:
    """Notes the largest resident size of a process inside a ``with`` block. Mapped weights count once touched."""

    def __init__(self, pid: int | None) -> None:
        self.most: int | None = None  # bytes; None if the process cannot be seen
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            process = psutil.Process(self._pid) if self._pid is not None else None
            while process:
                self.most = max(self.most or 0, process.memory_info().rss)
                if self._done.wait(_INTERVAL_S):
                    return
        except psutil.Error:
            return
