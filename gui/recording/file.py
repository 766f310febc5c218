"""A recorded session as a file: what an engine told, with times, in sections of which each begins with everything.

The file: :data:`MAGIC`, the version (u16), then chunks: kind (one letter), length (u32), CRC-32 of the data (u32),
data; all little-endian. The first chunk (``H``) is the :class:`Header`. A section is one zlib stream, cut into chunks
(the first is ``S``, others are ``C``) that each end with a flush, so that a file which was cut off is read up to its
last whole chunk. Inside the stream stand records, each as its length (u32) and a MessagePack array; the first record of
a section is a :class:`Keyframe`. Whoever looks for a moment reads one section.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...ipc.protocol import EngineStatus, SettingInfo, SnapshotReply
from ...ipc.telemetry import Stats, TelemetryMessage, decode_frames
from ...ipc.vocabulary import Refused

SUFFIX = ".pagedeck"
MAGIC = b"PAGEDECK"
VERSION = 1

#: A section that unpacks to more is not read: no session of an engine makes one.
SECTION_MAX = 1 << 30

_VERSION = struct.Struct("<H")
_CHUNK = struct.Struct("<cII")  # kind, length, CRC-32
_LENGTH = struct.Struct("<I")
_SEQUENCE = struct.Struct("<Q")
_HEADER, _BEGINS, _CONTINUES = b"H", b"S", b"C"


class Header(msgspec.Struct):
    name: str  # the engine's
    started: float  # Unix seconds; the times of records count from it
    program: str = ""  # version of the Pagedeck that wrote it


class Record(msgspec.Struct, array_like=True):
    """``at``: milliseconds since the beginning."""

    at: int


class Keyframe(Record, tag=0):
    """Everything that is known but the past. ``fresh``: a life of an engine begins, or begins to be watched."""

    fresh: bool
    connection: str
    detail: str
    progress: float | None
    status: EngineStatus | None
    stats: Stats | None
    settings: list[SettingInfo]
    snapshot: SnapshotReply


class Frame(Record, tag=1):
    """A telemetry message as it came."""

    topic: bytes
    sequence: int
    payload: bytes

    def message(self) -> TelemetryMessage:
        """Raises ``ValueError`` where it cannot be read."""
        return decode_frames([self.topic, _SEQUENCE.pack(self.sequence), self.payload])[2]


class Resynced(Record, tag=2):
    """The engine was asked for a snapshot, since messages were lost."""

    snapshot: SnapshotReply


class StatusTold(Record, tag=3):
    status: EngineStatus


class SettingsTold(Record, tag=4):
    settings: list[SettingInfo]


class ConnectionTold(Record, tag=5):
    connection: str
    detail: str
    progress: float | None


AnyRecord = Keyframe | Frame | Resynced | StatusTold | SettingsTold | ConnectionTold

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyRecord)


class Writer:
    """Writes one file. All methods raise ``OSError`` when the disk does not take it; what is written stays whole."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.size = 0  # bytes on the disk
        self.section_bytes = 0  # unpacked, after the section's keyframe
        self.keyframe_bytes = 0
        self._file = path.open("wb", buffering=0)
        self._packer = zlib.compressobj()
        self._kind = _BEGINS
        self._packed: list[bytes] = []
        try:
            self._write(MAGIC + _VERSION.pack(VERSION))
            self._write_chunk(_HEADER, _encoder.encode(header))
        except OSError:
            self._file.close()
            raise

    def add(self, record: AnyRecord) -> None:
        data = _encoder.encode(record)
        if isinstance(record, Keyframe):
            self.flush()
            self._packer, self._kind = zlib.compressobj(), _BEGINS
            self.keyframe_bytes, self.section_bytes = len(data), 0
        else:
            self.section_bytes += len(data)
        self._packed.append(self._packer.compress(_LENGTH.pack(len(data))))
        self._packed.append(self._packer.compress(data))

    def flush(self) -> None:
        """All that was added is in the file now."""
        if self._packed:
            self._packed.append(self._packer.flush(zlib.Z_SYNC_FLUSH))
            data, self._packed = b"".join(self._packed), []
            self._write_chunk(self._kind, data)
            self._kind = _CONTINUES

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close without a word more: the disk takes nothing."""
        self._packed = []
        self._file.close()

    def _write_chunk(self, kind: bytes, data: bytes) -> None:
        self._write(_CHUNK.pack(kind, len(data), zlib.crc32(data)) + data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = self._file.write(rest)
            self.size += written
            rest = rest[written:]


@dataclass(frozen=True)
class _Chunk:
    kind: bytes
    offset: int  # of its data
    length: int


class Recording:
    """A file opened for reading. Raises :class:`Refused` for what is no recording, ``OSError`` for what cannot be read.

    ``torn``: whether it ends in the middle of a chunk, as when the writer was cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        try:
            self._check()
            self.torn = False
            chunks = self._chunks()
            header = next(chunks, None)
            if header is None or header.kind != _HEADER:
                raise Refused(f"{path.name} ends before its beginning: there is nothing to replay.", field="recording")
            self.header = msgspec.msgpack.decode(self._data(header), type=Header)
            self._sections: list[list[_Chunk]] = []
            self._sort(chunks)
        except msgspec.DecodeError as error:
            self._file.close()
            raise Refused(f"{path.name} is not a recording of Pagedeck.", field="recording") from error
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        """Sections."""
        return len(self._sections)

    def records(self, section: int) -> list[AnyRecord]:
        """A section's records, up to where it can be read; none at all where its keyframe cannot."""
        unpacker = zlib.decompressobj()
        data = bytearray()
        try:
            for chunk in self._sections[section]:
                data += unpacker.decompress(self._data(chunk), SECTION_MAX - len(data))
        except zlib.error:
            self.torn = True
        records: list[AnyRecord] = []
        try:
            records += (_decoder.decode(part) for part in _parts(memoryview(data)))
        except msgspec.DecodeError:
            self.torn = True
        return records if records and isinstance(records[0], Keyframe) else []

    def close(self) -> None:
        self._file.close()

    def _check(self) -> None:
        begin = self._file.read(len(MAGIC) + _VERSION.size)
        if not begin.startswith(MAGIC) or len(begin) < len(MAGIC) + _VERSION.size:
            raise Refused(f"{self.path.name} is not a recording of Pagedeck.", field="recording")
        (version,) = _VERSION.unpack(begin[len(MAGIC) :])
        if version != VERSION:
            raise Refused(
                f"{self.path.name} is a recording of version {version}; this Pagedeck reads version {VERSION}.",
                field="recording",
            )

    def _sort(self, chunks: Iterator[_Chunk]) -> None:
        for chunk in chunks:
            if chunk.kind == _BEGINS:
                self._sections.append([chunk])
            elif chunk.kind == _CONTINUES and self._sections:
                self._sections[-1].append(chunk)
        if not self._sections:
            raise Refused(f"{self.path.name} ends before its beginning: there is nothing to replay.", field="recording")

    def _chunks(self) -> Iterator[_Chunk]:
        """The chunks that are whole, in order, up to the first that is not."""
        offset = self._file.tell()
        while head := self._read(offset, _CHUNK.size):
            if len(head) < _CHUNK.size:
                break
            kind, length, check = _CHUNK.unpack(head)
            chunk = _Chunk(kind, offset + _CHUNK.size, length)
            data = self._data(chunk)
            if len(data) < length or zlib.crc32(data) != check:
                break
            yield chunk
            offset = chunk.offset + length
        else:
            return
        self.torn = True

    def _data(self, chunk: _Chunk) -> bytes:
        return self._read(chunk.offset, chunk.length)

    def _read(self, offset: int, length: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(length)


def check(path: Path) -> None:
    """Raises :class:`Refused` for a file that cannot be replayed."""
    try:
        Recording(path).close()
    except OSError as error:
        raise Refused(f"{path} could not be read: {error.strerror}.", field="recording") from error


def _parts(data: memoryview) -> Iterator[memoryview]:
    """The records of an unpacked section; the last is left out where it was cut off."""
    place = 0
    while place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if place + length > len(data):
            return
        yield data[place : place + length]
        place += length
