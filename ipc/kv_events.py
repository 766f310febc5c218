"""Events of a prefix cache as vLLM and SGLang publish them, so that routers understand this engine, and this app them.

A PUB socket sends ``[topic, sequence u64 big-endian, payload]``; the payload is the MessagePack of ``[time, events,
data-parallel rank]``. An event is an array that begins with its tag, or in later versions a map with a ``type``; so may
the batch be. Fields were added at the end over time, and hashes are 64-bit integers, signed or not, or bytes. What is
decoded here is any of that; what is encoded is the oldest form, arrays and unsigned integers, which all readers know.

A ROUTER repeats what is asked for: ``[empty, sequence]`` is answered by ``[empty, sequence, payload]`` for each batch
from there on that is still kept (some versions put the topic before the sequence), and an end with a sequence of all
ones and no payload.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

#: How mediums are called: the device tier is ``GPU`` on every device, the host tier ``CPU``.
DEVICE, HOST = "GPU", "CPU"

#: The sequence number that ends a replay.
END = 2**64 - 1

#: No token id and no block is larger.
_LARGEST_TOKEN, _LARGEST_BLOCK = 2**32 - 1, 2**16 - 1

#: Of a medium's name no more is taken.
_LONGEST_MEDIUM = 32

_sequence = struct.Struct(">Q")

Hash = int | bytes


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Full blocks became findable, each the continuation of the one before. ``token_ids`` are those of all of them one
    after another, empty where the publisher did not say."""

    hashes: tuple[Hash, ...]
    parent: Hash | None  # what the first of them continues
    token_ids: tuple[int, ...]
    block_size: int
    medium: str = DEVICE
    group: int = 0
    window: int | None = None  # of layers that see a sliding window


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    hashes: tuple[Hash, ...]
    medium: str = DEVICE
    group: int = 0


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    pass


CacheEvent = BlockStored | BlockRemoved | AllBlocksCleared


@dataclass(frozen=True, slots=True)
class EventBatch:
    """``time`` in Unix seconds. ``rank``: which of several engines of one service published it."""

    time: float
    events: tuple[CacheEvent, ...]
    rank: int | None = None


def short_hash(digest: bytes) -> int:
    """A hash as the 64-bit integer that stands for it on the wire."""
    return int.from_bytes(digest[-8:], "big")


# --- encoding ---------------------------------------------------------------------------------------------------


def encode(batch: EventBatch) -> bytes:
    """A batch's payload."""
    return msgspec.msgpack.encode([batch.time, [_array(event) for event in batch.events], batch.rank])


def _array(event: CacheEvent) -> list[Any]:
    if isinstance(event, BlockStored):
        fields = [event.hashes, event.parent, event.token_ids, event.block_size, None, event.medium]
        if event.group or event.window is not None:
            kind = "full_attention" if event.window is None else "sliding_window"
            fields += [None, None, event.group, kind, event.window]
        return ["BlockStored", *fields]
    if isinstance(event, BlockRemoved):
        return ["BlockRemoved", event.hashes, event.medium, *([event.group] if event.group else [])]
    return ["AllBlocksCleared"]


def encode_sequence(sequence: int) -> bytes:
    return _sequence.pack(sequence)


def decode_start(frames: Sequence[bytes]) -> int | None:
    """From which batch on a replay is asked for; None for what is no such question."""
    if len(frames) != 2 or frames[0] or len(frames[1]) != _sequence.size:
        return None
    start: int = _sequence.unpack(frames[1])[0]
    return start


# --- decoding ---------------------------------------------------------------------------------------------------

_STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
)  # fmt: skip
_REMOVED = ("block_hashes", "medium", "group_idx")


def decode_frames(frames: Sequence[bytes]) -> tuple[int, bytes]:
    """Sequence number and payload of a published or repeated message, whatever stands before them. Raises
    ``ValueError`` for anything else."""
    if len(frames) < 2 or len(frames[-2]) != _sequence.size:
        raise ValueError(f"not a message of cache events: {len(frames)} frames")
    return _sequence.unpack(frames[-2])[0], bytes(frames[-1])


def decode(payload: bytes) -> EventBatch:
    """A batch from its payload. Events of unknown kinds are passed over. Raises ``ValueError`` for anything else."""
    try:
        batch = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, RecursionError, TypeError) as error:
        raise ValueError(f"not MessagePack: {error}") from error
    fields = _fields(batch, ("ts", "events", "data_parallel_rank"))
    time, events, rank = fields.get("ts"), fields.get("events"), fields.get("data_parallel_rank")
    if not isinstance(time, int | float) or not math.isfinite(time) or not isinstance(events, list):
        raise ValueError("not a batch of cache events")
    decoded = (_event(event) for event in events)
    return EventBatch(
        float(time), tuple(event for event in decoded if event is not None), rank if isinstance(rank, int) else None
    )


def _fields(value: object, names: Sequence[str]) -> dict[str, Any]:
    """An array's or a map's fields by name; those it has beyond are of a later version."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list):
        return dict(zip(names, value, strict=False))
    raise ValueError(f"neither an array nor a map: {type(value).__name__}")


def _event(event: object) -> CacheEvent | None:
    tag = event.get("type") if isinstance(event, dict) else event[0] if isinstance(event, list) and event else None
    rest = event[1:] if isinstance(event, list) else event
    if tag == "BlockStored":
        return _stored(_fields(rest, _STORED))
    if tag == "BlockRemoved":
        fields = _fields(rest, _REMOVED)
        return BlockRemoved(_hashes(fields), _medium(fields), _integer(fields.get("group_idx")))
    if tag == "AllBlocksCleared":
        return AllBlocksCleared()
    if not isinstance(tag, str):
        raise ValueError("an event without a type")
    return None


def _stored(fields: dict[str, Any]) -> BlockStored:
    token_ids, block_size = fields.get("token_ids"), fields.get("block_size")
    if type(block_size) is not int or not 1 <= block_size <= _LARGEST_BLOCK:
        raise ValueError(f"block_size is {block_size!r}")
    known = isinstance(token_ids, list) and all(_is_token(token) for token in token_ids)
    parent = fields.get("parent_block_hash")
    window = fields.get("kv_cache_spec_sliding_window")
    return BlockStored(
        hashes=_hashes(fields),
        parent=None if parent is None else _hash(parent),
        token_ids=tuple(token_ids) if known and isinstance(token_ids, list) else (),
        block_size=block_size,
        medium=_medium(fields),
        group=_integer(fields.get("group_idx")),
        window=window if isinstance(window, int) else None,
    )


def _is_token(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_TOKEN


def _hashes(fields: dict[str, Any]) -> tuple[Hash, ...]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list):
        raise ValueError(f"block_hashes is a {type(hashes).__name__}")
    return tuple(map(_hash, hashes))


def _hash(value: object) -> Hash:
    """Signed and unsigned integers of 64 bits that are the same hash become one."""
    if isinstance(value, bytes):
        return value
    if type(value) is int:
        return value & END
    raise ValueError(f"a hash is a {type(value).__name__}")


def _medium(fields: dict[str, Any]) -> str:
    medium = fields.get("medium")
    return medium[:_LONGEST_MEDIUM].upper() if isinstance(medium, str) and medium else DEVICE


def _integer(value: object) -> int:
    return value if type(value) is int else 0
