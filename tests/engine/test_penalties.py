"""Penalties, biases and bans against transformers' own, through the whole engine: chunks, preemption, flights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pagedeck.engine.core import Engine
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.engine.request import Request
from pagedeck.engine.rules import Rules
from pagedeck.ipc.vocabulary import FinishReason, Refused, SamplingParams
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel

from .deferred import DeferredRunner
from .harness import CrampedRunner, model_engine, run
from .recorded import LateReplayingRunner
from .tiny_models import VOCABULARY, tiny_model

EOS = frozenset({3, 40, 77})

TOKEN = st.integers(0, VOCABULARY - 1)
#: Few kinds of tokens, so that they do repeat.
PROMPT = st.lists(st.integers(0, 12), min_size=1, max_size=20)
WORD = st.lists(TOKEN, min_size=1, max_size=2).map(tuple)

ASKED = st.fixed_dictionaries(
    {"max_tokens": st.sampled_from([1, 12, 20])},
    optional={
        "repetition_penalty": st.sampled_from([0.7, 1.2, 5.0]),
        "presence_penalty": st.sampled_from([-1.0, 0.5, 2.0]),
        "frequency_penalty": st.sampled_from([-0.3, 0.4, 2.0]),
        "min_tokens": st.sampled_from([1, 8]),
        "ignore_eos": st.booleans(),
        "logit_bias": st.dictionaries(TOKEN, st.floats(-20, 20), max_size=5),
    },
)


class OutputPenalties(LogitsProcessor):  # type: ignore[misc]
    """Presence and frequency by the formula of OpenAI's documentation."""

    def __init__(self, prompt: int, presence: float, frequency: float) -> None:
        self.prompt, self.presence, self.frequency = prompt, presence, frequency

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(input_ids[0, self.prompt :], minlength=scores.shape[1])
        return scores - counts * self.frequency - (counts > 0) * self.presence


def generated(
    model: PreTrainedModel, prompt: list[int], sampling: SamplingParams, bad_words: list[tuple[int, ...]]
) -> list[int]:
    """What transformers says."""
    more: dict[str, Any] = {}
    if bad_words:
        more["bad_words_ids"] = [list(word) for word in bad_words]
    if sampling.logit_bias:
        more["sequence_bias"] = [[[token], float(bias)] for token, bias in sampling.logit_bias.items()]
    if not sampling.ignore_eos:
        more |= {"eos_token_id": sorted(EOS), "min_new_tokens": sampling.min_tokens}
    penalties = OutputPenalties(len(prompt), sampling.presence_penalty, sampling.frequency_penalty)
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=sampling.max_tokens,
        repetition_penalty=sampling.repetition_penalty,
        logits_processor=LogitsProcessorList([penalties]),
        **more,
    )
    tokens: list[int] = out[0, len(prompt) :].tolist()
    return tokens


def ask(engine: Engine, prompt: list[int], sampling: SamplingParams, bad_words: list[tuple[int, ...]]) -> Request:
    number = engine.metrics.counters.finished + len(engine.requests)
    rules = Rules(tuple(word for word in bad_words if len(word) > 1 or word[0] not in EOS))
    return engine.submit(id=f"r{number}", prompt=prompt, sampling=sampling, priority=10 * (number % 2), rules=rules)


def outputs(request: Request) -> list[list[int]]:
    assert not request.error
    return [s.tokens[len(request.prompt) :] for s in request.sequences]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model("llama", ATTENTION_NAME)


@pytest.fixture(scope="module")
def reference() -> PreTrainedModel:
    return tiny_model("llama", "eager")


@pytest.mark.random
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    asked=st.lists(st.tuples(PROMPT, ASKED, st.lists(WORD, max_size=6)), min_size=1, max_size=6),
    kind=st.sampled_from([CrampedRunner, DeferredRunner, LateReplayingRunner]),
    num_blocks=st.sampled_from([8, 40]),
    token_budget=st.sampled_from([3, 8, 64]),
)
def test_greedy_outputs_are_those_of_generate(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    asked: list[tuple[list[int], dict[str, Any], list[tuple[int, ...]]]],
    kind: type[ModelRunner],
    num_blocks: int,
    token_budget: int,
) -> None:
    engine = model_engine(
        model,
        kind=kind,
        num_blocks=num_blocks,
        block_size=8,
        eos_ids=EOS,
        token_budget=token_budget,
        preemption="recompute",
        hasty=True,
    )
    requests = []
    for prompt, own, bad_words in asked:
        least = min(own.get("min_tokens", 0), own["max_tokens"])
        sampling = SamplingParams(**{"temperature": 0.0, **own, "min_tokens": least})
        requests.append((ask(engine, prompt, sampling, bad_words), sampling, bad_words))
        engine.step()
    run(engine)
    for request, sampling, bad_words in requests:
        assert outputs(request) == [generated(reference, request.prompt, sampling, bad_words)]


