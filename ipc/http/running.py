"""The engine's requests that one HTTP request stands for: run side by side, cancelled when nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.types import Receive

from ..aio import AsyncClient, AsyncStream
from ..line import EngineError
from ..protocol import Finished, Submit, Tokens
from ..vocabulary import FinishReason

T = TypeVar("T")


class Disconnected(Exception):
    """The HTTP client is gone."""


@contextlib.asynccontextmanager
async def running(client: AsyncClient, submits: Sequence[Submit]) -> AsyncIterator[list[AsyncStream]]:
    """Submits all of them and waits until they are queued; whatever still runs at the end is cancelled.

    Raises:
        EngineError: one of them was refused.
    """
    streams = [client.submit(submit) for submit in submits]
    try:
        for stream in streams:
            await stream.accepted()
        yield streams
    finally:
        for stream in streams:
            with contextlib.suppress(EngineError):  # it ended meanwhile, or all of them did
                await stream.cancel()


async def outputs(streams: Sequence[AsyncStream]) -> AsyncGenerator[tuple[int, Tokens | Finished], None]:
    """What comes of each stream, with its index. Raises :class:`EngineError` where one fails or was cancelled."""
    queue: asyncio.Queue[tuple[int, Tokens | Finished | EngineError]] = asyncio.Queue()

    async def forward(index: int, stream: AsyncStream) -> None:
        try:
            async for tokens in stream:
                queue.put_nowait((index, tokens))
            queue.put_nowait((index, _whole(await stream.finished())))
        except EngineError as error:
            queue.put_nowait((index, error))

    tasks = [asyncio.create_task(forward(index, stream)) for index, stream in enumerate(streams)]
    open_streams = len(tasks)
    try:
        while open_streams:
            index, message = await queue.get()
            if isinstance(message, EngineError):
                raise message
            open_streams -= isinstance(message, Finished)
            yield index, message
    finally:
        for task in tasks:
            task.cancel()


def _whole(finished: Finished) -> Finished:
    if any(sample.finish_reason == FinishReason.CANCELLED for sample in finished.samples):
        raise EngineError("The request was cancelled at the engine.", code="cancelled")
    return finished


async def attended(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the HTTP client goes. The request's body has been read.

    Raises:
        Disconnected: it went.
    """
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Disconnected
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
