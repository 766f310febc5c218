"""Full load for a while: clients come, go, cancel and are killed, settings change under them, and nothing is lost.

A few seconds by default; ``--long MINUTES`` for as long as that, and then the engine's memory is looked at, too.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import pytest
from pagedeck.ipc.client import Client, Stream
from pagedeck.ipc.endpoint import Connection
from pagedeck.ipc.telemetry import TOPIC_STATS, Stats
from pagedeck.ipc.vocabulary import BlockState

SHORT_S = 6.0
RECONFIGURE_S = 20.0
CLIENTS = 4
OPEN = 6  # requests that a client has under way
BLOCKS, BLOCK_SIZE, BLOCK_BYTES = 64, 16, 16 * 2 * 2 * 2 * 16 * 4
HOST_GIB = 100 * BLOCK_BYTES / 2**30

PROMPTS = [[(7 * n + i * (n + 3)) % 300 + 5 for i in range(5 + 17 * n)] for n in range(10)]
MOST = 60  # output tokens

GREEDY = {"temperature": 0.0, "ignore_eos": True}

#: What is changed under way; whatever of it holds, all requests fit.
CHANGES: list[dict[str, Any]] = [
    {"block_size": 8},
    {"block_size": 64},
    {"block_size": 16},
    {"num_blocks": 48, "block_size": 16},
    {"num_blocks": 90},
    {"token_budget": 16},
    {"token_budget": 256},
    {"max_batch_size": 3},
    {"max_batch_size": 32},
    {"prefix_caching": False},
    {"prefix_caching": True},
    {"preemption": "recompute"},
    {"preemption": "swap"},
    {"swap_space_gib": HOST_GIB / 3},
    {"swap_space_gib": HOST_GIB},
    {"contiguous_blocks": 4},
    {"contiguous_blocks": 0},
]

KILLED = """
import sys, pagedeck
client = pagedeck.connect(sys.argv[1])
streams = [client.submit(token_ids=[9] * 40, max_tokens=400, temperature=0.0, ignore_eos=True) for _ in range(3)]
next(iter(streams[0]))
print("streaming", flush=True)
for stream in streams:
    stream.text()
