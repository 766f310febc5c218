"""Telemetry messages. PUB in the engine, SUB in clients; frames ``[topic, sequence u64 little-endian, payload]``.

On TCP, where a key says who listens, the topics ``stats`` and ``event`` are told each user apart: what he may know of
others' requests. The first frame is then the topic, a zero byte, the user (nobody for operators), and a zero byte.

Sequence numbers count per topic, from 1, without gaps; ``epoch`` names one life of the engine. A subscriber keeps
``blocks`` whole like this: subscribe and hold messages back, ask for a snapshot over control, drop what it includes,
apply the rest; on a gap or another epoch, ask again.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

TOPIC_BLOCKS = b"blocks"
TOPIC_STEP = b"step"
TOPIC_STATS = b"stats"
TOPIC_EVENT = b"event"
TOPICS = (TOPIC_BLOCKS, TOPIC_STEP, TOPIC_STATS, TOPIC_EVENT)

#: The most ``blocks`` and ``step`` messages in a second, however fast steps are.
MAX_RATE_HZ = 30.0


class TierBlocks(msgspec.Struct):
    """Some or all blocks of a tier as raw little-endian arrays of equal length.

    ``ids`` u4; empty in a full update, where entry *i* is block *i*. ``state`` u1 (:class:`BlockState`), ``ref`` u2
    (clipped), ``fill`` u2 (tokens held), ``owner`` u4 (number of the request that holds it, 0 is none; of several,
    the first), ``last_used`` u4 (step), ``depth`` u2 (clipped; place in the prefix that it ends, in blocks from 1; 0 is
    not known). Engines that are older do not send ``depth``.
    """

    num_blocks: int
    block_size: int
    block_bytes: int
    ids: bytes = b""
    state: bytes = b""
    ref: bytes = b""
    fill: bytes = b""
    owner: bytes = b""
    last_used: bytes = b""
    depth: bytes = b""


class GroupBlocks(msgspec.Struct):
    """The pools of a group of layers. ``name``: ``full``, or ``window`` and its width in tokens."""

    name: str
    device: TierBlocks
    host: TierBlocks


class BlocksUpdate(msgspec.Struct, omit_defaults=True):
    """Topic ``blocks``. ``full`` replaces all that was known (sent after repage and resize); else it is a delta.

    Layers that see all positions and layers with a sliding window hold different blocks. Where a model has several such
    groups, ``device`` and ``host`` are the first one's, called ``name``, and ``groups`` are the others'.
    """

    epoch: str
    step: int
    full: bool
    device: TierBlocks
    host: TierBlocks
    name: str = ""
    groups: list[GroupBlocks] = []


#: The most requests that a step names of those that wait.
WAITED_MAX = 8


class StepEntry(msgspec.Struct, array_like=True):
    request: int  # number
    tokens: int
    prefill: bool


class StepRecord(msgspec.Struct, array_like=True):
    """One step. Times in milliseconds; ``prefill_tokens + decode_tokens <= budget``."""

    step: int
    time: float  # Unix seconds at its end
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
    entries: list[StepEntry]
    preempted: list[int]  # request numbers
    swapped_out: list[int]
    resumed: list[int]
    waited: list[int] = []  # the first in line that did not get in, at most WAITED_MAX of them
    hold: str = ""  # why the first of them did not: a vocabulary.Hold


class Steps(msgspec.Struct):
    """Topic ``step``: the steps since the last message, oldest first."""

    epoch: str
    steps: list[StepRecord]


class Percentiles(msgspec.Struct, array_like=True):
    """Of the last 60 seconds, in seconds. ``count`` 0 means that there was nothing to measure."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


class Histogram(msgspec.Struct, array_like=True):
    """Durations since the engine started, counted by bucket (see ``vocabulary.HISTOGRAM_SMALLEST_S``). ``counts``: u4
    little-endian, those of the buckets from ``first`` on; all others are empty. ``sum``: of the durations, seconds."""

    first: int = 0
    counts: bytes = b""
    sum: float = 0.0


class TierStats(msgspec.Struct):
    num_blocks: int
    block_size: int
    block_bytes: int
    free: int
    reserved: int
    cached: int
    used: int  # blocks that sequences hold (active, shared, swapped)
    tokens: int  # tokens in used blocks; waste = 1 - tokens / (used * block_size)
    saved: int = 0  # blocks that there would be besides, if nothing were shared
    mean_run: float = 0.0  # neighbouring blocks in a row, over all block tables
    filled: float = 0.0  # tokens ÷ slots of the blocks that sequences hold, reserved ones included
    allocated: float = 0.0  # those blocks ÷ all blocks
    evicted: int = 0  # cached blocks given up for others, since the pool was made


class GroupStats(msgspec.Struct):
    """As :class:`GroupBlocks`."""

    name: str
    device: TierStats
    host: TierStats


