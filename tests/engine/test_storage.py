"""The tensors do what the bookkeeping says: journals, slot moves and host resizes, byte for byte."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from pagedeck.engine.kv_cache import KVCache, Transfer, TransferKind
from pagedeck.engine.storage import KVLayout, KVStorage
from pagedeck.kernels.reference import ReferenceOps

COPY, SWAP_OUT, SWAP_IN = TransferKind.COPY, TransferKind.SWAP_OUT, TransferKind.SWAP_IN
LAYOUT = KVLayout(layers=2, kv_heads=2, head_dim=3, dtype=torch.float32)


class CountingOps(ReferenceOps):
    """The reference ops, and how often copies were asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def copy_blocks(self, pool, source, target, block_size):
        self.calls.append(("copy", len(source)))
        super().copy_blocks(pool, source, target, block_size)

    def gather_blocks(self, pool, blocks, block_size, host, host_blocks):
        self.calls.append(("out", len(blocks)))
        super().gather_blocks(pool, blocks, block_size, host, host_blocks)

    def scatter_blocks(self, host, host_blocks, block_size, pool, blocks):
        self.calls.append(("in", len(blocks)))
        super().scatter_blocks(host, host_blocks, block_size, pool, blocks)


def storage(slots: int, host_slots: int) -> KVStorage:
    made = KVStorage(LAYOUT, slots, host_slots, "cpu", CountingOps())
    made.pool.copy_(torch.arange(made.pool.numel()).view(made.pool.shape))
    made.host.copy_(-1 - torch.arange(made.host.numel()).view(made.host.shape))
    return made


def by_slot(made: KVStorage) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of both pools with the slot as the first dimension."""
    return made.pool.movedim(2, 0).clone(), made.host.clone()


def test_shapes_and_bytes():
    made = KVStorage(LAYOUT, 40, 24, "cpu", ReferenceOps())
    assert made.pool.shape == (2, 2, 40, 2, 3)
    assert made.host.shape == (24, 2, 2, 2, 3)
    assert LAYOUT.slot_bytes == 2 * 2 * 2 * 3 * 4 == made.host[0].nbytes


@pytest.mark.parametrize("seed", range(20))
def test_a_journal_is_carried_out_as_if_one_by_one(seed):
    """Chains, overwritten sources, reused targets: whatever is coalesced, the outcome is that of the plain order."""
    choose, size = random.Random(seed), 2
    journal = []
    for _ in range(choose.randint(1, 60)):
        kind = choose.choice(list(TransferKind))
        source, target = choose.sample(range(6), 2)
        journal.append(Transfer(kind, source, target))
    made = storage(6 * size, 6 * size)
    device, host = by_slot(made)
    for kind, source, target in journal:
        read = host if kind is SWAP_IN else device
        written = host if kind is SWAP_OUT else device
        written[target * size : (target + 1) * size] = read[source * size : (source + 1) * size].clone()
    copied = made.execute(journal, size)
    assert copied == len(journal) * size * LAYOUT.slot_bytes
    assert torch.equal(by_slot(made)[0], device) and torch.equal(by_slot(made)[1], host)


def test_neighbours_of_one_kind_become_one_copy():
    made = storage(32, 32)
    made.execute([Transfer(SWAP_OUT, i, 7 - i) for i in range(8)] + [Transfer(COPY, 0, 1), Transfer(COPY, 2, 3)], 4)
    assert made.ops.calls == [("out", 8), ("copy", 2)]


def test_a_block_swapped_in_and_its_place_reused_at_once():
    """A host block is read before a later transfer of the same journal overwrites it."""
    made = storage(8, 8)
    device, host = by_slot(made)
    made.execute([Transfer(SWAP_IN, 1, 0), Transfer(SWAP_OUT, 1, 1)], 4)
    assert torch.equal(by_slot(made)[0][:4], host[4:]) and torch.equal(by_slot(made)[1][4:], device[4:])


@pytest.mark.parametrize("tier", ["device", "host"])
def test_moves_run_batch_by_batch_each_as_if_at_once(tier):
    made = storage(8, 8)
    before = by_slot(made)[tier == "host"]
    cycle = (np.array([0, 1, 2]), np.array([1, 2, 0]))
    then = (np.array([0, 0]), np.array([5, 6]))
    assert made.move([cycle, then], tier) == 5 * LAYOUT.slot_bytes
    after = by_slot(made)[tier == "host"]
    expected = before[[2, 0, 1, 3, 4, 2, 2, 7]]
    assert torch.equal(after, expected)


def test_a_swapped_sequence_comes_back_byte_for_byte():
    """Bookkeeping and tensors together, through a swap, a repage of both tiers and a smaller host tier."""
    cache = KVCache(8, 4, 8)
    made = KVStorage(LAYOUT, 32, 32, "cpu", ReferenceOps())
    tokens = list(range(13))
    cache.open(1, tokens)
    cache.grow(1, 13)
    content = torch.randn(13, *made.host.shape[1:])
    made.pool[:, :, torch.from_numpy(cache.slots(1, 0, 13))] = content.movedim(0, 2)
    cache.commit(1, tokens, 13)

    def run() -> None:
        made.execute(cache.journal, cache.block_size)
        cache.journal.clear()

    cache.swap_out(1)
    run()
    made.pool.fill_(float("nan"))
    for geometry in ({"block_size": 8}, {"num_host_blocks": 2}, {"num_blocks": 3, "num_host_blocks": 5}):
        change = cache.plan_reshape(**geometry)
        made.reshape(change)
        cache.reshape(change)
    cache.prefix_caching = False  # what the device still has of it must not be used instead
    cache.swap_in(1)
    run()
    positions = np.arange(13)
    slots = cache.table(1).astype(np.int64)[positions // 8] * 8 + positions % 8
    assert torch.equal(made.pool[:, :, torch.from_numpy(slots)].movedim(2, 0), content)


def test_pools_take_no_memory_before_they_are_used():
    psutil = pytest.importorskip("psutil")
    before = psutil.Process().memory_info().rss
    made = KVStorage(LAYOUT, 5_000_000, 5_000_000, "cpu", ReferenceOps())
    assert made.pool.nbytes + made.host.nbytes > 900_000_000
    assert psutil.Process().memory_info().rss - before < 50_000_000


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_round_trip():
    made = KVStorage(LAYOUT, 64, 64, "cuda", ReferenceOps())
    assert made.host.is_pinned()
    made.pool.normal_()
    content = made.pool[:, :, :32].clone()
    made.execute([Transfer(SWAP_OUT, i, 7 - i) for i in range(4)], 8)
    made.pool.zero_()
    made.execute([Transfer(SWAP_IN, 7 - i, i) for i in range(4)], 8)
    assert torch.equal(made.pool[:, :, :32], content)