"""


@dataclass
class Tally:
    """What the clients saw. Threads add to it one at a time."""

    finished: int = 0
    cancelled: int = 0
    left: int = 0  # with their client
    killed: int = 0
    reconfigured: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **counts: int) -> None:
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def complain(self, text: str) -> None:
        with self.lock:
            self.wrong.append(text)


class Visitor(threading.Thread):
    """One client after another: each asks, reads, cancels some, and leaves, now and then with requests under way."""

    def __init__(self, connection: Connection, seed: int, expected: list[list[int]], tally: Tally) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._choose = random.Random(seed)
        self._expected = expected
        self._tally = tally
        self.over = threading.Event()

    def run(self) -> None:
        try:
            while not self.over.is_set() and not self._tally.wrong:
                with Client(self._connection, name=self.name, timeout=120.0) as client:
                    self._visit(client)
        except Exception as error:
            self._tally.complain(f"{type(error).__name__}: {error}")

    def _visit(self, client: Client) -> None:
        rounds = self._choose.randint(1, 4)
        for _ in range(rounds):
            asked = [self._ask(client) for _ in range(OPEN)]
            for stream, number, length in asked:
                if self._choose.random() < 0.2:
                    self._cancel(stream, number, length)
            if self._choose.random() < 0.2:
                self._tally.add(left=len(asked))
                return
            for stream, number, length in asked:
                self._read(stream, number, length)

    def _ask(self, client: Client) -> tuple[Stream, int, int]:
        number, length = self._choose.randrange(len(PROMPTS)), self._choose.randint(1, MOST)
        priority = self._choose.choice(["interactive", "normal", "batch"])
        return client.submit(token_ids=PROMPTS[number], max_tokens=length, priority=priority, **GREEDY), number, length

    def _cancel(self, stream: Stream, number: int, length: int) -> None:
        if self._choose.random() < 0.5:
            assert stream.accepted
        if self._choose.random() < 0.5:
            next(iter(stream), None)
        try:
            stream.cancel()
        except Exception as error:
            if getattr(error, "code", "") != "unknown_request":  # it had ended
                raise

    def _read(self, stream: Stream, number: int, length: int) -> None:
        tokens, reason = stream.token_ids(), stream.finished.samples[0].finish_reason
        if tokens != self._expected[number][: len(tokens)]:
            self._tally.complain(f"prompt {number} gave {tokens} instead of {self._expected[number][:length]}")
        elif reason == "cancelled":
            self._tally.add(cancelled=1)
        elif reason != "length" or len(tokens) != length:
            self._tally.complain(f"prompt {number} ended with {reason} after {len(tokens)} of {length} tokens")
        else:
            self._tally.add(finished=1)


def kill_a_client(connection: Connection, tally: Tally) -> None:
    """In the middle of its streams."""
    child = subprocess.Popen([sys.executable, "-c", KILLED, connection.path], stdout=subprocess.PIPE)
    assert child.stdout is not None
    said = child.stdout.readline()
    child.kill()
    child.wait()
    child.stdout.close()
    assert said == b"streaming\n"
    tally.add(killed=1)


def wait_until_idle(operator: Client) -> None:
    """Those who left or were killed may be noticed a little later."""
    with operator.subscribe([TOPIC_STATS]) as told:
        while True:
            received = told.receive(timeout=60)
            assert received is not None and isinstance(received[2], Stats)
            stats = received[2]
            if not (stats.running or stats.waiting or stats.swapped or stats.device.used or stats.host.used):
                return


@pytest.mark.timeout(0)
def test_nothing_is_lost_and_nothing_leaks_under_full_load(engine_process: Any, request: pytest.FixtureRequest) -> None:
    minutes = request.config.getoption("long")
    seconds = 60 * minutes or SHORT_S
    settings = {"num_blocks": BLOCKS, "block_size": BLOCK_SIZE, "swap_space_gib": HOST_GIB, "preemption": "swap"}
    choose, tally = random.Random(1), Tally()
    with engine_process(**settings) as engine, Client(engine.connection, timeout=120.0) as operator:
        connection, process = engine.connection, psutil.Process(engine.process.pid)
        expected = [operator.submit(token_ids=p, max_tokens=MOST, **GREEDY).token_ids() for p in PROMPTS]
        visitors = [Visitor(connection, seed, expected, tally) for seed in range(CLIENTS)]
        for visitor in visitors:
            visitor.start()
        begun = time.monotonic()
        memory: list[tuple[float, int]] = []
        every = min(RECONFIGURE_S, seconds / 12)
        while time.monotonic() < begun + seconds and not tally.wrong:
            if tally.killed <= tally.reconfigured / 6:
                kill_a_client(connection, tally)
            operator.reconfigure(choose.choice(CHANGES))
            tally.reconfigured += 1
            memory.append((time.monotonic() - begun, process.memory_info().rss))
            threading.Event().wait(every)
        for visitor in visitors:
            visitor.over.set()
        for visitor in visitors:
            visitor.join(120)
        assert tally.wrong == []
        assert not any(visitor.is_alive() for visitor in visitors), "a request hangs"
        assert tally.finished and tally.reconfigured and tally.killed
        wait_until_idle(operator)
        audit(operator)
        stats = operator.status().stats
        assert stats is not None and stats.failed == 0
        assert [operator.submit(token_ids=p, max_tokens=MOST, **GREEDY).token_ids() for p in PROMPTS] == expected
    print(f"\n{seconds / 60:.1f} min: {tally}, {stats.preemptions} preemptions, {stats.cancelled} cancelled")
    if minutes >= 5:
        assert_flat(memory)


def audit(operator: Client) -> None:
    """Whatever is held by nobody is free or kept for a prefix to come."""
    reply = operator.snapshot()
    assert reply.blocks is not None
    for tier in (reply.blocks.device, reply.blocks.host):
        state, ref = np.frombuffer(tier.state, "u1"), np.frombuffer(tier.ref, "<u2")
        assert len(state) == tier.num_blocks
        assert np.isin(state, [BlockState.FREE, BlockState.CACHED]).all()
        assert not ref.any()
    assert all(row.state in ("finished", "cancelled") for row in reply.requests)


def assert_flat(memory: list[tuple[float, int]]) -> None:
    """After a warm-up of a third, what is added in the rest of the time is less than 32 MiB."""
    times, sizes = (np.array(values, float) for values in zip(*memory, strict=True))
    late = times > times[-1] / 3
    slope = np.polyfit(times[late], sizes[late], 1)[0]
    added = slope * (times[-1] - times[late][0]) / 2**20
    print(
        f"memory: {sizes[late][0] / 2**20:.0f} to {sizes[-1] / 2**20:.0f} MiB, slope {slope * 60 / 2**20:+.3f} MiB/min"
    )
    assert added < 32, f"{added:.0f} MiB more"
