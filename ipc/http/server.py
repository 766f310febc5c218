"""Runs the gateway until it is told to end."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable

import uvicorn

from .app import Access, application
from .door import MAX_CONNECTIONS, Door
from .link import EngineLink
from .listener import url_of

#: Seconds that answers may go on once the gateway is told to end; as many as an engine gives them.
DRAIN_S = 10

#: Files that a gateway opens beside its connections.
OWN_FILES = 100


def run(
    listener: socket.socket, link: EngineLink, access: Access, *, owned: bool, announce: Callable[[str], None]
) -> None:
    """Serve on a listening socket until told to end. An ``owned`` gateway ends when its standard input does.
    ``announce`` is called with its address."""
    _raise_file_limit()
    config = uvicorn.Config(
        application(link, access),
        http=Door,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
    )
    server = uvicorn.Server(config)
    if owned:
        threading.Thread(target=_watch_parent, args=(server,), name="parent", daemon=True).start()
    announce(url_of(listener))
    server.run(sockets=[listener])


def _raise_file_limit() -> None:
    """Where a process may open few files at first, as many as connections need."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CONNECTIONS + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _watch_parent(server: uvicorn.Server) -> None:
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 4096):
            pass
    server.should_exit = True
