"""A device without tensors: one 64-bit number a slot, and a "model" whose every output depends on all it reads.

What real keys and values are to a model, these numbers are to :class:`TokenMemory`: the number of a position depends
on its token and on all tokens before it, and the next token depends on every number of the context. So a block that
was overwritten, moved wrongly, copied late or shared by mistake changes the output. Slots that hold nothing are
poisoned before each step; reading one fails at once, with its position.

With ``depth`` 1 it is as late as a device can be: a launch only notes what a device would be told (block tables, slots,
copies, and which tokens are still to be read where they were sampled), and everything runs when a flight lands.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pagedeck.engine.request import Scores, StepPlan, Work

POISON = np.uint64(0xDEAD_DEAD_DEAD_DEAD)
_MASK = (1 << 64) - 1
_START = 0x9E37_79B9_7F4A_7C15


def _mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return value ^ (value >> 31)


def content(tokens: list[int], before: int = _START, position: int = 0) -> list[int]:
    """The number of each of ``tokens``, of which the first stands at ``position`` and ``before`` is the number of the
    one before it."""
    numbers = []
    for offset, token in enumerate(tokens):
        before = _mix(before ^ _mix((token << 32) + position + offset + 1))
        numbers.append(before)
    return numbers


def next_token(numbers: np.ndarray, vocabulary: int, index: int = 0) -> int:
    """The token that follows a context of these numbers (uint64), in sample ``index`` of its request."""
    weights = np.arange(1, 2 * len(numbers), 2, dtype=np.uint64)
    return _mix(int((numbers * weights).sum(dtype=np.uint64)) ^ (index + 1)) % vocabulary


def offer(numbers: np.ndarray, vocabulary: int, count: int) -> Scores:
    """What stands for the ``count`` most probable tokens after a context of these numbers. Every eighth is below 16,
    so that tests can have outputs end with one."""
    state = next_token(numbers, 1 << 62)
    logprob, found = 0.0, dict[int, float]()
    while len(found) < min(count, vocabulary):
        state = _mix(state + _START & _MASK)
        token = state % (vocabulary if state >> 20 & 7 else min(16, vocabulary))
        if token not in found:
            logprob -= 0.05 + (state >> 32) % 1000 / 500
            found[token] = logprob
    return Scores(0.0, list(found), list(found.values()))


def logprob_of(numbers: np.ndarray, token: int) -> float:
    """What stands for the log-probability of ``token`` after a context of these numbers."""
    return -(_mix(next_token(numbers, 1 << 62) ^ token) % 1000) / 250 - 0.01


def generate(prompt: list[int], count: int, vocabulary: int, index: int = 0) -> list[int]:
    """The ``count`` tokens that must follow ``prompt``: the specification, without blocks, batches or preemption."""
    tokens, numbers = list(prompt), content(prompt)
    for _ in range(count):
        token = next_token(np.array(numbers, np.uint64), vocabulary, index)
        numbers += content([token], numbers[-1], len(tokens))
        tokens.append(token)
    return tokens[len(prompt) :]


@dataclass
class Share:
    """One work, as a device is told of it."""

    work: Work
    seq: int
    tokens: list[int]  # those that the host knows: all, or all but the last
    slots: np.ndarray
    places: np.ndarray  # the slots of all positions up to the last one computed


@dataclass
class Launch:
    """What a device is told at a launch, and after it has run, what came of it."""

    memory: TokenMemory
    plan: StepPlan
    journal: list[Any]
    block_size: int
    empty: tuple[np.ndarray, np.ndarray] | None  # which slots of each pool hold nothing
    shares: list[Share]
    sampled: list[int] = field(default_factory=list)
    error: Exception | None = None

    def tokens(self) -> list[int]:
        self.memory.run_until(self)
        if self.error is not None:
            raise self.error
        return self.sampled


class TokenMemory:
    """The ``Runner`` protocol over plain numbers.

    ``poison`` costs time in proportion to the pool in every step; simulations of large pools switch it off.
    """

    slot_bytes = 8
    forward_ms = 0.0
    sample_ms = 0.0
    copy_ms = 0.0

    def __init__(
        self,
        num_slots: int,
        num_host_slots: int = 0,
        *,
        vocabulary: int = 1000,
        poison: bool = True,
        depth: int = 0,
    ) -> None:
        self.device = np.full(num_slots, POISON)
        self.host = np.full(num_host_slots, POISON)
        self.vocabulary = vocabulary
        self.poison = poison
        self.depth = depth
        self.queue: deque[Launch] = deque()
        self.last: dict[int, int] = {}  # sequence number -> token, of the last launch that ran with work
        self.bytes_copied = 0
        self.steps = 0
        self.forgotten: list[int] = []
        self.most_slots = 1 << 40  # that the device pool may have
        self.denials = 0  # the n-th change of shape from now on is denied its memory

    # --- the Runner protocol ---------------------------------------------------------------------------------------

    def launch(self, plan: StepPlan, cache: Any) -> Launch:
        journal = list(cache.journal)
        cache.journal.clear()
        shares = [self._share(work, cache) for work in plan.work]
        launch = Launch(self, plan, journal, cache.block_size, self._empty(cache) if self.poison else None, shares)
        self.queue.append(launch)
        return launch

    def execute(self, plan: StepPlan, cache: Any) -> list[int]:
        return self.launch(plan, cache).tokens()

    def room(self) -> int:
        return self.most_slots

    def reshape(self, change: Any) -> int:
        assert not self.queue
        self.denials -= 1
        if not self.denials:
            raise MemoryError("denied")
        self.device = self._reshape(self.device, change.num_slots, change.device)
        self.host = self._reshape(self.host, change.num_host_slots, change.host)
        return change.slots_copied * self.slot_bytes

    def forget(self, seq: int) -> None:
        self.forgotten.append(seq)

    # --- for tests -------------------------------------------------------------------------------------------------

    def run_journal(self, cache: Any) -> None:
        self.execute(StepPlan(), cache)

    def run_until(self, launch: Launch) -> None:
        """Run what was launched, in order, up to ``launch``."""
        while launch in self.queue:
            following = self.queue.popleft()
            try:
                self.run(following)
            except Exception as error:
                following.error = error

    def run(self, launch: Launch) -> None:
        self._run_journal(launch)
        if launch.plan.work:
            self.steps += 1
            for share in launch.shares:
                self._write(share)
                if share.work.scored:
                    self._score(share)
            launch.sampled = [self.sample(share) for share in launch.shares if share.work.samples]
            seqs = [share.seq for share in launch.shares if share.work.samples]
            self.last = dict(zip(seqs, launch.sampled, strict=True))

    def sample(self, share: Share) -> int:
        """The next token after what ``share`` computed."""
        return next_token(self._numbers(share.seq, share.places), self.vocabulary, share.work.sequence.index)

    def read(self, seq: int, stop: int, cache: Any) -> np.ndarray:
        """The numbers of positions ``0`` to ``stop`` of a sequence, through its block table, whatever its tier."""
        pool = self.device if cache.tier(seq) == "device" else self.host
        return self._numbers(seq, _places(seq, stop, cache), pool)

    def verify(self, seq: int, tokens: list[int], cache: Any) -> None:
        """All of ``tokens`` are in the cache as this sequence's, byte for byte."""
        numbers = self.read(seq, len(tokens), cache)
        wrong = np.flatnonzero(numbers != np.array(content(tokens), np.uint64))
        assert not len(wrong), f"sequence {seq} holds something else at position {wrong[0]} of {len(tokens)}"

    # --- inside ----------------------------------------------------------------------------------------------------

    def _share(self, work: Work, cache: Any) -> Share:
        seq, start, stop = work.sequence.number, work.start, work.start + work.count
        tokens = work.sequence.tokens[start:stop]
        assert work.count - len(tokens) in (0, 1), "only the last token can be in flight"
        slots = np.asarray(cache.slots(seq, start, stop))
        assert len(slots) == work.count, f"sequence {seq} got {len(slots)} slots for {work.count} tokens"
        return Share(work, seq, tokens, slots, _places(seq, stop, cache))

    def _run_journal(self, launch: Launch) -> None:
        """Every transfer of the journal, one by one and literally; then poison what holds nothing."""
        size = launch.block_size
        pools = {"COPY": (self.device, self.device), "SWAP_OUT": (self.device, self.host)}
        pools["SWAP_IN"] = (self.host, self.device)
        for kind, source, target in launch.journal:
            read, written = pools[kind.name]
            written[target * size : (target + 1) * size] = read[source * size : (source + 1) * size]
        self.bytes_copied = len(launch.journal) * size * self.slot_bytes
        if launch.empty is not None:
            self.device[launch.empty[0]] = POISON
            self.host[launch.empty[1]] = POISON

    def _write(self, share: Share) -> None:
        start, tokens = share.work.start, share.tokens
        before = int(self._numbers(share.seq, share.places[:start])[-1]) if start else _START
        if len(tokens) < share.work.count:
            tokens = [*tokens, max(0, self.last[share.seq])]
        numbers = np.array(content(tokens, before, start), np.uint64)
        written = share.slots >= 0  # slot -1: the cache holds that position already
        self.device[share.slots[written]] = numbers[written]

    def _score(self, share: Share) -> None:
        """Beams are offered tokens; other ranked samples learn how probable the one is that they get."""
        work, numbers = share.work, self._numbers(share.seq, share.places)
        if work.sequence.request.search is not None:
            work.scores = offer(numbers, self.vocabulary, work.sequence.request.search.candidates)
        else:
            work.scores = Scores(logprob_of(numbers, self.sample(share)), [], [])

    def _numbers(self, seq: int, places: np.ndarray, pool: np.ndarray | None = None) -> np.ndarray:
        numbers = (self.device if pool is None else pool)[places]
        unwritten = np.flatnonzero(numbers == POISON)
        assert not len(unwritten), f"sequence {seq} reads position {unwritten[0]} of {len(places)}, which holds nothing"
        return numbers

    def _empty(self, cache: Any) -> tuple[np.ndarray, np.ndarray]:
        """Which slots of the device and of the host hold nothing, when all that was launched has run."""
        device, host = _unfilled(len(self.device), cache.device), _unfilled(len(self.host), cache.host)
        for launch in self.queue:
            for share in launch.shares:
                device[share.slots[share.slots >= 0]] = False
        return device, host

    def _reshape(self, memory: np.ndarray, slots: int, plan: Any) -> np.ndarray:
        if slots == len(memory):
            for source, target in plan.batches() if plan else ():
                memory[target] = memory[source]
            return memory
        resized = np.full(slots, POISON)
        for source, target in plan.copies():
            resized[target] = memory[source]
        return resized


def _places(seq: int, stop: int, cache: Any) -> np.ndarray:
    """The slots of positions ``0`` to ``stop``, through the block table."""
    positions, size = np.arange(stop), cache.block_size
    return np.asarray(cache.table(seq), np.int64)[positions // size] * size + positions % size


def _unfilled(slots: int, pool: Any) -> np.ndarray:
    held = np.arange(pool.block_size)[None, :] < np.asarray(pool.fill)[:, None]
    unfilled = np.ones(slots, np.bool_)
    unfilled[: held.size] = ~held.reshape(-1)
    return unfilled
