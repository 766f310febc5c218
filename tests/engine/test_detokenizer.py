"""Text streams against the decode of the whole, for real tokenizers built in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedeck.engine.model.detokenizer import TextStream, make_text_stream
from pagedeck.ipc.vocabulary import SamplingParams
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and then some more plain English text follows.",
    "你好，世界！今天的天气很好，我们去公园散步吧。",
    "Emoji: 🙂🚀👩‍👩‍👧 and accents: naïve café, ŝŭ.",
]


def byte_level() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """Metaspace words with byte fallback, decoded as Llama 2's tokenizer does it."""
    words = ["<unk>", "</s>", "▁", "▁Hello", "▁world", "Hello", ",", "▁the", "s"]
    vocabulary = {word: id for id, word in enumerate(words)}
    vocabulary |= {f"<0x{byte:02X}>": len(words) + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", special=True), AddedToken("<unk>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


BYTE_LEVEL = byte_level()
SENTENCEPIECE = sentencepiece_like()


def stream(tokenizer: PreTrainedTokenizerFast | None, *stop: str) -> TextStream:
    return make_text_stream(tokenizer)(SamplingParams(stop=stop))


def feed(text_stream: TextStream, tokens: list[int]) -> list[str]:
    return [*(text_stream.push(token)[0] for token in tokens), text_stream.flush()]


def whole(tokenizer: PreTrainedTokenizerFast, tokens: list[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("".join(CORPUS) + "\n\t �")) | st.text())
def test_pieces_of_any_text_add_up(text: str) -> None:
    tokens = BYTE_LEVEL.encode(text)
    pieces = feed(stream(BYTE_LEVEL), tokens)
    assert "".join(pieces) == whole(BYTE_LEVEL, tokens) == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, len(BYTE_LEVEL) - 1), max_size=60))
def test_pieces_of_any_tokens_add_up(tokens: list[int]) -> None:
    assert "".join(feed(stream(BYTE_LEVEL), tokens)) == whole(BYTE_LEVEL, tokens)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([[i] for i in range(1, 9)] + [[9 + b for b in c.encode()] for c in "é中🙂"]), max_size=20)
)
def test_pieces_add_up_with_spaces_and_fallback_bytes(parts: list[list[int]]) -> None:
    tokens = [token for part in parts for token in part]
    assert "".join(feed(stream(SENTENCEPIECE), tokens)) == whole(SENTENCEPIECE, tokens)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE])
def test_no_half_characters(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "Hello 🚀🙂 中文 ŝ"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    pieces = feed(stream(tokenizer), tokens)
    assert all("�" not in piece for piece in pieces)
    assert len(pieces) > len(text) / 2  # it did come in pieces


def test_incomplete_character_comes_with_the_flush() -> None:
    tokens = BYTE_LEVEL.encode("ok 🚀")
    cut = stream(BYTE_LEVEL)
    assert "".join(cut.push(token)[0] for token in tokens[:-1]) == "ok "
    assert cut.flush() == "�"
    assert cut.flush() == ""


def test_special_tokens_are_silent_and_cost_nothing() -> None:
    decodes = 0

    def decode(tokens: list[int]) -> str:
        nonlocal decodes
        decodes += 1
        return BYTE_LEVEL.backend_tokenizer.decode(tokens, skip_special_tokens=True)

    text_stream = TextStream(decode, (), frozenset({BYTE_LEVEL.eos_token_id}))
    assert [text_stream.push(BYTE_LEVEL.eos_token_id) for _ in range(100)] == [("", False)] * 100
    assert decodes == 0
    assert feed(stream(BYTE_LEVEL), [BYTE_LEVEL.eos_token_id]) == ["", ""]


def test_window_stays_short() -> None:
    longest = 0

    def decode(tokens: list[int]) -> str:
        nonlocal longest
        longest = max(longest, len(tokens))
        return BYTE_LEVEL.backend_tokenizer.decode(tokens)

    tokens = BYTE_LEVEL.encode(" ".join(CORPUS) * 5)
    text_stream = TextStream(decode)
    assert "".join([*(text_stream.push(token)[0] for token in tokens), text_stream.flush()]) == " ".join(CORPUS) * 5
    assert longest < 12


def run_until_stop(text: str, *stop: str) -> tuple[str, bool]:
    text_stream = stream(BYTE_LEVEL, *stop)
    given_out = ""
    for token in BYTE_LEVEL.encode(text):
        piece, stopped = text_stream.push(token)
        given_out += piece
        if stopped:
            assert text_stream.push(0) == ("", True)
            assert text_stream.flush() == ""
            return given_out, True
    return given_out + text_stream.flush(), False


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two three", ("two",), ("one ", True)),
        ("one two three", ("x", "wo t"), ("one t", True)),
        ("one two three", ("three", "two"), ("one ", True)),
        ("aaab", ("aab",), ("a", True)),
        ("one two thr", ("three",), ("one two thr", False)),
        ("今天🙂的天气", ("🙂",), ("今天", True)),
        ("done.", (".",), ("done", True)),
        ("stop", ("stop",), ("", True)),
    ],
)
def test_stop_strings_cut(text: str, stop: tuple[str, ...], expected: tuple[str, bool]) -> None:
    assert run_until_stop(text, *stop) == expected


@settings(max_examples=200, deadline=None)
@given(st.text("ab 中🙂", max_size=30), st.lists(st.text("ab 中🙂", min_size=1, max_size=4), min_size=1, max_size=3))
def test_text_ends_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    given_out, stopped = run_until_stop(text, *stop)
    assert stopped == any(s in text for s in stop)
    assert not any(s in given_out for s in stop)
    assert text.startswith(given_out)
    if not stopped:
        assert given_out == text


def test_beginning_of_a_stop_string_is_never_shown_early() -> None:
    text_stream = stream(BYTE_LEVEL, "</answer>")
    seen = ""
    for token in BYTE_LEVEL.encode("yes </answer> no"):
        piece, stopped = text_stream.push(token)
        seen += piece
        assert "<" not in seen
        if stopped:
            break
    assert seen == "yes "


def test_without_a_tokenizer_there_is_no_text() -> None:
    text_stream = stream(None, "x")
    assert text_stream.push(5) == ("", False)
    assert text_stream.flush() == ""
