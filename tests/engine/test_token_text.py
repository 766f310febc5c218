"""Tokens' own bytes, of every kind of vocabulary: together they are the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pagedeck.engine.model.token_text import TokenBytes
from transformers import AutoTokenizer, PreTrainedTokenizerFast

TEXT = "A naïve fox, 日本 🦊!\n"


@pytest.fixture(scope="module")
def byte_level(tiny_model_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(str(tiny_model_folder))


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    """Pieces with a mark for the blank, and bytes for what no piece spells."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    for piece in ("▁", "A", "▁fox", "f", "o", "x", "é", "n", "a", "▁f", "▁fo", "<s>"):
        vocabulary[piece] = len(vocabulary)
    merges = [("▁", "f"), ("▁f", "o"), ("▁fo", "x")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token=None))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


@pytest.mark.parametrize("kind", ["byte_level", "pieces"])
def test_bytes_add_up_to_the_text(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(kind)
    tokens = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    data = TokenBytes(tokenizer)
    assert b"".join(map(data.of, tokens)).decode() == TEXT
    assert any(data.of(token).decode(errors="replace") == "�" for token in tokens)


def test_special_and_unknown_tokens(byte_level: Any, pieces: Any) -> None:
    assert TokenBytes(byte_level).of(0) == b"<|end|>"
    assert TokenBytes(byte_level).of(byte_level.convert_tokens_to_ids("extra3")) == b"extra3"
    assert TokenBytes(byte_level).of(100_000) == b""
    assert TokenBytes(pieces).of(pieces.convert_tokens_to_ids("<s>")) == b"<s>"
