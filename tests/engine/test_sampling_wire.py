"""What requests ask of the sampler, from a client through an engine process with a model and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pagedeck.ipc.aio import AsyncClient
from pagedeck.ipc.client import Client, EngineError

GREEDY = {"temperature": 0.0, "ignore_eos": True}
SCHEMA = (
    '{"type": "object", "properties": {"n": {"enum": [1, 2, 3]}}, "required": ["n"], "additionalProperties": false}'
)


@pytest.fixture
def client(shared_engine: Any) -> Any:
    with Client(shared_engine.connection) as client:
        yield client


def test_each_token_comes_with_its_logprob_text_and_bytes(client: Client) -> None:
    stream = client.submit("the quick", max_tokens=12, logprobs=2, **GREEDY)
    entries = [entry for tokens in stream for entry in tokens.logprobs]
    assert entries == stream.logprobs()
    assert [entry.token_id for entry in entries] == stream.token_ids()
    assert b"".join(entry.bytes for entry in entries).decode(errors="replace") == stream.text()
    for entry in entries:
        assert entry.text == entry.bytes.decode(errors="replace")
        assert [entry.token_id, entry.logprob] == [entry.top[0].token_id, entry.top[0].logprob]
        assert 0 > entry.top[0].logprob >= entry.top[1].logprob
    assert client.submit("the quick", max_tokens=2).logprobs() == []


def test_ranked_samples_bring_theirs_at_the_end(client: Client) -> None:
    stream = client.submit("the sun", max_tokens=6, best_of=3, n=2, logprobs=0, seed=1, ignore_eos=True)
    for sample in stream.finished.samples:
        chosen = [entry.logprob for entry in stream.logprobs(sample.index)]
        assert sample.score == pytest.approx(sum(chosen) / 6)


def test_a_document_comes_whole_and_is_the_end(client: Client) -> None:
    for prompt in ({"prompt": "the dog"}, {"token_ids": [40, 41]}):
        stream = client.submit(**prompt, max_tokens=200, json_schema=SCHEMA, seed=3)
        assert stream.finished.samples[0].finish_reason == "stop"
        assert json.loads(stream.text())["n"] in (1, 2, 3)


@pytest.mark.parametrize(
    ("field", "value"),
    [("json_schema", '{"type": "thing"}'), ("logit_bias", {320: 1.0}), ("presence_penalty", 3), ("min_tokens", 5000)],
)
def test_refusals_name_the_field(client: Client, field: str, value: Any) -> None:
    with pytest.raises(EngineError) as error:
        client.submit("a", **{field: value}).text()
    assert (error.value.code, error.value.field) == ("invalid", field)


def test_bad_words_biases_and_penalties_change_what_is_said(client: Client) -> None:
    plain = client.submit("the lazy dog", max_tokens=20, **GREEDY).token_ids()
    for more in (
        {"bad_words": ["the", "dog"], "logit_bias": {plain[0]: -100.0}},
        {"frequency_penalty": -2.0, "presence_penalty": -2.0, "repetition_penalty": 0.1},
    ):
        first, again = (client.submit("the lazy dog", max_tokens=20, **GREEDY, **more).token_ids() for _ in range(2))
        assert first == again != plain
    one = client.submit("the", max_tokens=9, min_tokens=9, logit_bias={0: 100.0}, temperature=0.0)
    assert 0 not in one.token_ids() and one.finished.output_tokens == 9


async def ask(connection: Any) -> None:
    async with AsyncClient(connection) as client:
        stream = client.submit("the fox", max_tokens=4, logprobs=1, seed=2, ignore_eos=True)
        pieces = [tokens.logprobs async for tokens in stream]
        assert [entry for piece in pieces for entry in piece] == await stream.logprobs()
        assert len(await stream.logprobs()) == 4


def test_the_asynchronous_client_gives_them_too(shared_engine: Any) -> None:
    import asyncio

    asyncio.run(ask(shared_engine.connection))
