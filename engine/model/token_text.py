"""The text and the bytes of single tokens."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: How tokens spell a byte that is not part of any other token.
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
#: Tokens whose bytes are kept.
KEPT = 65_536


class TokenBytes:
    """A token's exact bytes: of byte-level vocabularies (GPT-2's), or of pieces with a mark for the blank
    (SentencePiece's). Special tokens are spelled out."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids) | set(getattr(tokenizer, "added_tokens_decoder", {}))
        self._byte_level = _is_byte_level(tokenizer)
        self.of = lru_cache(KEPT)(self._of)

    def _of(self, token: int) -> bytes:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:  # the model's vocabulary is padded
            return b""
        if token in self._special:
            return str(piece).encode()
        if self._byte_level:
            return bytes(_BYTES[c] for c in piece) if all(c in _BYTES for c in piece) else str(piece).encode()
        byte = BYTE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else str(piece).replace("▁", " ").encode()


def _is_byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return hasattr(tokenizer, "byte_decoder")
    return '"ByteLevel"' in json.dumps(json.loads(backend.to_str()).get("decoder"))


def _byte_of_character() -> dict[str, int]:
    """GPT-2's alphabet: bytes that print stand for themselves, the others for characters from U+0100 on."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(b): b for b in printing} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTES = _byte_of_character()
