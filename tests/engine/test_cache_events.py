"""Events of the prefix cache against the cache itself, by a subscriber that knows the wire format and nothing else."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest
import zmq
from pagedeck.engine.cache.kv_cache import KVCache
from pagedeck.engine.serving.cache_events import CacheEvents
from pagedeck.engine.serving.event_socket import EventSocket
from pagedeck.ipc.vocabulary import Refused

from .harness import VOCABULARY, make_engine, step, submit


class Mirror:
    """A router's idea of the cache: for each medium and group, the blocks by their hashes."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[str, int], dict[int, tuple[int | None, tuple[int, ...]]]] = {}
        self.cleared = 0

    def apply(self, payload: bytes) -> None:
        _, events, *_ = msgspec.msgpack.decode(payload)
        for tag, *fields in events:
            if tag == "AllBlocksCleared":
                self.blocks.clear()
                self.cleared += 1
            elif tag == "BlockRemoved":
                hashes, medium, group = (*fields, 0)[:3]
                for hash in hashes:
                    del self.blocks[medium, group][hash]
            else:
                assert tag == "BlockStored"
                hashes, parent, tokens, size, _lora, medium = fields[:6]
                group = fields[8] if len(fields) > 8 else 0
                known = self.blocks.setdefault((medium, group), {})
                assert len(tokens) == len(hashes) * size
                for n, hash in enumerate(hashes):
                    assert hash not in known
                    known[hash] = parent, tuple(tokens[n * size : (n + 1) * size])
                    parent = hash


def truth(cache: Any) -> dict[tuple[str, int], dict[int, tuple[int | None, tuple[int, ...]]]]:
    """The same of the engine's own prefix index."""

    def short(digest: bytes) -> int:
        return int.from_bytes(digest[-8:], "big")

    found: dict[tuple[str, int], dict[int, tuple[int | None, tuple[int, ...]]]] = {}
    for number, group in enumerate(cache.groups):
        for pool, medium in ((group.device, "GPU"), (group.host, "CPU")):
            for block, entry in pool.index.entries().items():
                if isinstance(entry.key, bytes):
                    parent = short(entry.before) if entry.depth else None
                    content = tuple(pool.contents(block).tolist())
                    found.setdefault((medium, number), {})[short(entry.key)] = parent, content
    return found


def without_empty(blocks: dict[Any, dict[Any, Any]]) -> dict[Any, dict[Any, Any]]:
    return {where: known for where, known in blocks.items() if known}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"host_blocks": 40, "swap_space_gib": 0.001, "preemption": "swap", "hasty": True},
        {"windows": (0, 24), "host_blocks": 24, "swap_space_gib": 0.001, "hasty": True},
        {"eviction": "priority", "host_blocks": 16, "swap_space_gib": 0.001, "hasty": True},
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_mirror_made_of_events_is_the_prefix_index(settings: dict[str, Any], seed: int) -> None:
    engine = make_engine(num_blocks=40, **settings)
    mirror, draw = Mirror(), random.Random(seed)
    payloads: list[bytes] = []
    events = CacheEvents(engine.cache, payloads.append)
    beginnings = [[draw.randrange(VOCABULARY) for _ in range(draw.randrange(60))] for _ in range(4)]
    for number in range(60):
        if draw.random() < 0.7:
            prompt = draw.choice(beginnings) + [draw.randrange(VOCABULARY) for _ in range(draw.randrange(1, 40))]
            submit(
                engine, f"r{number}", prompt, draw.randrange(1, 30), draw.choice([0, 10, 20]), n=draw.choice([1, 1, 2])
            )
        if engine.requests and draw.random() < 0.1:
            engine.cancel(draw.choice(list(engine.requests)))
        for _ in range(draw.randrange(6)):
            if engine.has_work:
                step(engine)
            if draw.random() < 0.8:  # else what came and went between two looks shows nowhere
                events.publish()
        events.publish()
        for payload in payloads:
            mirror.apply(payload)
        payloads.clear()
        assert without_empty(mirror.blocks) == truth(engine.cache)
    assert any(mirror.blocks.values())
    events.publish()
    assert not payloads  # nothing happened since


