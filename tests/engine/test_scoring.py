"""Log-probabilities that requests ask for: the model's own, whatever is done to its logits before a token is chosen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pagedeck.engine.core import Output
from pagedeck.engine.model.attention import ATTENTION_NAME
from pagedeck.engine.model.runner import ModelRunner
from pagedeck.ipc.vocabulary import SamplingParams

from .deferred import DeferredRunner
from .harness import CrampedRunner, model_engine, run
from .recorded import LateReplayingRunner
from .tiny_models import tiny_model

ASKED: list[dict[str, Any]] = [
    {"logprobs": 0, "temperature": 0.0},
    {"logprobs": 5, "seed": 1, "temperature": 2.0, "top_k": 3},
    {"logprobs": 2, "seed": 2, "repetition_penalty": 2.0, "logit_bias": {9: 5.0}},
    {"logprobs": 20, "seed": 3, "n": 2},
    {"logprobs": 1, "seed": 4, "n": 2, "best_of": 4},
    {"seed": 5},
]


@pytest.mark.parametrize("kind", [CrampedRunner, DeferredRunner, LateReplayingRunner])
def test_they_are_those_of_the_model(kind: type[ModelRunner]) -> None:
    reference = tiny_model("llama", "eager")
    engine = model_engine(tiny_model("llama", ATTENTION_NAME), kind=kind, num_blocks=40, hasty=True)
    requests = [
        engine.submit(id=str(i), prompt=[i, 50, 51], sampling=SamplingParams(max_tokens=15, **more), priority=i % 2)
        for i, more in enumerate(ASKED)
    ]
    outputs: list[Output] = [output for result in run(engine) for output in result.outputs]
    for request in requests:
        wanted = request.sampling.logprobs
        for sample in request.sequences:
            told = [o for o in outputs if o.request is request and o.index == sample.index]
            tokens = [token for output in told for token in output.token_ids]
            scores = [score for output in told for score in output.scores]
            assert request.prompt + tokens == sample.tokens
            if wanted is None:
                assert not scores
                continue
            exact = torch.log_softmax(reference(torch.tensor([sample.tokens])).logits[0], dim=-1)
            for position, (token, score) in enumerate(zip(tokens, scores, strict=True), len(request.prompt) - 1):
                assert score.chosen == pytest.approx(float(exact[position, token]), abs=1e-5)
                best = exact[position].topk(wanted)
                assert score.tokens == best.indices.tolist()
                assert score.logprobs == pytest.approx(best.values.tolist(), abs=1e-5)


def test_they_do_not_keep_steps_from_being_in_flight() -> None:
    engine = model_engine(tiny_model("llama", ATTENTION_NAME), kind=DeferredRunner)
    engine.submit(id="r", prompt=[1], sampling=SamplingParams(max_tokens=9, logprobs=3), priority=0)
    run(engine)
    assert engine.runner.unknown
