"""A model with a step in flight: token for token what it says without one, sampled too, and what ``generate`` says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pagedeck.engine.core import Engine
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.engine.request import Request
from pagedeck.ipc.vocabulary import FinishReason, SamplingParams
from transformers import PreTrainedModel

from .deferred import DeferredRunner
from .harness import model_engine, run
from .test_runner import generated, prompts
from .tiny_models import tiny_model

FILTERS: list[dict[str, Any]] = [{}, {"top_p": 0.8}, {"top_k": 5}, {"min_p": 0.1}, {"n": 3}, {"temperature": 0.0}]

#: What the host has to see after each step.
RANKED: list[dict[str, Any]] = [{"best_of": 3, "n": 2}, {"beam_width": 3, "temperature": 0.0, "n": 2}]


def make_engine(model: PreTrainedModel, kind: type[ModelRunner], num_blocks: int = 96, **more: Any) -> Engine:
    settings = {"token_budget": 48, "preemption": "swap", "hasty": True, "host_blocks": num_blocks // 2, **more}
    return model_engine(model, kind=kind, num_blocks=num_blocks, **settings)


def serve(engine: Engine, requests: list[tuple[list[int], SamplingParams]]) -> list[list[list[int]]]:
    """All requests' outputs, by sample. They arrive one after another, some in each step."""
    submitted: list[Request] = []
    for number, (prompt, sampling) in enumerate(requests):
        submitted.append(engine.submit(id=str(number), prompt=prompt, sampling=sampling, priority=10 * (number % 2)))
        if number % 2:
            engine.step()
    run(engine)
    assert not any(request.error for request in submitted)
    return [[s.tokens[len(request.prompt) :] for s in request.sequences] for request in submitted]


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return tiny_model("llama", ATTENTION_NAME)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@pytest.mark.parametrize("num_blocks", [96, 20], ids=["enough", "scarce"])
def test_with_a_step_in_flight_the_model_says_what_generate_says(kind: str, num_blocks: int) -> None:
    reference = tiny_model(kind, "eager")
    engine = make_engine(tiny_model(kind, ATTENTION_NAME), DeferredRunner, num_blocks=num_blocks)
    greedy = SamplingParams(max_tokens=24, temperature=0.0)
    got = serve(engine, [(prompt, greedy) for prompt in prompts()])
    assert got == [[generated(reference, prompt, 24)] for prompt in prompts()]
    runner: Any = engine.runner
    assert runner.overlaps > 20 and runner.unknown > 100
    assert bool(engine.metrics.counters.swaps) == (num_blocks == 20)


@pytest.mark.parametrize("num_blocks", [96, 24], ids=["enough", "scarce"])
@pytest.mark.parametrize("filters", [FILTERS, [*FILTERS, *RANKED]], ids=["sampled", "ranked too"])
def test_seeds_choose_the_same_tokens_with_and_without(
    llama: PreTrainedModel, num_blocks: int, filters: list[dict[str, Any]]
) -> None:
    def sampled(kind: type[ModelRunner]) -> list[list[list[int]]]:
        engine = make_engine(llama, kind, num_blocks, eos_ids=frozenset({3, 4, 5}))
        requests = []
        for number, prompt in enumerate(prompts()):
            more = filters[number % len(filters)]
            requests.append((prompt, SamplingParams(**{"max_tokens": 24, "temperature": 1.3, "seed": number, **more})))
        return serve(engine, requests)

    alone = sampled(ModelRunner)
    assert alone == sampled(DeferredRunner)
    assert {len(tokens) for samples in alone for tokens in samples} > {24}, "some ended with an end token"


def test_a_row_that_is_not_finite_fails_alone_while_its_next_step_is_in_flight(llama: PreTrainedModel) -> None:
    expected = generated(tiny_model("llama", "eager"), prompts()[4], 20)
    engine = make_engine(llama, DeferredRunner, prefix_caching=False)
    greedy = SamplingParams(max_tokens=20, temperature=0.0)
    sick = engine.submit(id="sick", prompt=prompts()[5], sampling=greedy, priority=0)
    well = engine.submit(id="well", prompt=prompts()[4], sampling=greedy, priority=0)
    for _ in range(4):
        engine.step()
    runner: Any = engine.runner
    assert runner.queue
    runner.storages[0].pool[1, 1, _slot(engine, sick, 2)] = torch.nan
    run(engine)
    assert sick.error_code == "model"
    assert sick.sequences[0].finish_reason is FinishReason.FAILED
    assert well.sequences[0].tokens[len(well.prompt) :] == expected


def _slot(engine: Engine, request: Request, position: int) -> int:
    size = engine.cache.block_size
    return int(engine.cache.table(request.sequences[0].number)[position // size]) * size + position % size
