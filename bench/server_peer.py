"""A server that speaks OpenAI's completions over HTTP as a peer, such as llama.cpp's, which somebody else has started.

Asked for are ``max_tokens`` with ``ignore_eos`` (llama.cpp's server, vLLM and SGLang know it), the prompt as token ids.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..ipc.client import EngineError
from .memory import MemoryWatch
from .systems import System
from .workload import Item

if TYPE_CHECKING:
    import httpx

Report = Callable[[str, float | None], None]

WARM_UP = 8  # requests
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def measure(name: str, url: str, items: Sequence[Item], report: Report, precision: str) -> System:
    """The server at ``url`` (``http://HOST:PORT``, with or without ``/v1``) on ``items``, once warm.

    A token's time is when the piece of text that it ends arrived; a server holds a token back that ends no character.

    Raises:
        EngineError: it cannot be reached, answers an error, or makes an answer of another length.
    """
    warm = [Item(item.prompt[:16], 4) for item in items[:WARM_UP]]
    asyncio.run(_serve(name, url, warm, None))
    report(name, 0.0)
    with MemoryWatch(listener(url)) as watch:
        arrivals, finished = asyncio.run(_serve(name, url, items, report))
    count = sum(item.output_tokens for item in items)
    return System(name, count, finished, [], arrivals, watch.most, precision)


def listener(url: str) -> int | None:
    """The process of this user that listens there, if it is on this machine and can be seen."""
    import psutil

    parts = urlsplit(url)
    if parts.hostname not in LOOPBACK:
        return None
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        if any(c.status == psutil.CONN_LISTEN and c.laddr.port == parts.port for c in connections):
            return int(process.pid)
    return None


async def _serve(
    name: str, url: str, items: Sequence[Item], report: Report | None
) -> tuple[list[list[float]], list[float]]:
    import httpx

    base = url.rstrip("/").removesuffix("/v1")
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=base, timeout=None, limits=limits) as client:
        begin = time.perf_counter()
        left = len(items)

        async def one(item: Item) -> tuple[list[float], float]:
            nonlocal left
            arrivals = await _complete(name, client, item, begin)
            left -= 1
            if report:
                report(name, 1 - left / len(items))
            return arrivals, time.perf_counter() - begin

        try:
            answers = await asyncio.gather(*map(one, items))
        except httpx.HTTPError as error:
            raise EngineError(f"{name} at {url} cannot be used: {error or type(error).__name__}.") from error
    return [arrivals for arrivals, _ in answers], [finished for _, finished in answers]


async def _complete(name: str, client: httpx.AsyncClient, item: Item, begin: float) -> list[float]:
    """When the pieces of one answer came."""
    body = {
        "prompt": item.prompt,
        "max_tokens": item.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,  # llama.cpp's: nothing may be left of the warm-up
    }
    arrivals: list[float] = []
    usage: dict[str, Any] = {}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            answer = (await response.aread()).decode("utf-8", "replace")
            raise EngineError(f"{name} answered {response.status_code}: {answer[:300]}")
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            usage = event.get("usage") or usage
            if any(choice.get("text") for choice in event.get("choices", ())):
                arrivals.append(time.perf_counter() - begin)
    if usage.get("completion_tokens") != item.output_tokens:
        raise EngineError(
            f"{name} made {usage.get('completion_tokens')} tokens where {item.output_tokens} were asked for."
        )
    return arrivals
