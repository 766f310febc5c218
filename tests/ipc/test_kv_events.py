"""Cache events of other servers, in every form that they have had."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.ipc.kv_events import (
    DEVICE,
    HOST,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    decode,
    decode_frames,
    encode,
)


def payload(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


STORED = BlockStored((1, 2**64 - 2), 7, (10, 11, 12, 13), 2)

#: The same event, as it came from one version after another.
FORMS: list[Any] = [
    ["BlockStored", [1, 2**64 - 2], 7, [10, 11, 12, 13], 2, None],
    ["BlockStored", [1, -2], 7, [10, 11, 12, 13], 2, None, "GPU"],
    ["BlockStored", [1, -2], 7, [10, 11, 12, 13], 2, None, "GPU", None, [None, None], 0, "full_attention", None, "new"],
    {"type": "BlockStored", "block_hashes": [1, -2], "parent_block_hash": 7, "token_ids": [10, 11, 12, 13],
     "block_size": 2, "lora_id": None, "medium": None, "later": {"a": 1}},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "whole", [lambda e: [1.5, [e]], lambda e: [1.5, [e], 3, "x"], lambda e: {"ts": 1.5, "events": [e]}]
)
def test_a_block_is_stored_in_every_form(form: Any, whole: Any) -> None:
    batch = decode(payload(whole(form)))
    assert batch.events == (STORED,) and batch.time == 1.5
    assert batch.rank in (None, 3)


def test_hashes_of_bytes_stay_bytes_and_mediums_and_groups_are_told_apart() -> None:
    stored = ["BlockStored", [b"a" * 32], None, [1, 2], 2, None, "cpu", None, None, 1, "sliding_window", 128]
    removed = ["BlockRemoved", [b"a" * 32], "STORAGE", 1]
    batch = decode(
        payload([0, [stored, removed, ["BlockRemoved", [5]], ["AllBlocksCleared"], {"type": "AllBlocksCleared"}]])
    )
    assert batch.events == (
        BlockStored((b"a" * 32,), None, (1, 2), 2, HOST, 1, 128),
        BlockRemoved((b"a" * 32,), "STORAGE", 1),
        BlockRemoved((5,), DEVICE),
        AllBlocksCleared(),
        AllBlocksCleared(),
    )


def test_what_is_not_known_is_passed_over() -> None:
    pairs = ["BlockStored", [1], None, [[1, 2], [2, 3]], 2]  # tokens in pairs, of a speculating server
    batch = decode(payload([0, [["BlockMoved", 1, 2], {"type": "New"}, pairs]]))
    assert batch.events == (BlockStored((1,), None, (), 2),)


@pytest.mark.parametrize(
    "value",
    [None, 7, [], [1], ["x", []], [0, 7], [0, [7]], [0, [[]]], [0, [["BlockStored"]]], [0, [["BlockStored", 7]]],
     [0, [["BlockStored", ["x"], None, [], 2]]], [0, [["BlockStored", [True], None, [], 2]]],
     [0, [["BlockStored", [1], None, [], 0]]], [0, [["BlockRemoved", None]]], [0, [{"type": 7}]], {"events": []},
     [math.nan, []], [-math.inf, []], [0, [["BlockStored", [1], None, [], 2**40]]],
     [0, [["BlockStored", [1], None, [], True]]]],
)  # fmt: skip
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        decode(payload(value))


def test_what_is_too_large_to_be_true_is_not_taken() -> None:
    batch = decode(payload([0, [["BlockStored", [1], None, [2**63, 1], 2, None, "m" * 5000]]]))
    assert batch.events == (BlockStored((1,), None, (), 2, medium="M" * 32),)


@pytest.mark.random
@given(st.binary(max_size=200))
def test_no_bytes_do_harm(data: bytes) -> None:
    for read in (lambda: decode(data), lambda: decode_frames([data, data]), lambda: decode_frames([data[:8], data])):
        try:
            read()
        except ValueError:
            continue


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(ValueError):
        decode(b"\x91" * 100_000)


hashes = st.lists(st.integers(0, 2**64 - 1) | st.binary(min_size=1, max_size=32), min_size=1, max_size=4).map(tuple)
events = st.one_of(
    st.builds(
        BlockStored,
        hashes,
        st.none() | st.integers(0, 2**64 - 1),
        st.lists(st.integers(0, 10**6), max_size=8).map(tuple),
        st.integers(1, 256),
        st.sampled_from([DEVICE, HOST]),
        st.integers(0, 3),
        st.none() | st.integers(1, 4096),
    ),
    st.builds(BlockRemoved, hashes, st.sampled_from([DEVICE, HOST]), st.integers(0, 3)),
    st.just(AllBlocksCleared()),
)


@pytest.mark.random
@given(st.lists(events, max_size=5).map(tuple), st.none() | st.integers(0, 7))
def test_what_is_encoded_is_decoded_again(told: tuple[Any, ...], rank: int | None) -> None:
    batch = EventBatch(12.25, told, rank)
    assert decode(encode(batch)) == batch
