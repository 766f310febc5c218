"""How probable a model finds the tokens that may come next."""

from __future__ import annotations

from typing import NamedTuple


class Scores(NamedTuple):
    """Natural logarithms of probabilities, over the whole vocabulary and before any filter or temperature."""

    chosen: float  # of the token that was chosen
    tokens: list[int]  # the most probable ones, as far as they were asked for, the first being the most probable
    logprobs: list[float]  # of `tokens`
