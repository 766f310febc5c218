"""Processes that begin with the libraries imported already, which takes an engine four of its five seconds.

One process imports them, has no second thread, and forks. What is born goes on as ``python -m …`` or ``python -c …``
would, with its own streams, environment, folder and session, and ends as an interpreter does.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

LIBRARIES = ("torch", "transformers.modeling_utils", "numba", "pagedeck.engine.assembly")
LARGEST = 1 << 20

#: How commands begin of which the nursery has children, of all that are given to its ``Popen``.
PROGRAMS = ([sys.executable, "-m", "pagedeck", "serve"], [sys.executable, "-m", "pagedeck.bench.baselines"])


class Born:
    """A process from the nursery, with as much of :class:`subprocess.Popen` as those use who start processes here."""

    def __init__(self, told: socket.socket, args: list[str], pipes: list[IO[Any] | None]) -> None:
        self.args = args
        self.stdin, self.stdout, self.stderr = pipes
        self.returncode: int | None = None
        self._told, self._lock = told, threading.Lock()
        self.pid = int(told.recv(LARGEST))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in filter(None, (self.stdout, self.stderr, self.stdin)):
            pipe.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended, _, _ = select.select([self._told], [], [], timeout)
            if not ended and timeout is not None:
                raise subprocess.TimeoutExpired(self.args, timeout)
            with self._lock:
                if self.returncode is None:
                    self.returncode = os.waitstatus_to_exitcode(int(self._told.recv(LARGEST)))
                    self._told.close()
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Begins with its first child, ends with this process.

    In the place of the module ``subprocess``, it is as that module is, but for where :data:`PROGRAMS` come from.
    """

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._lock = threading.Lock()

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: Any,
        stderr: int,
        text: bool = False,
        env: dict[str, str] | None = None,
        start_new_session: bool = True,
    ) -> Born | subprocess.Popen[Any]:
        """As ``subprocess.Popen`` would, in a session of its own whatever is asked.

        ``command`` is this interpreter with ``-m MODULE …`` or ``-c PROGRAM …``; ``stdin`` is a pipe, ``stdout``
        nothing, a file or a pipe, ``stderr`` a pipe or the same as ``stdout``.
        """
        assert command[0] == sys.executable and stdin == subprocess.PIPE
        if sys.platform != "linux":  # elsewhere one forks badly with libraries loaded, or not at all
            options: dict[str, Any] = {"text": text, "env": env, "start_new_session": start_new_session}
            return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, **options)
        told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs, ours = [tells.fileno()], []
        for asked, reads in ((stdin, True), (stdout, False), (stderr, False)):
            ours.append(None)
            if asked == subprocess.PIPE:
                far, near = os.pipe() if reads else reversed(os.pipe())
                ours[-1] = os.fdopen(near, ("w" if reads else "r") + "b" * (not text))
            elif asked == subprocess.STDOUT:
                far = os.dup(theirs[-1])
            else:
                far = os.open(os.devnull, os.O_WRONLY) if asked == subprocess.DEVNULL else os.dup(asked.fileno())
            theirs.append(far)
        what = {"command": command[1:], "env": dict(env or os.environ), "cwd": str(Path.cwd())}
        try:
            with self._lock:
                socket.send_fds(self._ready(), [json.dumps(what).encode()], theirs)
        finally:
            tells.close()
            for end in theirs[1:]:
                os.close(end)
        return Born(told, [*command], ours)

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: Sequence[str], **options: Any) -> Any:
        ours = any([*command[: len(start)]] == start for start in PROGRAMS)
        return (self.start if ours else subprocess.Popen)(command, **options)

    def _ready(self) -> socket.socket:
        if self._line is None:
            self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                subprocess.Popen([sys.executable, __file__], stdin=theirs, start_new_session=True)
        return self._line


def _tend(line: socket.socket) -> dict[str, Any]:
    """Have children until nobody asks for any more. Returns in each child, with what it is to do."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        told, streams, _, _ = socket.recv_fds(line, LARGEST, 4)
        if not told:
            os._exit(0)
        if os.fork() == 0:
            line.close()
            return _attend(json.loads(told), *streams)
        for stream in streams:
            os.close(stream)


def _attend(what: dict[str, Any], tells: int, *streams: int) -> dict[str, Any]:
    """Have the child, and tell what became of it; returns in the child."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        os.write(tells, str(child).encode())
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
            os.write(tells, str(status).encode())
        os._exit(0)
    os.close(tells)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams):
        os.close(stream)
    return what


def _live(what: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(what["env"])
    os.chdir(what["cwd"])
    kind, name, *sys.argv[1:] = what["command"]
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0] = kind
        exec(compile(name, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    sys.path[0] = ""  # rather than the tests' own folder
    for library in LIBRARIES:
        __import__(library)
    _live(_tend(socket.socket(fileno=os.dup(0))))
