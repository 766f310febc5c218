"""What a real engine lives through: crowds that die, clients that stand still, a clock that jumps."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from pagedeck.ipc import protocol
from pagedeck.ipc.client import Client
from pagedeck.ipc.endpoint import Connection
from pagedeck.ipc.protocol import Accepted, Failed, Finished, Hello, Submit, Tokens, Welcome
from pagedeck.ipc.subscriber import BlocksFeed
from pagedeck.ipc.telemetry import TOPIC_BLOCKS, TOPIC_STATS, BlocksUpdate, Stats
from pagedeck.ipc.vocabulary import BlockState, SamplingParams

GREEDY = {"temperature": 0.0, "ignore_eos": True}
CROWD = 200
SLAUGHTER = """
import sys, pagedeck
client = pagedeck.connect(sys.argv[1])
streams = [client.submit(token_ids=[number + 7] * 30, max_tokens=900, temperature=0.0, ignore_eos=True)
           for number in range(5)]
next(iter(streams[0]))
print("streaming", flush=True)
streams[0].text()
"""


JUMPING = """
import itertools, time
time.time = lambda real=time.time, jumps=itertools.cycle([0.0, 1e8, -1e9, 1e9]): real() + next(jumps)
"""


class Raw:
    """A client of bare sockets: it says hello and asks at once, and may go without a word."""

    def __init__(self, context: Any, connection: Connection, number: int, max_tokens: int) -> None:
        self.number = number
        self.tokens: list[int] = []
        self.end: Finished | Failed | None = None
        self.socket = context.socket(zmq.DEALER)
        self.socket.set(zmq.LINGER, 0)
        self.socket.connect(connection.control)
        self.socket.send(protocol.encode(Hello(id="h", client=f"raw {number}")))
        sampling = SamplingParams(max_tokens=max_tokens, **GREEDY)
        self.socket.send(protocol.encode(Submit(id=f"raw-{number}", token_ids=prompt(number), sampling=sampling)))

    def read(self) -> None:
        while self.socket.poll(0):
            message = protocol.decode_engine(self.socket.recv())
            if isinstance(message, Tokens):
                self.tokens += message.token_ids
            elif isinstance(message, Finished | Failed):
                self.end = message
            else:
                assert isinstance(message, Accepted | Welcome | protocol.Pong)


def prompt(number: int) -> list[int]:
    return [(number * 7 + place * 3) % 300 + 5 for place in range(10 + number % 23)]


def wait_until_idle(client: Client) -> Stats:
    """Until no sequence holds a block."""
    with client.subscribe([TOPIC_STATS]) as told:
        while True:
            received = told.receive(timeout=60)
            assert received is not None and isinstance(received[2], Stats)
            stats = received[2]
            if not (stats.running or stats.waiting or stats.swapped or stats.device.used or stats.host.used):
                return stats


def assert_conserved(client: Client) -> None:
    blocks = client.snapshot().blocks
    assert blocks is not None
    state, ref = np.frombuffer(blocks.device.state, "u1"), np.frombuffer(blocks.device.ref, "<u2")
    assert len(state) == blocks.device.num_blocks and not ref.any()
    assert np.isin(state, [BlockState.FREE, BlockState.CACHED]).all()


def test_half_of_two_hundred_clients_die_and_the_others_get_every_token(engine_process: Any) -> None:
    """At random moments: before they are greeted, while they wait, and amid their streams; some by a signal."""
    choose = random.Random(4)
    with engine_process(num_blocks=64) as engine, Client(engine.connection, timeout=120) as witness:
        killed = [
            subprocess.Popen([sys.executable, "-c", SLAUGHTER, engine.connection.path], stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        context: Any = zmq.Context()
        crowd = [Raw(context, engine.connection, number, 12) for number in range(CROWD)]
        doomed = deque(choose.sample(crowd, CROWD // 2))
        for raw in itertools.islice(doomed, 0, None, 4):
            raw.socket.close()
        living = [raw for raw in crowd if raw not in set(doomed)]
        poller = zmq.Poller()
        for raw in crowd:
            if not raw.socket.closed:
                poller.register(raw.socket, zmq.POLLIN)
        while any(raw.end is None for raw in living):
            assert poller.poll(60_000), "nobody hears anything any more"
            for raw in crowd:
                if not raw.socket.closed:
                    raw.read()
            if doomed and (victim := doomed.popleft()) and not victim.socket.closed:
                poller.unregister(victim.socket)
                victim.socket.close()
        for child in killed:
            assert child.stdout is not None and child.stdout.readline() == b"streaming\n"
            child.kill()
            child.wait()
            child.stdout.close()
        for raw in living:
            assert isinstance(raw.end, Finished), raw.end
            assert raw.end.output_tokens == len(raw.tokens) == 12
        for raw in crowd:
            raw.socket.close()
        context.term()
        stats = wait_until_idle(witness)
        assert stats.failed == 0
        assert_conserved(witness)
        for raw in choose.sample(living, 10):
            assert raw.tokens == witness.submit(token_ids=prompt(raw.number), max_tokens=12, **GREEDY).token_ids()


def test_a_client_that_never_reads_keeps_nobody_waiting(shared_engine: Any) -> None:
    with Client(shared_engine.connection, timeout=120) as client:
        alone = client.submit(token_ids=prompt(3), max_tokens=50, **GREEDY).token_ids()
        context: Any = zmq.Context()
        stopped = [Raw(context, shared_engine.connection, number, 600) for number in range(3)]
        for raw in stopped:
            raw.socket.set(zmq.RCVHWM, 1)
        for _ in range(5):
            assert client.submit(token_ids=prompt(3), max_tokens=50, **GREEDY).token_ids() == alone
        for raw in stopped:  # now they do
            while raw.end is None:
                assert raw.socket.poll(60_000)
                raw.read()
            assert isinstance(raw.end, Finished) and len(raw.tokens) == 600
            raw.socket.close()
        context.term()
        wait_until_idle(client)
        assert_conserved(client)


def test_a_subscriber_of_one_message_a_second_ends_with_what_the_engine_has(shared_engine: Any) -> None:
    """Of hundreds that are sent it reads every fiftieth or so, and asks for what it missed."""
    with Client(shared_engine.connection, timeout=120) as client:
        feed, blocks = BlocksFeed(), {}
        with client.subscribe([TOPIC_BLOCKS, TOPIC_STATS]) as slow:
            slow._socket.set(zmq.RCVHWM, 1)
            for number in range(4):
                client.submit(token_ids=prompt(number), max_tokens=150, cache_salt="slow", **GREEDY).text()
                received = slow.receive(timeout=60)
                assert received is not None
                follow(feed, client, received[1], received[2], blocks)
            stats = wait_until_idle(client)
            while feed.applied is None or feed.applied < stats.sequences["blocks"]:
                received = slow.receive(timeout=60)
                assert received is not None
                follow(feed, client, received[1], received[2], blocks)
        final = client.snapshot().blocks
        assert final is not None and blocks["state"].tobytes() == final.device.state


def follow(feed: BlocksFeed, client: Client, sequence: int, message: Any, blocks: dict[str, np.ndarray]) -> None:
    updates = feed.take(sequence, message) if isinstance(message, BlocksUpdate) else feed.stats(message) or []
    if feed.wants_snapshot():
        updates = updates + feed.snapshot(client.snapshot())
    for update in updates:
        state = np.frombuffer(update.device.state, "u1")
        if update.full:
            blocks["state"] = state.copy()
        else:
            blocks["state"][np.frombuffer(update.device.ids, "<u4")] = state


def test_a_clock_that_jumps_harms_nothing(engine_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back and forth by years, on the client's side and the engine's: what is measured is measured otherwise."""
    real = time.time
    monkeypatch.setattr(time, "time", real)  # put back at the end
    exec(JUMPING)
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with engine_process(fresh=True) as engine, Client(engine.connection, timeout=120) as client:
        streams = [client.submit(token_ids=prompt(number), max_tokens=40, **GREEDY) for number in range(8)]
        for stream in streams:
            finished = stream.finished
            assert 0 <= finished.queue_s <= finished.ttft_s <= finished.e2e_s < 100
        stats = wait_until_idle(client)
        assert all(0 <= p.p50 <= p.p99 < 100 for p in stats.latency.values())
        assert abs(client.status().started - real()) > 1e7, "its clock does not jump"
