"""Control messages. ROUTER in the engine, DEALER in clients; one MessagePack frame a message.

Every message is a tagged map: ``type`` names the struct, ``id`` is chosen by the client and echoed in each reply. A
submitted request's ``id`` is its name for its whole life and must be unique in the engine. Its replies are one
:class:`Accepted`, any number of :class:`Tokens`, and exactly one :class:`Finished` or :class:`Failed`. Any other
message gets exactly one reply: its own, or :class:`Failed`.
"""

from __future__ import annotations

import builtins
from typing import Any, TypeVar

import msgspec

from .telemetry import BlocksUpdate, RequestRow, Stats
from .vocabulary import SamplingParams

T = TypeVar("T")

PROTOCOL_VERSION = 1

#: Larger frames are refused by the socket (ZMQ_MAXMSGSIZE).
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

#: Seconds between a client's pings, and the silence after which either side takes the other for gone. Whoever stood
#: still or was cut off for less goes on as if nothing had been.
HEARTBEAT_S = 1.0
GONE_AFTER_S = 30.0

#: The most blocks of the prefix tree told on either side of one.
FAMILY_MAX = 32


class Message(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type", tag=str.lower):
    """``serial`` and ``seen`` are there for clients that number their messages, see :class:`Hello`."""

    id: str = ""
    serial: int = 0  # the number of this message among its sender's, from 1; 0 for those that may get lost
    seen: int = 0  # the number of the last message that its sender has from the other side


# --- client to engine -------------------------------------------------------------------------------------------


class Hello(Message):
    """The first message of a client. Answered by :class:`Welcome`, or :class:`Failed` for another version.

    A client that sets its socket's routing id and numbers its messages (``numbered``, all but hello and ping, see
    :mod:`.ledger`) loses nothing when its connection breaks: it says hello again over the new one, with ``resumes`` and
    the last message that it has ``seen``, and so does the engine in its :class:`Welcome`; both repeat what the other
    misses. Where that cannot be, the answer is :class:`Failed` (``slow_client``, ``lost``): all that the client asked
    has ended, and it begins anew. ``pid``, where the engine can look at it, tells the engine whether a client whose
    connection broke can come back at all.
    """

    version: int = PROTOCOL_VERSION
    client: str = ""
    numbered: bool = False
    resumes: bool = False
    pid: int = 0


class Ping(Message):
    """Keeps the client alive in the engine's eyes. Answered by :class:`Pong`.

    A client that was silent for ``GONE_AFTER_S``, or too slow, is given up and its requests are cancelled. Should it
    speak again, each of its requests fails (``slow_client``) and so does its message; then it counts as a client
    again, one that numbers its messages as soon as it says hello.
    """


class Bye(Message):
    """The client leaves; its requests are cancelled. Not answered."""


class ChatMessage(msgspec.Struct, omit_defaults=True):
    """One message of a conversation. ``tool_calls`` are those that an assistant made, each ``{"id": …, "type":
    "function", "function": {"name": …, "arguments": {…}}}``; a message of role ``tool`` answers the one that
    ``tool_call_id`` names, ``name`` being the tool's. The model's chat template is given what is not empty."""

    role: str
    content: str = ""
    tool_calls: list[dict[str, Any]] = []
    tool_call_id: str = ""
    name: str = ""


class Submit(Message):
    """Run a prompt. Exactly one of ``prompt``, ``messages`` (through the model's chat template) and ``token_ids``.

    ``tools`` go to the chat template as well: what the model may call, each ``{"type": "function", "function": {"name":
    …, "description": …, "parameters": a JSON schema}}``. Its calls come back as text, in the model's own format.
    """

    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] = []
    token_ids: list[int] | None = None
    sampling: SamplingParams = SamplingParams()
    priority: str | int = "normal"
    cache_salt: str = ""


class Cancel(Message):
    """Answered by :class:`Done`; the request itself still ends with one :class:`Finished` (reason ``cancelled``)."""

    request: str = ""


class SetPriority(Message):
    request: str = ""
    priority: str | int = "normal"


class GetStatus(Message):
    pass


class GetSnapshot(Message):
    """All blocks of both tiers, all requests, and the telemetry sequence that they correspond to."""


class GetConfig(Message):
    pass


class Reconfigure(Message):
    """Change live settings. ``dry_run`` answers what would happen and changes nothing."""

    changes: dict[str, Any] = {}
    dry_run: bool = False


