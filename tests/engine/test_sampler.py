"""Sampling against exact probabilities, and its independence of the batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.engine.model.sampler import Sampler, _thresholds, uniforms
from pagedeck.engine.request import Request, Sequence
from pagedeck.ipc.vocabulary import SamplingParams


def sequence(number: int = 0, index: int = 0, **sampling: object) -> Sequence:
    params = SamplingParams(**sampling)
    return Sequence(number, Request(number, str(number), [1], params, 0), index, [1])


def exact(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Probabilities of one row by the textbook: temperature, top-k, top-p, min-p, each by sorting everything."""
    scaled = logits.double() / params.temperature
    order = scaled.argsort(descending=True)
    keep = torch.ones_like(scaled, dtype=torch.bool)
    if params.top_k:
        keep[order[params.top_k :]] = False
    probabilities = torch.where(keep, scaled.exp(), 0)
    probabilities /= probabilities.sum()
    before = probabilities[order].cumsum(0) - probabilities[order]
    keep[order[before >= params.top_p]] = params.top_p >= 1
    if params.top_k:
        keep[order[params.top_k :]] = False
    keep &= probabilities >= params.min_p * probabilities.max()
    probabilities = torch.where(keep, probabilities, 0)
    return probabilities / probabilities.sum()


def draw(logits: torch.Tensor, count: int, **sampling: object) -> np.ndarray:
    """``count`` tokens of one row of logits at successive positions."""
    sampler = Sampler()
    one = sequence(**sampling)
    return sampler.sample(logits.expand(count, -1), [one] * count, list(range(count))).numpy()


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 4},
    {"top_k": 1},
    {"top_p": 0.7},
    {"top_p": 0.999},
    {"min_p": 0.2},
    {"temperature": 1.7, "top_k": 9, "top_p": 0.8},
    {"temperature": 1.2, "top_k": 20, "top_p": 0.95, "min_p": 0.05},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_frequencies_follow_the_exact_probabilities(setting: dict[str, float]) -> None:
    logits = torch.randn(32, generator=torch.Generator().manual_seed(3)) * 2
    count = 20_000
    expected = exact(logits, SamplingParams(**setting)).numpy()
    observed = np.bincount(draw(logits, count, seed=11, **setting), minlength=32)
    assert observed[expected == 0].sum() == 0
    kept = expected > 0
    chi2 = ((observed - expected * count)[kept] ** 2 / (expected * count)[kept]).sum()
    freedom = kept.sum() - 1
    assert chi2 <= freedom + 5 * math.sqrt(2 * freedom)


def support(logits: torch.Tensor, **sampling: object) -> set[int]:
    return set(draw(logits, 3000, seed=5, **sampling).tolist())


def test_thresholds_beyond_the_first_candidates() -> None:
    """Where top-p reaches deeper than the values that are looked at first."""
    logits = torch.linspace(0, -0.001, 2000)[torch.randperm(2000, generator=torch.Generator().manual_seed(0))]
    for sampling in ({"top_p": 0.5}, {"top_k": 1200}, {"top_k": 1600, "top_p": 0.5}):
        tokens = draw(logits, 1000, seed=1, **sampling)
        allowed = exact(logits, SamplingParams(**sampling)) > 0
        assert (~allowed[tokens]).sum() <= 1  # float32 sums may move the border by a value
        assert len(set(tokens.tolist())) > 0.4 * int(allowed.sum())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    top_k=st.sampled_from([0, 1, 3, 50, 299, 1000]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-6]),
    min_p=st.sampled_from([0.0, 0.01, 1.0]),
    temperature=st.sampled_from([0.1, 1.0, 5.0, 1e-9]),
)
def test_only_kept_tokens_are_drawn(seed: int, top_k: int, top_p: float, min_p: float, temperature: float) -> None:
    logits = torch.randn(300, generator=torch.Generator().manual_seed(seed))
    sampling = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "temperature": temperature}
    if temperature > 1e-3:
        allowed = (exact(logits, SamplingParams(**sampling)) > 0).nonzero()[:, 0].tolist()
    else:
        allowed = [int(logits.argmax())]
    assert set(draw(logits, 50, seed=seed, **sampling).tolist()) <= set(allowed)


