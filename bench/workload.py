"""Seeded loads: what is asked, independent of who answers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

#: Ids below this are special tokens in common vocabularies.
FIRST_TOKEN = 256


@dataclass(frozen=True, slots=True)
class Item:
    """One request: a prompt of token ids and how many tokens must come out, no more and no fewer."""

    prompt: list[int]
    output_tokens: int


def mixed(
    requests: int,
    *,
    seed: int,
    vocabulary: int,
    prompts: tuple[int, int] = (16, 512),
    outputs: tuple[int, int] = (16, 128),
) -> list[Item]:
    """``requests`` items of mixed lengths, log-uniform in the given ranges (tokens), of random tokens.

    Random prompts share no beginnings, so a prefix cache helps nobody.
    """
    rng = random.Random(seed)

    def length(low: int, high: int) -> int:
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))

    return [
        Item([rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(length(*prompts))], length(*outputs))
        for _ in range(requests)
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least ``share`` (0 to 1) of all do not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