class DescribeBlock(Message):
    """``group``: the group of layers whose pool it is, by name (see :class:`telemetry.BlocksUpdate`); empty is the
    first."""

    tier: str = "device"
    block: int = 0
    group: str = ""


class DescribeRequest(Message):
    """``group``: whose block tables to tell, as in :class:`DescribeBlock`."""

    request: str = ""
    group: str = ""


class Release(Message):
    """The engine's owner lets go of it: it no longer ends when the process that started it ends."""


class Shutdown(Message):
    """Stop the engine: after finishing what it has (``drain``), or at once. With ``hand_back``, what has not begun is
    not waited for: it fails (``shutdown``), and can be asked of the engine that follows."""

    drain: bool = False
    hand_back: bool = False


# --- engine to client -------------------------------------------------------------------------------------------


class EngineStatus(msgspec.Struct, omit_defaults=True):
    name: str
    state: str
    model: str
    epoch: str
    pid: int
    version: str
    detail: str = ""  # what it is doing, or why it failed
    progress: float | None = None  # 0 to 1 while loading, where known
    device: str = ""
    dtype: str = ""
    context_length: int = 0
    parameters: int = 0
    vocabulary: int = 0
    started: float = 0.0  # Unix seconds
    chat_template: bool = False
    telemetry: str = ""  # endpoint
    log: str = ""  # path of the log file
    stats: Stats | None = None


class SettingInfo(msgspec.Struct, omit_defaults=True):
    """One engine setting: what it is now, what it may be, and whether it changes while requests run."""

    name: str
    value: Any
    meaning: str
    unit: str = ""
    live: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: list[Any] | None = None


class ReconfigureReport(msgspec.Struct, omit_defaults=True):
    """What a change did, or with ``dry_run`` would do. Counts are exact in both; times are estimates in a dry run."""

    dry_run: bool
    changes: dict[str, tuple[Any, Any]]  # field -> (before, after)
    pause_ms: float = 0.0
    blocks_moved: int = 0
    bytes_copied: int = 0
    cached_dropped: int = 0  # cached blocks whose content is given up
    preempted: int = 0  # sequences that must be recomputed or swapped to make room
    notes: list[str] = []


class Welcome(Message):
    status: EngineStatus


class Pong(Message):
    """Also sent unasked, with an empty ``id``, to a silent client: the socket then shows whether it is gone."""

    time: float = 0.0


class Accepted(Message):
    """The request is queued. ``number`` names it in telemetry."""

    number: int = 0
    prompt_tokens: int = 0


class TokenLogprob(msgspec.Struct, omit_defaults=True):
    """A token and the natural logarithm of its probability (as in :class:`SamplingParams`). ``text`` is the token's
    own, with U+FFFD for what is no whole character, ``bytes`` is exact; both are empty without a tokenizer. ``top``
    lists the most probable tokens in its place, the first being the most probable, as far as they were asked for."""

    token_id: int
    logprob: float
    text: str = ""
    bytes: builtins.bytes = b""
    top: list[TokenLogprob] = []


class Tokens(Message):
    """New tokens of sample ``index``. ``text`` is what became certain; it can lag behind the tokens.

    With ``beam_width``, or ``best_of`` more than ``n``, it is known only at the end which samples come back: then each
    of them comes whole, in one message, just before :class:`Finished`, and nothing comes of a cancelled request.
    ``logprobs`` has an entry for each token, or none where they were not asked for.
    """

    index: int = 0
    token_ids: list[int] = []
    text: str = ""
    logprobs: list[TokenLogprob] = []


class SampleResult(msgspec.Struct, omit_defaults=True):
    """``score``: what samples were ranked by, if they were: their mean log-probability (``best_of``), or the sum of
    their log-probabilities divided by their length to the power of ``length_penalty`` (``beam_width``)."""

    index: int
    finish_reason: str
    output_tokens: int
    score: float | None = None


class Finished(Message):
    """``samples`` stand in the order of their index; ranked ones (see :class:`Tokens`) are the best first."""

    samples: list[SampleResult] = []
    prompt_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens found in the cache
    output_tokens: int = 0
    queue_s: float = 0.0
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    preemptions: int = 0


