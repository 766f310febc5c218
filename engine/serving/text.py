"""Prompts to tokens and tokens to text, by the model's own tokenizer and chat template."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...ipc.protocol import ChatMessage, Submit, TokenLogprob
from ...ipc.vocabulary import Refused
from ..model.token_text import TokenBytes
from ..scores import Scores


class Text:
    """``tokenizer`` is a transformers tokenizer, or None for a model that has none; prompts of more than
    ``context_length`` tokens are not read to the end."""

    def __init__(self, tokenizer: Any | None, context_length: int) -> None:
        self._tokenizer = tokenizer
        self._context_length = context_length

    @property
    def has_chat_template(self) -> bool:
        return self._tokenizer is not None and bool(self._tokenizer.chat_template)

    @property
    def has_tool_template(self) -> bool:
        """Whether the chat template can tell the model of tools: it names them, or is one of several."""
        return self._tokenizer is not None and "tool" in str(self._tokenizer.chat_template)

    def prompt(self, message: Submit) -> list[int]:
        """The tokens of whichever of the three prompts a message states.

        Raises:
            Refused: none or several are stated, or the model cannot read that kind.
        """
        stated = [name for name in ("prompt", "messages", "token_ids") if getattr(message, name) is not None]
        if len(stated) != 1:
            given = " and ".join(stated) or "none of them"
            raise Refused(
                f"State exactly one of prompt, messages and token_ids; given: {given}.",
                field=stated[-1] if stated else "prompt",
            )
        if message.token_ids is not None:
            return message.token_ids
        if self._tokenizer is None:
            raise Refused(f"This model has no tokenizer; state token_ids instead of {stated[0]}.", field=stated[0])
        if message.prompt is not None:
            return self._encode(message.prompt, special=True)
        return self._chat([_template_message(m) for m in message.messages or []], message.tools)

    def _chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        if not messages:
            raise Refused("messages is empty; accepted is at least one.", field="messages")
        if not self.has_chat_template:
            raise Refused("This model has no chat template; state prompt instead of messages.", field="messages")
        assert self._tokenizer is not None
        if tools and not self.has_tool_template:
            raise Refused("This model's chat template knows no tools; leave tools out.", field="tools")
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=tools or None, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template is a program, and what it makes of messages is up to them
            raise Refused(f"The model's chat template takes other messages: {error}.", field="messages") from error
        return self._encode(text, special=False)  # the template writes them itself

    def _encode(self, text: str, *, special: bool) -> list[int]:
        assert self._tokenizer is not None
        if len(text) > self._context_length * self._longest_token:  # so that nobody waits while it is read
            raise Refused(
                f"The prompt has {len(text):,} characters; accepted are {self._context_length:,} tokens, of which each "
                f"has at most {self._longest_token:,}.",
                field="prompt",
                code="too_long",
            )
        tokens: list[int] = self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return tokens

    @cached_property
    def _longest_token(self) -> int:
        """In characters."""
        assert self._tokenizer is not None
        return max(map(len, self._tokenizer.get_vocab()))

    def of(self, token_ids: list[int]) -> str:
        """The text of ``token_ids``, special tokens spelled out; empty for a model without a tokenizer."""
        if self._tokenizer is None or not token_ids:
            return ""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def pieces(self, token_ids: list[int]) -> list[str]:
        """The text of each token by itself; none for a model without a tokenizer."""
        known = self._bytes
        return [] if known is None else [known.of(token).decode(errors="replace") for token in token_ids]

    def logprobs(self, token_ids: list[int], scores: list[Scores]) -> list[TokenLogprob]:
        """How probable each of ``token_ids`` was, and what else, as clients are told."""
        return [
            self._logprob(token, score.chosen, list(map(self._logprob, score.tokens, score.logprobs)))
            for token, score in zip(token_ids, scores, strict=False)  # there may be no scores
        ]

    @cached_property
    def _bytes(self) -> TokenBytes | None:
        return TokenBytes(self._tokenizer) if self._tokenizer is not None else None

    def _logprob(self, token: int, logprob: float, top: list[TokenLogprob] | None = None) -> TokenLogprob:
        data = self._bytes.of(token) if self._bytes is not None else b""
        return TokenLogprob(token, logprob, data.decode(errors="replace"), data, top or [])


def _template_message(message: ChatMessage) -> dict[str, Any]:
    """A message as chat templates know it: they ask whether a key is there, so what is empty is left out."""
    more = {"tool_calls": message.tool_calls, "tool_call_id": message.tool_call_id, "name": message.name}
    return {"role": message.role, "content": message.content, **{key: value for key, value in more.items() if value}}
