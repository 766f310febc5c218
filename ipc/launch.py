"""An engine in a process of its own, for programs that need one and have no event loop."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from .client import Client, EngineError
from .endpoint import Connection, list_connections
from .vocabulary import EngineState

_LOOK_S = 0.05
_PATIENCE_S = 10.0


class LaunchFailed(Exception):
    """The engine ended, or said that it cannot serve, before it was ready; the message is its last word."""


class Engine:
    """``pagedeck serve`` as a child process; it ends with the ``with`` block, and with this process however that ends.

    ``arguments`` are the engine's settings as command-line options.
    """

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        self.name = name
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [
            sys.executable,
            "-m",
            "pagedeck",
            "serve",
            "--name",
            name,
            "--exit-with-parent",
            "--private",
            *arguments,
        ]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closes when this process ends, which ends the engine
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is this process's to handle
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_ready(self, report: Callable[[str, float | None], None] | None = None) -> Connection:
        """Wait until the model is loaded; ``report`` is told what the engine does meanwhile and how far it is.

        Raises:
            LaunchFailed: it will not become ready.
        """
        connection = self._wait_connection()
        with Client(connection) as client:
            while True:
                try:
                    status = client.status()
                except EngineError as error:
                    raise LaunchFailed(self._last_words() or str(error)) from error
                if status.state == EngineState.READY:
                    return connection
                if status.state == EngineState.FAILED:
                    raise LaunchFailed(status.detail)
                if report:
                    report(status.detail, status.progress)
                time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Let go of it, which ends it; insist when it does not end."""
        with contextlib.suppress(OSError):
            if self._child.stdin:
                self._child.stdin.close()
        for insist in (self._child.terminate, self._child.kill):
            try:
                self._child.wait(_PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                insist()
        self._child.wait()
        self._output.close()

    def _wait_connection(self) -> Connection:
        while self._child.poll() is None:
            for connection in list_connections():
                if connection.name == self.name and connection.pid == self._child.pid:
                    return connection
            time.sleep(_LOOK_S)
        raise LaunchFailed(self._last_words() or f"the engine ended with exit code {self._child.returncode}")

    def _last_words(self) -> str:
        """What the engine said last, if it has ended or is about to: its sockets close before it does."""
        try:
            self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return ""
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1].removeprefix("pagedeck: ") if said else ""