HARSH: dict[str, Any] = {"repetition_penalty": 1.3, "frequency_penalty": 1.0, "presence_penalty": 0.5, "max_tokens": 24}


def test_counts_follow_sequences_through_forks_preemption_and_steps_in_flight(model: PreTrainedModel) -> None:
    """Drawn with seeds: alone in a large pool, and among others in one so small that they take turns."""
    sampling = [SamplingParams(**HARSH, temperature=1.2, seed=seed, n=1 + seed % 3) for seed in range(6)]
    prompts = [[seed, 5, 5, seed, 9] * (1 + seed) for seed in range(6)]

    def serve(chosen: list[int], kind: type[ModelRunner], num_blocks: int, **more: Any) -> list[list[list[int]]]:
        engine = model_engine(model, kind=kind, num_blocks=num_blocks, block_size=8, hasty=True, **more)
        requests = [ask(engine, prompts[i], sampling[i], []) for i in chosen]
        run(engine)
        if len(chosen) > 1:
            assert engine.metrics.counters.preemptions > 3
        return [outputs(request) for request in requests]

    alone = [serve([i], CrampedRunner, 60)[0] for i in range(6)]
    assert len({tuple(tokens) for samples in alone for tokens in samples}) == 12
    for kind in (CrampedRunner, DeferredRunner):
        assert serve(list(range(6)), kind, 24, token_budget=9, host_blocks=20) == alone
        assert serve(list(range(6))[::-1], kind, 24, preemption="recompute")[::-1] == alone


def test_penalised_requests_keep_steps_in_flight_and_words_of_several_tokens_do_not(model: PreTrainedModel) -> None:
    for words, overlaps in (([(5,)], True), ([(5, 6)], False)):
        engine = model_engine(model, kind=DeferredRunner)
        ask(engine, [1, 2, 3], SamplingParams(**HARSH, min_tokens=4, logit_bias={4: 1.0}, logprobs=3), words)
        run(engine)
        assert bool(engine.runner.unknown) is overlaps


def test_the_least_length_is_kept_to_the_token(model: PreTrainedModel) -> None:
    everything = frozenset(range(VOCABULARY)) - {11}
    engine = model_engine(model, eos_ids=everything)
    greedy = {"temperature": 0.0, "max_tokens": 20}
    lengths = []
    for least in (0, 1, 7, 20):
        request = ask(engine, [1, 2], SamplingParams(**greedy, min_tokens=least), [])
        run(engine)
        [tokens] = outputs(request)
        assert set(tokens[:least]) <= {11}
        lengths.append((len(tokens), request.sequences[0].finish_reason))
    assert lengths == [
        (1, FinishReason.STOP),
        (2, FinishReason.STOP),
        (8, FinishReason.STOP),
        (20, FinishReason.LENGTH),
    ]


def test_biases_choose_and_those_out_of_the_vocabulary_are_refused(model: PreTrainedModel) -> None:
    engine = model_engine(model)
    request = ask(engine, [1], SamplingParams(max_tokens=5, logit_bias={60: 100.0}), [])
    run(engine)
    assert outputs(request) == [[60] * 5]
    with pytest.raises(Refused, match="logit_bias is 1000") as refused:
        ask(engine, [1], SamplingParams(logit_bias={1000: 1.0}), [])
    assert refused.value.field == "logit_bias"


def test_words_mean_nothing_without_a_tokenizer(model: PreTrainedModel) -> None:
    engine = model_engine(model)
    for more in ({"bad_words": ("x",)}, {"json_schema": "{}"}):
        with pytest.raises(Refused, match="no tokenizer") as refused:
            engine.submit(id="x", prompt=[1], sampling=SamplingParams(**more), priority=0)
        assert refused.value.field in more
    assert not engine.requests
