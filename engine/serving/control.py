"""Control messages: what each of them does to a loaded engine, and what it is answered."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ...ipc.protocol import (
    FAMILY_MAX,
    MAX_MESSAGE_BYTES,
    Accepted,
    BlockDetail,
    BlockOwner,
    Cancel,
    ClientMessage,
    DescribeBlock,
    DescribeRequest,
    Done,
    EngineMessage,
    Failed,
    Finished,
    GetSnapshot,
    PrefixBlock,
    Reconfigure,
    Reconfigured,
    ReconfigureReport,
    Release,
    RequestDetail,
    SampleResult,
    SetPriority,
    SharedWith,
    Shutdown,
    SnapshotReply,
    Submit,
    Tokens,
)
from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import FinishReason, Refused, parse_priority
from ..reconfigure import reconfigure
from ..request import Request
from ..rules import Rules
from .audience import user_of, without_names
from .doorkeeper import OWNER
from .intake import Intake, Prepared
from .receipts import Receipts

if TYPE_CHECKING:
    from ..cache.kv_cache import KVCache, PrefixNode
    from ..core import Engine, Output
    from .publisher import Publisher
    from .text import Text

_log = logging.getLogger(__name__)

#: The longest names, in characters.
ID_MAX = 200
SALT_MAX = 1000

#: Bytes that one block takes in a snapshot.
_BLOCK_BYTES = 15


#: What only operators may ask for.
FOR_OPERATORS = (Reconfigure, Release, Shutdown)


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a message, and what it may see."""

    client: str
    operator: bool

    def owns(self, client: str) -> bool:
        """Whether what ``client`` asked for is the caller's, too: it came with the same key."""
        return self.operator or client == self.client or user_of(client) == user_of(self.client) != OWNER


