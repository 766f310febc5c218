"""Moving the cache: to the host and back, and into blocks of another size while requests run."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...engine.assembly import assemble
from ...engine.cache.kv_cache import Transfer, TransferKind
from ...engine.cache.storage import KVLayout, KVStorage
from ...engine.config import EngineConfig
from ...engine.reconfigure import reconfigure
from ...ipc.vocabulary import SamplingParams
from ...kernels import ops_for
from ..workload import mixed
from .rows import Row
from .scale import LLAMA_1B, LLAMA_8B, TINY, Scale
from .timing import wall

SWAP_AIM = 0.9  # of the link's bandwidth
BLOCK = 32
SIZES = (16, 64, 256, 32)  # tokens in a block, one after the other


def swap(scale: Scale) -> Iterator[Row]:
    """Blocks of an 8B model to the host pool and back, against one large copy between pinned memory and the device."""
    shape, device = scale.pick(LLAMA_8B, TINY), scale.device
    layout = KVLayout(shape.layers, shape.kv_heads, shape.head_dim, scale.dtype)
    blocks = scale.pick(256, 64)
    storage = KVStorage(layout, blocks * BLOCK, blocks * BLOCK, device, ops_for(device))
    storage.pool.normal_()
    moved = blocks * BLOCK * layout.slot_bytes
    host = storage.host.flatten()
    flat = torch.empty_like(host, device=device)
    links = {"out": lambda: host.copy_(flat, non_blocking=True), "in": lambda: flat.copy_(host, non_blocking=True)}
    shuffled = torch.randperm(blocks, generator=torch.Generator().manual_seed(0)).tolist()
    journals = {
        "out": [Transfer(TransferKind.SWAP_OUT, block, place) for place, block in enumerate(shuffled)],
        "in": [Transfer(TransferKind.SWAP_IN, place, block) for place, block in enumerate(shuffled)],
    }
    for way, journal in journals.items():

        def carry_out(journal: list[Transfer] = journal) -> None:
            if storage.execute(list(journal), BLOCK) != moved:
                raise RuntimeError("not all blocks were swapped")

        link = moved / min(wall(links[way], device) for _ in range(5))
        ours = moved / min(wall(carry_out, device) for _ in range(5))
        yield Row(
            "swap", f"{blocks} blocks {way}", ours / link, "%", at_least=scale.aim(SWAP_AIM),
            note=f"{ours / 1e9:,.1f} GB/s of {link / 1e9:,.1f}",
        )  # fmt: skip


def repage(scale: Scale) -> Iterator[Row]:
    """The pause of a change of the block size while requests run, all of which must get through."""
    shape = scale.pick(LLAMA_1B, TINY)
    made = assemble(
        EngineConfig(
            model=str(shape.write(scale.folder)), load_format="dummy", device=scale.device.type,
            context_length=4096, num_blocks=scale.pick(4096, 128),
            prefix_caching=False,
        ),
        lambda *_: None,
    )  # fmt: skip
    engine = made.engine
    # Many that grow side by side, and half of them gone: what is left lies scattered.
    items = mixed(scale.pick(64, 16), seed=0, vocabulary=shape.vocabulary, prompts=scale.pick((500, 2000), (20, 100)))
    for number, item in enumerate(items):
        sampling = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True)
        engine.submit(id=str(number), prompt=item.prompt, sampling=sampling, priority="normal")
    reconfigure(engine, {"block_size": SIZES[0]})
    for _ in range(scale.pick(60, 20)):
        engine.step()
    for number in range(0, len(items), 2):
        engine.cancel(str(number))
    for size in SIZES[1:]:
        for _ in range(5):
            engine.step()
        report = reconfigure(engine, {"block_size": size})
        before, after = report.changes["block_size"]
        yield Row(
            "repage", f"blocks of {before} to {after}", report.pause_ms, "ms",
            note=f"{report.blocks_moved:,} blocks moved, {report.bytes_copied / 1e6:,.1f} MB copied",
        )  # fmt: skip
    while engine.has_work:
        engine.step()
    finished = engine.metrics.counters.finished
    yield Row("repage", "requests that finished", finished / (len(items) // 2), "%", at_least=1.0)
