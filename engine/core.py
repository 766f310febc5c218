"""The engine: requests in, tokens out, one step at a time.

No socket, no thread, no tensor here: whoever owns an :class:`Engine` calls it from one thread and gives it a
:class:`Runner` that computes.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..ipc.vocabulary import FinishReason, Refused, RequestState, SamplingParams, parse_priority
from .cache.cache_groups import CacheGroups
from .cache.capacity import check_fits, check_length, check_places, check_samples, longest
from .cache.kv_cache import KVCache
from .config import EngineConfig
from .facts import pool_facts
from .flight import Flights, Runner, Step
from .metrics import Metrics
from .request import Request, Sequence, StepPlan, Work
from .rules import MakeRules, Rules, wordless
from .scheduling.beam import BeamSearch, Hypothesis
from .scheduling.cost import Speeds
from .scheduling.scheduler import DEFAULT_BUDGET, MAX_BUDGET, Scheduler
from .scores import Scores

if TYPE_CHECKING:
    from .model.detokenizer import TextStream

log = logging.getLogger(__name__)

#: Beside decodes prompts come in chunks with which a step takes no longer: four tokens a second are about what is read.
BRISK_SECONDS = 0.25

#: How many ended requests stay known, and how many tokens they may hold between them.
ENDED_KEPT = 1_000
ENDED_TOKENS_KEPT = 2_000_000


@dataclass(slots=True)
class Output:
    """New tokens of one sample. ``text`` is what became certain with them; ``scores`` has an entry for each, where
    they were asked for."""

    request: Request
    index: int
    token_ids: list[int]
    text: str
    finish_reason: FinishReason | None
    scores: list[Scores] = field(default_factory=list)


@dataclass(slots=True)
class StepReport:
    """The fields of ``telemetry.StepRecord``; entries are (request number, tokens, prefill)."""

    step: int
    time: float
    budget: int
    prefill_tokens: int
    decode_tokens: int
    running: int
    waiting: int
    swapped: int
    schedule_ms: float
    forward_ms: float
    sample_ms: float
    other_ms: float
    entries: list[tuple[int, int, bool]]
    preempted: list[int]
    swapped_out: list[int]
    resumed: list[int]
    waited: list[int]
    hold: str


@dataclass(slots=True)
class StepResult:
    """What a step brought. ``ended``: requests that ended in it or since the one before, each exactly once."""

    outputs: list[Output]
    ended: list[Request]
    report: StepReport
    started: list[Request] = field(default_factory=list)


class Engine:
    """Takes requests, plans and runs steps, and hands out tokens.

    ``eos_ids`` end a sequence; ``context_length`` bounds prompt plus output; ``vocabulary`` bounds token ids;
    ``text_stream`` makes the detokenizer of one sequence; ``rules`` tells what a request's words mean in tokens, and
    may be called from any thread; ``clock`` gives monotonic seconds.
    """

    def __init__(
        self,
        config: EngineConfig,
        cache: KVCache | CacheGroups,
        runner: Runner,
        *,
        eos_ids: frozenset[int],
        context_length: int,
        vocabulary: int,
        text_stream: Callable[[SamplingParams], TextStream],
        rules: MakeRules = wordless,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if config.token_budget is None:
            config = dataclasses.replace(config, token_budget=DEFAULT_BUDGET)
        self.config = config
        self.cache = cache
        self.runner = runner
        self.eos_ids = eos_ids
        self.rules = rules
        self.context_length = context_length
        self.vocabulary = vocabulary
        self.scheduler = Scheduler(cache, config, self._prefers_swap)
        self.speeds = Speeds()
        self.clock = clock
        self.metrics = Metrics(clock)
        self.requests: dict[str, Request] = {}
        self.ended: deque[Request] = deque()
        self.step_number = 0
        self._text_stream = text_stream
        self._streams: dict[int, TextStream] = {}
        self._last_request = 0
        self._last_sequence = 0
        self._unreported: list[Request] = []  # ended since the last step
        self._forgotten: deque[Request] = deque()  # ended before those in ``ended``; their ends may be untold
        self._flights = Flights(runner, cache, self._fail_all, self._shrink)
        self._results: deque[StepResult] = deque()  # of steps that have landed
        self._ended_tokens = 0
        self._landed = 0.0  # perf_counter, when the last step landed

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` has anything to do or to report."""
        return bool(self.requests or self._unreported or self._flights or self._results)

    # --- requests ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        *,
        id: str,
        prompt: list[int],
        sampling: SamplingParams,
        priority: int | str,
        client: str = "",
        cache_salt: str = "",
        rules: Rules | None = None,
    ) -> Request:
        """Queue a request; it can run in the very next step. ``rules`` are those of ``sampling`` where they are known
        already; making them can take a while.

        Raises:
            Refused: anything about it is not acceptable; nothing has changed.
        """
        if not isinstance(id, str) or not id:
            raise Refused.value("id", id, "a non-empty text")
        if id in self.requests:
            raise Refused(f"id is {id!r}, which a live request has; accepted is another one.", field="id",
                          code="duplicate")  # fmt: skip
        if len(self.scheduler.waiting) >= self.config.max_queue:
            raise Refused(
                f"{len(self.scheduler.waiting):,} requests wait already; accepted are up to "
                f"{self.config.max_queue:,} (max_queue).",
                code="queue_full",
            )
        sampling.check()
        self._check_prompt(prompt)
        if max(sampling.logit_bias, default=0) >= self.vocabulary:
            wrong = max(sampling.logit_bias)
            raise Refused.value("logit_bias", wrong, f"token ids from 0 to {self.vocabulary - 1:,}")
        if rules is None:
            rules = self.rules(sampling)
        request = Request(
            number=self._last_request + 1,
            id=id,
            prompt=list(prompt),
            sampling=sampling,
            priority=parse_priority(priority),
            client=client,
            cache_salt=cache_salt,
            rules=rules,
            ends=frozenset() if sampling.ignore_eos else self.eos_ids,
            forked=sampling.width == 1,
            ranked=sampling.ranked,
            arrival=self.clock(),
        )
        check_samples(request, self.config)
        check_fits(request, self.context_length, self.cache)
        check_places(request, request.priority, self.config)
        request.longest = longest(request, self.context_length)
        if sampling.beam_width:
            request.search = BeamSearch(
                sampling.beam_width,
                ends=request.ends,
                max_tokens=request.longest - len(prompt),
                length_penalty=sampling.length_penalty,
                early_stopping=sampling.early_stopping,
            )
        self._last_request += 1
        for index in range(sampling.width):
            self._last_sequence += 1
            sequence = Sequence(self._last_sequence, request, index, list(prompt) if not index else [])
            sequence.document = rules.document.begin() if rules.document is not None else None
            request.sequences.append(sequence)
        request.beams = request.sequences[:1] if request.search else []
        self.requests[id] = request
        self.scheduler.add(request.sequences[0])
        return request

    def cancel(self, id: str) -> bool:
        """End a request; False if there is no live one of that id. Its blocks are free at once."""
        request = self.requests.get(id)
        if request is None:
            return False
        self._stop(request, RequestState.CANCELLED, FinishReason.CANCELLED)
        return True

    def cancel_client(self, client: str) -> int:
        """End all requests of a client; how many there were."""
        theirs = [id for id, request in self.requests.items() if request.client == client]
        return sum(self.cancel(id) for id in theirs)

    def fail_waiting(self, code: str, error: str) -> int:
        """Fail all requests that have not begun; how many there were."""
        waiting = [request for request in self.requests.values() if request.queue_s is None]
        for request in waiting:
            self._fail(request, code, error)
        return len(waiting)

    def told(self, request: Request) -> tuple[list[Output], bool]:
        """What :meth:`step` has returned of a request so far, one output a sample; and whether its end, too."""
        unsaid = [output for result in self._results for output in result.outputs if output.request is request]
        over = request.ended is not None and request not in self._unreported
        over = over and not any(request in result.ended for result in self._results)
        if request.ranked and not over:
            return [], False
        outputs = []
        for sequence in request.sequences:
            tokens, text = sequence.tokens[len(request.prompt) :], sequence.text
            later = [output for output in unsaid if output.index == sequence.index]
            tokens = tokens[: len(tokens) - sum(len(output.token_ids) for output in later)]
            text = text[: len(text) - sum(len(output.text) for output in later)]
            if tokens:
                scores = sequence.scores[: len(tokens)]
                outputs.append(Output(request, sequence.index, tokens, text, None, scores))
        return outputs, over

    def set_priority(self, id: str, priority: int | str) -> None:
        """Raises :class:`Refused` for an unknown request or no priority."""
        request = self.requests.get(id)
        if request is None:
            raise Refused(f"There is no live request {id!r}.", field="request", code="unknown_request")
        parsed = parse_priority(priority)
        check_places(request, parsed, self.config)
        self.scheduler.set_priority(request, parsed)

    def _check_prompt(self, prompt: list[int]) -> None:
        if not isinstance(prompt, list) or not prompt:
            raise Refused.value("prompt", prompt, "a list of at least one token id")
        check_length(len(prompt), self.context_length)  # before all its tokens are looked at, however many there are
        if set(map(type, prompt)) != {int} or min(prompt) < 0 or max(prompt) >= self.vocabulary:
            wrong = next(token for token in prompt if type(token) is not int or not 0 <= token < self.vocabulary)
            raise Refused.value("prompt", wrong, f"token ids from 0 to {self.vocabulary - 1:,}")

    # --- the step ---------------------------------------------------------------------------------------------------

    def step(self) -> StepResult:
        """Keep the device busy, wait for the oldest step in flight, and take in what came of it.

        A device that computes on its own gets the next step before the one it has is awaited.
        """
        self.forget()
        if not self._results:
            while self._flights.may_launch and self._launch():
                pass
            self._land()
        return self._results.popleft()

    def land(self) -> None:
        """Wait for all steps in flight; the next calls of :meth:`step` return what came of them."""
        while self._flights:
            self._land()

    def run_journal(self) -> None:
        """Carry out the cache's pending copies. Nothing is in flight."""
        if self.cache.journal:
            self.runner.execute(StepPlan(), self.cache)
            self.speeds.link.add(self.runner.bytes_copied, self.runner.copy_ms / 1e3)

    def _launch(self) -> bool:
        """Plan the next step and launch it; False if there is nothing for it while others are in flight."""
        begun = time.perf_counter()
        number = self.cache.step = self.step_number + 1
        budget = self.scheduler.budget
        plan = self.scheduler.plan(number)
        if self._flights and plan.is_empty:
            return False
        self.step_number = number
        schedule_ms = (time.perf_counter() - begun) * 1e3
        self._note_starts(plan)
        entries = [(work.sequence.request.number, work.count, work.prefill) for work in plan.work]
        self._flights.launch(Step(number, budget, plan, begun, schedule_ms, entries))
        return True

    def _land(self) -> None:
        step = self._flights.land()
        outputs = self._accept(step.sampled)
        report = self._report(step)
        if report.prefill_tokens > report.decode_tokens:
            self.speeds.prefill.add(report.prefill_tokens, step.forward_ms / 1e3)
        if report.prefill_tokens:
            self.speeds.mixed.add(report.prefill_tokens + report.decode_tokens, step.forward_ms / 1e3)
            self.scheduler.brisk = self.speeds.tokens_within(BRISK_SECONDS, otherwise=MAX_BUDGET)
        self.speeds.link.add(step.bytes_copied, step.copy_ms / 1e3)
        self._note_step(report, step.redone)
        ended, self._unreported = self._unreported, []
        self._results.append(StepResult(outputs, ended, report, [s.request for s in step.plan.started]))

    def _report(self, step: Step) -> StepReport:
        """What telemetry tells of a step that has landed. Its time is that since it began or, if the host was ahead of
        the device, since the step before landed; ``other_ms`` is what no part of the step explains of that."""
        landed = time.perf_counter()
        total_ms = (landed - max(step.begun, self._landed)) * 1e3
        self._landed = landed
        plan = step.plan
        return StepReport(
            step=step.number,
            time=time.time(),
            budget=step.budget,
            prefill_tokens=sum(count for _, count, prefill in step.entries if prefill),
            decode_tokens=sum(count for _, count, prefill in step.entries if not prefill),
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting) - self.scheduler.swapped,
            swapped=self.scheduler.swapped,
            schedule_ms=step.schedule_ms,
            forward_ms=step.forward_ms,
            sample_ms=step.sample_ms,
            other_ms=max(0.0, total_ms - step.schedule_ms - step.forward_ms - step.sample_ms),
            entries=step.entries,
            preempted=[s.request.number for s in plan.preempted],
            swapped_out=[s.request.number for s in plan.swapped_out],
            resumed=[s.request.number for s in plan.resumed],
            waited=list(dict.fromkeys(s.request.number for s in plan.waited)),
            hold=plan.hold.value,
        )

    def _shrink(self, tokens: int) -> None:
        """So many tokens found too little working memory: plan smaller steps."""
        self.scheduler.ceiling = max(1, min(self.scheduler.ceiling, tokens // 2))
        log.warning(
            "a step of %d tokens ran out of working memory; steps have at most %d until token_budget is set again",
            tokens,
            self.scheduler.budget,
        )

    def _accept(self, sampled: list[tuple[Work, int]]) -> list[Output]:
        """Append sampled tokens to their sequences, and end those that end with them."""
        now = self.clock()
        outputs: list[Output] = []
        gaps: dict[str, list[float]] = {}
        searching: dict[int, Request] = {}
        tokens = 0
        for work, token in sampled:
            sequence = work.sequence
            request = sequence.request
            if sequence.finish_reason is not None:  # it ended while this token was in flight
                continue
            if token < 0:
                self._fail(
                    request,
                    "model",
                    f"The model gave logits that are not finite after {len(sequence.tokens):,} tokens; "
                    f"the request cannot go on.",
                )
                continue
            sequence.owes = False
            if sequence.last_token:
                gaps.setdefault(sequence.class_name, []).append(now - sequence.last_token)
            if request.first_token is None:
                request.first_token = now
                self.metrics.first_token(request, now)
            sequence.last_token = now
            tokens += 1
            sequence.in_flight -= 1
            if request.search is not None:
                sequence.offer = work.scores
                searching[request.number] = request
                continue
            sequence.tokens.append(token)
            try:
                text, reason = self._read(sequence, token)
            except Refused as refused:
                self._fail(request, refused.code, str(refused))
                continue
            if text:
                sequence.pieces.append(text)
            scores: list[Scores] = []
            if work.scores is not None:
                sequence.logprob += work.scores.chosen
                if request.sampling.logprobs is not None:
                    scores.append(work.scores)
                    sequence.scores.append(work.scores)
            if not request.ranked:
                outputs.append(Output(request, sequence.index, [token], text, reason, scores))
            if reason is not None:
                outputs += self._finish(sequence, reason)
        for request in searching.values():
            outputs += self._search_on(request)
        self.metrics.output(tokens, gaps, now)
        return outputs

    def _read(self, sequence: Sequence, token: int) -> tuple[str, FinishReason | None]:
        """The text that the sequence's newest token makes certain, and whether and why it is the last one.

        Raises:
            Refused: the document that it writes cannot be followed any further.
        """
        sampling = sequence.request.sampling
        stream = self._streams.get(sequence.number)
        if stream is None:
            stream = self._streams[sequence.number] = self._text_stream(sampling)
        written = sequence.document is not None and sequence.document.take(token)
        if token in sequence.request.ends:
            return stream.flush(), FinishReason.STOP
        text, stopped = stream.push(token)
        if stopped:
            return text, FinishReason.STOP
        if written:
            return text + stream.flush(), FinishReason.STOP
        if len(sequence.tokens) >= sequence.request.longest:
            return text + stream.flush(), FinishReason.LENGTH
        return text, None

    def _search_on(self, request: Request) -> list[Output]:
        """One token further with a request's beams, once all of them have something to go on with."""
        search, beams = request.search, request.beams
        assert search is not None
        offers = [beam.offer for beam in beams if beam.offer is not None]
        if request.error or len(offers) < len(beams):
            return []
        prompt = len(request.prompt)
        branches = search.advance([beam.tokens[prompt:] for beam in beams], offers)
        if search.done:
            return self._conclude(request, search.hypotheses)
        request.beams = self.scheduler.branch(request, [beams[branch.parent] for branch in branches])
        for beam, branch in zip(request.beams, branches, strict=True):
            beam.tokens.append(branch.token)
            beam.offer = None
        return []

    def _conclude(self, request: Request, hypotheses: list[Hypothesis]) -> list[Output]:
        """The search is over: its best hypotheses become the request's samples."""
        if not hypotheses:
            self._fail(request, "model", "The model left no token to go on with on any beam; the request cannot go on.")
            return []
        for sequence in request.sequences:
            self._close(sequence, RequestState.FINISHED, FinishReason.LENGTH)
        for sequence, found in zip(request.sequences, hypotheses, strict=False):
            sequence.tokens = list(request.prompt)
            for token in found.tokens:
                sequence.tokens.append(token)
                text, reason = self._read(sequence, token)
                sequence.pieces.append(text)
            sequence.finish_reason = reason
            sequence.score = found.score
            self._streams.pop(sequence.number, None)
        return self._end_ranked(request, request.sequences[: len(hypotheses)])

    # --- ends -------------------------------------------------------------------------------------------------------

    def _finish(self, sequence: Sequence, reason: FinishReason) -> list[Output]:
        """A sample has its last token. Returns what can only be told now."""
        self._close(sequence, RequestState.FINISHED, reason)
        self.scheduler.lengths.add(sequence.output_length, cut_off=reason is not FinishReason.STOP)
        request = sequence.request
        if not all(s.state.ended for s in request.sequences):
            return []
        if not request.ranked:
            self._end(request)
            return []
        for sample in request.sequences:
            sample.score = sample.logprob / sample.output_length
        return self._end_ranked(request, sorted(request.sequences, key=lambda s: (-(s.score or 0.0), s.index)))

    def _end_ranked(self, request: Request, ranked: list[Sequence]) -> list[Output]:
        """Only the best of a request's sequences come back, the best one first."""
        request.sequences = ranked[: request.sampling.n]
        for index, sample in enumerate(request.sequences):
            sample.index = index
        self._end(request)
        prompt = len(request.prompt)
        return [
            Output(request, s.index, s.tokens[prompt:], s.text, s.finish_reason, s.scores) for s in request.sequences
        ]

    def _stop(self, request: Request, state: RequestState, reason: FinishReason) -> None:
        for sequence in request.sequences:
            if not sequence.state.ended:
                self._close(sequence, state, reason)
        if request.ranked:  # nothing was sent, and nothing will be
            del request.sequences[request.sampling.n :]
            for sequence in request.sequences:
                sequence.tokens, sequence.pieces, sequence.scores = list(request.prompt), [], []
                sequence.state, sequence.finish_reason = state, reason
        self._end(request)

    def _close(self, sequence: Sequence, state: RequestState, reason: FinishReason) -> None:
        self.scheduler.remove(sequence)
        sequence.state = state
        sequence.finish_reason = reason
        sequence.in_flight = 0
        self._streams.pop(sequence.number, None)
        self.runner.forget(sequence.number)

    def _fail(self, request: Request, code: str, error: str) -> None:
        request.error, request.error_code = error, code
        self._stop(request, RequestState.FAILED, FinishReason.FAILED)

    def _fail_all(self, works: list[Work], error: Exception) -> None:
        """The step could not be computed: what was in it cannot go on, everything else can."""
        log.error("a step failed", exc_info=error)
        requests = {work.sequence.request.number: work.sequence.request for work in works}
        for request in requests.values():
            self._fail(request, "internal", f"The step that held the request failed: {type(error).__name__}: {error}")

    def _end(self, request: Request) -> None:
        request.ended = self.clock()
        del self.requests[request.id]
        self.metrics.ended(request, request.ended)
        self._unreported.append(request)
        self.ended.append(request)
        self._ended_tokens += _tokens_of(request)
        while len(self.ended) > ENDED_KEPT or (self._ended_tokens > ENDED_TOKENS_KEPT and len(self.ended) > 1):
            forgotten = self.ended.popleft()
            self._ended_tokens -= _tokens_of(forgotten)
            self._forgotten.append(forgotten)

    def forget(self) -> None:
        """What the steps returned was told: of requests that ended before those in ``ended`` nothing is kept. The next
        step would do this, too."""
        # A request and its sequences know each other: no cycle is left to be collected.
        untold = len(self._unreported) + sum(len(result.ended) for result in self._results) - len(self.ended)
        while len(self._forgotten) > max(0, untold):
            forgotten = self._forgotten.popleft()
            forgotten.sequences = []
            forgotten.beams = []

    # --- measuring and choosing -------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """The fields of ``telemetry.Stats`` that the engine itself knows."""
        counters = self.metrics.counters
        prompt, output, requests = self.metrics.rates()
        computed, redone = self.metrics.work()
        return {
            **pool_facts(self.cache, self.runner.slot_bytes),
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting) - self.scheduler.swapped,
            "swapped": self.scheduler.swapped,
            "prompt_tokens_per_s": prompt,
            "output_tokens_per_s": output,
            "requests_per_s": requests,
            "latency": self.metrics.latency(),
            "histograms": self.metrics.histograms,
            "prefix_queried_tokens": counters.prefix_queried_tokens,
            "prefix_hit_tokens": counters.prefix_hit_tokens,
            "preemptions": counters.preemptions,
            "computed_tokens": counters.computed_tokens,
            "redone_tokens": counters.redone_tokens,
            "computed_last_minute": computed,
            "redone_last_minute": redone,
            "steps": counters.steps,
            "finished": counters.finished,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
        }

    def _note_starts(self, plan: StepPlan) -> None:
        now = self.clock()
        for sequence in plan.started:
            sequence.request.started = now
            self.metrics.started(sequence.request, now)

    def _note_step(self, report: StepReport, redone: int) -> None:
        self.metrics.step(
            report.prefill_tokens,
            report.decode_tokens,
            redone,
            preempted=len(report.preempted),
            swapped=len(report.swapped_out),
            times=(report.schedule_ms, report.forward_ms, report.sample_ms, report.other_ms),
        )

    def _prefers_swap(self, sequence: Sequence) -> bool:
        """Whether a sequence that loses its blocks should be swapped rather than recomputed."""
        policy = self.config.preemption
        if policy == "recompute" or not self.cache.host.num_blocks:
            return False
        if policy == "swap":
            return True
        pools = zip(self.cache.groups, self.runner.slot_bytes, strict=True)
        size = sum(group.counts(sequence.number)[0] * group.block_size * slot for group, slot in pools)
        return self.speeds.swap_is_cheaper(size, sequence.computed)


def _tokens_of(request: Request) -> int:
    return len(request.prompt) + sum(len(s.tokens) for s in request.sequences)
