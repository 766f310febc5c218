"""Pagedeck: run a language model on your own machine and see what its memory does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ipc.client import Client

__version__ = "0.1.0"


def connect(name: str | None = None, *, timeout: float = 10.0) -> Client:
    """A client of the running engine of that name (or of the connection file at that path); without a name, of the only
    one. See :class:`pagedeck.ipc.client.Client` for what it does and raises."""
    from .ipc.client import Client

    return Client(name, timeout=timeout)