def test_another_shape_clears_all_and_stores_what_is_there() -> None:
    cache = KVCache(16, 8)
    mirror = Mirror()
    events = CacheEvents(cache, mirror.apply)
    tokens = list(range(100))
    cache.open(1, tokens)
    cache.grow(1, 100)
    cache.commit(1, tokens, 100)
    events.publish()
    assert len(mirror.blocks["GPU", 0]) == 12 and mirror.cleared == 0
    cache.reshape(cache.plan_reshape(block_size=16))
    events.publish()
    assert mirror.cleared == 1 and len(mirror.blocks["GPU", 0]) == 6
    assert mirror.blocks == truth(cache)
    cache.prefix_caching = False
    events.publish()
    assert not mirror.blocks["GPU", 0]


# --- the sockets ------------------------------------------------------------------------------------------------------


def ask_again(context: Any, address: str, start: int) -> list[tuple[int, bytes]]:
    """What a replay socket repeats from a number on."""
    asker = context.socket(zmq.DEALER)
    asker.set(zmq.RCVTIMEO, 30_000)
    asker.connect(address)
    asker.send_multipart([b"", struct.pack(">Q", start)])
    repeated = []
    while True:
        empty, number, payload = asker.recv_multipart()
        assert empty == b""
        if number == b"\xff" * 8:
            assert payload == b""
            asker.close(linger=0)
            return repeated
        repeated.append((struct.unpack(">Q", number)[0], payload))


def test_what_was_missed_is_repeated() -> None:
    context: zmq.Context[Any] = zmq.Context()
    publisher = EventSocket(context, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*")
    publisher.start()
    try:
        for number in range(5):
            publisher.send(b"%d" % number)
        while len(ask_again(context, publisher.replay, 0)) < 5:
            pass
        assert ask_again(context, publisher.replay, 3) == [(3, b"3"), (4, b"4")]
        assert ask_again(context, publisher.replay, 9) == []
        stranger = context.socket(zmq.DEALER)
        stranger.connect(publisher.replay)
        for nonsense in ([b""], [b"x", b"\0" * 8], [b"", b"\0" * 7], [b"", b"\0" * 8, b""]):
            stranger.send_multipart(nonsense)
        assert len(ask_again(context, publisher.replay, 0)) == 5
        stranger.close(linger=0)
        with pytest.raises(Refused, match="kv_events_replay"):
            EventSocket(context, "tcp://127.0.0.1:*", publisher.replay)
        with pytest.raises(Refused, match="kv_events is 'nowhere'"):
            EventSocket(context, "nowhere", None)
    finally:
        publisher.close()
        context.destroy(linger=0)


def test_an_engine_publishes_what_its_cache_holds(engine_process: Callable[..., AbstractContextManager[Any]]) -> None:
    from pagedeck.ipc.client import Client

    loopback = "tcp://127.0.0.1:*"
    with engine_process(kv_events=loopback, kv_events_replay=loopback) as engine:
        said = next(line for line in engine.log if "Cache events" in line)
        address, replay = (word.strip(",") for word in said.split() if word.startswith("tcp://"))
        context: zmq.Context[Any] = zmq.Context()
        subscriber = context.socket(zmq.SUB)
        subscriber.set(zmq.RCVTIMEO, 60_000)
        subscriber.subscribe(b"")
        subscriber.connect(address)
        mirror = Mirror()
        with Client(engine.connection) as client:
            tokens = list(range(1, 50))
            client.submit(token_ids=tokens, max_tokens=40, temperature=0.0, ignore_eos=True).token_ids()
            others = itertools.count(50)
            while not subscriber.poll(100):  # until it is connected
                client.submit(token_ids=[next(others)] * 17, max_tokens=1).token_ids()
            topic, number, payload = subscriber.recv_multipart()
            missed = ask_again(context, replay, 0)
            assert topic == b"" and (struct.unpack(">Q", number)[0], payload) in missed
            for _, each in missed:
                mirror.apply(each)
            blocks = mirror.blocks["GPU", 0]
            at = next(hash for hash, (parent, content) in blocks.items() if parent is None and content[0] == 1)
            assert blocks[at][1] == tuple(tokens[:16])
            length = 1
            while (at := next((hash for hash, (parent, _) in blocks.items() if parent == at), 0)) != 0:
                length += 1
            assert length == 88 // 16  # the last token is never computed
        subscriber.close(linger=0)
        context.term()
