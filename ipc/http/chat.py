"""``/v1/chat/completions``: a conversation to the engine, its answers to OpenAI's shapes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from ..aio import AsyncClient
from ..protocol import ChatMessage, EngineStatus, Submit, TokenLogprob, Tokens
from ..vocabulary import Refused, SamplingParams
from .generation import check_model, head, priority_of, reason_of, sampling_of, schema_of, usage_of, wants_usage
from .running import outputs, running
from .schema import (
    Answer,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprob,
    ChatLogprobs,
    ChatRequest,
    ChatTurn,
    ChunkChoice,
    Delta,
    FinishReason,
    Tool,
    ToolCall,
    ToolCallDelta,
    TopLogprob,
)
from .tools import NO_PARAMETERS, ToolUse, forced_schema, tool_use


class Conversation:
    """One request, checked.

    Raises:
        Refused, HttpError: it cannot be served.
    """

    def __init__(self, request: ChatRequest, status: EngineStatus) -> None:
        check_model(request, status)
        self.tools = tool_use(request)
        self.sampling = _sampling(request, self.tools, status)
        self.usage_wanted = wants_usage(request)
        self._head = head("chatcmpl", status.model)
        offered = request.tools or [] if self.tools.offered else []
        self._submit = Submit(
            messages=[_message(turn, f"messages[{i}]") for i, turn in enumerate(request.messages)],
            tools=[_tool(tool) for tool in offered],
            sampling=self.sampling,
            priority=priority_of(request),
        )
        _check_numbers(self._submit)

    async def whole(self, client: AsyncClient) -> ChatCompletion:
        readers = [self.tools.reader() for _ in range(self.sampling.n)]
        texts = [""] * self.sampling.n
        logprobs: list[list[TokenLogprob]] = [[] for _ in texts]
        async with running(client, [self._submit]) as streams, aclosing(outputs(streams)) as messages:
            async for _, message in messages:
                if isinstance(message, Tokens):
                    texts[message.index] += readers[message.index].push(message.text)
                    logprobs[message.index] += message.logprobs
                else:
                    finished = message
        choices = []
        for sample in finished.samples:
            rest, calls = readers[sample.index].finish()
            text = texts[sample.index] + rest
            answer = Answer(text or (None if calls else ""))
            if calls:
                answer.tool_calls = calls
            choices.append(
                ChatChoice(
                    sample.index,
                    answer,
                    _reason(sample.finish_reason, calls),
                    self._logprobs(logprobs[sample.index]),
                )
            )
        return ChatCompletion(**self._head, choices=choices, usage=usage_of([finished]))

    async def parts(self, client: AsyncClient) -> AsyncGenerator[ChatChunk, None]:
        """The first part comes once the request is queued."""
        readers = [self.tools.reader() for _ in range(self.sampling.n)]
        async with running(client, [self._submit]) as streams, aclosing(outputs(streams)) as messages:
            for index in range(self.sampling.n):
                yield self._chunk(ChunkChoice(index, Delta("assistant", "")))
            async for _, message in messages:
                if isinstance(message, Tokens):
                    text = readers[message.index].push(message.text)
                    logprobs = self._logprobs(message.logprobs) if message.logprobs else None
                    if text or logprobs:
                        yield self._chunk(ChunkChoice(message.index, Delta(content=text), logprobs=logprobs))
                else:
                    finished = message
        for sample in finished.samples:
            text, calls = readers[sample.index].finish()
            if text:
                yield self._chunk(ChunkChoice(sample.index, Delta(content=text)))
            if calls:
                deltas = [ToolCallDelta(i, call.id, call.function) for i, call in enumerate(calls)]
                yield self._chunk(ChunkChoice(sample.index, Delta(tool_calls=deltas)))
            yield self._chunk(ChunkChoice(sample.index, Delta(), _reason(sample.finish_reason, calls)))
        if self.usage_wanted:
            yield ChatChunk(**self._head, choices=[], usage=usage_of([finished]))

    def _chunk(self, choice: ChunkChoice) -> ChatChunk:
        more: dict[str, Any] = {"usage": None} if self.usage_wanted else {}
        return ChatChunk(**self._head, choices=[choice], **more)

    def _logprobs(self, logprobs: list[TokenLogprob]) -> ChatLogprobs | None:
        if self.sampling.logprobs is None:
            return None
        top = self.sampling.logprobs
        return ChatLogprobs(
            [
                ChatLogprob(one.text, one.logprob, list(one.bytes), [_top(other) for other in one.top[:top]])
                for one in logprobs
            ]
        )


def _sampling(request: ChatRequest, tools: ToolUse, status: EngineStatus) -> SamplingParams:
    if request.top_logprobs and not request.logprobs:
        raise Refused("top_logprobs is stated without logprobs; set logprobs to true.", field="top_logprobs")
    limit = request.max_completion_tokens or request.max_tokens or _room(status, request.n or 1)
    schema = schema_of(request)
    if tools.forced:
        if schema:
            text = "response_format and a tool_choice that forces a call are stated; accepted is one of them."
            raise Refused(text, field="response_format")
        schema = forced_schema(tools, [tool.function for tool in request.tools or []])
    return sampling_of(
        request,
        max_tokens=limit,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        json_schema=schema,
    )


def _room(status: EngineStatus, n: int) -> int:
    """The most tokens of an answer whose length was not limited: the model's context or, where ``n`` of them would not
    fit into the pool, what leaves as much room for the prompt."""
    if status.stats is None:
        return status.context_length
    pool = status.stats.device.num_blocks * status.stats.device.block_size
    return status.context_length if pool >= n * status.context_length else max(1, pool // (2 * n))


def _message(turn: ChatTurn, place: str) -> ChatMessage:
    """A message as chat templates know it."""
    if turn.role == "tool" and not turn.tool_call_id:
        raise Refused(f"{place} has role tool and no tool_call_id; state the call that it answers.", field=place)
    return ChatMessage(
        role="system" if turn.role == "developer" else turn.role,
        content=_text(turn, place),
        tool_calls=[_call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(turn.tool_calls or [])],
        tool_call_id=turn.tool_call_id or "",
        name=turn.name or "",
    )


def _tool(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates know it, which look for its parameters."""
    function = {"parameters": NO_PARAMETERS, **msgspec.to_builtins(tool.function)}
    return {"type": tool.type, "function": function}


