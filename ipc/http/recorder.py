"""Writes down what an engine is asked, without any text, while its gateway runs (see :mod:`..trace`)."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from ..aio import AsyncClient
from ..telemetry import TOPIC_EVENT, Event
from ..trace import line_of, write_line
from ..vocabulary import Refused

#: Seconds between two looks whether another engine took over.
_LOOK_S = 0.5

_log = logging.getLogger(__name__)


class Recorder:
    """Adds a line to the file at ``path`` for each request that an engine has answered.

    Raises:
        Refused: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise Refused(f"{path} cannot be written: {error.strerror}; name another file.", field="trace") from error

    async def follow(self, client: AsyncClient) -> None:
        """Listen to the engine that ``client`` talks to, and to those that take over from it, until cancelled."""
        while True:
            connection = client.connection
            listening = asyncio.create_task(self._listen(client))
            try:
                while client.connection is connection:
                    await asyncio.sleep(_LOOK_S)
            finally:
                listening.cancel()
                await asyncio.wait([listening])

    def note(self, event: Event) -> None:
        """Write down a request, if the event tells that it was answered."""
        line = line_of(event)
        if line is None or self._file.closed:
            return
        try:
            write_line(self._file, line)
        except OSError as error:  # answers matter more
            _log.warning("%s is written no further: %s", self._path, error.strerror)
            self._file.close()

    async def _listen(self, client: AsyncClient) -> None:
        async with client.subscribe([TOPIC_EVENT]) as events:
            async for _, _, event in events:
                if isinstance(event, Event):
                    self.note(event)
