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
from ..ipc.vocabulary import Refused
from .drive import Outcome
from .memory import MemoryWatch
from .workload import Item

if TYPE_CHECKING:
    import httpx

Report = Callable[[str, float | None], None]

WARM_UP = 8  # requests
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def drive(name: str, url: str, items: Sequence[Item], report: Report) -> tuple[list[Outcome], int | None]:
    """A load on the server at ``url``, once warm: each request is sent when it is due, as :mod:`.drive` does, and one
    that fails is told in its outcome. Also the most memory (bytes) that the server held meanwhile, if it can be seen.

    A token's time is when the piece of text that it ends arrived; a server holds a token back that ends no character.

    Raises:
        Refused: an item is the next turn of a conversation, whose tokens a server need not tell.
        EngineError: the server cannot be used.
    """
    if any(item.continues for item in items):
        text = f"{name} takes loads whose prompts are known beforehand; here, they continue what was answered."
        raise Refused(text, field="systems")
    asyncio.run(_warm_up(name, url, items))
    report(name, 0.0)
    with MemoryWatch(listener(url)) as watch:
        outcomes = asyncio.run(_drive(name, url, items, report))
    return outcomes, watch.most


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


async def _warm_up(name: str, url: str, items: Sequence[Item]) -> None:
    import httpx

    short = [Item(item.prompt[:16], 4) for item in items[:WARM_UP]]
    async with _client(url) as client:
        manners = await _manners(name, url, client)
        begin = time.perf_counter()
        try:
            await asyncio.gather(*(_complete(name, client, manners, item, begin) for item in short))
        except httpx.HTTPError as error:
            raise EngineError(f"{name} at {url} cannot be used: {error or type(error).__name__}.") from error


async def _drive(name: str, url: str, items: Sequence[Item], report: Report) -> list[Outcome]:
    import httpx

    outcomes = [Outcome(prompt_tokens=len(item.prompt)) for item in items]
    ended = [asyncio.Event() for _ in items]
    async with _client(url) as client:
        manners = await _manners(name, url, client)
        begin = time.perf_counter()

        async def one(place: int, item: Item) -> None:
            outcome = outcomes[place]
            outcome.due = item.at
            if item.after is not None:
                await ended[item.after].wait()
                outcome.due += outcomes[item.after].ended
            await asyncio.sleep(begin + outcome.due - time.perf_counter())
            outcome.sent = time.perf_counter() - begin
            try:
                outcome.arrivals = await _complete(name, client, manners, item, begin)
                outcome.tokens = [0] * item.output_tokens  # which ones they are is not told
            except (EngineError, httpx.HTTPError) as error:
                outcome.error = str(error) or type(error).__name__
            outcome.ended = time.perf_counter() - begin
            ended[place].set()
            report(name, sum(event.is_set() for event in ended) / len(ended))

        await asyncio.gather(*(one(place, item) for place, item in enumerate(items)))
    return outcomes


def _client(url: str) -> httpx.AsyncClient:
    import httpx

    base = url.rstrip("/").removesuffix("/v1")
    return httpx.AsyncClient(base_url=base, timeout=None, limits=httpx.Limits(max_connections=None))


async def _manners(name: str, url: str, client: httpx.AsyncClient) -> dict[str, Any]:
    """What every request says to this server beside its own: the model, where the server tells of one, and what only
    llama.cpp's understands."""
    import httpx

    try:
        response = await client.get("/v1/models")
        models = response.json()["data"] if response.status_code == 200 else []
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise EngineError(f"{name} at {url} cannot be used: {error or type(error).__name__}.") from error
    manners = {"model": models[0]["id"]} if models else {}
    if models and models[0].get("owned_by") == "llamacpp":
        manners["cache_prompt"] = False  # nothing may be left of the warm-up
    return manners


async def _complete(
    name: str, client: httpx.AsyncClient, manners: dict[str, Any], item: Item, begin: float
) -> list[float]:
    """When the pieces of one answer came."""
    body = manners | {
        "prompt": item.prompt,
        "max_tokens": item.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
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
