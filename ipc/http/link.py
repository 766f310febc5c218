"""The gateway's connection to its engine: waits for one, follows its state, and finds it again after it ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..aio import AsyncClient, AsyncSubscription
from ..endpoint import Connection, find
from ..line import EngineError, EngineGone
from ..protocol import EngineStatus
from ..telemetry import TOPIC_EVENT, Event
from ..vocabulary import EngineState, Refused
from .schema import Health

#: Seconds between two looks at an engine, and for one that is not there.
LOOK_S = 0.5

#: Seconds that an engine may take to say how it is, which its socket thread does at once.
ANSWER_S = 3.0

_SERVING = (EngineState.READY, EngineState.DRAINING)


@dataclass(slots=True)
class EngineLink:
    """What is known of the engine of that ``name``; without one, of the first that runs alone."""

    name: str | None = None
    _client: AsyncClient | None = None
    _status: EngineStatus | None = None
    _absence: str = "No engine was found yet."
    _last_words: str = ""

    async def run(self) -> None:
        """Keep the connection, for ever."""
        while True:
            try:
                connection = find(self.name)
                await self._attend(connection)
            except (EngineError, Refused) as error:
                self._absence = str(error)
            self._client = None
            await asyncio.sleep(LOOK_S)

    def client(self) -> AsyncClient:
        """The connection to an engine that serves.

        Raises:
            EngineError: there is none (``gone``), or its model is still being loaded (``loading``).
        """
        status = self._status
        if self._client is None or status is None:
            raise EngineGone(self._last_words or self._absence)
        if status.state not in _SERVING:
            code = "loading" if status.state == EngineState.LOADING else "gone"
            raise EngineError(f"The engine is {status.state}: {status.detail}.", code=code)
        return self._client

    def status(self) -> EngineStatus:
        """Of an engine that serves, as it was a moment ago. Raises as :meth:`client`."""
        self.client()
        assert self._status is not None
        return self._status

    async def look(self) -> EngineStatus | None:
        """The engine's status now; None where none answers."""
        if self._client is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                self._status = await self._client.status()
        except (EngineError, TimeoutError) as error:
            self._absence = str(error) or f"The engine {self.name!r} has not answered for {ANSWER_S:.0f} s."
            return None
        return self._status

    async def health(self) -> Health:
        status = await self.look()
        if status is None:
            failed = bool(self._last_words)
            return Health("failed" if failed else "absent", self._last_words or self._absence, engine=self.name or "")
        state = EngineState(status.state)
        return Health(
            "failed" if state is EngineState.STOPPED else state.value,  # type: ignore[arg-type]
            status.detail,
            status.progress,
            status.name,
            status.model,
        )

    async def _attend(self, connection: Connection) -> None:
        """Follow one engine until it is gone, which raises."""
        async with AsyncClient(connection, name="HTTP gateway") as client:
            self.name = self.name or connection.name  # whoever takes its place has to have its name
            self._status, self._last_words = client.hello, ""
            self._client = client
            if client.hello.state == EngineState.LOADING:
                await self._while_loading(client)
            while True:
                await asyncio.sleep(LOOK_S)
                await self._note_status(client)

    async def _while_loading(self, client: AsyncClient) -> None:
        """Until the model is there. What an engine says before it ends early comes as an event, and as no answer."""
        async with client.subscribe([TOPIC_EVENT]) as events:
            listening = asyncio.create_task(self._note_events(events))
            try:
                while self._status is not None and self._status.state == EngineState.LOADING:
                    await asyncio.sleep(LOOK_S)
                    await self._note_status(client)
            except EngineGone:
                self._last_words = self._last_words or f"The engine {self.name!r} ended while it loaded its model."
                raise
            finally:
                listening.cancel()
                await asyncio.wait([listening])

    async def _note_events(self, events: AsyncSubscription) -> None:
        async for _, _, event in events:
            if isinstance(event, Event) and event.state == EngineState.FAILED:
                self._last_words = event.text

    async def _note_status(self, client: AsyncClient) -> None:
        try:
            self._status = await client.status()
        except EngineError as error:
            if error.code != "timeout":  # a machine that slept is none that is gone
                raise
