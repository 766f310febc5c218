"""The load generator against a system that the test plays itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pagedeck.bench import figures
from pagedeck.bench.drive import Outcome, drive
from pagedeck.bench.figures import Limits
from pagedeck.bench.workload import Item
from pagedeck.ipc.client import EngineError
from pagedeck.ipc.protocol import Failed, Finished, Submit, Tokens


class System:
    """Answers, on a thread of its own as a client would, what ``answer`` makes of each request."""

    def __init__(self, answer: Callable[[Submit], list[Any]]) -> None:
        self.asked: list[Submit] = []
        self.crowd = threading.Event()  # ten were asked
        self._answer = answer
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def post(self, message: Submit, receive: Callable[[Any], None]) -> str:
        self.asked.append(message)
        if len(self.asked) == 10:
            self.crowd.set()
        self._queue.put((message, receive))
        return message.id

    def close(self) -> None:
        self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            message, receive = work
            for answer in self._answer(message):
                receive(answer)


def tokens(submit: Submit, count: int | None = None) -> list[Any]:
    made = submit.sampling.max_tokens if count is None else count
    each = [Tokens(id=submit.id, token_ids=[len(submit.token_ids or ()) + n]) for n in range(made)]
    return [*each, Finished(id=submit.id, cached_tokens=3)]


@pytest.fixture
def system() -> Iterator[Callable[..., Any]]:
    made: list[System] = []

    def make(answer: Callable[[Submit], list[Any]] = tokens) -> System:
        made.append(System(answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_system_that_stands_still_is_blamed_for_all_who_came_meanwhile(system: Callable[..., Any]) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(submit: Submit) -> list[Any]:
        return tokens(submit)

    served = system(slow)
    post = served.post

    def blocked(message: Submit, receive: Callable[[Any], None]) -> str:
        if not served.asked:
            entered.set()
            go_on.wait(20)
        return str(post(message, receive))

    served.post = blocked
    items = [Item([300] * 4, 2, at=0.01 * n) for n in range(10)]
    outcomes: list[Outcome] = []
    driving = threading.Thread(target=lambda: outcomes.extend(drive(served, items)))
    driving.start()
    assert entered.wait(20)
    threading.Timer(0.3, go_on.set).start()
    driving.join(20)
    assert [outcome.due for outcome in outcomes] == [item.at for item in items]  # nothing was postponed
    for outcome in outcomes[1:]:
        assert outcome.sent - outcome.due > 0.15
        assert figures.ttft(outcome) >= outcome.sent - outcome.due  # the wait counts
    assert [len(outcome.tokens) for outcome in outcomes] == [2] * 10


def test_a_system_that_answers_nobody_for_a_while_is_still_asked_when_it_is_time(system: Callable[..., Any]) -> None:
    """Open loop: who is due during the stall is sent during it, and waits from when it was due, not from when the
    answers went on."""
    go_on = threading.Event()

    def stalled(submit: Submit) -> list[Any]:
        assert go_on.wait(60)
        return tokens(submit)

    served = system(stalled)
    items = [Item([300] * 4, 2, at=0.02 * n) for n in range(10)]
    outcomes: list[Outcome] = []
    driving = threading.Thread(target=lambda: outcomes.extend(drive(served, items)))
    driving.start()
    assert served.crowd.wait(60), "all are asked though none was answered"
    go_on.set()
    driving.join(60)
    last = max(outcome.sent for outcome in outcomes)
    for outcome, item in zip(outcomes, items, strict=True):
        assert outcome.due == item.at <= outcome.sent
        assert figures.ttft(outcome) >= last - outcome.due and figures.e2e(outcome) >= last - outcome.due
    assert figures.FIGURES["ttft_p95"][2](outcomes) >= 0.18 - 1e-6


def test_a_conversation_sends_all_that_was_said(system: Callable[..., Any]) -> None:
    served = system()
    items = [Item([300] * 4, 2), Item([301] * 3, 2, 0.01, after=0, continues=True), Item([302], 1, after=1)]
    outcomes = drive(served, items)
    assert [submit.token_ids for submit in served.asked] == [[300] * 4, [300] * 4 + [4, 5] + [301] * 3, [302]]
    assert [outcome.prompt_tokens for outcome in outcomes] == [4, 9, 1]
    assert outcomes[1].due >= outcomes[0].ended + 0.01 and outcomes[2].due >= outcomes[1].ended
    assert all(outcome.cached_tokens == 3 and not outcome.error for outcome in outcomes)


def test_what_fails_is_told_and_ends_its_conversation_alone(system: Callable[..., Any]) -> None:
    def fail(submit: Submit) -> list[Any]:
        return [Failed(id=submit.id, message="too long")] if submit.token_ids == [300] else tokens(submit)

    items = [Item([300], 2), Item([301], 2, after=0, continues=True), Item([302], 2, after=1, continues=True)]
    items += [Item([303], 2, after=0), Item([304], 2)]
    outcomes = drive(system(fail), items)
    assert [bool(outcome.error) for outcome in outcomes] == [True, True, True, False, False]
    assert outcomes[2].error == "The turn before it failed: too long"
    gone = system(lambda submit: [EngineError("The engine ended.")])
    assert [outcome.error for outcome in drive(gone, items[-1:])] == ["The engine ended."]


def test_figures() -> None:
    def outcome(due: float, *arrivals: float) -> Outcome:
        return Outcome(due, due, arrivals[-1], list(arrivals), [1] * len(arrivals))

    run = [outcome(0.0, 1.0, 2.0, 4.0), outcome(1.0, 1.5, 2.0), outcome(2.0, 10.0), Outcome(3.0, 3.0, 5.0, error="no")]
    found = figures.figures(run)
    assert found["tokens_per_s"] == 0.6 and found["requests_per_s"] == 0.3
    assert found["ttft_p50"] == 1.0 and found["ttft_p95"] == 8.0
    assert found["itl_p50"] == 1.0 and found["itl_p99"] == 2.0
    assert found["e2e_p50"] == 4.0 and found["e2e_p99"] == 8.0
    assert figures.goodput(run, Limits()) == 0.3
    assert figures.goodput(run, Limits(ttft_s=1.0)) == 0.2
    assert figures.goodput(run, Limits(ttft_s=1.0, itl_s=1.0)) == 0.1
