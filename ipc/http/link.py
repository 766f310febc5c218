"""The gateway's connection to its engine: waits for one, follows its state, and finds it again after it ended.

What was asked of an engine that ended is asked again of the one that takes its name, where its reader cannot notice
(see :mod:`..course`); who asks while there is none is told so, and to come again.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass

from ..aio import AsyncClient, AsyncSubscription
from ..endpoint import Connection, find
from ..line import EngineError, EngineGone
from ..protocol import EngineStatus
from ..telemetry import TOPIC_EVENT, Event
from ..vocabulary import EngineState, Refused
from .recorder import Recorder
from .schema import Health

#: Seconds between two looks at an engine, and for one that is not there.
LOOK_S = 0.5

#: Seconds that an engine may take to say how it is, which its socket thread does at once.
ANSWER_S = 3.0

#: Seconds that what was asked waits for an engine to take over from one that ended: for its process to begin, after
#: which it is there and loads its model.
TAKEOVER_S = 15.0

#: The longest that anybody is asked to wait before he asks again, in seconds.
WAIT_MAX_S = 60

_SERVING = (EngineState.READY, EngineState.DRAINING)


@dataclass(slots=True)
class EngineLink:
    """What is known of the engine of that ``name``; without one, of the first that runs alone. ``patience``: seconds
    that requests wait for an engine that takes over. ``recorder``: writes down what the engine is asked."""

    name: str | None = None
    patience: float = TAKEOVER_S
    recorder: Recorder | None = None
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
            self._client = self._status = None
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

    def queue_wait(self) -> int:
        """Seconds in which there is probably room for another request: as long as half of them waited of late."""
        waits = self._status.stats.latency.get("queue") if self._status and self._status.stats else None
        return min(max(1, math.ceil(waits.p50)), WAIT_MAX_S) if waits else 1

    def loading_wait(self) -> int | None:
        """Seconds in which the model is probably loaded, as fast as it went so far; None where that is not told."""
        status = self._status
        if status is None or not status.progress:
            return None
        left = (time.time() - status.started) * (1 - status.progress) / status.progress
        return min(max(1, math.ceil(left)), WAIT_MAX_S)

    async def look(self) -> EngineStatus | None:
        """The engine's status now; None where none answers. One that is only late may still be asked."""
        if self._client is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                status = await self._client.status()
        except EngineError as error:
            self._status, self._absence = None, str(error)
            return None
        except TimeoutError:
            if self._status is not None:  # else it is known already why
                self._absence = f"The engine {self.name!r} has not answered for {ANSWER_S:.0f} s."
            return None
        if status.state in _SERVING:
            self._last_words = ""
        self._status = status
        return status

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
        """Follow an engine, and those that take over from it, until none did, which raises."""
        async with AsyncClient(connection, name="HTTP gateway", patience=self.patience) as client:
            self.name = self.name or connection.name  # whoever takes its place has to have its name
            self._status, self._client = client.hello, client
            recording = asyncio.create_task(self.recorder.follow(client)) if self.recorder else None
            try:
                while client.gone is None:
                    if self._loading:
                        await self._while_loading(client)
                    await asyncio.sleep(LOOK_S)
                    await self.look()
            finally:
                if recording is not None:
                    recording.cancel()
                    await asyncio.wait([recording])
            raise client.gone

    @property
    def _loading(self) -> bool:
        return self._status is not None and self._status.state == EngineState.LOADING

    async def _while_loading(self, client: AsyncClient) -> None:
        """Until the model is there. What an engine says before it ends early comes as an event, and as no answer."""
        self._last_words = ""
        async with client.subscribe([TOPIC_EVENT]) as events:
            listening = asyncio.create_task(self._note_events(events))
            try:
                while self._loading:
                    await asyncio.sleep(LOOK_S)
                    await self.look()
            finally:
                listening.cancel()
                await asyncio.wait([listening])
        if self._status is None:
            self._last_words = self._last_words or f"The engine {self.name!r} ended while it loaded its model."

    async def _note_events(self, events: AsyncSubscription) -> None:
        async for _, _, event in events:
            if isinstance(event, Event) and event.state == EngineState.FAILED:
                self._last_words = event.text
