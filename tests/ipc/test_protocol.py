"""Messages as bytes: what goes in comes out, and nothing else comes in."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.engine.serving.switchboard import undecodable
from pagedeck.ipc import protocol
from pagedeck.ipc.protocol import (
    ChatMessage,
    Failed,
    Finished,
    Hello,
    Message,
    Reconfigure,
    SampleResult,
    SnapshotReply,
    Submit,
    TokenLogprob,
    Tokens,
)
from pagedeck.ipc.telemetry import BlocksUpdate, RequestRow, TierBlocks
from pagedeck.ipc.vocabulary import Refused, SamplingParams

TO_ENGINE: list[Message] = [
    Hello(id="h", client="é"),
    Submit(id="s", prompt="hello", sampling=SamplingParams(max_tokens=3, stop=("a", "b"), seed=-5)),
    Submit(
        id="s", prompt="", sampling=SamplingParams(logit_bias={7: -1.5}, bad_words=("x",), logprobs=0, json_schema="{}")
    ),
    Submit(id="s", messages=[ChatMessage("user", "hi")], priority=-3, cache_salt="x"),
    Submit(id="s", token_ids=[0, 2**31]),
    Reconfigure(id="r", changes={"block_size": 16, "swap_space_gib": 0.5, "prefix_caching": False}, dry_run=True),
]
TO_CLIENT: list[Message] = [
    Tokens(id="t", index=3, token_ids=[1, 2], text="ü"),
    Tokens(id="t", token_ids=[5], logprobs=[TokenLogprob(5, -0.5, "é", b"\xc3\xa9", top=[TokenLogprob(6, -0.25)])]),
    Finished(id="t", samples=[SampleResult(0, "stop", 2)], queue_s=0.5),
    Failed(id="t", code="invalid", message="No.", field="top_k"),
    SnapshotReply(
        id="s",
        epoch="e",
        sequences={"blocks": 2**40},
        blocks=BlocksUpdate("e", 7, True, TierBlocks(1, 16, 8, state=b"\x01"), TierBlocks(0, 16, 8)),
        requests=[RequestRow(1, "a", "running", 10, ttft_s=0.25)],
    ),
]


@pytest.mark.parametrize("message", TO_ENGINE, ids=lambda m: type(m).__name__)
def test_what_a_client_says_arrives(message: Message) -> None:
    assert protocol.decode_client(protocol.encode(message)) == message


@pytest.mark.parametrize("message", TO_CLIENT, ids=lambda m: type(m).__name__)
def test_what_the_engine_says_arrives(message: Message) -> None:
    assert protocol.decode_engine(protocol.encode(message)) == message


def test_a_client_cannot_say_what_only_engines_say() -> None:
    with pytest.raises(msgspec.ValidationError, match="finished"):
        protocol.decode_client(protocol.encode(Finished(id="x")))


@given(
    frame=st.sampled_from([protocol.encode(m) for m in TO_ENGINE]),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255), st.sampled_from(["set", "insert", "delete"]))),
)
def test_damaged_frames_are_refused_in_words_or_understood(frame: bytes, edits: list[tuple[int, int, str]]) -> None:
    damaged = bytearray(frame)
    for place, value, what in edits:
        place %= len(damaged) or 1
        if what == "insert":
            damaged.insert(place, value)
        elif what == "set" and damaged:
            damaged[place] = value
        elif damaged:
            del damaged[place]
    try:
        protocol.decode_client(bytes(damaged))
    except msgspec.DecodeError as error:
        answer = undecodable(protocol.decode_envelope(bytes(damaged)).id, error)
        assert answer.code == "invalid" and answer.message.endswith(".") and protocol.encode(answer)


def test_a_refusal_does_not_repeat_a_huge_value() -> None:
    message = str(Refused.value("stop", "x" * 1_000_000, "less"))
    assert len(message) < 300 and message.startswith("stop is 'xxx") and message.endswith("accepted is less.")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", math.nan),
        ("min_tokens", 257),
        ("bad_words", ("",)),
        ("bad_words", ("x",) * 257),
        ("logit_bias", {-1: 0.0}),
        ("logit_bias", {1: math.inf}),
        ("logit_bias", {1: 101.0}),
        ("logprobs", 21),
        ("json_schema", "x" * 100_001),
    ],
)
def test_sampling_out_of_range_is_refused_by_its_field(field: str, value: object) -> None:
    with pytest.raises(Refused, match="accepted is") as refused:
        SamplingParams(**{field: value}).check()
    assert refused.value.field == field


@pytest.mark.parametrize("more", [{"ignore_eos": True}, {"min_tokens": 1}, {"beam_width": 2, "temperature": 0.0}])
def test_a_document_ends_where_it_does(more: dict[str, object]) -> None:
    SamplingParams(json_schema="{}").check()
    with pytest.raises(Refused):
        SamplingParams(json_schema="{}", **more).check()
