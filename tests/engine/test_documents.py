"""Outputs that must be documents of a JSON schema, written by a model that would say anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pagedeck.engine.core import Engine
from pagedeck.engine.model.documents import Documents
from pagedeck.engine.model.words import make_rules
from pagedeck.engine.request import Request
from pagedeck.ipc.vocabulary import FinishReason, Refused, RequestState, SamplingParams
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .deferred import DeferredRunner
from .harness import CrampedRunner, model_engine, run
from .tiny_models import tiny_model

VOCABULARY = 330  # ten more than the tokenizer has
EOS = frozenset({0, 325})

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z ]{0,6}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 199},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr("pagedeck.engine.model.documents.PATIENCE_S", 60.0)


@pytest.fixture(scope="module")
def tokenizer(tiny_model_folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(str(tiny_model_folder))


@pytest.fixture(scope="module")
def documents(tokenizer: PreTrainedTokenizerBase) -> Documents:
    return Documents(tokenizer, VOCABULARY, EOS)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model("llama", "pagedeck", vocab_size=VOCABULARY)


def make_engine(model: Any, tokenizer: PreTrainedTokenizerBase, **more: Any) -> Engine:
    from pagedeck.engine.model.detokenizer import make_text_stream

    engine = model_engine(model, eos_ids=EOS, **{"num_blocks": 300, **more})
    engine.vocabulary = VOCABULARY
    engine.rules = make_rules(tokenizer, VOCABULARY, EOS)
    engine._text_stream = make_text_stream(tokenizer)
    return engine


def ask(engine: Engine, id: str, **sampling: Any) -> Request:
    settings = {"max_tokens": 140, "json_schema": json.dumps(SCHEMA), **sampling}
    return engine.submit(id=id, prompt=[40, 41], sampling=SamplingParams(**settings), priority=10)


def check(text: str) -> None:
    found = json.loads(text)
    assert list(found) == ["name", "age", "tags"]
    assert len(found["name"]) <= 6 and set(found["name"]) <= set(" abcdefghijklmnopqrstuvwxyz")
    assert 0 <= found["age"] <= 199
    assert 1 <= len(found["tags"]) <= 2 and set(found["tags"]) <= {"a", "b", "c"}


def test_whatever_a_model_would_say_it_writes_documents(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Side by side with requests that may say anything, preempted in between, and with a step in flight."""
    texts = []
    for kind, num_blocks in ((CrampedRunner, 300), (DeferredRunner, 36)):
        engine = make_engine(model, tokenizer, kind=kind, num_blocks=num_blocks, hasty=True)
        asked = [ask(engine, f"r{seed}", seed=seed, temperature=1.5, n=2, logprobs=1) for seed in range(3)]
        free = engine.submit(id="free", prompt=[1], sampling=SamplingParams(max_tokens=50, seed=1), priority=10)
        run(engine)
        assert free.state is RequestState.FINISHED
        for sample in (sample for request in asked for sample in request.sequences):
            assert sample.finish_reason is FinishReason.STOP
            check(sample.text)
            assert len(sample.scores) == sample.output_length
        texts.append([sample.text for request in asked for sample in request.sequences])
        assert bool(engine.metrics.counters.preemptions) is (num_blocks == 36)
    assert texts[0] == texts[1] and len(set(texts[0])) == 6


