"""Which sequences run in the next step, and who gives way when there is no room for all.

Running sequences and waiting ones stand in two lists, both sorted by *turn*: rank, then arrival. A step serves the
running ones' next tokens first, then prompts in the order of their turns, whether they are running or still waiting,
until the token budget is full. When blocks run out, a sequence may take those of sequences whose turn comes after its
own; with none left it keeps what it has and sits the step out. So the first turn always advances, and with it, one
after another, all of them.

Whoever comes back from preemption is given the blocks of all its known tokens at once, and keeps them until it has got
one token further. So nothing is preempted twice for the same token, and nothing that may not be preempted can be stuck.
Nor does a waiting sequence of a higher class take its place before it has had some steps.

So that nothing starves, of every few sequences that get in without displacing another, one is the first by arrival of
all that wait, whatever its class, and from then on it goes before all others. While there is no room for it, none of
what comes free goes to others; who may displace lower classes still does. Hence whoever arrives with n unfinished
requests before it gets in as one of the next ``SHARE`` * (n + 1) that displace nobody, whatever arrives later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...ipc.vocabulary import Hold, RequestState, priority_name
from ..cache.cache_groups import Amounts, CacheGroups
from ..cache.capacity import blocks_for
from ..cache.kv_cache import KVCache, OutOfBlocks
from ..config import EngineConfig, parse_class_limits
from ..request import Request, Sequence, StepPlan, Work
from .forecast import Forecast, OutputLengths
from .turns import Turns

#: Of so many sequences that get in without displacing another, one is that which has waited longest.
SHARE = 16

#: The rank that it has from then on; below every priority that a request may ask for.
AGED = -2_000_000

#: A sequence that came back from preemption is not displaced by a higher class for so many steps.
SERVED_STEPS = 16

#: Tokens in a step at most, before anything is known of the device's working memory.
MAX_BUDGET = 1_000_000

#: Tokens in a step where the configuration leaves the choice.
DEFAULT_BUDGET = 256

#: Waiting sequences that a plan names.
WAITED_TOLD = 8

#: Tokens of prompts that a step beside decodes may have, however slow the device: fewer would waste it.
LEAST_CHUNK = 32

#: Steps after which the forecast of what running sequences will take is made anew.
FORECAST_STEPS = 8


class Scheduler:
    """Makes a :class:`StepPlan` a step. Cost: O(running + changed), whatever the size of the pool or of the queue.

    ``prefers_swap`` says of a sequence about to be preempted whether its blocks should go to the host tier; a host
    tier without room means recomputing.
    """

    def __init__(
        self, cache: KVCache | CacheGroups, config: EngineConfig, prefers_swap: Callable[[Sequence], bool]
    ) -> None:
        self.cache = cache
        self.config = config
        self.prefers_swap = prefers_swap
        self.ceiling = MAX_BUDGET  # tokens in a step that the device's working memory is known to allow
        self.brisk = MAX_BUDGET  # tokens in a step that who gets one a step does not notice as a pause
        self.running = Turns()
        self.waiting = Turns()
        self.swapped = 0  # how many of the waiting
        self.lengths = OutputLengths()
        self._step = 0
        self._passed = 0  # sequences that got in without displacing any, since one did that had waited longest
        self._forks = 0  # places in the batch kept for samples that are still to be forked
        self._searching = 0  # running beams
        self._limits = parse_class_limits(config.class_limits)
        self._forecast = Forecast(self.lengths)
        self._forecast_step = -FORECAST_STEPS
        self._refused: dict[int, _Refusal] = {}  # sequence number -> why it found no room
        self._draft = _Draft()

    @property
    def budget(self) -> int:
        """The most tokens in a step."""
        return min(self.config.token_budget or DEFAULT_BUDGET, self.ceiling)

    @property
    def places(self) -> int:
        """The most sequences in a step: a running one takes at least a token of the budget."""
        return min(self.config.max_batch_size, self.budget)

    def _free_places(self) -> int:
        """Places for more sequences. A beam that waits for others has a place, but takes no token."""
        running = len(self.running)
        idle = sum(s.idle for s in self.running) if self._searching else 0
        return min(self.config.max_batch_size - running, self.budget - running + idle) - self._forks

    # --- what the core tells ----------------------------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        sequence.rank = sequence.request.priority
        self.waiting.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that ended, in whatever state it is, and free its blocks."""
        if sequence.state is RequestState.RUNNING:
            self._leave(sequence)
            self.cache.close(sequence.number)
        elif self.waiting.discard(sequence) and sequence.state is RequestState.SWAPPED:
            self.swapped -= 1
            self.cache.close(sequence.number)

    def branch(self, request: Request, parents: list[Sequence]) -> list[Sequence]:
        """Let a request's beams go on from ``parents``, one or several from each; returns them in that order.

        The first to go on from a parent is the parent itself. The others are forked from it, in the places of beams
        that nobody goes on from.
        """
        first = request.sequences[0]
        if not request.forked:
            if first.state is RequestState.RUNNING:
                self._forks -= self._width(first) - 1
            request.forked = True
        spare = [s for s in request.sequences if s not in parents]
        for sequence in spare:
            self.remove(sequence)
            sequence.state = RequestState.WAITING
            sequence.rank = first.rank
        beams: list[Sequence] = []
        for parent in parents:
            beams.append(parent if parent not in beams else self._fork(parent, spare.pop(0)))
        return beams

    def set_priority(self, request: Request, priority: int) -> None:
        """Give a request another priority. One that ageing has brought forward stays there."""
        homes = self._take_out(request.sequences)
        request.priority = priority
        for sequence in request.sequences:
            if sequence.rank != AGED:
                sequence.rank = priority
        for sequence, turns in homes:
            turns.add(sequence)
            self.cache.set_priority(sequence.number, priority)
        self._refused.clear()

    def preempt(self, sequence: Sequence, *, may_swap: bool = True) -> None:
        """Take a running sequence's blocks: to the host tier if that is preferred and has room, else for good. What a
        step in flight computes for it is lost."""
        self._leave(sequence)
        sequence.furthest = max(sequence.furthest, sequence.computed)
        sequence.computed = self.cache.computed(sequence.number)
        draft = self._draft
        draft.drop(sequence)
        if may_swap and sequence.computed and self._swap_out(sequence):
            sequence.state = RequestState.SWAPPED
            self.swapped += 1
            draft.swapped_out.append(sequence)
        else:
            self._drop_blocks(sequence)
            draft.preempted.append(sequence)
        sequence.owes = False
        sequence.preempted_step = self._step
        sequence.request.preemptions += 1
        self.waiting.add(sequence)

    def give_up(self, sequence: Sequence) -> None:
        """Take the blocks of a running or swapped sequence for good: it will be recomputed."""
        if sequence.state is RequestState.RUNNING:
            self.preempt(sequence, may_swap=False)
        else:
            self.swapped -= 1
            self._drop_blocks(sequence)
            self._draft.preempted.append(sequence)
            sequence.request.preemptions += 1

    def configure(self, config: EngineConfig) -> None:
        """Follow other settings, and perhaps other blocks, from the next step on."""
        for sequence in self.running:
            sequence.room = 0
            sequence.owes = False  # it may have lost blocks that it had not filled yet
        self._limits = parse_class_limits(config.class_limits)
        if config.token_budget != self.config.token_budget:
            self.ceiling = MAX_BUDGET
        self.config = config
        self._refused.clear()

    # --- the step ---------------------------------------------------------------------------------------------------

    def plan(self, step: int) -> StepPlan:
        """Choose the step's work and make room for it: afterwards every slot that it writes exists."""
        self._step = step
        self._draft.budget = self.budget
        self._keep_within_limits()
        prefills = self._plan_decodes()
        if self._draft.decodes:
            self._draft.chunk = max(LEAST_CHUNK, self.brisk - len(self._draft.decodes))
        self._plan_prefills(prefills)
        draft, self._draft = self._draft, _Draft()
        plan = draft.plan()
        plan.waited, plan.hold = self.waiting.order[:WAITED_TOLD], self._hold(draft.left)
        return plan

    def _hold(self, budget: int) -> Hold:
        """Why the first in line is not in the step that leaves ``budget`` tokens."""
        if not self.waiting.order:
            return Hold.NOBODY
        if all(self._crowded(priority_name(priority)) for priority in self.waiting.classes):
            return Hold.CLASS
        if len(self.running) + self._forks >= self.config.max_batch_size:
            return Hold.BATCH
        return Hold.BLOCKS if budget and self._free_places() > 0 else Hold.BUDGET

    def _keep_within_limits(self) -> None:
        """The most sequences may be fewer than they were."""
        while len(self.running) > self.config.max_batch_size:
            self.preempt(self.running.order[-1])
        for name, limit in self._limits.items():
            while self._count(name) > limit:
                self.preempt(next(s for s in reversed(self.running.order) if s.class_name == name))

    def _plan_decodes(self) -> list[Sequence]:
        """Give running sequences their next token; returns those that still compute known tokens, in turn order."""
        prefills, due = [], []
        draft, order, decodes = self._draft, self.running.order, self._draft.decodes
        position = 0
        # By position, since forks join and victims leave, all of them behind the one being served.
        while position < len(order):
            sequence = order[position]
            position += 1
            in_flight = sequence.in_flight
            length = len(sequence.tokens) + in_flight
            if sequence.computed != length - 1:
                if sequence.computed < length:
                    prefills.append(sequence)
            elif in_flight and sequence.complete:
                continue  # its last token is in flight
            elif draft.budget:
                if not sequence.request.forked and sequence.awaits_fork:
                    self._fork_samples(sequence)
                decodes[sequence.number] = Work(sequence, length - 1, 1, True)
                draft.budget -= 1
                if length > sequence.room:
                    due.append(sequence)
        if due:
            self._grow_due(due)
        return prefills

    def _grow_due(self, due: list[Sequence]) -> None:
        """Room for the next token of planned decodes that have none: of all in one go, or where blocks are short, one
        by one in turn order. Those that must wait are not planned."""
        lengths = [len(sequence.tokens) + sequence.in_flight for sequence in due]
        size = self.cache.block_size
        try:
            self.cache.grow_all([sequence.number for sequence in due], lengths)
            for sequence, length in zip(due, lengths, strict=True):
                sequence.room = blocks_for(length, size) * size
        except OutOfBlocks:
            for sequence, length in zip(due, lengths, strict=True):
                if sequence.state is RequestState.RUNNING and not self._grow(sequence, length):
                    self._draft.drop(sequence)

    def _plan_prefills(self, prefills: list[Sequence]) -> None:
        """Fill what is left with prompts in turn order; admit waiting sequences as their turns come."""
        draft = self._draft
        admitting = True
        kept: Sequence | None = None  # has waited longest, and there is no room for it yet
        prefills.reverse()
        while draft.chunk:
            while prefills and prefills[-1].state is not RequestState.RUNNING:
                prefills.pop()
            sequence = prefills[-1] if prefills else None
            candidate = self._next_in_line(kept) if admitting else None
            if candidate is not None and (sequence is None or candidate.turn < sequence.turn):
                if not self._admit(candidate, prefills, kept):
                    admitting = candidate.rank == AGED and kept is None
                    kept = candidate
            elif sequence is None or not draft.left:
                return
            else:
                self._serve(prefills.pop())

    def _serve(self, sequence: Sequence) -> None:
        """Plan as many of the sequence's known tokens as the budget holds."""
        draft = self._draft
        count = min(sequence.pending - sequence.awaits_fork, draft.left, self.cache.chunk)
        stop = sequence.computed + count
        if count > 0 and self._grow(sequence, stop):
            draft.add(Work(sequence, sequence.computed, count, stop == sequence.length))
        if sequence.number not in draft.decodes and stop < sequence.length:
            draft.unfinished.append(sequence)

    def _fork_samples(self, sequence: Sequence) -> None:
        """The prompt is computed but for its last token: start the other samples from there."""
        request = sequence.request
        self._forks -= self._width(sequence) - 1
        request.forked = True
        for sample in request.sequences[1:]:
            sample.rank = sequence.rank
            self._fork(sequence, sample)

    def _fork(self, parent: Sequence, child: Sequence) -> Sequence:
        """Let ``child`` go on from where ``parent`` is: on the same blocks, if it has any and there is a place in the
        batch, else later, when it will compute again what the cache does not hold."""
        child.tokens = list(parent.tokens)
        child.furthest = max(parent.furthest, parent.computed)
        child.found = parent.computed
        child.owes = False
        swapped = parent.state is RequestState.SWAPPED
        joins = parent.state is RequestState.RUNNING and self._has_place(child)
        if swapped or joins:
            self.cache.fork(parent.number, child.number, owner=child.request.number)
        child.computed = parent.computed if swapped or joins else 0
        if swapped:
            child.state = RequestState.SWAPPED
            self.swapped += 1
        if joins:
            parent.room = 0  # its last block is shared from here on
            self._enter(child)
        else:
            self.waiting.add(child)
        return child

    def _has_place(self, sequence: Sequence) -> bool:
        return len(self.running) < self.config.max_batch_size and not self._crowded(sequence.class_name)

    # --- admission --------------------------------------------------------------------------------------------------

    def _admit(self, sequence: Sequence, prefills: list[Sequence], kept: Sequence | None = None) -> bool:
        """Let a waiting sequence run, at the cost of lower classes if need be; False if there is no room.

        There is room when all its known tokens fit beside what the running sequences still need for theirs
        (``prefills`` and those served in part) and what they may grow; and beside what is ``kept`` for another one.
        """
        if sequence.preempted_step == self._step or self._is_refused_still(sequence):
            return False
        free = self._free_places()
        if kept is not None:
            free = max(0, free - self._width(kept))
        places = min(self._width(sequence), self.places) - free
        if self._victims(sequence, places) is None:
            return False
        swapped = sequence.state is RequestState.SWAPPED
        if not swapped:
            sequence.computed = self._open(sequence)
        promised = sum(self._claim(s) for s in prefills + self._draft.unfinished if s.state is RequestState.RUNNING)
        victims = self._victims(sequence, places, self._claim(sequence) + promised - self._room_beside(kept))
        if victims is None:
            if not swapped:
                self.cache.close(sequence.number)
                sequence.computed = 0
            self._refused[sequence.number] = _Refusal(self.cache.available, len(self.running), self._step)
            return False
        self._refused.clear()
        for victim in victims:
            self.preempt(victim)
        self._passed = 0 if sequence.rank == AGED else self._passed + (not victims)
        self._forecast.include(sequence)
        self._start(sequence)
        return True

    def _start(self, sequence: Sequence) -> None:
        """Move an admitted sequence from the queue into the batch and give it its first tokens."""
        self.waiting.discard(sequence)
        if sequence.state is RequestState.WAITING:
            if sequence.request.started is None:
                sequence.request.cached_tokens = sequence.computed
                self._draft.started.append(sequence)
        else:
            if sequence.state is RequestState.SWAPPED:
                self.cache.swap_in(sequence.number)
                self.swapped -= 1
            sequence.resumed_step = self._step
            self._draft.resumed.append(sequence)
        resumed = sequence.state is not RequestState.WAITING
        self._enter(sequence)
        if resumed and sequence.pending:
            sequence.owes = sequence.pending <= self.cache.chunk and self._grow(sequence, sequence.length)
        if sequence.awaits_fork and sequence.pending == 1:
            self._fork_samples(sequence)
            for sample in sequence.request.sequences:
                if sample.state is RequestState.RUNNING:
                    self._serve(sample)
        else:
            self._serve(sequence)

    def _victims(self, sequence: Sequence, places: int, blocks: float | Amounts | None = None) -> list[Sequence] | None:
        """Running sequences that would have to go for ``sequence`` to come in, the lowest and youngest first: those of
        strictly lower classes, beams of later turns that wait for others, and where nothing but such beams is running,
        whatever their turns, all of them. ``None`` if even all of them would not do.

        What is missing: ``places`` in the batch, one in its class if that is crowded, ``blocks`` besides room to grow
        for those who stay (``None``: not looked at), and a token of the budget if it is spent.
        """
        draft, name = self._draft, sequence.class_name
        tokens = 0 if draft.budget else 1
        crowd = int(self._crowded(name))
        stuck = self._searching > 0 and all(s.idle for s in self.running)
        reserve = self._reserve(sequence, -blocks) if blocks is not None else 0.0
        victims: list[Sequence] = []
        enough: int | None = None  # victims for what it takes now; the others could give way once anybody grows so far
        candidates = reversed(self.running.order)
        while True:
            short = places > 0 or tokens > 0 or (blocks is not None and blocks > 0)
            if enough is None and not short and crowd <= 0:
                enough = len(victims)
            short = short or (blocks is not None and blocks + reserve * self._share(victims) > 0)
            if enough is not None and not short:
                return victims[:enough]
            victim = next(candidates, None)
            if victim is None:
                return None
            if victim.rank <= sequence.request.priority:
                if not stuck and (not self._searching or victim.turn < sequence.turn):
                    return None
                if not victim.idle:
                    continue
            if self._is_protected(victim) or (not victim.idle and self._is_back(victim)):
                continue
            if not short and (victim.class_name != name):
                continue
            victims.append(victim)
            places -= self._width(victim)
            crowd -= victim.class_name == name
            tokens -= victim.number in draft.decodes
            if blocks is not None:
                held, shared = self.cache.counts(victim.number)
                blocks -= held - shared + (self._claim(victim) if victim.pending > 1 else 0)

    def _reserve(self, sequence: Sequence, room: float | Amounts) -> float | Amounts:
        """Device blocks that running sequences and ``sequence`` will come to take beyond what they know they need,
        for which there is ``room``."""
        if self._step - self._forecast_step >= FORECAST_STEPS:
            self._forecast = Forecast(self.lengths, (s for s in self.running if not s.idle))
            self._forecast_step = self._step
        return self.cache.growth(self._forecast.peak(sequence, room * self.cache.block_size))

    def _share(self, victims: list[Sequence]) -> float:
        """How much of a reserve is needed without ``victims``: none if nobody stays who could get on."""
        running = len(self.running)
        staying = running - len(victims)
        return staying / running if staying and not all(s.idle for s in self.running if s not in victims) else 0.0

    def _is_refused_still(self, sequence: Sequence) -> bool:
        """Whether nothing has changed since this sequence last found no room, so that looking again is in vain."""
        refusal = self._refused.get(sequence.number)
        return (
            refusal is not None
            and refusal.running == len(self.running)
            and refusal.available >= self.cache.available
            and self._step - refusal.step < 16
            and self.running.order[-1].rank <= sequence.request.priority
        )

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _open(self, sequence: Sequence) -> int:
        request = sequence.request
        sequence.found = self.cache.open(
            sequence.number,
            sequence.tokens,
            salt=request.cache_salt,
            owner=request.number,
            priority=request.priority,
            longest=request.longest,
        )
        return sequence.found

    def _claim(self, sequence: Sequence) -> int | Amounts:
        """Device blocks that the sequence still takes until all its known tokens are computed."""
        tail = self._width(sequence) - 1  # each further sample copies the last block or begins one
        return self.cache.claim(sequence.number, sequence.length, self.budget) + tail

    def _room_beside(self, kept: Sequence | None) -> float | Amounts:
        """Available blocks that are not ``kept`` for a waiting sequence, supposed that the cache has none of it."""
        available = self.cache.available
        if kept is None:
            return available
        swapped = kept.state is RequestState.SWAPPED
        need = self._claim(kept) if swapped else self.cache.growth(kept.length) + self._width(kept)
        return 0 if need - available > 0 else available - need

    def _grow(self, sequence: Sequence, length: int) -> bool:
        """Slots for ``length`` tokens, if need be those of sequences whose turn is later; False if it must wait."""
        while True:
            try:
                self.cache.grow(sequence.number, length)
                sequence.room = blocks_for(length, self.cache.block_size) * self.cache.block_size
                return True
            except OutOfBlocks:
                victim = self._next_victim(sequence)
                if victim is None:
                    return False
                self.preempt(victim)

    def _next_victim(self, sequence: Sequence) -> Sequence | None:
        for victim in reversed(self.running.order):
            if victim is sequence:
                return None
            if not self._is_protected(victim):
                return victim
        return None

    def _is_protected(self, sequence: Sequence) -> bool:
        """Whether it came back and is not to be preempted yet: not in the next step, nor before it got any further."""
        return sequence.owes or 0 <= self._step - 1 <= sequence.resumed_step

    def _is_back(self, sequence: Sequence) -> bool:
        """Whether it came back from preemption only just now."""
        return sequence.resumed_step >= 0 and self._step - sequence.resumed_step < SERVED_STEPS

    def _swap_out(self, sequence: Sequence) -> bool:
        if not self.prefers_swap(sequence):
            return False
        try:
            self.cache.swap_out(sequence.number)
        except OutOfBlocks:
            return False
        return True

    def _drop_blocks(self, sequence: Sequence) -> None:
        self.cache.close(sequence.number)
        sequence.furthest = max(sequence.furthest, sequence.computed)
        sequence.computed = 0
        sequence.state = RequestState.PREEMPTED

    # --- the two lists ----------------------------------------------------------------------------------------------

    def _width(self, sequence: Sequence) -> int:
        """Places in the batch that the sequence takes, those of the samples to be forked from it included."""
        request = sequence.request
        return len(request.sequences) if sequence.index == 0 and not request.forked else 1

    def _count(self, name: str) -> int:
        """Running sequences of a class."""
        return sum(count for priority, count in self.running.classes.items() if priority_name(priority) == name)

    def _crowded(self, name: str) -> bool:
        """Whether a class has as many sequences running as it may."""
        limit = self._limits.get(name)
        return limit is not None and self._count(name) >= limit

    def _next_in_line(self, kept: Sequence | None = None) -> Sequence | None:
        """The first waiting sequence of a class that may have another one running; none of those that have waited
        longest, while room is ``kept`` for one of them."""
        full = {name for name in self._limits if self._crowded(name) and not self._has_idle(name)}
        if kept is None and self._passed >= SHARE - 1:
            self._bring_forward(full)
        order = self.waiting.order
        place = 0 if kept is None else self.waiting.place_after(AGED)
        while place < len(order):
            sequence = order[place]
            if sequence.class_name not in full:
                return sequence
            # All of one rank are of one class, except those that have waited longest.
            place = place + 1 if sequence.rank == AGED else self.waiting.place_after(sequence.rank)
        return None

    def _bring_forward(self, full: set[str]) -> None:
        """The first by arrival of all that wait, in a class that is not ``full``, goes before all others from now on,
        unless there is one such already."""
        if not self.waiting.order or self.waiting.order[0].rank == AGED:
            return
        classes = [priority for priority in self.waiting.classes if priority_name(priority) not in full]
        firsts = [first for priority in classes if (first := self.waiting.first_of(priority)) is not None]
        if firsts:
            eldest = min(firsts, key=lambda first: first.request.number)
            # Beams only get on together.
            self._rank(eldest.request.sequences if eldest.request.search else [eldest], AGED)

    def _has_idle(self, name: str) -> bool:
        return self._searching > 0 and any(s.idle and s.class_name == name for s in self.running)

    def _rank(self, sequences: list[Sequence], rank: int) -> None:
        homes = self._take_out(sequences)
        for sequence in sequences:
            sequence.rank = rank
        for sequence, turns in homes:
            turns.add(sequence)

    def _take_out(self, sequences: list[Sequence]) -> list[tuple[Sequence, Turns]]:
        """Take sequences out of the lists that they are in, and say which, so that their turns can change."""
        return [(s, turns) for s in sequences for turns in (self.running, self.waiting) if turns.discard(s)]

    def _enter(self, sequence: Sequence) -> None:
        sequence.state = RequestState.RUNNING
        self.running.add(sequence)
        self._searching += sequence.request.search is not None
        self._forks += self._width(sequence) - 1

    def _leave(self, sequence: Sequence) -> None:
        sequence.room = 0
        self.running.discard(sequence)
        self._searching -= sequence.request.search is not None
        self._forks -= self._width(sequence) - 1