class Control:
    """Carries out clients' messages on ``engine``; called between steps, on the thread that runs them.

    ``send`` gives a message to a client. ``text`` turns prompts into tokens and tokens into text; ``deliver`` is given
    those that were read, on another thread, and brings them to :meth:`submit_prepared` on this one.
    """

    def __init__(
        self,
        engine: Engine,
        text: Text,
        publisher: Publisher,
        send: Callable[[str, EngineMessage], None],
        deliver: Callable[[Prepared], None],
    ) -> None:
        self._engine = engine
        self._text = text
        self._publisher = publisher
        self._send = send
        self._intake = Intake(text, engine.rules, deliver)
        self._receipts = Receipts()
        self._actions: dict[type[Any], Callable[[Caller, Any], EngineMessage | None]] = {
            Submit: self._submit,
            Cancel: self._cancel,
            SetPriority: self._set_priority,
            GetSnapshot: self._snapshot,
            Reconfigure: self._reconfigure,
            DescribeBlock: self._describe_block,
            DescribeRequest: self._describe_request,
        }

    @property
    def has_work(self) -> bool:
        """Whether any request is running, waiting or being read."""
        return self._engine.has_work or len(self._intake) > 0

    def handle(self, client: str, message: ClientMessage, operator: bool) -> None:
        """Carry out one message. Whatever is wrong with it is answered and goes no further. Who is no ``operator`` sees
        and changes only the requests of its own user."""
        caller = Caller(client, operator)
        self._answer(client, message.id, lambda: self._actions[type(message)](caller, message))

    def _answer(self, client: str, id: str, action: Callable[[], EngineMessage | None]) -> None:
        try:
            reply = action()
        except Refused as refused:
            reply = Failed(id=id, code=refused.code, message=str(refused), field=refused.field)
        except Exception as error:
            _log.exception("A message failed: %s: %s", type(error).__name__, error)
            reply = Failed(id=id, code="internal", message=f"{type(error).__name__}: {error}")
        if reply is not None:
            self._send(client, reply)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _submit(self, caller: Caller, message: Submit) -> Accepted | None:
        client = caller.client
        known = self._receipts.find(message)
        if known is not None:
            self._repeat(caller, known)
            return None
        self._check_limits(client, message)
        worded = message.sampling.bad_words or message.sampling.json_schema
        if message.prompt is None and message.messages is None and not worded:
            return self._queue(client, message, self._text.prompt(message))
        if message.id in self._intake:
            raise Refused(f"A request {message.id!r} is being read already.", field="id", code="duplicate")
        if len(self._intake) >= self._engine.config.max_queue:
            raise Refused(f"{len(self._intake):,} prompts wait to be read already (max_queue).", code="queue_full")
        self._intake.put(client, message)
        return None

    def _check_limits(self, client: str, message: Submit) -> None:
        """Raises :class:`Refused` for names that are too long, and for more requests than a client may have open."""
        for field, text, most in (("id", message.id, ID_MAX), ("cache_salt", message.cache_salt, SALT_MAX)):
            if len(text) > most:
                raise Refused(
                    f"{field} has {len(text):,} characters; accepted are up to {most:,}.", field=field, code="too_long"
                )
        limit = self._engine.config.max_client_requests
        if len(self._engine.requests) + len(self._intake) < limit:
            return
        running = sum(request.client == client for request in self._engine.requests.values())
        if running + self._intake.count(client) >= limit:
            raise Refused(
                f"{limit:,} requests of this client run or wait already, and more are not accepted "
                f"(max_client_requests); submit this one again when some have ended.",
                code="too_many_requests",
            )

    def submit_prepared(self, prepared: Prepared) -> None:
        """Go on with a submission whose prompt was read, unless it was cancelled meanwhile."""
        if not self._intake.take(prepared):
            return
        client, message, outcome = prepared.client, prepared.message, prepared.outcome
        if isinstance(outcome, Refused):
            self._send(client, Failed(id=message.id, code=outcome.code, message=str(outcome), field=outcome.field))
        else:
            self._answer(client, message.id, lambda: self._queue(client, message, *outcome))

    def _queue(self, client: str, message: Submit, prompt: list[int], rules: Rules | None = None) -> Accepted:
        request = self._engine.submit(
            id=message.id,
            prompt=prompt,
            sampling=message.sampling,
            priority=parse_priority(message.priority),
            client=client,
            cache_salt=message.cache_salt,
            rules=rules,
        )
        self._receipts.note(message, request)
        self._publisher.submitted(request)
        return accepted(request)

    def _repeat(self, caller: Caller, request: Request) -> None:
        """Answer a request that was submitted before: with what came of it so far, and if it goes on, with the rest."""
        client, (told, over) = caller.client, self._engine.told(request)
        if not caller.owns(request.client) or (request.client == client and not over):
            raise Refused(f"A request {request.id!r} was submitted already.", field="id", code="duplicate")
        if not over:
            text = "The request was submitted again over another connection, which has its answer from here on."
            self._send(request.client, Failed(id=request.id, code="duplicate", message=text))
            request.client = client
        self._send(client, accepted(request))
        for output in told:
            self._send(client, tokens_of(output, self._text))
        if over:
            self._send(client, ending_of(request))

    def _check_own(self, caller: Caller, id: str) -> None:
        """Raises :class:`Refused` for a request of others', as for one that there is not."""
        request = self._engine.requests.get(id)
        client = self._intake.client_of(id) if id in self._intake else request.client if request else caller.client
        if not caller.owns(client):
            raise unknown(id)

    def _cancel(self, caller: Caller, message: Cancel) -> Done:
        self._check_own(caller, message.request)
        if message.request in self._intake:
            owner = self._intake.cancel(message.request)
            self._send(owner, Finished(id=message.request, samples=[SampleResult(0, FinishReason.CANCELLED.value, 0)]))
        elif not self._engine.cancel(message.request):
            raise unknown(message.request)
        return Done(id=message.id)

    def cancel_client(self, client: str) -> int:
        """End all requests of a client that is gone, which may submit them again; how many there were."""
        self._receipts.forget([id for id, request in self._engine.requests.items() if request.client == client])
        return self._intake.cancel_client(client) + self._engine.cancel_client(client)

    def abandon(self, reason: str) -> None:
        """Tell every request that it ends here because the engine does."""
        live = [(request.client, request.id) for request in self._engine.requests.values()]
        for client, id in [*live, *self._intake.cancel_all()]:
            self._send(client, Failed(id=id, code="shutdown", message=reason))

    def hand_back(self, reason: str) -> None:
        """Tell every request that has not begun that it ends here, so that it is asked again of the next engine."""
        for client, id in self._intake.cancel_all():
            self._send(client, Failed(id=id, code="shutdown", message=reason))
        self._engine.fail_waiting("shutdown", reason)

    def _set_priority(self, caller: Caller, message: SetPriority) -> Done:
        priority = parse_priority(message.priority)
        self._check_own(caller, message.request)
        if message.request in self._intake:
            self._intake.set_priority(message.request, priority)
            return Done(id=message.id)
        request = self._engine.requests.get(message.request)
        if request is None:
            raise unknown(message.request)
        self._engine.set_priority(request.id, priority)
        self._publisher.prioritised(request)
        return Done(id=message.id)

    # --- settings ---------------------------------------------------------------------------------------------------

    def _reconfigure(self, _caller: Caller, message: Reconfigure) -> Reconfigured:
        done = reconfigure(self._engine, message.changes, dry_run=message.dry_run)
        report = ReconfigureReport(**{f.name: getattr(done, f.name) for f in dataclasses.fields(done)})
        if not message.dry_run:
            self._publisher.reconfigured(describe(report))
        return Reconfigured(id=message.id, report=report)

    # --- looking ----------------------------------------------------------------------------------------------------

    def _snapshot(self, caller: Caller, message: GetSnapshot) -> SnapshotReply:
        cache = self._engine.cache
        blocks = sum(group.device.num_blocks + group.host.num_blocks for group in cache.groups)
        if blocks * _BLOCK_BYTES > MAX_MESSAGE_BYTES - 1_000_000:
            raise Refused(f"A snapshot of {blocks:,} blocks does not fit into one message.", code="too_large")
        requests = [*self._engine.ended, *self._engine.requests.values()]
        return SnapshotReply(
            id=message.id,
            epoch=self._publisher.epoch,
            sequences=self._publisher.sequences(OWNER if caller.operator else user_of(caller.client)),
            blocks=self._publisher.snapshot(),
            requests=[self._row(caller, request) for request in requests],
        )

    def _row(self, caller: Caller, request: Request) -> RequestRow:
        """A request's row; of others', what it does and not what it is called."""
        row = self._publisher.row(request)
        return row if caller.owns(request.client) else without_names(row)

    def _describe_block(self, caller: Caller, message: DescribeBlock) -> BlockDetail:
        if message.tier not in ("device", "host"):
            raise Refused.value("tier", message.tier, "device or host")
        cache = self._group(message.group)
        pool = cache.device if message.tier == "device" else cache.host
        if not 0 <= message.block < pool.num_blocks:
            accepted = f"0 to {pool.num_blocks - 1:,}" if pool.num_blocks else "nothing: the tier has no blocks"
            raise Refused.value("block", message.block, accepted)
        facts = cache.describe(message.tier, message.block)
        sequences = {s.number: s for request in self._engine.requests.values() for s in request.sequences}
        ancestors, children = cache.family(message.tier, message.block)
        copy = cache.copy_of(message.tier, message.block)
        owners = [(sequences[number], position) for number, position in facts.owners if number in sequences]
        detail = BlockDetail(
            id=message.id,
            tier=message.tier,
            block=message.block,
            state=facts.state,
            ref_count=facts.ref,
            fill=facts.fill,
            last_used=facts.last_used,
            prefix_hash=facts.digest,
            owners=[BlockOwner(s.request.number, s.index, position) for s, position in owners],
            token_ids=facts.token_ids,
            text=self._text.of(facts.token_ids),
            group=message.group,
            depth=int(pool.index.depth[message.block]),
            ancestors=[prefix_block(node) for node in ancestors[-FAMILY_MAX:]],
            ancestor_count=len(ancestors),
            children=[prefix_block(node) for node in children[:FAMILY_MAX]],
            child_count=len(children),
            copy=-1 if copy is None else copy,
            token_texts=self._text.pieces(facts.token_ids),
        )
        if caller.operator or any(caller.owns(s.request.client) for s, _ in owners):
            return detail
        return without_content(detail)

    def _describe_request(self, caller: Caller, message: DescribeRequest) -> RequestDetail:
        if message.request in self._intake and caller.owns(self._intake.client_of(message.request)):
            raise Refused(f"The prompt of {message.request!r} is still being read.", code="unknown_request")
        live = self._engine.requests.get(message.request)
        known = [*self._engine.ended, live] if live else self._engine.ended
        request = _latest([r for r in known if caller.owns(r.client)], message.request)
        cache = self._group(message.group)
        held = [cache.tables[s.number] for s in request.sequences if s.number in cache.tables]
        return RequestDetail(
            id=message.id,
            row=self._publisher.row(request),
            tier="host" if held and held[0].pool.is_host else "device",
            block_tables=[table.kept.tolist() for table in held],
            group=message.group,
            text=[s.text for s in request.sequences],
            prompt_text=self._text.of(request.prompt),
            shared_with=self._shared_with(request, cache),
            sampling=request.sampling,
        )

    def _shared_with(self, request: Request, cache: KVCache) -> list[SharedWith]:
        """Who holds blocks of this request too. A block that several samples hold counts once."""
        request_of = {s.number: other.number for other in self._engine.requests.values() for s in other.sequences}
        blocks: dict[int, set[int]] = {}
        for sequence in request.sequences:
            table = cache.tables.get(sequence.number)
            if table is None:
                continue
            for block in table.kept[table.pool.ref[table.kept] > 1].tolist():
                for holder in table.pool.holders(block):
                    blocks.setdefault(request_of.get(holder, request.number), set()).add(block)
        blocks.pop(request.number, None)
        counts = sorted(((len(held), number) for number, held in blocks.items()), key=lambda c: (-c[0], c[1]))
        return [SharedWith(number, count) for count, number in counts[:FAMILY_MAX]]

    def _group(self, name: str) -> KVCache:
        groups = {group.name: group for group in self._engine.cache.groups}
        if name and name not in groups:
            raise Refused.value("group", name, ", ".join(groups))
        return groups[name] if name else self._engine.cache.groups[0]


