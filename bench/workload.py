"""Seeded loads: what is asked and when, independent of who answers."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ipc.vocabulary import Refused

#: Ids below this are special tokens in common vocabularies.
FIRST_TOKEN = 256


@dataclass(frozen=True, slots=True)
class Item:
    """One request: a prompt of token ids and how many tokens must come out, no more and no fewer.

    It is due ``at`` seconds after the start or, if it comes ``after`` another one (named by its place in the load), so
    long after that has ended. ``continues``: it is the next turn of that one's conversation, so the other's prompt and
    output stand before its own prompt.
    """

    prompt: list[int]
    output_tokens: int
    at: float = 0.0
    priority: str = "normal"
    after: int | None = None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal distribution of token counts: its median, the standard deviation of its logarithm, and where it is
    cut off."""

    median: float
    spread: float
    least: int
    most: int

    def draw(self, rng: random.Random) -> int:
        return round(min(max(self.median * math.exp(rng.gauss(0.0, self.spread)), self.least), self.most))


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of request looks like: ``shared`` tokens that all of its kind begin with, then a prompt of its own.
    A conversation has ``turns``, with a pause of ``think_s`` (mean of an exponential distribution) between them."""

    prompts: Lengths
    outputs: Lengths
    shared: int = 0
    turns: int = 1
    think_s: float = 0.0
    priority: str = "normal"


@dataclass(frozen=True, slots=True)
class Load:
    """A mixture of kinds, each with its weight, and how such requests arrive unless something else is asked for."""

    meaning: str
    kinds: tuple[tuple[float, Kind], ...]
    arrivals: str


CHAT = Kind(Lengths(48, 0.7, 8, 256), Lengths(64, 0.6, 16, 256), shared=96, priority="interactive")
DOCUMENT = Kind(Lengths(1200, 0.4, 512, 3072), Lengths(64, 0.4, 32, 128))
TASK = Kind(Lengths(160, 0.8, 32, 768), Lengths(96, 0.6, 32, 256), priority="batch")

#: The loads by name. Lengths are in tokens.
LOADS = {
    "chat": Load("short questions under one system prompt, one after the other", ((1.0, CHAT),), "poisson:1.5"),
    "multi-turn": Load(
        "conversations of four turns, each of which sends all that was said before",
        ((1.0, replace(CHAT, turns=4, think_s=2.0)),),
        "poisson:0.5",
    ),
    "documents": Load("long prompts, short answers", ((1.0, DOCUMENT),), "poisson:0.2"),
    "batch": Load("independent tasks, all there at the start", ((1.0, TASK),), "at-once"),
    "burst": Load("short questions that come in crowds", ((1.0, CHAT),), "burst:12:10"),
    "mixed": Load(
        "people who chat beside documents and tasks",
        ((0.5, CHAT), (0.1, replace(DOCUMENT, prompts=Lengths(700, 0.4, 512, 1536))), (0.4, TASK)),
        "poisson:1",
    ),
}


def make_load(
    name: str, requests: int, *, seed: int, vocabulary: int, context_length: int, arrivals: str | None = None
) -> list[Item]:
    """``requests`` items of the load of that name, in the order in which they are due. Prompts are random tokens.

    A conversation's turns follow one another; of the last conversation some may be missing. What would be longer than
    ``context_length`` is cut.

    Raises:
        Refused: an unknown load, or arrivals that :func:`due_times` does not understand.
    """
    if name not in LOADS:
        raise Refused.value("load", name, "one of " + ", ".join(LOADS))
    return load_items(
        LOADS[name],
        requests,
        random.Random(f"{name} {seed}"),
        vocabulary=vocabulary,
        context_length=context_length,
        arrivals=arrivals,
    )


def load_items(
    load: Load, requests: int, rng: random.Random, *, vocabulary: int, context_length: int, arrivals: str | None = None
) -> list[Item]:
    """As :func:`make_load`, of any load."""
    kinds = [kind for _, kind in load.kinds]
    weights = [weight for weight, _ in load.kinds]
    beginnings = [_tokens(rng, kind.shared, vocabulary) for kind in kinds]
    items: list[Item] = []
    starts: list[int] = []
    while len(items) < requests:
        which = rng.choices(range(len(kinds)), weights)[0]
        starts.append(len(items))
        items += _conversation(rng, kinds[which], beginnings[which], len(items), vocabulary, context_length)
    del items[requests:]
    return _arrive(items, starts, arrivals or load.arrivals, rng)


def _conversation(
    rng: random.Random, kind: Kind, beginning: list[int], place: int, vocabulary: int, context_length: int
) -> list[Item]:
    turns: list[Item] = []
    length = 0
    for turn in range(kind.turns):
        own = kind.prompts.draw(rng)
        output = kind.outputs.draw(rng)
        prompt = _tokens(rng, own, vocabulary) if turn else beginning + _tokens(rng, own, vocabulary)
        room = context_length - length
        if room < 2 * kind.outputs.least:
            break
        output = min(output, room // 2)
        prompt = prompt[: room - output]
        length += len(prompt) + output
        turns.append(
            Item(prompt, output, rng.expovariate(1 / kind.think_s), kind.priority, place + turn - 1, continues=True)
            if turn
            else Item(prompt, output, priority=kind.priority)
        )
    return turns


def _arrive(items: list[Item], starts: list[int], arrivals: str, rng: random.Random) -> list[Item]:
    """Give the items that begin something their times."""
    name, numbers = parse_arrivals(arrivals)
    starts = [start for start in starts if start < len(items)]
    arranged = list(items)
    if name == "closed":
        clients = int(numbers[0])
        ends = {start: (starts[n + 1] if n + 1 < len(starts) else len(items)) - 1 for n, start in enumerate(starts)}
        for n, start in enumerate(starts[clients:]):
            arranged[start] = replace(items[start], after=ends[starts[n]])
        return arranged
    for start, due in zip(starts, due_times(arrivals, len(starts), rng), strict=True):
        arranged[start] = replace(items[start], at=due)
    return arranged


def parse_arrivals(arrivals: str) -> tuple[str, list[float]]:
    """``at-once``, ``poisson:RATE`` (requests a second), ``burst:SIZE:SECONDS`` (so many every so often) or
    ``closed:CLIENTS`` (each sends its next request when its last one has ended).

    Raises:
        Refused: anything else.
    """
    name, *texts = arrivals.split(":")
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        numbers = [-1.0]
    counts = {"at-once": 0, "poisson": 1, "burst": 2, "closed": 1}
    whole = name not in ("burst", "closed") or all(number == int(number) for number in numbers[:1])
    if len(numbers) != counts.get(name) or any(not 0 < number < 1e9 for number in numbers) or not whole:
        accepted = "at-once, poisson:RATE, burst:SIZE:SECONDS or closed:CLIENTS, as in poisson:1.5"
        raise Refused.value("arrivals", arrivals, accepted)
    return name, numbers


def due_times(arrivals: str, count: int, rng: random.Random) -> list[float]:
    """When each of ``count`` requests is due, in seconds from the start. Raises :class:`Refused` as
    :func:`parse_arrivals` does."""
    name, numbers = parse_arrivals(arrivals)
    if name == "poisson":
        times, now = [], 0.0
        for _ in range(count):
            times.append(now)
            now += rng.expovariate(numbers[0])
        return times
    if name == "burst":
        return [n // int(numbers[0]) * numbers[1] for n in range(count)]
    return [0.0] * count


def mixed(
    requests: int,
    *,
    seed: int,
    vocabulary: int,
    prompts: tuple[int, int] = (16, 512),
    outputs: tuple[int, int] = (16, 128),
) -> list[Item]:
    """``requests`` items of mixed lengths, log-uniform in the given ranges (tokens), of random tokens, all due at once.

    Random prompts share no beginnings, so a prefix cache helps nobody.
    """
    rng = random.Random(seed)

    def length(low: int, high: int) -> int:
        return round(math.exp(rng.uniform(math.log(low), math.log(high))))

    return [Item(_tokens(rng, length(*prompts), vocabulary), length(*outputs)) for _ in range(requests)]


def _tokens(rng: random.Random, count: int, vocabulary: int) -> list[int]:
    return [rng.randrange(FIRST_TOKEN, vocabulary) for _ in range(count)]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least ``share`` (0 to 1) of all do not exceed."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]
