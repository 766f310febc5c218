"""A model's estimate, from its configuration alone, against the model itself."""

from __future__ import annotations

import pytest
import torch
from pagedeck.engine import footprint
from pagedeck.engine.model.attention import probe

from .tiny_models import CONFIGS, tiny_config, tiny_model


@pytest.mark.parametrize("kind", CONFIGS)
def test_layers_windows_and_weights_are_those_of_the_model(kind: str) -> None:
    model = tiny_model(kind, "pagedeck")
    facts = tiny_config(kind)
    assert footprint.stated_layers(facts) == probe(model)
    numbers, taken = footprint.weigh(facts, torch.float64, "auto")
    assert numbers == sum(p.numel() for p in model.parameters())
    assert taken == 8 * numbers


def test_rounded_weights_are_those_of_linear_layers() -> None:
    facts = tiny_config("llama", tie_word_embeddings=False)
    numbers, plain = footprint.weigh(facts, torch.float32, "auto")
    assert plain == 4 * numbers
    sizes = [footprint.weigh(facts, torch.float32, weights)[1] for weights in ("int4", "int8", "auto")]
    assert sizes == sorted(sizes) and sizes[0] < sizes[1] / 1.2 < plain / 2


def test_a_tied_embedding_stays_beside_the_rounded_head() -> None:
    tied, untied = (tiny_config("llama", tie_word_embeddings=tie) for tie in (True, False))
    head = tied.vocab_size * tied.hidden_size
    assert (
        footprint.weigh(untied, torch.float32, "auto")[1] - footprint.weigh(tied, torch.float32, "auto")[1] == 4 * head
    )
    assert footprint.weigh(untied, torch.float32, "int8")[1] == footprint.weigh(tied, torch.float32, "int8")[1]
