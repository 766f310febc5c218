"""Sample prompts and the load of the "Fill the server" button, from ``assets/prompts``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ... import assets
from ...ipc.protocol import ChatMessage, EngineStatus, Submit
from ...ipc.vocabulary import SamplingParams
from ..i18n import Language

FILE = Path(assets.__file__).parent / "prompts" / "samples.json"

#: A token is at least one character; so much of the context may a prompt take when nothing else is known.
_PROMPT_SHARE = 0.5


@dataclass(frozen=True)
class Sample:
    """A prompt to try. ``titles`` by language."""

    titles: dict[str, str]
    prompt: str
    n: int = 1

    def title(self, language: Language) -> str:
        return self.titles.get(language) or self.titles[Language.ENGLISH]


@cache
def _contents() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def samples() -> list[Sample]:
    return [Sample(entry["title"], entry["prompt"], entry.get("n", 1)) for entry in _contents()["samples"]]


def ask(text: str, status: EngineStatus | None, *, history: list[ChatMessage], system: str = "") -> Submit:
    """A prompt as the model takes it: through its chat template where it has one, else as plain text."""
    turns = [ChatMessage("system", system)] if system.strip() else []
    turns += [*history, ChatMessage("user", text)]
    if status is not None and not status.chat_template:
        return Submit(prompt="\n\n".join(turn.content for turn in turns))
    return Submit(messages=turns)


def fill(status: EngineStatus | None) -> list[Submit]:
    """Eight requests of all classes, some with a long beginning in common, cut to what the model's context holds."""
    contents = _contents()["fill"]
    context = status.context_length if status is not None and status.context_length else 2048
    room = int(context * _PROMPT_SHARE)
    made = []
    for entry in contents["requests"]:
        beginning = contents["preamble"] if entry["shared"] else ""
        text = (
            (beginning + entry["prompt"])[-room:]
            if len(beginning) + len(entry["prompt"]) > room
            else (beginning + entry["prompt"])
        )
        submit = ask(text, status, history=[])
        submit.priority = entry["priority"]
        submit.sampling = SamplingParams(
            max_tokens=max(1, min(entry["max_tokens"], context // 4)),
            temperature=entry.get("temperature", 0.0),
            n=entry.get("n", 1),
            seed=1,
            ignore_eos=True,
        )
        made.append(submit)
    return made
