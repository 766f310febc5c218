"""``pagedeck gateway``: an engine's HTTP door, in a process of its own, and what starts one beside an engine."""

from __future__ import annotations

import argparse
import os
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from ..ipc.http.listener import is_loopback, known_names, open_listener, url_of
from ..ipc.vocabulary import Refused

#: The environment's way to state a key, which no other user of the machine can read.
KEY_VARIABLE = "PAGEDECK_API_KEY"

_PATIENCE_S = 15.0


def gateway(options: argparse.Namespace) -> int:
    """Serve HTTP until told to end."""
    keys = _keys(options)
    listener = socket.socket(fileno=options.fd) if options.fd is not None else open_listener(options.host, options.port)
    address = listener.getsockname()[0]
    if not keys and not is_loopback(address):
        listener.close()
        raise Refused(
            f"Whoever reaches {address} could use the engine; state a key with --api-key-file FILE or {KEY_VARIABLE}, "
            "or listen on 127.0.0.1.",
            field="host",
        )
    from ..ipc.http.app import Access
    from ..ipc.http.link import TAKEOVER_S, EngineLink
    from ..ipc.http.recorder import Recorder
    from ..ipc.http.server import run

    access = Access(known_names(address), tuple(options.cors), tuple(keys))
    owned = options.exit_with_parent
    recorder = Recorder(Path(options.trace)) if options.trace is not None else None
    patience = 0.0 if owned else TAKEOVER_S  # an owned one ends with its engine
    link = EngineLink(options.engine, patience, recorder)
    run(listener, link, access, owned=owned, announce=_announce)
    return 0


def _announce(url: str) -> None:
    print(f"OpenAI's API is at {url}/v1, figures at {url}/metrics", flush=True)


def _keys(options: argparse.Namespace) -> list[str]:
    """All keys that are stated, wherever."""
    stated = [*options.api_key, *filter(None, [os.environ.get(KEY_VARIABLE)])]
    if options.api_key_file is not None:
        stated += _read_keys(Path(options.api_key_file))
    for key in stated:
        if not key.isascii() or not key.isprintable() or " " in key or not key:
            raise Refused("A key is not one; accepted are printable ASCII characters without spaces.", field="api_key")
    return stated


def _read_keys(path: Path) -> list[str]:
    """One a line; lines that begin with # are comments."""
    try:
        mode = path.stat().st_mode
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The keys in {path} cannot be read: {error}.", field="api_key_file") from None
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise Refused(f"Others may read the keys in {path}; run `chmod 600 {path}` first.", field="api_key_file")
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise Refused(f"{path} holds no key; write one a line.", field="api_key_file")
    return keys


class GatewayProcess:
    """A gateway beside the engine of that name, in a process of its own; it ends with the ``with`` block, and with this
    process however that ends. ``trace``: a file for it to write down what the engine is asked.

    Raises:
        Refused: the port is taken.
    """

    def __init__(self, name: str, port: int, trace: str | None = None) -> None:
        with open_listener("127.0.0.1", port) as listener:
            self.url = url_of(listener)
            command = [sys.executable, "-m", "pagedeck", "gateway", "--name", name, "--exit-with-parent"]
            command += [] if trace is None else ["--trace", trace]
            self._child = subprocess.Popen(
                [*command, "--fd", str(listener.fileno())],
                stdin=subprocess.PIPE,  # closes when this process ends, which ends the gateway
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is the engine's to handle: its last answers still have to go out
            )
        self._ending = False
        threading.Thread(target=self._watch, name="gateway", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _watch(self) -> None:
        code = self._child.wait()
        if not self._ending:
            text = f"the HTTP gateway ended with exit code {code}; the engine goes on without it."
            print(f"pagedeck: {text}", file=sys.stderr, flush=True)