class RequestRow(msgspec.Struct, omit_defaults=True):
    """A live or lately ended request."""

    number: int
    id: str
    state: str
    priority: int
    client: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    max_tokens: int = 0
    computed_tokens: int = 0
    cached_tokens: int = 0
    samples: int = 1
    blocks: int = 0
    shared_blocks: int = 0
    host_blocks: int = 0
    preemptions: int = 0
    arrival: float = 0.0  # Unix seconds
    queue_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    tokens_per_s: float | None = None
    error: str = ""
    saved_blocks: int = 0  # of `blocks` and `host_blocks`, those that another sequence held before
    mean_run: float = 0.0  # neighbouring blocks in a row, over its block tables
    prefix: list[int] = []  # with a `finished` event alone: a number for each 64 tokens of the prompt


class DeviceStats(msgspec.Struct, omit_defaults=True):
    """What a GPU's driver tells of the whole device; None where it does not."""

    name: str
    load: float | None = None  # share of the time in which it computed, 0 to 1
    memory_used: int | None = None  # bytes, of all processes
    memory_total: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None


class MachineStats(msgspec.Struct, omit_defaults=True):
    """What the machine that the engine runs on does in all; bytes."""

    cpus: int  # that the engine may use
    cpu_load: float  # share of all processors' time that was used, 0 to 1
    memory_used: int
    memory_total: int
    device: DeviceStats | None = None  # where the engine runs on a GPU whose driver can be asked


class Stats(msgspec.Struct):
    """Topic ``stats``, once a second. ``requests``: the rows that changed since the last one, ended ones included. Who
    is no operator is told of others' requests without ``id``, ``client``, ``error`` and ``prefix``, here and in events.
    """

    epoch: str
    time: float
    sequences: dict[str, int]  # last sequence number sent of each topic: shows losses at the tail
    device: TierStats
    host: TierStats
    running: int
    waiting: int
    swapped: int
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    requests_per_s: float
    latency: dict[str, Percentiles]  # ttft, itl, queue, e2e
    prefix_queried_tokens: int  # since start
    prefix_hit_tokens: int
    preemptions: int
    steps: int
    finished: int
    failed: int
    cancelled: int
    cpu_percent: float
    memory_bytes: int
    device_memory_bytes: int
    requests: list[RequestRow]
    computed_tokens: int = 0  # of prompts and outputs, since start
    redone_tokens: int = 0  # of them, those computed again after preemption: work wasted
    computed_last_minute: int = 0
    redone_last_minute: int = 0
    groups: list[GroupStats] = []  # further groups of layers, as in BlocksUpdate
    histograms: dict[str, dict[str, Histogram]] = {}  # as latency, and prefill and decode, by class
    machine: MachineStats | None = None
    output_tokens: int = 0  # since start
    ends: dict[str, int] = {}  # samples since start, by vocabulary.FinishReason
    step_tokens: list[int] = []  # steps since start, by tokens: entry i counts those of more than 2**(i-1), up to 2**i


class Event(msgspec.Struct, omit_defaults=True):
    """Topic ``event``. ``kind``: log, state, submitted, started, preempted, resumed, finished, cancelled, failed,
    reconfigured. ``text`` is a sentence for people; ``row`` comes with request events; ``state`` with kind state.
    Those of kind log are for operators alone."""

    epoch: str
    time: float
    kind: str
    text: str
    level: str = "info"  # debug, info, warning, error
    row: RequestRow | None = None
    state: str = ""
    progress: float | None = None


_TYPES: dict[bytes, type] = {
    TOPIC_BLOCKS: BlocksUpdate,
    TOPIC_STEP: Steps,
    TOPIC_STATS: Stats,
    TOPIC_EVENT: Event,
}
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[bytes, msgspec.msgpack.Decoder[Any]] = {
    topic: msgspec.msgpack.Decoder(kind) for topic, kind in _TYPES.items()
}
_sequence = struct.Struct("<Q")

TelemetryMessage = BlocksUpdate | Steps | Stats | Event


def topic_for(topic: bytes, user: str) -> bytes:
    """The first frame of what ``user`` alone is told: no other user's begins with it, and each with the topic."""
    return b"%s\0%s\0" % (topic, user.encode())


def encode_frames(topic: bytes, sequence: int, message: TelemetryMessage) -> list[bytes]:
    return [topic, _sequence.pack(sequence), _encoder.encode(message)]


def decode_frames(frames: list[bytes]) -> tuple[bytes, int, TelemetryMessage]:
    """Topic, sequence, message. Raises ``ValueError`` (``msgspec.DecodeError`` is one) for anything malformed."""
    topic = bytes(frames[0]).partition(b"\0")[0] if frames else b""
    if len(frames) != 3 or topic not in _decoders or len(frames[1]) != _sequence.size:
        raise ValueError(f"not a telemetry message: {len(frames)} frames, topic {frames[:1]!r}")
    try:
        message = _decoders[topic].decode(frames[2])
    except RecursionError:
        raise ValueError("a telemetry message is nested too deeply") from None
    return topic, _sequence.unpack(frames[1])[0], message
