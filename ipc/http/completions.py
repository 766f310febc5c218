"""``/v1/completions``: prompts to the engine, their continuations to OpenAI's shapes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ..aio import AsyncClient
from ..protocol import EngineStatus, Finished, Submit, TokenLogprob, Tokens
from ..vocabulary import Refused
from .generation import check_model, head, priority_of, reason_of, sampling_of, schema_of, usage_of, wants_usage
from .running import outputs, running
from .schema import Completion, CompletionChoice, CompletionLogprobs, CompletionRequest

#: OpenAI's, where a request states none.
DEFAULT_MAX_TOKENS = 16

#: The most prompts of one request.
MAX_PROMPTS = 256


class Prompts:
    """One request, checked. Sample ``s`` of prompt ``p`` is choice ``p * n + s``.

    Raises:
        Refused, HttpError: it cannot be served.
    """

    def __init__(self, request: CompletionRequest, status: EngineStatus) -> None:
        check_model(request, status)
        if request.echo and request.logprobs is not None:
            raise Refused("logprobs is stated with echo; those of prompts are not offered.", field="logprobs")
        self.sampling = sampling_of(
            request,
            max_tokens=DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens,
            best_of=request.best_of,
            logprobs=request.logprobs,
            json_schema=schema_of(request),
        )
        self.usage_wanted = wants_usage(request)
        self._echo = bool(request.echo)
        self._head = head("cmpl", status.model)
        common: dict[str, Any] = {"sampling": self.sampling, "priority": priority_of(request)}
        self._submits = [
            Submit(**({"prompt": prompt} if isinstance(prompt, str) else {"token_ids": prompt}), **common)
            for prompt in _prompts(request.prompt)
        ]

    async def whole(self, client: AsyncClient) -> Completion:
        count = len(self._submits) * self.sampling.n
        texts, reasons = [""] * count, [""] * count
        logprobs: list[list[TokenLogprob]] = [[] for _ in texts]
        ends: list[Finished] = []
        async with running(client, self._submits) as streams, aclosing(outputs(streams)) as messages:
            async for prompt, message in messages:
                first = prompt * self.sampling.n
                if isinstance(message, Tokens):
                    texts[first + message.index] += message.text
                    logprobs[first + message.index] += message.logprobs
                else:
                    ends.append(message)
                    for sample in message.samples:
                        reasons[first + sample.index] = sample.finish_reason
            echoes = [await self._echoed(client, i, stream.id) for i, stream in enumerate(streams)]
        choices = [
            CompletionChoice(
                index,
                echoes[index // self.sampling.n] + text,
                self._logprobs(logprobs[index], 0),
                reason_of(reasons[index]),
            )
            for index, text in enumerate(texts)
        ]
        return Completion(**self._head, choices=choices, usage=usage_of(ends))

    async def parts(self, client: AsyncClient) -> AsyncGenerator[Completion, None]:
        """The first part comes once all prompts are queued."""
        n, ends = self.sampling.n, []
        lengths = [0] * (len(self._submits) * n)
        async with running(client, self._submits) as streams, aclosing(outputs(streams)) as messages:
            for prompt, stream in enumerate(streams):
                echo = await self._echoed(client, prompt, stream.id)
                for index in range(prompt * n, prompt * n + n):
                    yield self._part(CompletionChoice(index, echo))
            async for prompt, message in messages:
                if isinstance(message, Tokens):
                    index = prompt * n + message.index
                    logprobs = self._logprobs(message.logprobs, lengths[index]) if message.logprobs else None
                    lengths[index] += sum(len(one.text) for one in message.logprobs)
                    if message.text or logprobs:
                        yield self._part(CompletionChoice(index, message.text, logprobs))
                else:
                    ends.append(message)
                    for sample in message.samples:
                        reason = reason_of(sample.finish_reason)
                        yield self._part(CompletionChoice(prompt * n + sample.index, "", finish_reason=reason))
        if self.usage_wanted:
            yield Completion(**self._head, choices=[], usage=usage_of(ends))

    def _part(self, choice: CompletionChoice) -> Completion:
        more: dict[str, Any] = {"usage": None} if self.usage_wanted else {}
        return Completion(**self._head, choices=[choice], **more)

    async def _echoed(self, client: AsyncClient, prompt: int, id: str) -> str:
        """The prompt as text, where it is to stand before its continuations."""
        if not self._echo:
            return ""
        stated = self._submits[prompt].prompt
        return (await client.describe_request(id)).prompt_text if stated is None else stated

    def _logprobs(self, logprobs: list[TokenLogprob], offset: int) -> CompletionLogprobs | None:
        """``offset``: where the first of these tokens begins in the text."""
        if self.sampling.logprobs is None:
            return None
        found = CompletionLogprobs([], [], [], [])
        for one in logprobs:
            found.tokens.append(one.text)
            found.token_logprobs.append(one.logprob)
            found.top_logprobs.append({top.text: top.logprob for top in one.top[: self.sampling.logprobs]})
            found.text_offset.append(offset)
            offset += len(one.text)
        return found


def _prompts(stated: str | list[Any]) -> list[str | list[int]]:
    """Several prompts from one, or from its tokens, or from a list of either."""
    if isinstance(stated, str):
        return [stated]
    if stated and all(isinstance(token, int) for token in stated):
        return [stated]
    if not stated or any(isinstance(each, int) for each in stated):
        raise Refused.value("prompt", stated, "a text, its token ids, or a list of several of these")
    if len(stated) > MAX_PROMPTS:
        raise Refused(f"prompt has {len(stated):,} prompts; accepted are up to {MAX_PROMPTS}.", field="prompt")
    return stated
