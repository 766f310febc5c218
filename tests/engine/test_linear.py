"""Packed linear layers against the plain ones."""

from __future__ import annotations

import pytest
import torch
from pagedeck.engine.model import linear
from pagedeck.engine.model.linear import PackedLinear, TiledLinear, pack_linears
from torch import nn


@pytest.mark.parametrize("kind", [PackedLinear, TiledLinear])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [(1,), (1, 1), (7,), (1, 40), (0,), (1, 0), (2, 3)])
def test_products_are_equal_up_to_rounding(kind: type[nn.Module], bias: bool, rows: tuple[int, ...]) -> None:
    plain = nn.Linear(48, 80, bias=bias).requires_grad_(False)
    x = torch.randn(*rows, 48)
    with torch.inference_mode():
        packed = kind(plain)(x)
    assert packed.shape == plain(x).shape
    assert torch.allclose(packed, plain(x), atol=1e-5)


class Small(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16, dtype=dtype)
        self.layers = nn.ModuleList(nn.Linear(16, 16, dtype=dtype) for _ in range(3))
        self.head = nn.Linear(16, 50, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_all_or_none_are_replaced_by_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Small(torch.float32).requires_grad_(False)
    ids = torch.arange(9)
    expected = model(ids)
    monkeypatch.setattr(linear, "TOLERANCE", 0.0)
    assert pack_linears(model) == 0
    assert not any(isinstance(m, PackedLinear | TiledLinear) for m in model.modules())
    monkeypatch.setattr(linear, "TOLERANCE", 1e9)
    assert pack_linears(model) == 4
    assert not any(type(m) is nn.Linear for m in model.modules())
    assert torch.equal(model.embed.weight[3], model.embed(torch.tensor(3)))  # tied weights keep serving the embedding
    with torch.inference_mode():
        assert torch.allclose(model(ids), expected, atol=1e-5)


def test_other_precisions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "TOLERANCE", 1e9)
    assert pack_linears(Small(torch.float64).requires_grad_(False)) == 0
