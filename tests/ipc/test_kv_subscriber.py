"""A subscriber of cache events against a publisher of another make: in order, repeated, restarted, and lost."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zmq
from pagedeck.ipc.kv_events import AllBlocksCleared, BlockStored, EventBatch
from pagedeck.ipc.kv_subscriber import EventFeed
from pagedeck.ipc.vocabulary import Refused


class Publisher:
    """Publishes as vLLM does, in its later form, and repeats what it kept when it is asked; ``topic_first`` as some
    versions do."""

    def __init__(self, *, topic_first: bool = False) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self.socket = self._context.socket(zmq.XPUB)
        self.socket.set(zmq.XPUB_VERBOSE, 1)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._router = self._context.socket(zmq.ROUTER)
        self.replay = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self._topic_first = topic_first
        self.kept: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.may_end = threading.Event()  # a replay, which waits for it
        self.may_end.set()
        self.time = 0.0
        threading.Thread(target=self._repeat, daemon=True).start()

    def wait_for_subscriber(self) -> None:
        assert self.socket.poll(30_000)
        self.socket.recv()

    def publish(self, sequence: int, *, told: bool = True) -> None:
        self.time += 1
        event = {"type": "BlockStored", "block_hashes": [sequence], "token_ids": [1, 2], "block_size": 2}
        self.kept[sequence] = msgspec.msgpack.encode({"ts": self.time, "events": [event]})
        if told:
            self.socket.send_multipart([b"kv", struct.pack(">Q", sequence), self.kept[sequence]])

    def _repeat(self) -> None:
        try:
            while True:
                asker, empty, start = self._router.recv_multipart()
                self.asked.append(struct.unpack(">Q", start)[0])
                topic = [b"kv"] if self._topic_first else []
                for sequence, payload in sorted(self.kept.items()):
                    if sequence >= self.asked[-1]:
                        self._router.send_multipart([asker, empty, *topic, struct.pack(">Q", sequence), payload])
                self.may_end.wait(60)
                self._router.send_multipart([asker, empty, *topic, b"\xff" * 8, b""])
        except zmq.ZMQError:
            self._router.close(linger=0)

    def close(self) -> None:
        self.socket.close(linger=0)
        self._context.term()


@pytest.fixture(params=[False, True])
def publisher(request: pytest.FixtureRequest) -> Iterator[Publisher]:
    made = Publisher(topic_first=request.param)
    yield made
    made.close()


def hashes(feed: EventFeed, count: int) -> list[Any]:
    """The next so many events, by their hashes; a clearing is None."""
    found: list[Any] = []
    while len(found) < count:
        batches = feed.receive(30.0)
        assert batches, f"only {found} came"
        found += [told(event) for batch in batches for event in batch.events]
    return found


def told(event: Any) -> Any:
    if isinstance(event, AllBlocksCleared):
        return None
    assert isinstance(event, BlockStored)
    return event.hashes[0]


def test_what_was_published_before_is_repeated_and_the_rest_follows(publisher: Publisher) -> None:
    for n in range(3):
        publisher.publish(n)
    with EventFeed(publisher.endpoint, publisher.replay) as feed:
        publisher.wait_for_subscriber()
        publisher.publish(3)
        assert hashes(feed, 4) == [0, 1, 2, 3]
        publisher.publish(4)
        assert hashes(feed, 1) == [4]
        assert not feed.partial and feed.lost == 0 and feed.sequence == 4


def test_a_gap_is_filled_by_a_replay(publisher: Publisher) -> None:
    with EventFeed(publisher.endpoint, publisher.replay) as feed:
        publisher.wait_for_subscriber()
        publisher.publish(0)
        assert hashes(feed, 1) == [0]
        publisher.publish(1, told=False)
        publisher.publish(2, told=False)
        publisher.publish(3)
        assert hashes(feed, 3) == [1, 2, 3]
        assert publisher.asked == [0, 1] and not feed.partial and feed.lost == 0


def test_a_gap_while_a_replay_ends_is_filled_by_another(publisher: Publisher) -> None:
    publisher.publish(0)
    publisher.may_end.clear()
    with EventFeed(publisher.endpoint, publisher.replay) as feed:
        publisher.wait_for_subscriber()
        assert hashes(feed, 1) == [0]
        publisher.publish(1, told=False)
        publisher.publish(2)
        while not feed._held:
            assert feed.receive(0.1) == []
        publisher.may_end.set()
        assert hashes(feed, 2) == [1, 2]
        assert publisher.asked == [0, 1] and not feed.partial and feed.lost == 0


def test_what_is_kept_no_more_is_said_to_be_missing(publisher: Publisher) -> None:
    for n in range(5):
        publisher.publish(n)
    del publisher.kept[0], publisher.kept[1]
    with EventFeed(publisher.endpoint, publisher.replay) as feed:
        assert hashes(feed, 3) == [2, 3, 4]
        assert feed.partial and feed.lost == 2


def test_without_a_replay_it_is_partial_and_gaps_are_counted(publisher: Publisher) -> None:
    with EventFeed(publisher.endpoint) as feed:
        publisher.wait_for_subscriber()
        publisher.publish(7)
        publisher.publish(8)
        assert hashes(feed, 2) == [7, 8]
        assert feed.partial and feed.lost == 0
        publisher.publish(11)
        assert hashes(feed, 1) == [11]
        assert feed.lost == 2
        publisher.socket.send_multipart([b"kv", b"not eight", b"x"])
        publisher.socket.send_multipart([b"kv", struct.pack(">Q", 12), b"\xc1"])
        publisher.publish(12)
        assert hashes(feed, 1) == [12]


@pytest.mark.parametrize("with_replay", [False, True])
def test_a_server_that_begins_anew_clears_what_was_known(publisher: Publisher, with_replay: bool) -> None:
    with EventFeed(publisher.endpoint, publisher.replay if with_replay else None) as feed:
        publisher.wait_for_subscriber()
        for n in range(4):
            publisher.publish(n)
        assert hashes(feed, 4) == [0, 1, 2, 3]
        publisher.kept.clear()
        publisher.publish(0)
        publisher.publish(1)
        assert hashes(feed, 3) == [None, 0, 1]
        assert not feed.partial and feed.sequence == 1


def test_a_replay_that_nobody_answers_leaves_it_partial(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedeck.ipc.kv_subscriber.REPLAY_S", 0.1)
    with EventFeed(publisher.endpoint, "tcp://127.0.0.1:9") as feed:
        publisher.wait_for_subscriber()
        publisher.publish(3)
        assert hashes(feed, 1) == [3]
        assert feed.partial


def test_a_server_that_connects_is_listened_for() -> None:
    context: zmq.Context[Any] = zmq.Context()
    with EventFeed("tcp://127.0.0.1:*", bind=True) as feed:
        server = context.socket(zmq.XPUB)
        server.connect(feed.address)
        while not server.poll(20):
            feed.receive(0.0)  # subscriptions go to who connects as soon as the socket is used
        server.recv()
        payload = msgspec.msgpack.encode([1.0, [["BlockStored", [9], None, [1], 1, None]], 0])
        server.send_multipart([b"", b"\0" * 8, payload])
        assert feed.receive(30.0) == [EventBatch(1.0, (BlockStored((9,), None, (1,), 1),), 0)]
        server.close(linger=0)
    context.term()


def test_an_address_that_is_none_is_refused_by_field() -> None:
    for arguments, field in ((("nowhere",), "endpoint"), (("tcp://127.0.0.1:9", "x"), "replay")):
        with pytest.raises(Refused, match="accepted is tcp://") as error:
            EventFeed(*arguments)
        assert error.value.field == field
