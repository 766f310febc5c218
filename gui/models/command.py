"""``pagedeck models …`` in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject

from ..command import Command

#: Called once with the answer, or with none and why there is none.
Done = Callable[[Any, str], None]


class ModelsCommand(Command):
    def __init__(
        self,
        arguments: list[str],
        on_done: Done,
        on_line: Callable[[dict[str, Any]], None] | None = None,
        parent: QObject | None = None,
    ) -> None:
        """``on_line`` is given each line of JSON as it comes, for a command that prints such; ``on_done`` gets the
        whole answer of any other."""
        super().__init__(parent)
        self._on_done, self._on_line = on_done, on_line
        self.begin(["models", *arguments, "--json"])

    def _print(self) -> None:
        while self._on_line is not None and self.canReadLine():
            self._on_line(json.loads(bytes(self.readLine().data())))

    def _over(self, code: int, output: bytes, problem: str) -> None:
        self._on_done(None if problem or self._on_line is not None else json.loads(output), problem)
