"""A request, its sequences, and one step's share of each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..ipc.vocabulary import FinishReason, RequestState, SamplingParams


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample of a request: the prompt's tokens and what was generated after them.

    ``computed`` counts the tokens whose keys and values are in the cache. ``len(tokens) - computed`` is what still
    has to run: 1 while decoding, more while prefilling (or recomputing).
    """

    number: int  # unique in the engine; names its block table in the cache
    request: Request
    index: int  # which of the request's n samples
    tokens: list[int]
    computed: int = 0
    finish_reason: FinishReason | None = None
    state: RequestState = RequestState.WAITING
    resumed_step: int = -1  # the step in which it last came back from preemption

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt)

    @property
    def output_length(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def pending(self) -> int:
        """Tokens that are known but not computed yet."""
        return len(self.tokens) - self.computed


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
    sequences: list[Sequence] = field(default_factory=list)
    arrival: float = field(default_factory=time.monotonic)
    arrival_unix: float = field(default_factory=time.time)
    started: float | None = None  # monotonic; first scheduled
    first_token: float | None = None
    ended: float | None = None
    cached_tokens: int = 0  # prompt tokens found in the cache when it first ran
    preemptions: int = 0
    error: str = ""

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
    def output_tokens(self) -> int:
        return sum(s.output_length for s in self.sequences)


@dataclass(slots=True, frozen=True)
class Work:
    """One sequence's share of a step: compute ``count`` tokens from position ``start``; if ``samples``, the last
    one's logits choose the next token."""

    sequence: Sequence
    start: int
    count: int
    samples: bool


@dataclass(slots=True)
class StepPlan:
    """What one step computes. ``work`` lists single-token (decode) entries first, then prefill chunks."""

    work: list[Work] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)  # to be recomputed
    swapped_out: list[Sequence] = field(default_factory=list)
    resumed: list[Sequence] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(w.count for w in self.work)
