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
from pagedeck.engine.request import StepPlan, Work
from pagedeck.engine.scores import Scores

POISON = np.uint64(0xDEAD_DEAD_DEAD_DEAD)
SLOT_BYTES = 8
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


def next_token(views: list[np.ndarray], vocabulary: int, index: int = 0) -> int:
    """The token that follows a context of which each group of layers sees these numbers (uint64), in sample ``index``
    of its request."""
    total = 0
    for numbers in views:
        weights = np.arange(1, 2 * len(numbers), 2, dtype=np.uint64)
        total += _mix(int((numbers * weights).sum(dtype=np.uint64)) ^ (index + 1))
    return total % vocabulary


def offer(views: list[np.ndarray], vocabulary: int, count: int) -> Scores:
    """What stands for the ``count`` most probable tokens after a context that is seen so. Every eighth is below 16,
    so that tests can have outputs end with one."""
    state = next_token(views, 1 << 62)
    logprob, found = 0.0, dict[int, float]()
    while len(found) < min(count, vocabulary):
        state = _mix(state + _START & _MASK)
        token = state % (vocabulary if state >> 20 & 7 else min(16, vocabulary))
        if token not in found:
            logprob -= 0.05 + state / 2**63  # fine enough for sums never to tie
            found[token] = logprob
    return Scores(0.0, list(found), list(found.values()))


def logprob_of(views: list[np.ndarray], token: int) -> float:
    """What stands for the log-probability of ``token`` after a context that is seen so."""
    return -(_mix(next_token(views, 1 << 62) ^ token) % 1000) / 250 - 0.01


def generate(prompt: list[int], count: int, vocabulary: int, index: int = 0) -> list[int]:
    """The ``count`` tokens that must follow ``prompt``: the specification, without blocks, batches or preemption."""
    tokens, numbers = list(prompt), content(prompt)
    for _ in range(count):
        token = next_token([np.array(numbers, np.uint64)], vocabulary, index)
        numbers += content([token], numbers[-1], len(tokens))
        tokens.append(token)
    return tokens[len(prompt) :]


@dataclass
class Share:
    """One work, as a device is told of it."""

    work: Work
    seq: int
    tokens: list[int]  # those that the host knows: all, or all but the last
    # One a group of layers:
    slots: list[np.ndarray]
    before: list[np.ndarray]  # the slot of the position before the first one, if there is one
    seen: list[np.ndarray]  # the slots of all positions that the last one sees


@dataclass
class Launch:
    """What a device is told at a launch, and after it has run, what came of it."""

    memory: TokenMemory
    plan: StepPlan
    block_size: int
    journals: list[list[Any]]  # one a group of layers
    empty: list[tuple[np.ndarray, np.ndarray]]  # which slots of each group's pools hold nothing
    shares: list[Share]
    sampled: list[int] = field(default_factory=list)
    error: Exception | None = None
    torn: list[Any] = field(default_factory=list)  # one a group of layers: a transfer that was begun and not ended

    def tokens(self) -> list[int]:
        self.memory.run_until(self)
        if self.error is not None:
            raise self.error
        return self.sampled


