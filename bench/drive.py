"""The load generator: sends what is due when it is due, whether or not what was asked before has been answered.

It runs in the process of the bench, never in the engine's. A request's times count from when it was *due*: were a
request sent late because the system stood still, from then on would only count what it suffered itself, not the wait
that others in its place would have suffered (Tene: "coordinated omission").
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..ipc.client import Client, EngineError
from ..ipc.protocol import EngineMessage, Failed, Finished, Submit, Tokens
from ..ipc.vocabulary import SamplingParams
from .workload import Item

Report = Callable[[float], None]


@dataclass(slots=True)
class Outcome:
    """What became of one item, in seconds from the start. ``arrivals``: when each token came; ``error``: why it failed,
    if it did."""

    due: float = 0.0
    sent: float = 0.0
    ended: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    error: str = ""


def drive(client: Client, items: Sequence[Item], report: Report = lambda share: None) -> list[Outcome]:
    """Run a whole load on an engine and wait for its last request. A request that fails is told in its outcome; those
    that would come after it come all the same, but for the next turns of its conversation, which fail with it."""
    return _Drive(client, items, report).run()


class _Drive:
    def __init__(self, client: Client, items: Sequence[Item], report: Report) -> None:
        self._client = client
        self._items = items
        self._report = report
        self._outcomes = [Outcome(prompt_tokens=len(item.prompt)) for item in items]
        self._prompts = [item.prompt for item in items]
        self._due = [(item.at, place) for place, item in enumerate(items) if item.after is None]
        self._followers: dict[int, list[int]] = {}
        for place, item in enumerate(items):
            if item.after is not None:
                self._followers.setdefault(item.after, []).append(place)
        self._left = len(items)
        self._changed = threading.Condition()
        self._begun = time.perf_counter()

    def run(self) -> list[Outcome]:
        heapq.heapify(self._due)
        while True:
            with self._changed:
                if not self._left:
                    return self._outcomes
                wait = self._due[0][0] - self._now() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                due, place = heapq.heappop(self._due)
            self._send(place, due)

    def _now(self) -> float:
        return time.perf_counter() - self._begun

    def _send(self, place: int, due: float) -> None:
        item, outcome = self._items[place], self._outcomes[place]
        outcome.due, outcome.sent = due, self._now()
        sampling = SamplingParams(max_tokens=item.output_tokens, temperature=0.0, ignore_eos=True)
        submit = Submit(
            id=f"bench-{self._begun}-{place}",
            token_ids=self._prompts[place],
            sampling=sampling,
            priority=item.priority,
        )
        self._client.post(submit, lambda answer: self._receive(place, answer))

    def _receive(self, place: int, answer: EngineMessage | EngineError) -> None:
        """On the client's thread."""
        now, outcome = self._now(), self._outcomes[place]
        if isinstance(answer, Tokens):
            outcome.tokens += answer.token_ids
            outcome.arrivals += [now] * len(answer.token_ids)
        elif isinstance(answer, Finished):
            outcome.cached_tokens, outcome.preemptions = answer.cached_tokens, answer.preemptions
            self._end(place, now)
        elif isinstance(answer, Failed | EngineError):
            outcome.error = answer.message
            self._end(place, now)

    def _end(self, place: int, now: float) -> None:
        ended = [(place, self._outcomes[place].error)]
        with self._changed:
            for done, error in ended:
                self._outcomes[done].ended = now
                self._left -= 1
                for follower in self._followers.get(done, ()):
                    item = self._items[follower]
                    if item.continues and error:
                        self._outcomes[follower] = Outcome(now, now, error=f"The turn before it failed: {error}")
                        ended.append((follower, error))
                        continue
                    if item.continues:
                        self._prompts[follower] = self._prompts[done] + self._outcomes[done].tokens + item.prompt
                        self._outcomes[follower].prompt_tokens = len(self._prompts[follower])
                    heapq.heappush(self._due, (now + item.at, follower))
            self._report(1 - self._left / len(self._items))
            self._changed.notify()
