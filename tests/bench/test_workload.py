from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pagedeck.bench.workload import mixed, percentile


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
