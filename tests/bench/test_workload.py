from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.bench.workload import LOADS, Item, make_load, mixed, percentile
from pagedeck.ipc.vocabulary import Refused


def test_a_seed_names_a_load() -> None:
    assert mixed(20, seed=1, vocabulary=1000) == mixed(20, seed=1, vocabulary=1000)
    assert mixed(20, seed=1, vocabulary=1000) != mixed(20, seed=2, vocabulary=1000)
    assert mixed(30, seed=1, vocabulary=1000)[:20] == mixed(20, seed=1, vocabulary=1000)


@given(st.integers(0, 2**32))
def test_lengths_and_tokens_stay_in_their_ranges(seed: int) -> None:
    for item in mixed(10, seed=seed, vocabulary=300, prompts=(3, 40), outputs=(2, 5)):
        assert 3 <= len(item.prompt) <= 40
        assert 2 <= item.output_tokens <= 5
        assert all(256 <= token < 300 for token in item.prompt)


def test_lengths_are_mixed() -> None:
    lengths = [len(item.prompt) for item in mixed(200, seed=0, vocabulary=1000)]
    assert min(lengths) < 20 and max(lengths) > 450
    below = sum(length < 90 for length in lengths)
    assert 70 < below < 130  # log-uniform: the geometric middle of 16 and 512 is the median


def test_percentiles_are_values_that_occurred() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, share) for share in (0.0, 0.2, 0.5, 0.95, 1.0)] == [1.0, 1.0, 3.0, 5.0, 5.0]


@pytest.mark.parametrize("name", LOADS)
def test_every_load_is_named_by_its_seed_and_fits(name: str) -> None:
    items = make_load(name, 50, seed=1, vocabulary=1000, context_length=2048)
    assert items == make_load(name, 50, seed=1, vocabulary=1000, context_length=2048)
    assert items != make_load(name, 50, seed=2, vocabulary=1000, context_length=2048)
    assert len(items) == 50
    lengths = [len(item.prompt) + item.output_tokens for item in items]
    for place, item in enumerate(items):
        if item.continues:
            assert item.after == place - 1
            lengths[place] += lengths[place - 1]
        assert item.prompt and item.output_tokens and lengths[place] <= 2048
    times = [item.at for item in items if item.after is None]
    assert times == sorted(times) and times[0] == 0


def test_requests_of_a_kind_share_its_beginning() -> None:
    first, *others = make_load("chat", 20, seed=0, vocabulary=1000, context_length=2048)
    assert all(item.prompt[:96] == first.prompt[:96] for item in others)
    assert len({tuple(item.prompt[96:]) for item in others}) == 19


def test_arrivals() -> None:
    def load(arrivals: str) -> list[Item]:
        return make_load("batch", 400, seed=0, vocabulary=1000, context_length=2048, arrivals=arrivals)

    assert {item.at for item in load("at-once")} == {0.0}
    assert 360 < load("poisson:1")[-1].at < 440
    assert [item.at for item in load("burst:100:7.5")] == [7.5 * (n // 100) for n in range(400)]
    assert [item.after for item in load("closed:3")] == [None] * 3 + list(range(397))
    conversations = make_load("multi-turn", 12, seed=0, vocabulary=1000, context_length=2048, arrivals="closed:1")
    assert [item.after for item in conversations] == [None, *range(11)]
    assert [item.continues for item in conversations] == [False, True, True, True] * 3


@pytest.mark.parametrize(
    "text", ["", "poisson", "poisson:0", "poisson:x", "burst:3", "burst:2.5:1", "closed:-1", "now"]
)
def test_arrivals_that_are_none(text: str) -> None:
    with pytest.raises(Refused, match=r"arrivals is .*; accepted is at-once, poisson:RATE"):
        make_load("chat", 3, seed=0, vocabulary=1000, context_length=512, arrivals=text or "x")
