"""A request, its sequences, and one step's share of each."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from ..ipc.vocabulary import FinishReason, Hold, RequestState, SamplingParams, priority_name
from .rules import Document, Rules
from .scheduling.beam import BeamSearch
from .scores import Scores


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample of a request: the prompt's tokens and what was generated after them.

    ``computed`` counts the tokens whose keys and values are in the cache, or will be once the steps in flight have
    landed. ``length - computed`` is what still has to run: 1 while decoding, more while prefilling (or recomputing), 0
    for a beam that waits for the others.
    """

    number: int  # unique in the engine; names its block table in the cache
    request: Request
    index: int  # which of the request's n samples
    tokens: list[int]
    computed: int = 0
    in_flight: int = 0  # tokens being sampled: they exist, but their values are not known yet
    finish_reason: FinishReason | None = None
    state: RequestState = RequestState.WAITING
    room: int = 0  # tokens that it has slots of its own for, as far as the scheduler knows without asking the cache
    furthest: int = 0  # tokens that it had computed when it lost its blocks: what lies below runs again
    rank: int = 0  # the request's priority, or better once it has waited too long
    preempted_step: int = -1  # the step in which it last lost its blocks
    resumed_step: int = -1  # the step in which it last came back from preemption
    last_token: float = 0.0  # monotonic; when its newest token was sampled
    pieces: list[str] = field(default_factory=list)  # output text that is certain
    owes: bool = False  # it came back from preemption and has not got any further yet
    found: int = 0  # tokens that were in the cache when it last began, which others may hold too
    logprob: float = 0.0  # the sum of its output's, where samples are ranked by it
    scores: list[Scores] = field(default_factory=list)  # of its output, where they were asked for
    document: Document | None = None  # what it writes
    offer: Scores | None = None  # of a beam: what it may go on with, until all beams of its request have theirs
    score: float | None = None  # what it was ranked by

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt)

    @property
    def output_length(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def length(self) -> int:
        """Its tokens, those in flight included."""
        return len(self.tokens) + self.in_flight

    @property
    def complete(self) -> bool:
        """Whether its length alone ends it, once all its tokens are known."""
        return self.length >= self.request.longest

    @property
    def pending(self) -> int:
        """Tokens that exist but are not computed yet."""
        return self.length - self.computed

    @property
    def idle(self) -> bool:
        """Whether it is a beam that waits for the others of its request."""
        return self.computed == self.length

    @property
    def class_name(self) -> str:
        return priority_name(self.request.priority)

    @property
    def turn(self) -> tuple[int, int, int]:
        """Who goes first: rank, then arrival, then sample. The smallest turn is served first and preempted last."""
        return self.rank, self.request.number, self.index

    @property
    def awaits_fork(self) -> bool:
        """Whether it computes the prompt for all samples of its request, which leave it one token before the end."""
        return self.index == 0 and not self.request.forked and self.request.search is None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True, eq=False)
class Request:
    """What a client asked for, and what became of it. ``number`` orders requests by arrival and names them in
    telemetry; ``id`` is the client's name for it."""

    number: int
    id: str
    prompt: list[int]  # token ids
    sampling: SamplingParams
    priority: int
    client: str = ""
    cache_salt: str = ""
    rules: Rules = field(default_factory=Rules)
    ends: frozenset[int] = frozenset()  # tokens that end an output
    sequences: list[Sequence] = field(default_factory=list)
    arrival: float = field(default_factory=time.monotonic)
    arrival_unix: float = field(default_factory=time.time)
    started: float | None = None  # monotonic; first scheduled
    first_token: float | None = None
    ended: float | None = None
    ranked: bool = False  # its samples are compared, and nothing is told before the last of them has ended
    longest: int = sys.maxsize  # tokens that one sample can reach, prompt and output
    cached_tokens: int = 0  # prompt tokens found in the cache when it first ran
    preemptions: int = 0
    forked: bool = True  # False while one sequence computes the prompt of several samples or beams
    search: BeamSearch | None = None
    beams: list[Sequence] = field(default_factory=list)  # those that run, in the order of the search
    error: str = ""
    error_code: str = ""  # as in protocol.Failed
    edits: bool = field(init=False)  # the model's logits are changed for it

    def __post_init__(self) -> None:
        sampling, rules = self.sampling, self.rules
        restricted = sampling.min_tokens > 0 or bool(rules.bad_words) or rules.document is not None
        self.edits = restricted or sampling.penalises or bool(sampling.logit_bias)

    @property
    def state(self) -> RequestState:
        """The state of its liveliest sequence."""
        if self.error:
            return RequestState.FAILED
        states = {s.state for s in self.sequences}
        for state in (
            RequestState.RUNNING,
            RequestState.SWAPPED,
            RequestState.PREEMPTED,
            RequestState.WAITING,
            RequestState.FAILED,
            RequestState.CANCELLED,
        ):
            if state in states:
                return state
        return RequestState.FINISHED

    @property
    def prompt_length(self) -> int:
        return len(self.prompt)

    @property
    def looks_back(self) -> bool:
        """Whether the host has to know each token before the next one can be chosen."""
        return self.search is not None or self.rules.look_back

    @property
    def output_tokens(self) -> int:
        return sum(max(0, s.output_length) for s in self.sequences)

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival until it was first scheduled."""
        return None if self.started is None else self.started - self.arrival

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first token of any sample."""
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def e2e_s(self) -> float | None:
        """Seconds from arrival to its end."""
        return None if self.ended is None else self.ended - self.arrival

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens of all samples a second, from the first token on."""
        if self.first_token is None:
            return None
        newest = max(s.last_token for s in self.sequences)
        after_first = self.output_tokens - 1
        return after_first / (newest - self.first_token) if newest > self.first_token else None


@dataclass(slots=True, eq=False)
class Work:
    """One sequence's share of a step: compute ``count`` tokens from position ``start``; if ``samples``, the last
    one's logits choose the next token. ``scores`` is the sampler's answer where the work is :attr:`scored`."""

    sequence: Sequence
    start: int
    count: int
    samples: bool
    scores: Scores | None = None

    @property
    def scored(self) -> bool:
        """Whether log-probabilities are wanted with the choice of the next token."""
        request = self.sequence.request
        return self.samples and (request.ranked or request.sampling.logprobs is not None)

    @property
    def prefill(self) -> bool:
        """Whether it computes known tokens (of a prompt, or again after preemption) rather than the newest one."""
        if self.count > 1 or not self.samples:
            return True
        request = self.sequence.request
        return self.start < len(request.prompt) and not (request.forked and len(request.sequences) > 1)


@dataclass(slots=True)
class StepPlan:
    """What one step computes. ``work`` lists single-token entries (decodes) first, then prefill chunks."""

    work: list[Work] = field(default_factory=list)
    started: list[Sequence] = field(default_factory=list)  # run for the first time
    preempted: list[Sequence] = field(default_factory=list)  # to be recomputed
    swapped_out: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)
    waited: list[Sequence] = field(default_factory=list)  # the first in line that did not get in
    hold: Hold = Hold.NOBODY  # why the first of them did not

    @property
    def tokens(self) -> int:
        return sum(w.count for w in self.work)

    @property
    def is_empty(self) -> bool:
        return not (self.work or self.started or self.preempted or self.swapped_out or self.resumed)
