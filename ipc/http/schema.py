"""What OpenAI's API says, as far as an engine can serve it. Requests are decoded by these structs, answers encoded, and
the OpenAPI document is made of them.

A field typed ``Ignored`` may be stated and changes nothing; one typed ``None`` would change the answer, and is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

#: Tokens and 64-bit numbers travel in MessagePack; what is larger could not.
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]

#: Accepted, and of no meaning here.
Ignored = Annotated[Any, Meta(description="Accepted and ignored.")]

_Unit = Annotated[float, Meta(ge=0, le=1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
_Count = Annotated[int, Meta(ge=1, le=10_000_000)]

# --- requests ---------------------------------------------------------------------------------------------------


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What no request may misspell."""


class StreamOptions(Request, kw_only=True):
    include_usage: bool | None = None
    include_obfuscation: Ignored = None


class SchemaFormat(msgspec.Struct):
    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """``json_schema`` goes with the type of that name."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None


class Generation(Request, kw_only=True):
    """What completions and chat completions have in common; from ``top_k`` on, extensions to OpenAI's API, as is
    ``response_format`` of completions. Ignored are also fields of other servers that are no part of an answer."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    n: Annotated[int, Meta(ge=1, le=64)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    logit_bias: dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    response_format: ResponseFormat | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    min_p: _Unit | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=10_000_000)] | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = None
    priority: Literal["interactive", "normal", "batch"] | Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = (
        None
    )
    user: Ignored = None
    cache_prompt: Ignored = None
    id_slot: Ignored = None
    n_keep: Ignored = None
    request_id: Ignored = None
    return_progress: Ignored = None
    slot_id: Ignored = None
    timings_per_token: Ignored = None


class CompletionRequest(Generation, kw_only=True):
    """``prompt``: a text or its tokens, or a list of several."""

    prompt: str | list[str | TokenId | list[TokenId]]
    best_of: Annotated[int, Meta(ge=1, le=64)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    suffix: None = None


class ContentPart(msgspec.Struct):
    """Part of a message; models read those of type ``text``."""

    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct):
    """``arguments``: a JSON object as text."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ChatTurn(msgspec.Struct):
    """A message of the conversation so far; other fields that answers have may come back in it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class FunctionTool(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """``parameters``: a JSON schema of the call's arguments."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["function"]
    function: FunctionTool


class FunctionName(msgspec.Struct):
    name: str


class NamedTool(msgspec.Struct):
    type: Literal["function"]
    function: FunctionName


class ChatRequest(Generation, kw_only=True):
    """Without a limit, an answer may fill the model's context."""

    messages: Annotated[list[ChatTurn], Meta(min_length=1)]
    max_completion_tokens: _Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None
    metadata: Ignored = None
    prediction: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    reasoning_effort: Ignored = None
    safety_identifier: Ignored = None
    service_tier: Ignored = None
    store: Ignored = None
    verbosity: Ignored = None
    audio: None = None
    function_call: None = None
    functions: None = None
    web_search_options: None = None


# --- answers ----------------------------------------------------------------------------------------------------

#: Why an answer ended.
FinishReason = Literal["stop", "length", "tool_calls"]


class PromptDetails(msgspec.Struct):
    cached_tokens: int = 0


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class CompletionLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None


class Completion(msgspec.Struct, kw_only=True):
    """Whole, or a part of it in a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatLogprob]
    refusal: None = None


class Answer(msgspec.Struct):
    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    index: int
    message: Answer
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ToolCallDelta(msgspec.Struct):
    """A call comes in one piece."""

    index: int
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class Delta(msgspec.Struct):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    finish_reason: FinishReason | None = None
    logprobs: ChatLogprobs | None = None


class ChatChunk(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | UnsetType | None = UNSET


class Model(msgspec.Struct):
    """``max_model_len``: tokens that prompt and output share."""

    id: str
    created: int
    max_model_len: int
    object: Literal["model"] = "model"
    owned_by: str = "pagedeck"


class ModelList(msgspec.Struct):
    data: list[Model]
    object: Literal["list"] = "list"


class ErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(msgspec.Struct):
    error: ErrorDetail


class Health(msgspec.Struct, omit_defaults=True):
    """``status``: ready, loading, draining, failed, or absent where no engine answers."""

    status: Literal["ready", "loading", "draining", "failed", "absent"]
    detail: str = ""
    progress: float | None = None
    engine: str = ""
    model: str = ""
