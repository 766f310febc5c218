"""The words that the engine and its clients share. Standard library only.

The engine's core imports these, so they must not pull in a socket, a codec, torch or Qt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any


class BlockState(IntEnum):
    """A block's state, ordered by how much a viewer wants to see it.

    Zoomed out, several blocks fall on one pixel and the largest code wins, so the order is part of the meaning.
    """

    FREE = 0
    RESERVED = 1  # kept for one sequence's growth, holds no token yet
    CACHED = 2  # no sequence uses it; its content is kept until evicted
    SWAPPED = 3  # host tier only: belongs to a sequence that was swapped out
    ACTIVE = 4  # used by one sequence
    SHARED = 5  # used by several


class RequestState(StrEnum):
    WAITING = "waiting"  # queued, holds no block
    RUNNING = "running"
    PREEMPTED = "preempted"  # gave its blocks back, will be recomputed
    SWAPPED = "swapped"  # its blocks are in the host tier
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        return self in (RequestState.FINISHED, RequestState.CANCELLED, RequestState.FAILED)


class EngineState(StrEnum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"  # finishes what it has, takes nothing new
    FAILED = "failed"
    STOPPED = "stopped"


class Hold(StrEnum):
    """Why the first in line did not get into a step: the setting, or the want of blocks, that kept it waiting."""

    NOBODY = ""  # nobody waited
    BATCH = "max_batch_size"  # all places were taken
    CLASS = "class_limits"  # all places of its class were
    BUDGET = "token_budget"  # the step's tokens were given to others
    BLOCKS = "blocks"  # too few could be had


class FinishReason(StrEnum):
    STOP = "stop"  # end-of-text token or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full
    CANCELLED = "cancelled"
    FAILED = "failed"


#: Latency histograms: bucket *i* holds durations from SMALLEST * GROWTH**i to SMALLEST * GROWTH**(i + 1), in seconds;
#: the first holds shorter ones too, and the last longer ones.
HISTOGRAM_SMALLEST_S = 1e-4
HISTOGRAM_GROWTH = 1.05
HISTOGRAM_BUCKETS = 331  # up to about 1,000 seconds

#: Named priorities; any integer is allowed, lower runs first.
PRIORITIES: dict[str, int] = {"interactive": 0, "normal": 10, "batch": 20}

#: Where servers publish the events of their prefix caches, and repeat them, by convention.
KV_EVENTS_ADDRESS = "tcp://127.0.0.1:5557"
KV_REPLAY_ADDRESS = "tcp://127.0.0.1:5558"


def priority_name(priority: int) -> str:
    """The class that an integer priority falls into: the nearest named one that is not more urgent than it."""
    if priority <= PRIORITIES["interactive"]:
        return "interactive"
    return "normal" if priority <= PRIORITIES["normal"] else "batch"


class Refused(ValueError):
    """Bad input, said at the edge: which field, what was given, what is accepted.

    ``code`` is a stable word for programs; the message is one sentence for people.
    """

    def __init__(self, message: str, *, field: str = "", code: str = "invalid") -> None:
        super().__init__(message)
        self.field = field
        self.code = code

    @classmethod
    def value(cls, field: str, value: object, accepted: str) -> Refused:
        given = repr(value)
        if len(given) > 200:
            given = given[:200] + "…"
        return cls(f"{field} is {given}; accepted is {accepted}.", field=field)


def parse_priority(value: object) -> int:
    """An integer priority from a class name or an integer.

    Raises:
        Refused: neither a known class nor an integer from -1,000,000 to 1,000,000.
    """
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1_000_000:
        return value
    raise Refused.value("priority", value, "interactive, normal, batch or an integer (lower runs first)")


#: The most alternatives that are told beside each token, and characters of a JSON schema.
MAX_LOGPROBS = 20
MAX_SCHEMA = 100_000


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request's tokens are chosen.

    ``temperature`` 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off. With a ``seed`` the output does
    not depend on what else is in the batch. ``n`` samples share the prompt's blocks.

    ``best_of`` more samples than ``n`` are generated, and the ``n`` with the highest mean log-probability come back,
    the best one first. ``beam_width`` beams (0 is off) search for the ``n`` most probable outputs instead of drawing
    any: a beam's score is the sum of its log-probabilities divided by its length to the power of ``length_penalty``,
    and ``early_stopping`` ends the search as soon as ``beam_width`` outputs are finished, rather than when no running
    beam can better them.

    The model's logits are changed in this order before a token is chosen: ``logit_bias`` adds to those of token ids;
    ``repetition_penalty`` (1 is off) divides those of tokens in prompt or output if they are positive, and multiplies
    them if not; ``frequency_penalty`` is subtracted as often as a token stands in the output, ``presence_penalty``
    once if it does; and what must not come is ruled out: ends before ``min_tokens`` (stop strings do not count until
    then either), ``bad_words``, and what would break ``json_schema``.

    ``logprobs`` (None is off) asks for each token's log-probability, and for those of so many most probable tokens in
    its place: the model's own, before anything above and the temperature. ``json_schema`` is a JSON schema's text; the
    output is a document of it and ends with it (``{}``: any object), ``oneOf`` being read as ``anyOf``: a document may
    match several of its alternatives. Empty is off.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    ignore_eos: bool = False
    best_of: int | None = None
    beam_width: int = 0
    length_penalty: float = 1.0
    early_stopping: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    bad_words: tuple[str, ...] = ()
    logit_bias: dict[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    json_schema: str = ""

    @property
    def width(self) -> int:
        """Sequences that run side by side."""
        return self.beam_width or self.best_of or self.n

    @property
    def ranked(self) -> bool:
        """Whether samples are compared, so that nothing can be sent before the last of them has ended."""
        return self.beam_width > 0 or self.width > self.n

    @property
    def penalises(self) -> bool:
        """Whether tokens are less, or more, probable for having come before."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    def check(self) -> None:
        """Raises :class:`Refused` for the first field that is out of range."""

        def number(name: str, low: float, high: float, accepted: str, *, open_low: bool = False) -> None:
            value = getattr(self, name)
            ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not ok or value > high or value < low or (open_low and value == low):
                raise Refused.value(name, value, accepted)

        def integer(name: str, low: int, high: int, accepted: str) -> None:
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise Refused.value(name, value, accepted)

        integer("max_tokens", 1, 10_000_000, "an integer from 1 to 10,000,000")
        number("temperature", 0.0, 100.0, "0 (greedy) to 100")
        integer("top_k", 0, 2**31 - 1, f"an integer from 0 (off) to {2**31 - 1:,}")
        number("top_p", 0.0, 1.0, "more than 0 up to 1 (1 is off)", open_low=True)
        number("min_p", 0.0, 1.0, "0 (off) to 1")
        integer("n", 1, 64, "an integer from 1 to 64")
        if self.seed is not None:
            integer("seed", -(2**63), 2**63 - 1, "an integer from -2^63 to 2^63 - 1, or none")
        if not isinstance(self.stop, list | tuple) or len(self.stop) > 16:
            raise Refused.value("stop", self.stop, "up to 16 strings")
        for text in self.stop:
            if not isinstance(text, str) or not 0 < len(text) <= 1000:
                raise Refused.value("stop", text, "strings of 1 to 1,000 characters")
        if self.best_of is not None:
            integer("best_of", self.n, 64, f"an integer from n ({self.n}) to 64, or none")
        integer("beam_width", 0, 64, "an integer from 0 (off) to 64")
        number("length_penalty", -10.0, 10.0, "a number from -10 to 10")
        if not isinstance(self.early_stopping, bool):
            raise Refused.value("early_stopping", self.early_stopping, "true or false")
        number("repetition_penalty", 0.01, 100.0, "0.01 to 100 (1 is off)")
        number("presence_penalty", -2.0, 2.0, "-2 to 2 (0 is off)")
        number("frequency_penalty", -2.0, 2.0, "-2 to 2 (0 is off)")
        integer("min_tokens", 0, self.max_tokens, f"an integer from 0 to max_tokens ({self.max_tokens:,})")
        if self.logprobs is not None:
            integer("logprobs", 0, MAX_LOGPROBS, f"an integer from 0 to {MAX_LOGPROBS}, or none")
        self._check_bad_words()
        self._check_logit_bias()
        self._check_json_schema()
        if self.beam_width:
            self._check_beams()

    def _check_bad_words(self) -> None:
        if not isinstance(self.bad_words, list | tuple) or len(self.bad_words) > 256:
            raise Refused.value("bad_words", self.bad_words, "up to 256 strings")
        for text in self.bad_words:
            if not isinstance(text, str) or not 0 < len(text) <= 1000:
                raise Refused.value("bad_words", text, "strings of 1 to 1,000 characters")

    def _check_logit_bias(self) -> None:
        if not isinstance(self.logit_bias, dict) or len(self.logit_bias) > 1024:
            raise Refused.value("logit_bias", self.logit_bias, "a map of up to 1,024 token ids to numbers")
        for token, bias in self.logit_bias.items():
            if not isinstance(token, int) or isinstance(token, bool) or token < 0:
                raise Refused.value("logit_bias", token, "token ids as keys")
            if not isinstance(bias, int | float) or isinstance(bias, bool) or not -100 <= bias <= 100:
                raise Refused.value("logit_bias", bias, "numbers from -100 to 100")

    def _check_json_schema(self) -> None:
        if not isinstance(self.json_schema, str) or len(self.json_schema) > MAX_SCHEMA:
            raise Refused.value("json_schema", self.json_schema, f"a JSON schema of up to {MAX_SCHEMA:,} characters")
        if not self.json_schema:
            return
        if self.ignore_eos:
            raise Refused.value("ignore_eos", True, "false with json_schema, whose documents have an end")
        if self.min_tokens:
            raise Refused.value("min_tokens", self.min_tokens, "0 with json_schema, whose documents end where they do")

    def _check_beams(self) -> None:
        """Beams draw nothing and are compared by their tokens, so what would not apply to them is not accepted."""
        if self.n > self.beam_width:
            raise Refused.value("n", self.n, f"up to beam_width ({self.beam_width})")
        if self.best_of is not None:
            raise Refused.value("best_of", self.best_of, "none with beam_width")
        if self.temperature:
            raise Refused.value("temperature", self.temperature, "0 with beam_width, since beams are not drawn")
        if self.stop:
            raise Refused.value("stop", self.stop, "no stop string with beam_width")
        if self.logprobs is not None:
            raise Refused.value("logprobs", self.logprobs, "none with beam_width")
        for name, off in (
            ("repetition_penalty", 1),
            ("presence_penalty", 0),
            ("frequency_penalty", 0),
            ("min_tokens", 0),
            ("bad_words", ()),
            ("logit_bias", {}),
            ("json_schema", ""),
        ):
            value = getattr(self, name)
            if value and value != off:
                raise Refused.value(name, value, "none with beam_width, which looks for what the model finds probable")
