"""The engine's real socket thread, with a test in the place of its core."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from pagedeck.engine.serving.switchboard import ClientGone, Received, Switchboard
from pagedeck.ipc.endpoint import Connection, bind
from pagedeck.ipc.protocol import EngineMessage, EngineStatus, SettingInfo


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runtime folder, stated by the environment."""
    folder = tmp_path / "run"
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(folder))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    return folder


class Board:
    """A switchboard on real sockets. What it hands on goes to ``answer(client, message)``, or waits in ``inbox``."""

    def __init__(self, state: str = "ready", **options: Any) -> None:
        self._context: Any = zmq.Context()
        self.endpoint = bind(self._context, **({"name": "b", "listen": None, "model": "m", "log": ""} | options))
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.status = EngineStatus("b", state, "m", self.endpoint.connection.epoch, 1, "0", detail="all well")
        self.settings: list[SettingInfo] = []
        self.switchboard = Switchboard(self.endpoint, self.inbox, lambda: self.status, lambda: self.settings)
        self.gone: list[ClientGone] = []
        self._core: threading.Thread | None = None
        self.switchboard.start()

    @property
    def connection(self) -> Connection:
        return self.endpoint.connection

    def answer(self, handler: Callable[[str, Any], list[EngineMessage]]) -> None:
        """From now on, answer each message with what ``handler`` returns for it."""

        def run() -> None:
            while (item := self.inbox.get()) is not None:
                if isinstance(item, Received):
                    for reply in handler(item.client, item.message):
                        self.switchboard.send(item.client, reply)
                else:
                    self.gone.append(item)

        self._core = threading.Thread(target=run, daemon=True)
        self._core.start()

    def close(self) -> None:
        self.switchboard.close()
        self._context.destroy(linger=0)
        self.inbox.put(None)
        if self._core:
            self._core.join()


@pytest.fixture
def board(runtime: Path) -> Iterator[Callable[..., Board]]:
    """Makes boards that end with the test."""
    boards: list[Board] = []

    def make(**options: Any) -> Board:
        boards.append(Board(**options))
        return boards[-1]

    yield make
    for made in boards:
        made.close()
