"""A connection that a test can break."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from pathlib import Path

from pagedeck.ipc.endpoint import Connection


class Cable:
    """Carries bytes between clients and an engine, until it is cut; or takes them and lets them vanish."""

    def __init__(self, path: Path, engine: Connection) -> None:
        self.connection = replace(engine, control=f"ipc://{path}")
        self.connected = threading.Semaphore(0)
        self.swallows = False
        self.poison = b"\0never"  # whatever holds this vanishes, and all after it
        self.swallowed = threading.Semaphore(0)
        self._engine = engine.control.removeprefix("ipc://")
        self._ends: list[socket.socket] = []
        self._open = threading.Event()
        self._open.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break it; no other connection comes about until it is mended."""
        self._open.clear()
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self) -> None:
        self.swallows = False
        self._open.set()

    def lead_to(self, engine: Connection) -> None:
        """Connections that come about from now on lead to another engine."""
        self._engine = engine.control.removeprefix("ipc://")

    def close(self) -> None:
        self.cut()
        self.mend()
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.wait()
                engine = socket.socket(socket.AF_UNIX)
                engine.connect(self._engine)
                self._ends += [client, engine]
                for one, other in ((client, engine), (engine, client)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()
                self.connected.release()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if self.poison in data:
                    self.swallows = True
                    self.swallowed.release()
                if not self.swallows:
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
