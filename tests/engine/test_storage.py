"""The tensors do what the bookkeeping says: journals, slot moves and host resizes, byte for byte."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch
from pagedeck.engine.cache import pages
from pagedeck.engine.cache import storage as storage_module
from pagedeck.engine.cache.kv_cache import KVCache, Transfer, TransferKind
from pagedeck.engine.cache.storage import KVLayout, KVStorage
from pagedeck.kernels import ops_for
from pagedeck.kernels.formats import raw
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


@pytest.mark.parametrize(("slots", "host_slots", "kinds"), [(16, 8, ["copy", "out", "in"]), (8, 0, [])])
def test_a_rehearsal_makes_every_kind_of_copy_that_there_is_room_for(slots, host_slots, kinds):
    made = storage(slots, host_slots)
    made.rehearse(8)
    assert made.ops.calls == [(kind, 1) for kind in kinds]
    assert torch.equal(made.pool[:, :, 1], made.pool[:, :, 0])  # a slot was moved


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
    copied = made.execute(journal.copy(), size)
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


class Filled:
    """Sequences in both tiers whose keys and values are known."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.cache = KVCache(24, 4, 16, prefix_caching=seed % 2 == 0)
        self.made = KVStorage(LAYOUT, 96, 64, "cpu", ReferenceOps())
        self.content: dict[int, torch.Tensor] = {}
        for seq in range(self.choose.randint(1, 6)):
            self.hold(seq, self.choose.randint(1, 16))
        for seq in self.choose.sample(list(self.content), len(self.content) // 2):
            self.cache.swap_out(seq)
        self.run()

    def hold(self, seq: int, length: int) -> None:
        tokens = [100 * seq + i for i in range(length)]
        self.cache.open(seq, tokens)
        self.cache.grow(seq, length)
        self.content[seq] = torch.randn(length, *self.made.host.shape[1:])
        slots = torch.from_numpy(self.cache.slots(seq, 0, length))
        self.made.pool[:, :, slots] = self.content[seq].movedim(0, 2)
        self.cache.commit(seq, tokens, length)

    def run(self) -> None:
        self.made.execute(self.cache.journal, self.cache.block_size)
        self.cache.journal.clear()

    def verify(self) -> None:
        for seq, content in self.content.items():
            positions, size = np.arange(len(content)), self.cache.block_size
            slots = torch.from_numpy(
                self.cache.table(seq).astype(np.int64)[positions // size] * size + positions % size
            )
            on_host = self.cache.tier(seq) == "host"
            held = self.made.host[slots] if on_host else self.made.pool[:, :, slots].movedim(2, 0)
            assert torch.equal(held, content)


@pytest.mark.parametrize("seed", range(30))
def test_pools_of_other_sizes_hold_what_they_held(seed: int):
    """Any change of the block size and of both pools at once, one after another; what a smaller pool cannot hold is
    given up before."""
    filled = Filled(seed)
    for _ in range(4):
        size = filled.choose.choice((None, 2, 4, 8))
        blocks = filled.choose.choice((None, filled.choose.randint(1, 40)))
        host = filled.choose.choice((None, filled.choose.randint(0, 40)))
        turns = list(filled.content)
        change = filled.cache.plan_reshape(block_size=size, num_blocks=blocks, num_host_blocks=host, turns=turns)
        assert filled.made.reshape(change) == change.slots_copied * LAYOUT.slot_bytes
        for seq in change.victims:
            filled.cache.close(seq)
            del filled.content[seq]
        filled.cache.reshape(change)
        filled.verify()
        assert filled.made.pool.shape[2] == filled.cache.num_slots
        assert len(filled.made.host) == filled.cache.num_host_slots


@pytest.mark.parametrize("denied", ["_new_pool", "_new_host"])
def test_memory_denied_for_either_pool_changes_neither(denied: str, monkeypatch: pytest.MonkeyPatch):
    filled = Filled(1)
    before = filled.made.pool, filled.made.host

    def deny(slots: int) -> torch.Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(filled.made, denied, deny)
    with pytest.raises(RuntimeError):
        filled.made.reshape(filled.cache.plan_reshape(block_size=8, num_blocks=100, num_host_blocks=100))
    assert filled.made.pool is before[0] and filled.made.host is before[1]
    filled.verify()


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux")
def test_a_pool_that_changes_its_size_is_never_there_twice(monkeypatch: pytest.MonkeyPatch):
    """Layer by layer the old pool's pages are given back as they are copied."""
    layout = KVLayout(layers=16, kv_heads=4, head_dim=32, dtype=torch.float32)
    made = KVStorage(layout, 4096, 0, "cpu", ReferenceOps())
    cache, tokens = KVCache(256, 16), list(range(4096))
    cache.open(1, tokens)
    cache.grow(1, 4096)
    cache.commit(1, tokens, 4096)
    old, held = made.pool.fill_(1.0), []

    def watch_copy(tensor: torch.Tensor) -> None:
        held.append(pages.resident(old))
        pages.give_back(tensor)

    monkeypatch.setattr(storage_module, "give_back", watch_copy)
    made.reshape(cache.plan_reshape(num_blocks=300))
    layer = old.nbytes // layout.layers
    assert len(held) == layout.layers
    # The new pool's pages are not counted: where the allocator gives it memory used before, all are there at once.
    assert all(there < old.nbytes - (copied - 1) * layer for copied, there in enumerate(held))
    assert bool((made.pool[:, :, :4096] == 1.0).all())


def test_pages_given_back_are_not_resident_any_more():
    tensor = torch.ones(1 << 20)
    assert pages.resident(tensor) >= tensor.nbytes
    pages.give_back(tensor)
    if sys.platform == "linux":
        assert pages.resident(tensor) < tensor.nbytes / 8


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


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_narrow_pools_move_byte_for_byte(dtype):
    layout = KVLayout(layers=2, kv_heads=2, head_dim=4, dtype=dtype)
    assert layout.slot_bytes == 2 * 2 * 2 * (20 if dtype == torch.int8 else 4)
    made = KVStorage(layout, 32, 32, "cpu", ops_for("cpu"))
    for pool in (made.pool, made.host):
        raw(pool).copy_(torch.randint(-128, 128, pool.shape))  # any bytes, NaN among them
    device, host = raw(made.pool).movedim(2, 0).clone(), raw(made.host).clone()
    made.execute([Transfer(COPY, 0, 1), Transfer(SWAP_OUT, 2, 3), Transfer(SWAP_IN, 0, 3)], 8)
    device[8:16], host[24:32] = device[:8].clone(), device[16:24].clone()
    device[24:32] = host[:8]
    made.move([(np.array([0, 9]), np.array([17, 0]))])
    device[[17, 0]] = device[[0, 9]]
    made.move([(np.array([3]), np.array([30]))], "host")
    host[30] = host[3]
    assert torch.equal(raw(made.pool).movedim(2, 0), device) and torch.equal(raw(made.host), host)
    cache = KVCache(4, 8, 4)
    cache.open(0, list(range(20)))
    cache.grow(0, 20)
    cache.commit(0, list(range(20)), 20)
    change = cache.plan_reshape(num_blocks=8, num_host_blocks=2)
    made.reshape(change)
    kept = [cache.table(0)[i // 8] * 8 + i % 8 for i in range(20)]
    cache.reshape(change)
    now = [cache.table(0)[i // 8] * 8 + i % 8 for i in range(20)]
    assert torch.equal(raw(made.pool).movedim(2, 0)[now], device[kept])
    assert made.pool.dtype == dtype and len(made.host) == 16