def prefix_block(node: PrefixNode) -> PrefixBlock:
    key = node.entry.key
    return PrefixBlock(
        tier="host" if node.pool.is_host else "device",
        block=node.block,
        depth=node.entry.depth + 1,
        prefix_hash=key.hex() if isinstance(key, bytes) else "",
        ref_count=int(node.pool.ref[node.block]),
    )


def accepted(request: Request) -> Accepted:
    return Accepted(id=request.id, number=request.number, prompt_tokens=request.prompt_length)


def without_content(detail: BlockDetail) -> BlockDetail:
    """What a block does, and nothing of what it holds: a hash would confirm a guess."""
    return msgspec.structs.replace(
        detail,
        token_ids=[],
        token_texts=[],
        text="",
        prefix_hash="",
        ancestors=[msgspec.structs.replace(block, prefix_hash="") for block in detail.ancestors],
        children=[msgspec.structs.replace(block, prefix_hash="") for block in detail.children],
    )


def tokens_of(output: Output, text: Text) -> Tokens:
    """New tokens of one sample as the message that carries them."""
    return Tokens(
        id=output.request.id,
        index=output.index,
        token_ids=output.token_ids,
        text=output.text,
        logprobs=text.logprobs(output.token_ids, output.scores),
    )


def ending_of(request: Request) -> Finished | Failed:
    """How a request ended, as the last message of its stream."""
    if request.error:
        return Failed(id=request.id, code=request.error_code, message=request.error)
    return Finished(
        id=request.id,
        samples=[
            SampleResult(s.index, (s.finish_reason or FinishReason.CANCELLED).value, max(0, s.output_length), s.score)
            for s in request.sequences
        ],
        prompt_tokens=request.prompt_length,
        cached_tokens=request.cached_tokens,
        output_tokens=request.output_tokens,
        queue_s=request.queue_s or 0.0,
        ttft_s=request.ttft_s or 0.0,
        e2e_s=request.e2e_s or 0.0,
        preemptions=request.preemptions,
    )


def describe(report: ReconfigureReport) -> str:
    """What a change did, in one sentence."""
    changes = ", ".join(f"{name} {before} → {after}" for name, (before, after) in report.changes.items())
    return (
        f"{changes or 'Nothing changed'}: {report.blocks_moved:,} blocks moved, "
        f"{report.bytes_copied / 2**20:.1f} MiB copied, {report.pause_ms:.1f} ms pause."
    )


def forbidden(message: ClientMessage, user: str) -> Failed:
    """The answer to who may not ask for that."""
    verb = type(message).__name__.lower().replace("shutdown", "stop")
    text = f"The key {user!r} may not {verb} this engine; one made with `pagedeck keys add --operator` may."
    return Failed(id=message.id, code="forbidden", message=text)


def unknown(id: str) -> Refused:
    return Refused(f"No request {id!r} is running or waiting.", code="unknown_request", field="request")


def _latest(ended: list[Request], id: str) -> Request:
    for request in reversed(ended):
        if request.id == id:
            return request
    raise Refused(f"No request {id!r} is known.", code="unknown_request", field="request")
