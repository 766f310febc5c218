"""Programs that take long begin with the tests, of which most leave a core idle, and are awaited by the one they are
for."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence


class Ahead:
    """A program that runs beside the tests."""

    def __init__(self, command: Sequence[str]) -> None:
        self._out, self._err = (tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(2))  # noqa: SIM115
        self._program = subprocess.Popen(
            [*command], stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, start_new_session=True
        )

    def result(self) -> subprocess.CompletedProcess[str]:
        """What came of it, once it has ended."""
        self._program.wait()
        for said in (self._out, self._err):
            said.seek(0)
        return subprocess.CompletedProcess(
            self._program.args, self._program.returncode, self._out.read(), self._err.read()
        )

    def end(self) -> None:
        """With all that it started, if nobody waits for it any more."""
        if self._program.poll() is None:
            os.killpg(self._program.pid, signal.SIGKILL) if os.name == "posix" else self._program.kill()
            self._program.wait()
        self._out.close()
        self._err.close()
