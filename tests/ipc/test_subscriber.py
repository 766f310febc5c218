"""Telemetry as it arrives: late, out of order with snapshots, and with gaps. The blocks must come out right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.ipc.client import Client
from pagedeck.ipc.protocol import SnapshotReply
from pagedeck.ipc.subscriber import BlocksFeed, Sequences, Subscription
from pagedeck.ipc.telemetry import (
    TOPIC_BLOCKS,
    TOPIC_EVENT,
    TOPIC_STATS,
    TOPICS,
    BlocksUpdate,
    Event,
    Stats,
    TierBlocks,
    TierStats,
    decode_frames,
    encode_frames,
)

TIER = TierBlocks(0, 16, 0)


def update(step: int, epoch: str = "e", full: bool = False) -> BlocksUpdate:
    return BlocksUpdate(epoch, step, full, TIER, TIER)


def snapshot(sequence: int, epoch: str = "e") -> SnapshotReply:
    return SnapshotReply(epoch=epoch, sequences={"blocks": sequence}, blocks=update(sequence, epoch, full=True))


def stats(sequence: int, epoch: str = "e") -> Stats:
    tier = TierStats(0, 0, 0, 0, 0, 0, 0, 0)
    required = len(Stats.__struct_fields__) - len(Stats.__struct_defaults__)
    numbers = dict.fromkeys(Stats.__struct_fields__[:required], 0)
    return Stats(**(numbers | {"epoch": epoch, "sequences": {"blocks": sequence}, "device": tier, "host": tier,
                               "latency": {}, "requests": [], "groups": []}))  # fmt: skip


def steps(updates: list[BlocksUpdate]) -> list[int]:
    return [u.step for u in updates]


def test_a_late_joiner_drops_what_the_snapshot_includes() -> None:
    feed = BlocksFeed()
    assert feed.wants_snapshot() and not feed.wants_snapshot()
    assert feed.take(4, update(4)) == feed.take(5, update(5)) == feed.take(6, update(6)) == []
    assert steps(feed.snapshot(snapshot(5))) == [5, 6]
    assert steps(feed.take(7, update(7))) == [7]
    assert feed.take(5, update(5)) == []
    assert not feed.wants_snapshot()


def test_a_gap_asks_again_and_loses_nothing() -> None:
    feed = BlocksFeed()
    feed.wants_snapshot()
    feed.snapshot(snapshot(1))
    assert feed.take(3, update(3)) == []
    assert feed.wants_snapshot()
    assert feed.take(4, update(4)) == []
    assert steps(feed.snapshot(snapshot(3))) == [3, 4]


def test_a_loss_at_the_tail_shows_in_the_stats() -> None:
    feed = BlocksFeed()
    feed.wants_snapshot()
    feed.snapshot(snapshot(1))
    feed.stats(stats(1))
    assert not feed.wants_snapshot()
    feed.stats(stats(2))
    assert feed.wants_snapshot()


def test_a_full_update_needs_no_snapshot_and_outdates_an_older_one() -> None:
    feed = BlocksFeed()
    assert feed.wants_snapshot()
    assert steps(feed.take(9, update(9, full=True))) == [9]
    assert feed.snapshot(snapshot(8)) == []
    assert steps(feed.take(10, update(10))) == [10]
    assert not feed.wants_snapshot()


def test_another_life_of_the_engine_starts_over() -> None:
    feed = BlocksFeed()
    feed.wants_snapshot()
    feed.snapshot(snapshot(7))
    assert feed.take(1, update(1, epoch="f")) == []
    assert feed.wants_snapshot()
    assert steps(feed.snapshot(snapshot(1, epoch="f"))) == [1]
    feed.stats(stats(1, epoch="g"))
    assert feed.wants_snapshot()


def test_a_snapshot_that_failed_is_asked_for_again() -> None:
    feed = BlocksFeed()
    assert feed.wants_snapshot()
    feed.snapshot_failed()
    assert feed.wants_snapshot()


@given(
    values=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    lost=st.sets(st.integers(1, 30)),
    late=st.integers(0, 5),
    stats_every=st.integers(1, 7),
)
def test_applying_what_comes_out_gives_what_the_engine_has(
    values: list[int], lost: set[int], late: int, stats_every: int
) -> None:
    """One engine writes block ``v`` at message ``n``; some messages are lost, snapshots take a while to come."""
    truth: dict[int, int] = {}  # block -> message that last wrote it
    seen: dict[int, int] = {}
    history: list[dict[int, int]] = [{}]
    feed = BlocksFeed()
    pending: list[tuple[int, int]] = []  # (message at which it arrives, sequence that it includes)

    def apply(updates: list[BlocksUpdate]) -> None:
        for u in updates:
            if u.full:
                seen.clear()
                seen.update(history[u.step])
            else:
                seen[values[u.step - 1]] = u.step

    for n, block in enumerate([*values, None, None, None, None, None, None], start=1):
        if block is not None:
            truth[block] = n
            history.append(dict(truth))
            if n not in lost:
                apply(feed.take(n, update(n)))
        newest = min(n, len(values))
        if n % stats_every == 0 or block is None:
            feed.stats(stats(newest))
        if feed.wants_snapshot():
            pending.append((n + (late if block is not None else 0), newest))
        for _ in range(len(pending)):
            due, sequence = pending.pop(0)
            if due <= n or block is None:
                apply(feed.snapshot(snapshot(sequence)))
            else:
                pending.append((due, sequence))
    assert seen == truth


def test_missing_numbers_are_counted_by_topic() -> None:
    sequences = Sequences()
    event = Event("e", 0.0, "log", "x")
    assert sequences.take(TOPIC_EVENT, 5, event) == 0  # joined late: nothing lost
    assert sequences.take(TOPIC_EVENT, 6, event) == 0
    assert sequences.take(TOPIC_STATS, 1, stats(0)) == 0
    assert sequences.take(TOPIC_EVENT, 9, event) == 2
    assert sequences.take(TOPIC_EVENT, 1, Event("f", 0.0, "log", "x")) == 0
    assert sequences.lost == {"event": 2}


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"blocks"],
        [b"dance", b"\0" * 8, b""],
        [b"event", b"\0" * 7, b""],
        [b"event", b"\0" * 8, b"\xc1"],
        [b"event", b"\0" * 8, b"\x80"],
        [b"event", b"\0" * 8, b"\x80", b""],
    ],
)
def test_what_is_no_telemetry_is_a_value_error(frames: list[bytes]) -> None:
    with pytest.raises(ValueError):
        decode_frames(frames)


def test_frames_come_out_as_they_went_in() -> None:
    for topic, message in (
        (TOPIC_BLOCKS, update(3)),
        (TOPIC_STATS, stats(2)),
        (TOPIC_EVENT, Event("e", 1.5, "log", "ü")),
    ):
        assert decode_frames(encode_frames(topic, 2**63, message)) == (topic, 2**63, message)


# --- on sockets ---------------------------------------------------------------------------------------------------


def subscribed(made: Any, topic: bytes) -> None:
    """Wait until the engine knows of a subscription."""
    probe = Subscription(made.connection, [b"probe"])
    while not made.switchboard.audience.wanted(topic):
        probe.receive(timeout=0.01)
    probe.close()


@pytest.mark.parametrize("listen", [None, "tcp://127.0.0.1:0"])
def test_a_subscription_receives_its_topics(board: Callable[..., Any], listen: str | None) -> None:
    made = board(listen=listen)
    with Subscription(made.connection, [TOPIC_EVENT]) as subscription:
        subscribed(made, TOPIC_EVENT)
        assert not made.switchboard.audience.wanted(TOPIC_BLOCKS)
        made.switchboard.publish(TOPIC_BLOCKS, update(1))
        made.switchboard.publish(TOPIC_EVENT, Event("e", 0.0, "log", "one"))
        topic, sequence, message = subscription.receive(timeout=60) or (b"", 0, None)
        assert (topic, sequence, message) == (TOPIC_EVENT, 1, Event("e", 0.0, "log", "one"))
        assert subscription.receive(timeout=0.01) is None
    assert made.switchboard.audience.sequences() == {"blocks": 1, "step": 0, "stats": 0, "event": 1}


def test_the_engine_learns_when_the_last_subscriber_left(board: Callable[..., Any]) -> None:
    made = board()
    with Subscription(made.connection), Subscription(made.connection, TOPICS):
        subscribed(made, TOPIC_BLOCKS)
    probe = Subscription(made.connection, [b"probe"])
    while made.switchboard.audience.wanted(TOPIC_BLOCKS):
        probe.receive(timeout=0.01)
    probe.close()


def test_a_subscriber_that_does_not_read_loses_messages_and_knows(board: Callable[..., Any]) -> None:
    made = board()
    with Subscription(made.connection, [TOPIC_EVENT], queue=10) as slow:
        subscribed(made, TOPIC_EVENT)
        text = "x" * 10_000
        for _ in range(2_000):
            made.switchboard.publish(TOPIC_EVENT, Event("e", 0.0, "log", text))
        with Client(made.connection) as client:
            client.status()
            client.status()  # its answer comes after everything published before the first
        published, received, text = 2_000, 0, ""
        while not text.startswith("last"):  # which may be lost, too
            if (told := slow.receive(timeout=1.0)) is None:
                published += 1
                made.switchboard.publish(TOPIC_EVENT, Event("e", 0.0, "log", f"last {published}"))
            else:
                received, text = received + 1, told[2].text
        published = int(text.split()[1])
        assert 1 < received < published and slow.lost == {"event": published - received}