class TokenMemory:
    """The ``Runner`` protocol over plain numbers.

    Layers that see other positions have memories of their own: this one is the first group's, ``others`` are the rest.
    ``poison`` costs time in proportion to the pool in every step; simulations of large pools switch it off.
    """

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
        others: tuple[TokenMemory, ...] = (),
    ) -> None:
        self.device = np.full(num_slots, POISON)
        self.host = np.full(num_host_slots, POISON)
        self.groups = (self, *others)
        self.slot_bytes = (SLOT_BYTES,) * len(self.groups)
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
        self.copy_denials = 0  # so many launches with something to copy are denied theirs, in the middle

    # --- the Runner protocol ---------------------------------------------------------------------------------------

    def launch(self, plan: StepPlan, cache: Any) -> Launch:
        if self.copy_denials and cache.journal:
            self.copy_denials -= 1
            self._deny_copies(cache)
        journals = [list(group.journal) for group in cache.groups]
        for group in cache.groups:
            group.journal.clear()
        shares = [_share(work, cache) for work in plan.work]
        launch = Launch(self, plan, cache.block_size, journals, self._empty(cache) if self.poison else [], shares)
        self.queue.append(launch)
        return launch

    def execute(self, plan: StepPlan, cache: Any) -> list[int]:
        return self.launch(plan, cache).tokens()

    def room(self) -> int:
        return self.most_slots * sum(self.slot_bytes)

    def reshape(self, change: Any) -> int:
        assert not self.queue
        self.denials -= 1
        if not self.denials:
            raise MemoryError("denied")
        for memory, part in zip(self.groups, change.parts, strict=True):
            memory.device = self._reshape(memory.device, part.num_slots, part.device)
            memory.host = self._reshape(memory.host, part.num_host_slots, part.host)
        return change.bytes_copied(self.slot_bytes)

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

    def copy(self, launch: Launch) -> None:
        """Carry out a launch's journals."""
        self.bytes_copied = sum(memory._run_journal(launch, group) for group, memory in enumerate(self.groups))

    def run(self, launch: Launch) -> None:
        self.copy(launch)
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
        return next_token(self._views(share), self.vocabulary, share.work.sequence.index)

    def read(self, seq: int, start: int, stop: int, cache: Any) -> np.ndarray:
        """The numbers of positions ``start`` to ``stop`` of a sequence, through its block table, whatever its tier."""
        pool = self.device if cache.tier(seq) == "device" else self.host
        return self._numbers(seq, _places(seq, start, stop, cache), pool)

    def verify(self, seq: int, tokens: list[int], cache: Any) -> None:
        """All of ``tokens`` but those that a window has passed are in the cache as this sequence's, byte for byte."""
        for memory, group in zip(self.groups, cache.groups, strict=True):
            start = len(group.tables[seq].passed)
            numbers = memory.read(seq, start, len(tokens), group)
            wrong = start + np.flatnonzero(numbers != np.array(content(tokens)[start:], np.uint64))
            assert not len(wrong), f"sequence {seq} holds something else at position {wrong[0]} of {len(tokens)}"

    # --- inside ----------------------------------------------------------------------------------------------------

    def _deny_copies(self, cache: Any) -> None:
        """Some copies are made, the next ones are begun, and what is left stays in the journals."""
        done = [len(group.journal) // 2 for group in cache.groups]
        journals = [group.journal[:count] for group, count in zip(cache.groups, done, strict=True)]
        for group, count in zip(cache.groups, done, strict=True):
            del group.journal[:count]
        torn = [group.journal[0] if group.journal else None for group in cache.groups]
        self.queue.append(Launch(self, StepPlan(), cache.block_size, journals, [], [], torn=torn))
        raise MemoryError("denied")

    def _tear(self, transfer: Any, size: int) -> None:
        """Half of a block was overwritten, with nothing that means anything."""
        pool = self.host if transfer.kind.name == "SWAP_OUT" else self.device
        first = transfer.target * size
        pool[first : first + -(-size // 2)] = ~POISON

    def _run_journal(self, launch: Launch, group: int) -> int:
        """Every transfer of the journal, one by one and literally; then poison what holds nothing. Returns bytes."""
        size = launch.block_size
        pools = {"COPY": (self.device, self.device), "SWAP_OUT": (self.device, self.host)}
        pools["SWAP_IN"] = (self.host, self.device)
        for kind, source, target in launch.journals[group]:
            read, written = pools[kind.name]
            written[target * size : (target + 1) * size] = read[source * size : (source + 1) * size]
        if launch.torn and launch.torn[group] is not None:
            self._tear(launch.torn[group], size)
        if launch.empty:
            self.device[launch.empty[group][0]] = POISON
            self.host[launch.empty[group][1]] = POISON
        return len(launch.journals[group]) * size * SLOT_BYTES

    def _write(self, share: Share) -> None:
        tokens = share.tokens
        if len(tokens) < share.work.count:
            tokens = [*tokens, max(0, self.last[share.seq])]
        for memory, slots, at in zip(self.groups, share.slots, share.before, strict=True):
            before = int(memory._numbers(share.seq, at)[0]) if len(at) else _START
            numbers = np.array(content(tokens, before, share.work.start), np.uint64)
            written = slots >= 0  # slot -1: the cache holds that position already
            memory.device[slots[written]] = numbers[written]

    def _score(self, share: Share) -> None:
        """Beams are offered tokens; other ranked samples learn how probable the one is that they get."""
        work, views = share.work, self._views(share)
        if work.sequence.request.search is not None:
            work.scores = offer(views, self.vocabulary, work.sequence.request.search.candidates)
        else:
            work.scores = Scores(logprob_of(views, self.sample(share)), [], [])

    def _views(self, share: Share) -> list[np.ndarray]:
        return [memory._numbers(share.seq, seen) for memory, seen in zip(self.groups, share.seen, strict=True)]

    def _numbers(self, seq: int, places: np.ndarray, pool: np.ndarray | None = None) -> np.ndarray:
        numbers = (self.device if pool is None else pool)[places]
        unwritten = np.flatnonzero(numbers == POISON)
        assert not len(unwritten), f"sequence {seq} reads number {unwritten[0]} of {len(places)}, which holds nothing"
        return numbers

    def _empty(self, cache: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Which slots of the device and of the host hold nothing, when all that was launched has run."""
        empty = []
        for number, (memory, group) in enumerate(zip(self.groups, cache.groups, strict=True)):
            device, host = _unfilled(len(memory.device), group.device), _unfilled(len(memory.host), group.host)
            for launch in self.queue:
                for share in launch.shares:
                    slots = share.slots[number]
                    device[slots[slots >= 0]] = False
            empty.append((device, host))
        return empty

    def _reshape(self, memory: np.ndarray, slots: int, plan: Any) -> np.ndarray:
        if slots == len(memory):
            for source, target in plan.batches() if plan else ():
                memory[target] = memory[source]
            return memory
        resized = np.full(slots, POISON)
        for source, target in plan.copies():
            resized[target] = memory[source]
        return resized


def _share(work: Work, cache: Any) -> Share:
    seq, start, stop = work.sequence.number, work.start, work.start + work.count
    tokens = work.sequence.tokens[start:stop]
    assert work.count - len(tokens) in (0, 1), "only the last token can be in flight"
    share = Share(work, seq, tokens, [], [], [])
    for group in cache.groups:
        slots = np.asarray(group.slots(seq, start, stop))
        assert len(slots) == work.count, f"sequence {seq} got {len(slots)} slots for {work.count} tokens"
        share.slots.append(slots)
        share.before.append(_places(seq, max(0, start - 1), start, group))
        window = group.window or stop
        share.seen.append(_places(seq, max(0, stop - window), stop, group))
    return share


def _places(seq: int, start: int, stop: int, cache: Any) -> np.ndarray:
    """The slots of positions ``start`` to ``stop``, through the block table."""
    positions, size = np.arange(start, stop), cache.block_size
    blocks = np.asarray(cache.table(seq), np.int64)[positions // size]
    assert (blocks >= 0).all(), f"sequence {seq} reads a hole between positions {start} and {stop}"
    return blocks * size + positions % size


def _unfilled(slots: int, pool: Any) -> np.ndarray:
    held = np.arange(pool.block_size)[None, :] < np.asarray(pool.fill)[:, None]
    unfilled = np.ones(slots, np.bool_)
    unfilled[: held.size] = ~held.reshape(-1)
    return unfilled
