"""Pagedeck: run a language model on your own machine and see what its memory does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ipc.aio import AsyncClient
    from .ipc.client import Client

__version__ = "0.1.0"

#: Seconds that :func:`connect`'s clients wait for an engine that is started again.
PATIENCE = 30.0


def connect(name: str | None = None, *, timeout: float = 10.0, patience: float = PATIENCE) -> Client:
    """A client of the running engine of that name (or of the connection file at that path); without a name, of the only
    one. See :class:`pagedeck.ipc.client.Client` for what it does and raises."""
    from .ipc.client import Client

    return Client(name, timeout=timeout, patience=patience)


def connect_async(name: str | None = None, *, timeout: float = 10.0, patience: float = PATIENCE) -> AsyncClient:
    """As :func:`connect`, for asyncio: ``async with pagedeck.connect_async() as client``."""
    from .ipc.aio import AsyncClient

    return AsyncClient(name, timeout=timeout, patience=patience)
