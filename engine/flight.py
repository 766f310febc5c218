"""Steps in flight: launched on the device, their tokens not known to the host yet.

While the device computes a step, the host plans the next one. All that a plan needs of a token in flight is that it
exists, so a sequence counts it (``Sequence.in_flight``) and the device reads its value where it was sampled. What a
step computed is committed to the cache when it lands: until then its blocks cannot be found by others, and a sequence
that lost its blocks meanwhile has nothing to take back. The device works in the order of launches, so a block that was
given away may be given to a later step at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from ..ipc.vocabulary import RequestState
from .cache.cache_groups import CacheGroups
from .cache.kv_cache import KVCache
from .cache.reshape import Reshape
from .denied import is_denial
from .request import StepPlan, Work

#: So many steps in a row wait for memory in which to copy blocks; after that, what the step computes fails.
PATIENCE = 1_000


class Flight(Protocol):
    """Work that a device was given."""

    def tokens(self) -> list[int]:
        """Wait until it is done. The next token of each work that samples, in plan order; -1 where its logits were
        not finite. Work that is ``scored`` has its ``scores`` then. Flights are landed in the order of their
        launches."""


class Runner(Protocol):
    """What computes: a model over the tensors behind a cache."""

    depth: int  # launched steps that it can have besides the one that is awaited: 0 or 1
    slot_bytes: tuple[int, ...]  # what a slot takes, in each group of layers
    forward_ms: float  # of the flight that landed last
    sample_ms: float
    copy_ms: float
    bytes_copied: int  # by its journal

    def launch(self, plan: StepPlan, cache: KVCache | CacheGroups) -> Flight:
        """Carry out and clear the cache's journal, then compute the plan's work, if any: now or, if the device is
        asynchronous, as soon as it comes to it. Tokens that are in flight are those of the launch before.

        Raises ``MemoryError`` or ``RuntimeError`` where memory for a copy is denied; the journal begins with it."""

    def execute(self, plan: StepPlan, cache: KVCache | CacheGroups) -> list[int]:
        """Launch and wait."""

    def room(self) -> int:
        """The most bytes that the device pools could take now."""

    def reshape(self, change: Reshape) -> int:
        """Give both pools their new sizes and move what they hold; returns bytes copied. Raises ``MemoryError`` or
        ``RuntimeError`` where the memory is not there, with everything as it was. Nothing is in flight."""

    def forget(self, seq: int) -> None:
        """A sequence ended."""


@dataclass(slots=True, eq=False)
class Step:
    """A step from its launch to its landing, and what came of it."""

    number: int
    budget: int
    plan: StepPlan
    begun: float  # perf_counter, when its planning began
    schedule_ms: float
    entries: list[tuple[int, int, bool]]  # as in a report
    copies: Flight | None = None  # the cache's journal
    flight: Flight | None = None  # none: computed when it lands
    error: Exception | None = None  # why it could not be launched
    sampled: list[tuple[Work, int]] = field(default_factory=list)
    forward_ms: float = 0.0
    sample_ms: float = 0.0
    copy_ms: float = 0.0
    bytes_copied: int = 0
    redone: int = 0  # tokens
    postponed: bool = False  # works that are not computed yet are planned again


class Flights:
    """The steps in flight, at most one more than the runner's depth.

    ``fail`` ends the requests of works that could not be computed. ``shrink`` is told how many tokens were too many
    for the device's working memory.
    """

    def __init__(
        self,
        runner: Runner,
        cache: KVCache | CacheGroups,
        fail: Callable[[list[Work], Exception], None],
        shrink: Callable[[int], None],
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._fail = fail
        self._shrink = shrink
        self._steps: deque[Step] = deque()
        self._waits = 0  # steps in a row that were postponed

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def may_launch(self) -> bool:
        """Whether another step can be planned and launched before the next landing."""
        if not self._steps:
            return True
        newest = self._steps[-1]
        computed = newest.flight is not None or not newest.plan.work
        return len(self._steps) <= self._runner.depth and computed and not any(map(_must_land, newest.plan.work))

    def launch(self, step: Step) -> None:
        """Start a step's copies and its work; from here on its tokens count as computed, and its samples as in
        flight."""
        if self._cache.journal:  # on its own, so that it is timed, and carried out whatever happens to the work
            try:
                step.copies = self._runner.launch(StepPlan(), self._cache)
            except Exception as error:
                if not is_denial(error):
                    raise
        works = step.plan.work
        if works and not self._cache.journal:  # else both are tried again when the step lands
            try:
                step.flight = self._runner.launch(StepPlan(works), self._cache)
            except Exception as error:  # told when it lands: steps before it come first
                step.error = error
        for work in works:
            work.sequence.computed = work.start + work.count
            work.sequence.in_flight += work.samples
        self._steps.append(step)

    def land(self) -> Step:
        """Wait for the oldest step, and commit what it computed."""
        step = self._steps.popleft()
        if step.copies is not None:
            step.copies.tokens()
            step.copy_ms, step.bytes_copied = self._runner.copy_ms, self._runner.bytes_copied
        works = step.plan.work
        if step.flight is None and step.error is None:
            self._compute(works, step)
        elif works:
            try:
                if step.flight is None:
                    assert step.error is not None
                    raise step.error
                tokens = step.flight.tokens()
            except Exception as error:
                self._recover(works, error, step)
            else:
                self._take(works, tokens, step)
        return step

    def _compute(self, works: list[Work], step: Step) -> None:
        """Compute works now, but those of sequences that have ended or lost their blocks since they were planned."""
        works = _runnable(works)
        if not works:
            return
        if step.postponed:
            self._postpone(works, step)
            return
        try:
            tokens = self._runner.execute(StepPlan(works), self._cache)
        except Exception as error:
            if not (is_denial(error) and self._cache.journal):
                self._recover(works, error, step)
            elif self._waits < PATIENCE:
                self._waits += 1
                self._postpone(works, step)
            else:
                self._fail(works, error)
        else:
            self._take(works, tokens, step)

    def _recover(self, works: list[Work], error: Exception, step: Step) -> None:
        """Works that found too little working memory are computed in smaller parts; others fail."""
        self._ground()
        parts = _halves(works) if is_denial(error) else None
        if parts is None:
            self._fail(works, error)
            return
        self._shrink(sum(work.count for work in works))
        for part in parts:
            self._compute(part, step)

    def _postpone(self, works: list[Work], step: Step) -> None:
        """There is no memory now for the copies that ``works`` wait for: as if neither they nor the steps behind had
        been planned. They will be again, and the copies are tried again then."""
        self._ground()
        for behind in reversed(self._steps):
            self._undo(behind.plan.work, behind)
        self._undo(works, step)
        step.postponed = True

    @staticmethod
    def _undo(works: list[Work], step: Step) -> None:
        for work in _runnable(works):
            work.sequence.computed = work.start
            work.sequence.in_flight -= work.samples
        gone = {work.sequence.number for work in works}
        entries = zip(step.plan.work, step.entries, strict=True)
        step.entries = [entry for work, entry in entries if work.sequence.number not in gone]
        step.plan.work = [work for work in step.plan.work if work.sequence.number not in gone]

    def _ground(self) -> None:
        """The steps behind read what was not written: they are computed again when their turn comes."""
        for step in self._steps:
            if step.flight is not None:
                with suppress(Exception):
                    step.flight.tokens()
            step.flight = step.error = None

    def _take(self, works: list[Work], tokens: list[int], step: Step) -> None:
        self._waits = 0
        runner = self._runner
        step.forward_ms += runner.forward_ms
        step.sample_ms += runner.sample_ms
        seqs: list[int] = []
        newest: list[int] = []
        for work in works:
            sequence, start = work.sequence, work.start
            stop = start + work.count
            if start < sequence.furthest:
                step.redone += min(sequence.furthest, stop) - start
            if sequence.state is not RequestState.RUNNING:  # its blocks have gone since
                continue
            if work.count == 1:
                seqs.append(sequence.number)
                newest.append(sequence.tokens[start])
            else:
                self._cache.commit(sequence.number, sequence.tokens, stop)
        self._cache.commit_next(seqs, newest)
        step.sampled += zip([work for work in works if work.samples], tokens, strict=True)


def _must_land(work: Work) -> bool:
    """Whether nothing can be planned before this work has landed: the samples of its request are about to fork from
    what it leaves in the cache, or what it finds decides how the request goes on."""
    sequence = work.sequence
    if work.samples and sequence.request.looks_back:
        return True
    return sequence.awaits_fork and work.start + work.count == sequence.length - 1


def _runnable(works: list[Work]) -> list[Work]:
    """Those whose sequences are alive and hold their blocks. A sequence that was preempted since does not get its
    sample: it computes the same token again, and samples then."""
    runnable = []
    for work in works:
        if work.sequence.state is RequestState.RUNNING:
            runnable.append(work)
        elif not work.sequence.state.ended:
            work.sequence.in_flight -= work.samples
    return runnable


def _halves(works: list[Work]) -> tuple[list[Work], list[Work]] | None:
    """Two smaller steps that compute the same, or ``None`` for a single token."""
    if len(works) > 1:
        middle = len(works) // 2
        return works[:middle], works[middle:]
    work = works[0]
    if work.count == 1:
        return None
    half = work.count // 2
    first = Work(work.sequence, work.start, half, False)
    return [first], [Work(work.sequence, work.start + half, work.count - half, work.samples)]
