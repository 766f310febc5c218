"""No memory in which to copy blocks: copies are made in parts, or later, and whoever waits for them loses nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from pagedeck.engine import flight
from pagedeck.engine.cache.kv_cache import Transfer, TransferKind
from pagedeck.engine.cache.storage import KVLayout, KVStorage
from pagedeck.engine.core import Engine
from pagedeck.engine.reconfigure import reconfigure
from pagedeck.ipc.vocabulary import Refused, RequestState
from pagedeck.kernels.reference import ReferenceOps

from . import harness
from .harness import expected, make_engine, output, run, step, submit

SIZE = 2
BLOCKS = 7


class DenyingOps(ReferenceOps):
    """Copies that are denied after ``allowed`` more of them, some of what they write being written by then, and those
    of more than ``most`` blocks always."""

    def __init__(self) -> None:
        self.most = BLOCKS
        self.allowed = 10**6

    def _ask(self, written: torch.Tensor, slots: torch.Tensor, count: int) -> None:
        self.allowed -= count <= self.most
        if self.allowed < 0 or count > self.most:
            written[slots[:1]] = 13
            raise torch.OutOfMemoryError("denied")

    def copy_blocks(self, pool, source, target, block_size):
        self._ask(pool.movedim(2, 0), target * block_size, len(source))
        super().copy_blocks(pool, source, target, block_size)

    def gather_blocks(self, pool, blocks, block_size, host, host_blocks):
        self._ask(host, host_blocks * block_size, len(blocks))
        super().gather_blocks(pool, blocks, block_size, host, host_blocks)

    def scatter_blocks(self, host, host_blocks, block_size, pool, blocks):
        self._ask(pool.movedim(2, 0), blocks * block_size, len(blocks))
        super().scatter_blocks(host, host_blocks, block_size, pool, blocks)


def some_copies(seed: int) -> tuple[KVStorage, DenyingOps, list[Transfer], tuple[torch.Tensor, torch.Tensor]]:
    """A storage, a journal, and what both pools must hold once that is carried out."""
    choose, ops = random.Random(seed), DenyingOps()
    made = KVStorage(KVLayout(2, 1, 3, torch.float32), BLOCKS * SIZE, BLOCKS * SIZE, "cpu", ops)
    made.pool.copy_(torch.arange(made.pool.numel()).view(made.pool.shape))
    made.host.copy_(-1 - torch.arange(made.host.numel()).view(made.host.shape))
    journal = []
    for _ in range(20):
        kind = choose.choice(list(TransferKind))
        for _ in range(choose.randint(1, 5)):
            journal.append(Transfer(kind, *choose.sample(range(BLOCKS), 2)))
    device, host = made.pool.movedim(2, 0).clone(), made.host.clone()
    for kind, source, target in journal:
        read = host if kind is TransferKind.SWAP_IN else device
        written = host if kind is TransferKind.SWAP_OUT else device
        written[target * SIZE : (target + 1) * SIZE] = read[source * SIZE : (source + 1) * SIZE].clone()
    return made, ops, journal, (device, host)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_copies_are_made_in_parts_where_memory_is_short(seed: int, most: int) -> None:
    made, ops, journal, (device, host) = some_copies(seed)
    ops.most = most
    copied = made.execute(journal, SIZE)
    assert not journal and copied == made.layout.slot_bytes * SIZE * sum(1 for _ in some_copies(seed)[2])
    assert torch.equal(made.pool.movedim(2, 0), device) and torch.equal(made.host, host)


@pytest.mark.parametrize("seed", range(10))
def test_copies_that_are_denied_are_made_later(seed: int) -> None:
    """Wherever they stopped, and with some of what they write half written."""
    made, ops, journal, (device, host) = some_copies(seed)
    choose, denied = random.Random(seed), 0
    ops.most = 1
    while journal:
        ops.allowed = choose.randint(1, 6)
        try:
            made.execute(journal, SIZE)
        except torch.OutOfMemoryError:
            denied += 1
    assert denied > 3
    assert torch.equal(made.pool.movedim(2, 0), device) and torch.equal(made.host, host)


def crowded(depth: int, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Engine:
    """Four requests in a pool for two, so that they swap each other."""
    monkeypatch.setattr(harness, "DEPTH", depth)
    engine = make_engine(num_blocks=16, host_blocks=40, preemption="swap", hasty=True, token_budget=64, **more)
    for number in range(4):
        submit(engine, f"r{number}", [number] * 20, 40)
    return engine


@pytest.mark.parametrize("windows", [(0,), (0, 17)])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_step_that_waits_for_copies_is_made_again(
    depth: int, windows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = crowded(depth, monkeypatch, windows=windows)
    requests, waited = list(engine.requests.values()), 0
    while engine.has_work:
        engine.runner.copy_denials = 3
        before = engine.runner.steps
        for _ in range(20):  # denied at its launch, and when it lands
            if engine.has_work:
                step(engine)
        waited += 3 - engine.runner.copy_denials
        assert not engine.has_work or engine.runner.steps > before
    assert waited > 6
    if windows == (0,):
        assert [output(request) for request in requests] == [expected(request) for request in requests]
    assert {request.state for request in requests} == {RequestState.FINISHED}


@pytest.mark.parametrize("depth", [0, 1])
def test_so_it_is_where_the_step_before_is_short_of_memory_too(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = crowded(depth, monkeypatch)
    requests = list(engine.requests.values())
    while engine.has_work:
        engine.runner.memory = 1 + engine.step_number % 3
        engine.runner.copy_denials = engine.step_number % 2
        engine.scheduler.ceiling = 64
        step(engine)
    assert [output(request) for request in requests] == [expected(request) for request in requests]


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "PATIENCE", 5)
    engine = crowded(0, monkeypatch)
    engine.runner.copy_denials = 10**6
    while not engine.cache.journal:
        step(engine)
    first = engine.step_number
    while not engine.ended:
        step(engine)
    assert engine.step_number == first + 5
    assert all("MemoryError" in request.error for request in engine.ended)
    engine.runner.copy_denials = 0
    left = list(engine.requests.values())
    run(engine)
    assert [output(request) for request in left] == [expected(request) for request in left]


def test_settings_that_need_the_copies_made_are_refused_until_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = crowded(0, monkeypatch)
    requests = list(engine.requests.values())
    for _ in range(4):
        step(engine)
    engine.scheduler.preempt(engine.scheduler.running.order[-1])
    assert engine.cache.journal
    engine.runner.copy_denials = 1
    with pytest.raises(Refused) as refused:
        reconfigure(engine, {"block_size": 16})
    assert refused.value.code == "memory" and engine.cache.block_size == 8
    reconfigure(engine, {"block_size": 16})
    run(engine)
    assert [output(request) for request in requests] == [expected(request) for request in requests]
