"""The prefix index: which block holds which full block of tokens, after which beginning.

A full block is known by a chained hash: of its tokens and of the hash of all before it, from a root that the request's
salt decides. So equal hashes mean equal whole prefixes, up to a collision of 128 bits; the caller compares tokens too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

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


class PrefixChain:
    """The full blocks that a prompt begins with, as index entries; each is hashed when it is first asked for."""

    def __init__(self, tokens: list[int], block_size: int, salt: str) -> None:
        self.tokens = tokens
        self.block_size = block_size
        self.root = root_digest(salt)
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        """Blocks that a cache may be asked for. A last one that is full counts too: its last token runs again, for its
        logits only."""
        return len(self.tokens) // self.block_size if len(self.tokens) > 1 else 0

    def piece(self, depth: int) -> bytes:
        """The tokens of block ``depth``, int32 as bytes."""
        return np.array(self.tokens[depth * self.block_size : (depth + 1) * self.block_size], np.int32).tobytes()

    def entry(self, depth: int) -> Entry:
        while len(self._entries) <= depth:
            before = self._entries[-1].key if self._entries else self.root
            assert isinstance(before, bytes)
            place = len(self._entries)
            self._entries.append(Entry(chain_digest(before, self.piece(place)), before, place))
        return self._entries[depth]


class PrefixIndex:
    """One tier's blocks by content and contents by block, one to one. ``hashed`` (bool, one a block) says which are
    known by their hash, ``depth`` (u4) where in a chain those are, from 1; 0 is not known.

    Whoever wants to know what changes sets ``touched`` to an empty map and empties it: it gets the keys that came or
    went since, with whether they were there before."""

    def __init__(self, num_blocks: int) -> None:
        self.touched: dict[bytes | int, bool] | None = None
        self.hashed = np.zeros(num_blocks, np.bool_)
        self._hashed = self.hashed.data
        self.depth = np.zeros(num_blocks, np.uint32)
        self._depth = self.depth.data
        self._block: dict[bytes | int, int] = {}
        self._entry: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entry)

    def find(self, key: bytes | int) -> int | None:
        return self._block.get(key)

    def find_all(self, keys: Iterable[bytes | int]) -> np.ndarray:
        """As :meth:`find`, of several: block ids (int64), -1 for none."""
        block = self._block
        return np.array([block.get(key, -1) for key in keys], np.int64)

    def entry(self, block: int) -> Entry | None:
        return self._entry.get(block)

    def followers(self, entry: Entry) -> list[int]:
        """The blocks that continue what ``entry`` ends, in order of their ids. Costs an array comparison of the pool
        and a look at each block as deep as these."""
        deep = np.flatnonzero(self.depth == entry.depth + 2).tolist()
        return [block for block in deep if self._entry[block].before == entry.key]

    def entries(self) -> dict[int, Entry]:
        return self._entry

    def add(self, block: int, entry: Entry) -> None:
        """``block`` holds ``entry`` and nothing else; no other block does."""
        if block in self._entry:
            self.remove((block,))
        assert entry.key not in self._block, f"blocks {self._block[entry.key]} and {block} have the same key"
        self._block[entry.key] = block
        self._entry[block] = entry
        if self.touched is not None:
            self.touched.setdefault(entry.key, False)
        self._hashed[block] = isinstance(entry.key, bytes)
        self._depth[block] = entry.depth + 1 if isinstance(entry.key, bytes) else 0

    def add_run(self, blocks: list[int], contents: bytes, digest: bytes, depth: int) -> tuple[int, bytes]:
        """Add ``blocks``, whose tokens are ``contents`` one after another, after a prefix of ``depth`` blocks with that
        ``digest``, as far as nothing else is known of them and no other block holds the same. Returns how many, and
        the hash of the last."""
        by_key, entries, each = self._block, self._entry, len(contents) // max(1, len(blocks))
        touched = {} if self.touched is None else self.touched
        added = 0
        for block in blocks:
            key = chain_digest(digest, contents[added * each : (added + 1) * each])
            known = by_key.get(key)
            if known is None and block not in entries:
                by_key[key] = block
                entries[block] = Entry(key, digest, depth + added)
                touched.setdefault(key, False)
            elif known != block or entries[block] != (key, digest, depth + added):
                break
            digest = key
            added += 1
        self.hashed[blocks[:added]] = True
        self.depth[blocks[:added]] = np.arange(depth + 1, depth + added + 1)
        return added, digest

    def remove(self, blocks: Iterable[int]) -> None:
        """Forget what ``blocks`` hold, if anything is known of it."""
        hashed, depth, entries, by_key = self._hashed, self._depth, self._entry, self._block
        for block in blocks:
            entry = entries.pop(block, None)
            if entry is not None:
                del by_key[entry.key]
                if self.touched is not None:
                    self.touched.setdefault(entry.key, True)
                hashed[block] = False
                depth[block] = 0