class _Refusal(NamedTuple):
    available: float | Amounts  # blocks, then
    running: int  # sequences, then
    step: int


class _Draft:
    """A step plan in the making. Work can be taken back, and its tokens return to the budget."""

    def __init__(self) -> None:
        self.budget = 0  # tokens left
        self.chunk = MAX_BUDGET  # of them for prompts
        self.decodes: dict[int, Work] = {}  # single tokens, by sequence number
        self.prefills: dict[int, Work] = {}
        self.unfinished: list[Sequence] = []  # served, but with known tokens left
        self.started: list[Sequence] = []
        self.preempted: list[Sequence] = []
        self.swapped_out: list[Sequence] = []
        self.resumed: list[Sequence] = []

    @property
    def left(self) -> int:
        """Tokens that prompts may still take."""
        return min(self.budget, self.chunk)

    def add(self, work: Work) -> None:
        """Plan a part of a prompt."""
        (self.decodes if work.count == 1 else self.prefills)[work.sequence.number] = work
        self.budget -= work.count
        self.chunk -= work.count

    def drop(self, sequence: Sequence) -> None:
        work = self.decodes.pop(sequence.number, None) or self.prefills.pop(sequence.number, None)
        if work is not None:
            self.budget += work.count
            self.chunk += work.count

    def plan(self) -> StepPlan:
        return StepPlan(
            [*self.decodes.values(), *self.prefills.values()],
            self.started,
            self.preempted,
            self.swapped_out,
            self.resumed,
        )
