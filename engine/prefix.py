"""The prefix index: which block holds which full block of tokens, after which beginning.

A full block is known by a chained hash: of its tokens and of the hash of all before it, from a root that the request's
salt decides. So equal hashes mean equal whole prefixes, up to a collision of 128 bits; the caller compares tokens too.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 16


def root_digest(salt: str) -> bytes:
    """Where the chain of every sequence with this salt begins."""
    return blake2b(salt.encode(), digest_size=DIGEST_BYTES, person=b"pagedeck root").digest()


def chain_digest(before: bytes, tokens: bytes) -> bytes:
    """The hash of a full block of ``tokens`` (int32 as bytes) that follows a prefix with hash ``before``."""
    return blake2b(before + tokens, digest_size=DIGEST_BYTES).digest()


class Entry(NamedTuple):
    """What a block holds. ``key`` is its chained hash, ``before`` that of the blocks before it, and ``depth`` its
    place in the chain, from 0. An integer key merely names content that stands in both tiers and is no full block:
    a lookup by hash cannot meet it."""

    key: bytes | int
    before: bytes = b""
    depth: int = 0


class PrefixIndex:
    """One tier's blocks by content and contents by block, one to one."""

    def __init__(self) -> None:
        self._block: dict[bytes | int, int] = {}
        self._entry: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entry)

    def find(self, key: bytes | int) -> int | None:
        return self._block.get(key)

    def entry(self, block: int) -> Entry | None:
        return self._entry.get(block)

    def entries(self) -> dict[int, Entry]:
        return self._entry

    def add(self, block: int, entry: Entry) -> None:
        """``block`` holds ``entry`` and nothing else; no other block does."""
        self.remove(block)
        assert entry.key not in self._block, f"blocks {self._block[entry.key]} and {block} have the same key"
        self._block[entry.key] = block
        self._entry[block] = entry

    def remove(self, block: int) -> None:
        """Forget what ``block`` holds, if anything is known of it."""
        entry = self._entry.pop(block, None)
        if entry is not None:
            del self._block[entry.key]
