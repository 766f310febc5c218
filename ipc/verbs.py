"""What can be asked of an engine: each verb a message, and what its reply means to who asked.

The blocking and the asynchronous client share this list; each says with ``_carry_out`` how a call is made.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from .line import EngineError
from .protocol import (
    BlockDetail,
    Cancel,
    ChatMessage,
    ClientMessage,
    ConfigReply,
    DescribeBlock,
    DescribeRequest,
    Done,
    EngineMessage,
    EngineStatus,
    Failed,
    GetConfig,
    GetSnapshot,
    GetStatus,
    Message,
    Reconfigure,
    Reconfigured,
    ReconfigureReport,
    Release,
    RequestDetail,
    SetPriority,
    SettingInfo,
    Shutdown,
    SnapshotReply,
    StatusReply,
    Submit,
)
from .vocabulary import SamplingParams

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Message)
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A message, and what to make of the reply; ``read`` raises :class:`EngineError` for a reply that states one."""

    message: ClientMessage
    read: Callable[[EngineMessage], R]


class Verb(Protocol[P, R_co]):
    """A method as its callers see it: it returns the reply, or on an asynchronous client something to await."""

    @overload
    def __get__(self, client: Blocking, owner: type | None = None) -> Callable[P, R_co]: ...

    @overload
    def __get__(self, client: Awaiting, owner: type | None = None) -> Callable[P, Coroutine[Any, Any, R_co]]: ...

    def __get__(self, client: Any, owner: type | None = None) -> Any: ...


def verb(call: Callable[Concatenate[Any, P], Call[R]]) -> Verb[P, R]:
    """A method that makes the call which ``call`` returns."""

    @functools.wraps(call)
    def method(self: Any, *args: P.args, **more: P.kwargs) -> Any:
        return self._carry_out(call(self, *args, **more))

    return cast("Verb[P, R]", method)


class Verbs:
    """Every call that has a single reply. Each raises :class:`EngineError` for what the engine refuses."""

    @verb
    def cancel(self, id: str) -> Call[None]:
        """End a request; what it produced until then can still be read."""
        return Call(Cancel(request=id), _done)

    @verb
    def set_priority(self, id: str, priority: str | int) -> Call[None]:
        """Move a request ahead or back: a class by name, or any integer, lower running first."""
        return Call(SetPriority(request=id, priority=priority), _done)

    @verb
    def status(self) -> Call[EngineStatus]:
        """What the engine is and does; answered at once, however long a step takes."""
        return Call(GetStatus(), lambda reply: expect(reply, StatusReply).status)

    @verb
    def config(self) -> Call[list[SettingInfo]]:
        """All settings; answered at once, however long a step takes."""
        return Call(GetConfig(), lambda reply: expect(reply, ConfigReply).settings)

    @verb
    def reconfigure(self, changes: dict[str, Any], *, dry_run: bool = False) -> Call[ReconfigureReport]:
        """Change live settings between two steps; with ``dry_run`` only tell what that would do."""
        message = Reconfigure(changes=changes, dry_run=dry_run)
        return Call(message, lambda reply: expect(reply, Reconfigured).report)

    @verb
    def snapshot(self) -> Call[SnapshotReply]:
        """All blocks and requests, and the telemetry that they correspond to."""
        return Call(GetSnapshot(), lambda reply: expect(reply, SnapshotReply))

    @verb
    def describe_block(self, block: int, tier: str = "device", group: str = "") -> Call[BlockDetail]:
        """A block's whole story; ``group`` names the layers whose pool it is, empty is the first."""
        message = DescribeBlock(tier=tier, block=block, group=group)
        return Call(message, lambda reply: expect(reply, BlockDetail))

    @verb
    def describe_request(self, id: str, group: str = "") -> Call[RequestDetail]:
        """A request's row, block tables and text; ``group`` as for a block."""
        return Call(DescribeRequest(request=id, group=group), lambda reply: expect(reply, RequestDetail))

    @verb
    def release(self) -> Call[None]:
        """Let the engine live on when the process that started it ends."""
        return Call(Release(), _done)

    @verb
    def shutdown(self, drain: bool = False, hand_back: bool = False) -> Call[None]:
        """Stop the engine: after finishing what it has (``drain``), or at once. With ``hand_back``, requests that have
        not begun are not waited for; clients that outlive engines ask the next one."""
        return Call(Shutdown(drain=drain, hand_back=hand_back), _done)


class Blocking(Verbs):
    """Verbs return when they are answered."""

    def _carry_out(self, call: Call[R]) -> R:
        raise NotImplementedError


class Awaiting(Verbs):
    """Verbs are awaited."""

    async def _carry_out(self, call: Call[R]) -> R:
        raise NotImplementedError


def expect(reply: EngineMessage, kind: type[M]) -> M:
    """The reply, which must be of ``kind``; raises what it states otherwise."""
    if isinstance(reply, Failed):
        raise EngineError.of(reply)
    if not isinstance(reply, kind):
        raise EngineError(f"The engine answered {type(reply).__name__} where {kind.__name__} belongs.", code="protocol")
    return reply


def _done(reply: EngineMessage) -> None:
    expect(reply, Done)


def submission(
    prompt: str | Submit | None,
    messages: Sequence[ChatMessage | dict[str, str]] | None,
    token_ids: Sequence[int] | None,
    priority: str | int,
    cache_salt: str,
    sampling: dict[str, Any],
) -> Submit:
    """A :class:`Submit` with an id, from one or from its parts."""
    if isinstance(prompt, Submit):
        return prompt if prompt.id else msgspec.structs.replace(prompt, id=uuid.uuid4().hex)
    return Submit(
        id=uuid.uuid4().hex,
        prompt=prompt,
        messages=None if messages is None else [msgspec.convert(m, ChatMessage) for m in messages],
        token_ids=None if token_ids is None else list(token_ids),
        sampling=SamplingParams(
            **{**sampling, **{name: tuple(sampling.get(name, ())) for name in ("stop", "bad_words")}}
        ),
        priority=priority,
        cache_salt=cache_salt,
    )
