"""What a load has to know of a model: how many tokens there are, and how many fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..ipc.vocabulary import Refused


@dataclass(frozen=True, slots=True)
class Shape:
    vocabulary: int
    context_length: int


def shape_of(model: Path) -> Shape:
    """As the ``config.json`` of a model's folder says.

    Raises:
        Refused: it does not.
    """
    try:
        facts = json.loads((model / "config.json").read_text(encoding="utf-8"))
        facts = facts.get("text_config", facts)
        length = facts.get("max_position_embeddings") or facts["n_positions"]
        return Shape(int(facts["vocab_size"]), int(length))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"The folder {model} does not say its model's shape ({error!r}).", field="model") from error
