"""What a runner runs: a step's tokens to logits, over keys and values that live outside of it."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn

from .attention import PagedContext

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Network(nn.Module):
    """A language model without a cache of its own."""

    @abstractmethod
    def logits(self, ids: Tensor, positions: Tensor, paged: PagedContext, sampled: Tensor) -> Tensor:
        """Logits [R, V] after the tokens at ``sampled`` (int64 [R], rising) of the step's ``ids``, which stand at
        ``positions`` (int64 [T] both). Keys and values of all tokens are stored on the way."""

    @abstractmethod
    def output_layer(self) -> nn.Module:
        """The layer that makes logits of hidden states."""


class TransformersNetwork(Network):
    """transformers' own modules, with our attention inside."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self._selects = "logits_to_keep" in inspect.signature(model.forward).parameters

    def logits(self, ids: Tensor, positions: Tensor, paged: PagedContext, sampled: Tensor) -> Tensor:
        arguments = {"input_ids": ids[None], "position_ids": positions[None], "use_cache": False, "paged": paged}
        if self._selects:
            return self.model(**arguments, logits_to_keep=sampled).logits[0]
        return self.model(**arguments).logits[0, sampled]

    def output_layer(self) -> nn.Module:
        return self.model.get_output_embeddings()