def test_one_look_at_all_that_may_be_kept_finds_what_several_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what a GPU does, where a second look would have to be waited for."""
    scaled = torch.randn(6, 900).sub_(4).double()
    totals = scaled.exp().sum(dim=1)
    kept = torch.tensor([900, 900, 40, 300, 900, 1])
    top_p = torch.tensor([0.5, 0.999, 1.0, 0.9, 1.0, 0.3], dtype=torch.float64)
    several = _thresholds(scaled, totals, kept, 900, top_p, 4)
    monkeypatch.setattr(torch.Tensor, "nonzero", lambda *_: pytest.fail("the host would wait"))
    assert torch.equal(_thresholds(scaled, totals, kept, 900, top_p, 900), several)
    few = torch.tensor([40, 7, 40, 40, 12, 1])
    assert torch.equal(
        _thresholds(scaled, totals, few, 40, top_p, 40), _thresholds(scaled, totals, few, 900, top_p, 900)
    )


def test_ties_are_kept_together() -> None:
    logits = torch.tensor([1.0, 3.0, 3.0, 3.0, 0.0])
    assert support(logits, top_k=2) == {1, 2, 3}
    assert support(logits, top_p=0.1) == {1, 2, 3}


def test_greedy_takes_the_largest() -> None:
    logits = torch.randn(7, 100, generator=torch.Generator().manual_seed(1))
    rows = [sequence(i, temperature=0.0) for i in range(7)]
    assert Sampler().sample(logits, rows, [3] * 7).tolist() == logits.argmax(-1).tolist()


MIX = [{"temperature": 0.0}, *({**setting, "seed": 17} for setting in SETTINGS), {"seed": -4, "temperature": 0.9}]


def test_a_row_does_not_depend_on_its_batch() -> None:
    logits = torch.randn(len(MIX), 2000, generator=torch.Generator().manual_seed(9))
    rows = [sequence(i, **setting) for i, setting in enumerate(MIX)]
    positions = list(range(100, 100 + len(MIX)))
    together = Sampler().sample(logits, rows, positions).tolist()
    alone = [Sampler().sample(logits[i : i + 1], [row], [positions[i]]).item() for i, row in enumerate(rows)]
    backwards = Sampler().sample(logits.flip(0), rows[::-1], positions[::-1]).tolist()[::-1]
    assert together == alone == backwards


def test_seed_index_and_position_choose_the_noise() -> None:
    logits = torch.zeros(1, 100_000)

    def token(position: int = 0, index: int = 0, seed: int | None = 1) -> int:
        return Sampler().sample(logits, [sequence(index=index, seed=seed)], [position]).item()

    assert token() == token()
    assert len({token(), token(position=1), token(index=1), token(seed=2), token(seed=-1)}) == 5
    assert token(seed=None) != token(seed=None)


def test_unseeded_sequences_keep_their_noise_until_forgotten() -> None:
    """A step that is run again after a preemption must not choose another token."""
    logits = torch.zeros(1, 100_000)
    sampler = Sampler()
    one = sequence(7)
    first = sampler.sample(logits, [one], [5]).tolist()
    assert sampler.sample(logits, [one], [5]).tolist() == first
    sampler.forget(7)
    assert sampler.sample(logits, [one], [5]).tolist() != first


def test_uniforms_are_uniform_along_every_argument() -> None:
    count = 20_000
    steps, zeros = list(range(count)), [0] * count
    for words in ((steps, zeros, zeros), (zeros, steps, zeros), (zeros, zeros, steps)):
        u = uniforms(*words)
        assert u.min() >= 0 and u.max() < 1
        distance = np.abs(np.sort(u) - (np.arange(count) + 0.5) / count).max()
        assert distance < 1.95 / math.sqrt(count)  # Kolmogorov-Smirnov, p = 0.001
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 4 / math.sqrt(count)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_not_finite_rows_are_told_apart(bad: float, temperature: float) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(2))
    healthy = (
        Sampler().sample(logits, [sequence(i, temperature=temperature, seed=i) for i in range(3)], [0] * 3).tolist()
    )
    logits[1, 20] = bad
    rows = [sequence(i, temperature=temperature, seed=i, top_p=0.9 if i == 1 else 1.0) for i in range(3)]
    assert Sampler().sample(logits, rows, [0] * 3).tolist() == [healthy[0], -1, healthy[2]]


def test_masked_logits_are_never_chosen() -> None:
    logits = torch.full((50,), -math.inf)
    assert Sampler().sample(logits[None], [sequence(temperature=0.0)], [0]).tolist() == [-1]
    logits[30] = -5.0
    assert support(logits) == {30}
    assert support(logits, top_k=10, top_p=0.9) == {30}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, 40.0, -40.0]], dtype=dtype)
    assert Sampler().sample(logits, [sequence(seed=1, top_p=0.9)], [0]).tolist() == [1]