def test_the_empty_schema_is_any_object(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    engine = make_engine(model, tokenizer)
    bias = dict.fromkeys(tokenizer.encode("}"), 30.0)  # else it would go on for long
    requests = [ask(engine, f"r{seed}", json_schema="{}", seed=seed, logit_bias=bias) for seed in range(4)]
    run(engine)
    assert all(isinstance(json.loads(request.sequences[0].text), dict) for request in requests)


def test_a_document_that_is_cut_off_says_so(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    engine = make_engine(model, tokenizer)
    cut = ask(engine, "cut", max_tokens=5)
    stopped = ask(engine, "stopped", stop=("{",))
    run(engine)
    assert cut.sequences[0].finish_reason is FinishReason.LENGTH and cut.sequences[0].output_length == 5
    assert stopped.sequences[0].finish_reason is FinishReason.STOP and stopped.sequences[0].text == ""


def test_a_parser_that_gives_up_fails_its_request_alone(model: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    engine = make_engine(model, tokenizer)
    sick, well = ask(engine, "sick", seed=1), ask(engine, "well", seed=2)
    for _ in range(4):
        engine.step()
    [document] = [sample.document for sample in sick.sequences]
    assert document is not None
    with pytest.raises(Refused):
        document.take(200)
    run(engine)
    assert sick.error and "json_schema" in sick.error and "\n" not in sick.error
    check(well.sequences[0].text)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{", "line 1"),
        ("[]", "no JSON object"),
        ('{"type": "thing"}', "thing"),
        ('{"type": "string", "pattern": "(a"}', "unclosed group"),
        ('{"$ref": "http://localhost/schema"}', "localhost"),
        ('{"not": {"type": "string"}}', "not"),
        ('{"items":' * 2000 + "{}" + "}" * 2000, "recursion"),
    ],
    ids=["cut", "list", "type", "pattern", "reference", "not", "deep"],
)
def test_schemas_are_refused_in_the_compilers_words(documents: Documents, schema: str, words: str) -> None:
    with pytest.raises(Refused) as refused:
        documents.of(schema)
    message = str(refused.value)
    assert refused.value.field == "json_schema"
    assert words in message and "\n" not in message and len(message) < 1000


def test_a_compile_that_does_not_end_is_given_up(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedeck.engine.model.documents.PATIENCE_S", 0.5)
    patterns = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(1, 30)]
    schema = json.dumps({"allOf": patterns})
    with pytest.raises(Refused, match=r"takes more than 0\.5 s"):
        documents.of(schema)
    monkeypatch.setattr("pagedeck.engine.model.documents.subprocess.run", None)
    with pytest.raises(Refused, match=r"takes more than 0\.5 s"):  # and is not tried again
        documents.of(schema)


def test_only_ends_may_follow_a_document_and_padding_never_does(documents: Documents, tokenizer: Any) -> None:
    import numpy as np

    def allowed(document: Any) -> set[int]:
        mask = np.zeros(-(-VOCABULARY // 32), np.int32)
        document.allow(mask)
        return set(np.flatnonzero((mask[:, None] >> np.arange(32) & 1).reshape(-1)).tolist())

    document = documents.of('{"type": "integer"}').begin()
    other = document.begin()
    assert allowed(document) == {tokenizer.convert_tokens_to_ids(c) for c in "-0123456789"}
    assert not document.take(tokenizer.convert_tokens_to_ids("7"))
    assert 0 in allowed(document)
    assert max(allowed(document)) < 320
    assert 0 not in allowed(other), "each has a place of its own"


def test_bad_words_are_spelled_where_a_text_begins_and_after_a_blank(tokenizer: Any) -> None:
    rules = make_rules(tokenizer, VOCABULARY, EOS)
    words = rules(SamplingParams(bad_words=("the", "zq"))).bad_words
    assert set(words) == {tuple(tokenizer.encode(text)) for text in ("the", " the", "zq", " zq")}
    assert rules(SamplingParams()).bad_words == ()
    assert rules(SamplingParams(bad_words=("<|end|>",))).bad_words == (tuple(tokenizer.encode(" <|end|>")),)


def test_bad_words_never_come(model: Any, tokenizer: Any) -> None:
    engine = make_engine(model, tokenizer)

    def text(**more: Any) -> str:
        sampling = SamplingParams(max_tokens=120, seed=3, temperature=3.0, ignore_eos=True, **more)
        request = engine.submit(id="r", prompt=[70, 71], sampling=sampling, priority=0)
        run(engine)
        return request.sequences[0].text

    free = text()
    words = tuple(dict.fromkeys(free[i : i + 2] for i in range(0, 60, 7) if free[i : i + 2].isascii()))
    assert words and all(word in free for word in words)
    tokens = text(bad_words=words)
    assert tokens != free and not any(tokens.startswith(word) or f" {word}" in tokens for word in words)
