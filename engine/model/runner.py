"""A step plan to tensors, through the model, to the next tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ...kernels import Ops
from ..cache.cache_groups import CacheGroups
from ..cache.kv_cache import KVCache, Transfer, taken_journals
from ..cache.layer_groups import LayerGroup
from ..cache.reshape import Reshape
from ..cache.storage import KVStorage, free_memory
from ..clocks import Clock, clock_of
from ..flight import Flight
from ..placement import to_host
from ..request import StepPlan, Work
from .attention import PagedContext
from .graphs import CudaRecorder, DecodeGraphs
from .network import Network
from .packing import DeviceStep, PackedStep, pack, ship
from .sampler import Sampler
from .scoring import Scoring


class ModelRunner:
    """Runs steps of one network over the storages of its groups of layers. Not for use by several threads at once.

    On a CUDA device a launch returns before the device has begun; on the CPU it has finished by then.
    """

    def __init__(self, network: Network, groups: Sequence[LayerGroup], storages: Sequence[KVStorage], ops: Ops) -> None:
        self.network = network
        self.storages = tuple(storages)
        self.ops = ops
        self.slot_bytes = tuple(storage.layout.slot_bytes for storage in storages)
        self.forward_ms = 0.0
        self.sample_ms = 0.0
        self.copy_ms = 0.0
        self.bytes_copied = 0
        self._sampler = Sampler()
        self._device = storages[0].pool.device
        homes = {layer: (g, place) for g, group in enumerate(groups) for place, layer in enumerate(group.layers)}
        self._homes = [homes[layer] for layer in range(len(homes))]  # each layer's group, and its place in that pool
        self._pools: list[Tensor] = []  # each layer's
        self.depth = 1 if self._device.type == "cuda" else 0
        self.graphs: DecodeGraphs | None = None
        if self._device.type == "cuda":
            self.graphs = DecodeGraphs(CudaRecorder(), self._bind, self._device)
        self._rows: dict[int, int] = {}  # of the last launch: sequence number -> row of its sampled tokens
        self._sampled = torch.zeros(0, dtype=torch.int64, device=self._device)  # these tokens, on the device

    def launch(self, plan: StepPlan, cache: KVCache | CacheGroups) -> Flight:
        """The cache's pending copies, then one forward of the plan's tokens and a sample for each work that wants one.
        All that is read of the host is read now."""
        with taken_journals(cache.groups) as journals:
            return self._launch(plan, cache, journals)

    def _launch(self, plan: StepPlan, cache: KVCache | CacheGroups, journals: list[list[Transfer]]) -> Flight:
        if not plan.work:
            return self._start(journals, cache.block_size, None, [])
        shape = self.graphs.shape(plan.work) if self.graphs is not None else None
        step = pack(plan.work, cache, self._rows, shape)
        sampling = [work for work in plan.work if work.samples]
        self._rows = {work.sequence.number: row for row, work in enumerate(sampling)}
        return self._start(journals, cache.block_size, step, sampling)

    def execute(self, plan: StepPlan, cache: KVCache | CacheGroups) -> list[int]:
        """Launch and wait. The next token of each work that samples, in plan order; -1 where its logits were not
        finite."""
        return self.launch(plan, cache).tokens()

    @torch.inference_mode()
    def _start(
        self, journals: list[list[Transfer]], block_size: int, step: PackedStep | None, sampling: list[Work]
    ) -> Flight:
        """All that the device does in a step, in order."""
        clock = clock_of(self._device)
        clock.mark()
        copied = sum(s.execute(journal, block_size) for s, journal in zip(self.storages, journals, strict=True))
        clock.mark()
        if step is None:
            return _Landing(self, clock, copied)
        there, logits = self._forward(step)
        clock.mark()
        scoring = Scoring(logits, sampling) if any(work.scored for work in sampling) else None
        self._sampled = self._sample(logits, sampling, there)
        if scoring is not None:
            scoring.choose(self._sampled)
        tokens = to_host(self._sampled)
        clock.mark()
        return _Landing(self, clock, copied, tokens, scoring)

    def room(self) -> int:
        """The most bytes that the device pools could take now."""
        return free_memory(self._device) + sum(storage.given_back() for storage in self.storages)

    def reshape(self, change: Reshape) -> int:
        """Give both pools their new sizes and move what they hold; returns the bytes copied. Raises ``MemoryError`` or
        ``RuntimeError`` where the memory is not there, with everything as it was."""
        parts = list(zip(self.storages, change.parts, strict=True))
        pools = [storage.new_pools(part) for storage, part in parts]  # all, before anything moves
        self._pools = []
        if self.graphs is not None:
            self.graphs.clear()
        return sum(storage.reshape(part, new) for (storage, part), new in zip(parts, pools, strict=True))

    def forget(self, seq: int) -> None:
        self._sampler.forget(seq)

    def _forward(self, step: PackedStep) -> tuple[DeviceStep, Tensor]:
        """The step on the device, and logits [R, V] of the last token of each work that samples."""
        if step.shape is not None and self.graphs is not None:
            there, logits = self.graphs.run(step, self._fill)
            return there, logits[: step.samples]
        there = ship(step, self._device)
        self._fill(there)
        return there, self._bind(there)()

    def _fill(self, step: DeviceStep) -> None:
        """Put the tokens in flight into a step: the device has them by now."""
        if len(step.unknown):
            # A row without finite logits has no token; its request fails when it lands, whatever is computed here.
            step.ids[step.unknown] = self._sampled[step.sources].clamp_(min=0)

    def _bind(self, step: DeviceStep) -> Callable[[], Tensor]:
        """The network's work on a step and on the pools as they are."""
        if not self._pools:
            self._pools = [self.storages[group].pool[place] for group, place in self._homes]
        layers = [(pool, step.batches[group]) for pool, (group, _) in zip(self._pools, self._homes, strict=True)]
        paged = PagedContext(layers, self.ops)
        return partial(self.network.logits, step.ids, step.positions, paged, step.sampled)

    def _sample(self, logits: Tensor, sampling: list[Work], step: DeviceStep) -> Tensor:
        """The next tokens (int64 [R]), which stay on the device, after those at ``step.sampled``."""
        if not sampling:
            return self._sampled[:0]
        positions = [work.start + work.count for work in sampling]
        newest = step.ids[step.sampled[: len(sampling)]]
        return self._sampler.sample(logits, [work.sequence for work in sampling], positions, newest)


class _Landing:
    """A launch of a :class:`ModelRunner`, which learns how long its parts took when it lands."""

    def __init__(
        self,
        runner: ModelRunner,
        clock: Clock,
        copied: int,
        sampled: Tensor | None = None,
        scoring: Scoring | None = None,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._copied = copied
        self._sampled = sampled  # on the host once the clock's last mark is reached
        self._scoring = scoring

    def tokens(self) -> list[int]:
        runner = self._runner
        runner.copy_ms, *parts = self._clock.laps()
        runner.forward_ms, runner.sample_ms = parts or (0.0, 0.0)
        runner.bytes_copied = self._copied
        if self._sampled is None:
            return []
        tokens: list[int] = self._sampled.tolist()
        if self._scoring is not None:
            self._scoring.deliver(tokens)
        return tokens
