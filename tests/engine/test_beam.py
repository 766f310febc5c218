"""Beams and ``best_of``: the tokens of transformers' beam search, whatever happens meanwhile, on shared blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pagedeck.engine.attention import ATTENTION_NAME
from pagedeck.engine.request import Request, RequestState

from .harness import model_engine, output, run, submit
from .tiny_models import VOCABULARY, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8]


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    yield tiny_model("llama", ATTENTION_NAME)


# --- against transformers -------------------------------------------------------------------------------------------


def of_transformers(
    prompt: list[int], *, max_tokens: int, eos: list[int], **more: Any
) -> list[tuple[list[int], float]]:
    """Output and score of each returned sequence, the best first."""
    reference = tiny_model("llama", "eager")
    made = reference.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=eos or None,
        pad_token_id=VOCABULARY + 1,
        return_dict_in_generate=True,
        output_scores=True,
        **more,
    )
    outputs = [[token for token in row[len(prompt) :].tolist() if token <= VOCABULARY] for row in made.sequences]
    return list(zip(outputs, made.sequences_scores.tolist(), strict=True))


def assert_same(request: Request, wanted: list[tuple[list[int], float]]) -> None:
    assert request.state is RequestState.FINISHED, request.error
    assert [output(request, index) for index in range(len(wanted))] == [tokens for tokens, _ in wanted]
    assert [s.score for s in request.sequences] == pytest.approx([score for _, score in wanted], rel=1e-5)


@pytest.mark.parametrize("width", [1, 2, 4, 7])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -0.7, 2.0])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_tokens_are_those_of_transformers(
    model: Any, width: int, length_penalty: float, early_stopping: bool
) -> None:
    for eos in ([], [11], list(range(20, 34))):
        engine = model_engine(model, eos_ids=frozenset(eos))
        returned = max(1, width - 1)
        beams = {"beam_width": width, "length_penalty": length_penalty, "early_stopping": early_stopping}
        request = submit(engine, "a", PROMPT, 18, n=returned, **beams)
        run(engine)
        if width == 1:  # one beam is greedy search, which transformers does not score
            assert output(request) == of_transformers_greedy(PROMPT, 18, eos)
            continue
        named = {"num_beams": width, "length_penalty": length_penalty, "early_stopping": early_stopping}
        wanted = of_transformers(PROMPT, max_tokens=18, eos=eos, num_return_sequences=returned, **named)
        assert_same(request, wanted)


def of_transformers_greedy(prompt: list[int], max_tokens: int, eos: list[int]) -> list[int]:
    reference = tiny_model("llama", "eager")
    made = reference.generate(
        torch.tensor([prompt]), max_new_tokens=max_tokens, do_sample=False, eos_token_id=eos or None, pad_token_id=0
    )
    return made[0, len(prompt) :].tolist()