class Failed(Message):
    """A request or message that could not be served. ``code`` is for programs, ``message`` one sentence for people.

    Codes: ``invalid``, ``protocol``, ``loading``, ``draining``, ``unknown_request``, ``duplicate``, ``too_long``,
    ``queue_full``, ``too_large``, ``too_many_clients``, ``too_many_requests``, ``forbidden``, ``model``, ``internal``,
    ``shutdown``, ``slow_client``, ``lost``.
    """

    code: str = "internal"
    message: str = ""
    field: str = ""


class Done(Message):
    pass


class StatusReply(Message):
    status: EngineStatus


class ConfigReply(Message):
    settings: list[SettingInfo] = []


class SnapshotReply(Message):
    """``sequences`` maps each telemetry topic to its last sequence number that this snapshot includes."""

    epoch: str = ""
    sequences: dict[str, int] = {}
    blocks: BlocksUpdate | None = None
    requests: list[RequestRow] = []


class Reconfigured(Message):
    report: ReconfigureReport


class BlockOwner(msgspec.Struct):
    request: int  # number
    sample: int
    position: int  # in the owner's block table


class PrefixBlock(msgspec.Struct, omit_defaults=True):
    """A block of the prefix tree. ``depth``: its place in the prefix that it ends, from 1."""

    tier: str
    block: int
    depth: int
    prefix_hash: str = ""
    ref_count: int = 0


class BlockDetail(Message):
    """``ancestors`` are the blocks that lead to this one, the first block of the prefix first, and ``children`` those
    that continue it, as far as the prefix index still knows them; of each the nearest or first ``FAMILY_MAX``, of
    ``ancestor_count`` and ``child_count``. ``copy``: the block of the other tier with the same content, -1 for none."""

    tier: str = ""
    block: int = 0
    state: int = 0
    ref_count: int = 0
    fill: int = 0
    last_used: int = 0
    prefix_hash: str = ""
    owners: list[BlockOwner] = []
    token_ids: list[int] = []
    text: str = ""
    group: str = ""  # as it was asked for
    depth: int = 0  # as in PrefixBlock; 0 is not known
    ancestors: list[PrefixBlock] = []
    ancestor_count: int = 0
    children: list[PrefixBlock] = []
    child_count: int = 0
    copy: int = -1
    token_texts: list[str] = []  # one a token; U+FFFD where a token is no whole character


class SharedWith(msgspec.Struct):
    """Another request and how many of one's blocks it holds too."""

    request: int  # number
    blocks: int


class RequestDetail(Message):
    row: RequestRow | None = None
    tier: str = "device"
    block_tables: list[list[int]] = []  # one a sample; of a sliding window, without the blocks that it has passed
    text: list[str] = []  # output so far, one a sample
    prompt_text: str = ""
    group: str = ""  # as it was asked for
    shared_with: list[SharedWith] = []  # who holds most of its blocks too first, at most FAMILY_MAX of them
    sampling: SamplingParams | None = None


ClientMessage = (
    Hello | Ping | Bye | Submit | Cancel | SetPriority | GetStatus | GetSnapshot | GetConfig | Reconfigure
    | DescribeBlock | DescribeRequest | Release | Shutdown
)  # fmt: skip
EngineMessage = (
    Welcome | Pong | Accepted | Tokens | Finished | Failed | Done | StatusReply | ConfigReply | SnapshotReply
    | Reconfigured | BlockDetail | RequestDetail
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_client_decoder = msgspec.msgpack.Decoder(ClientMessage)
_engine_decoder = msgspec.msgpack.Decoder(EngineMessage)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_client(frame: bytes) -> ClientMessage:
    """A client's message. Raises ``msgspec.DecodeError`` or its subclass ``ValidationError``, which names the field."""
    return _shallow(_client_decoder, frame)


class Envelope(msgspec.Struct):
    """What all messages have in common."""

    id: str = ""
    serial: int = 0
    seen: int = 0


def decode_envelope(frame: bytes) -> Envelope:
    """The envelope of a message that may not decode otherwise, so that it is answered and counted; empty where there
    is none."""
    try:
        return msgspec.msgpack.decode(frame, type=Envelope)
    except (msgspec.DecodeError, RecursionError):
        return Envelope()


def decode_engine(frame: bytes) -> EngineMessage:
    """An engine's message. Raises as :func:`decode_client`."""
    return _shallow(_engine_decoder, frame)


def _shallow(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    try:
        return decoder.decode(frame)
    except RecursionError:
        raise msgspec.DecodeError("MessagePack data is nested too deeply") from None
