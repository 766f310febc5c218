"""A step plan to tensors, through the model, to the next tokens."""

from __future__ import annotations

import inspect
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..kernels import Ops
from .attention import PagedContext
from .kv_cache import KVCache
from .packing import pack
from .request import StepPlan, Work
from .reshape import Reshape
from .sampler import Sampler
from .storage import KVStorage

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelRunner:
    """Runs steps of one model over one storage. Not for use by several threads at once."""

    def __init__(self, model: PreTrainedModel, storage: KVStorage, ops: Ops) -> None:
        self.model = model
        self.storage = storage
        self.ops = ops
        self.slot_bytes = storage.layout.slot_bytes
        self.forward_ms = 0.0
        self.sample_ms = 0.0
        self.bytes_copied = 0
        self._sampler = Sampler()
        self._device = storage.pool.device
        self._selects = "logits_to_keep" in inspect.signature(model.forward).parameters

    @torch.inference_mode()
    def execute(self, plan: StepPlan, cache: KVCache) -> list[int]:
        """The cache's pending copies, then one forward of the plan's tokens.

        Returns the next token of each work that samples, in plan order; -1 where its logits were not finite.
        """
        started = perf_counter()
        self.bytes_copied = self.storage.execute(cache.journal, cache.block_size)
        cache.journal.clear()
        if not plan.work:
            self.forward_ms = self.sample_ms = 0.0
            return []
        logits = self._forward(plan.work, cache)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        computed = perf_counter()
        self.forward_ms = (computed - started) * 1e3
        sampling = [work for work in plan.work if work.samples]
        tokens: list[int] = []
        if sampling:
            positions = [work.start + work.count for work in sampling]
            tokens = self._sampler.sample(logits, [work.sequence for work in sampling], positions)
            self._sampler.score(logits, sampling, tokens)
        self.sample_ms = (perf_counter() - computed) * 1e3
        return tokens

    def room(self) -> int:
        """The most slots that the device pool could have now."""
        return self.storage.room()

    def reshape(self, change: Reshape) -> int:
        """Give both pools their new sizes and move what they hold; returns the bytes copied. Raises ``MemoryError`` or
        ``RuntimeError`` where the memory is not there, with everything as it was."""
        return self.storage.reshape(change)

    def forget(self, seq: int) -> None:
        self._sampler.forget(seq)

    def _forward(self, works: list[Work], cache: KVCache) -> Tensor:
        """Logits [R, V] of the last token of each work that samples."""
        step = pack(works, cache, self._device)
        arguments = {
            "input_ids": step.input_ids,
            "position_ids": step.position_ids,
            "use_cache": False,
            "paged": PagedContext(self.storage.pool, step.batch, self.ops),
        }
        if self._selects:
            return self.model(**arguments, logits_to_keep=step.sampled).logits[0]
        return self.model(**arguments).logits[0, step.sampled]