def _text(turn: ChatTurn, place: str) -> str:
    if turn.content is None:
        if turn.role != "assistant":
            raise Refused(f"{place}.content is missing; accepted is text.", field=f"{place}.content")
        return ""
    if isinstance(turn.content, str):
        return turn.content
    for i, part in enumerate(turn.content):
        if part.type != "text" or part.text is None:
            field = f"{place}.content[{i}]"
            raise Refused(f"{field} is of type {part.type!r}; accepted are parts of type 'text'.", field=field)
    return "".join(part.text or "" for part in turn.content)


def _call(call: ToolCall, place: str) -> dict[str, Any]:
    """Templates write the arguments as JSON themselves."""
    try:
        arguments = msgspec.json.decode(call.function.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        field = f"{place}.function.arguments"
        raise Refused.value(field, call.function.arguments, "a JSON object as text") from None
    return {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": arguments}}


def _check_numbers(submit: Submit) -> None:
    """What tools hold is any JSON, whose numbers may be larger than the wire's."""
    try:
        msgspec.msgpack.encode((submit.tools, submit.messages))
    except OverflowError:
        raise Refused("tools has a number beyond 64 bits; accepted are smaller ones.", field="tools") from None


def _top(one: TokenLogprob) -> TopLogprob:
    return TopLogprob(one.text, one.logprob, list(one.bytes))


def _reason(finish_reason: str, calls: list[ToolCall]) -> FinishReason:
    return "tool_calls" if calls and finish_reason == "stop" else reason_of(finish_reason)
