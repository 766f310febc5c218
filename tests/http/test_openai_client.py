"""OpenAI's own client against a real engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from pagedeck.ipc.client import Client
from pagedeck.ipc.telemetry import RequestRow

HELLO: list[Any] = [{"role": "user", "content": "the quick brown fox"}]
SWITCH = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "light", "description": "Switch the light", "parameters": SWITCH}},
    {"type": "function", "function": {"name": "radio", "parameters": SWITCH}},
]


def test_the_engine_s_model_is_listed(client: openai.OpenAI, model: str) -> None:
    assert model == "tiny-tools"
    found = client.models.retrieve(model)
    assert (found.id, found.object, found.to_dict()["max_model_len"]) == (model, "model", 4096)
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt-4' here"):
        client.models.retrieve("gpt-4")


def test_a_completion_is_what_the_engine_gives_any_client(engine: Any, client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    answer = client.completions.create(model=model, prompt="the quick", extra_body={"ignore_eos": True}, **given)
    with Client(engine.connection) as direct:
        assert answer.choices[0].text == direct.submit("the quick", ignore_eos=True, **given).text()
    usage = answer.usage
    assert usage and usage.completion_tokens == 12 and usage.total_tokens == usage.prompt_tokens + 12


def test_several_prompts_with_several_samples_come_in_order(client: openai.OpenAI, model: str) -> None:
    prompts = ["the quick", "lazy dog"]
    given: dict[str, Any] = {"model": model, "n": 2, "echo": True, "max_tokens": 4, "seed": 3}
    together = client.completions.create(prompt=prompts, **given)
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    alone = [choice.text for prompt in prompts for choice in client.completions.create(prompt=prompt, **given).choices]
    assert [choice.text for choice in together.choices] == alone
    assert together.choices[2].text.startswith("lazy dog")
    parts: dict[int, str] = dict.fromkeys(range(4), "")
    for part in client.completions.create(prompt=prompts, stream=True, **given):
        for choice in part.choices:
            parts[choice.index] += choice.text
    assert list(parts.values()) == alone


def test_token_ids_are_a_prompt_too_and_are_echoed_as_text(engine: Any, client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(model=model, prompt=[72, 73], echo=True, max_tokens=2, temperature=0)
    several = client.completions.create(model=model, prompt=[[72, 73], [80]], echo=True, max_tokens=2, temperature=0)
    assert several.choices[0].text == answer.choices[0].text and len(several.choices) == 2
    with Client(engine.connection) as direct:
        stream = direct.submit(token_ids=[72, 73], max_tokens=2, temperature=0)
        assert answer.choices[0].text.endswith(stream.text())
        assert answer.choices[0].text.startswith(direct.describe_request(stream.id).prompt_text)


def test_the_best_of_several_comes_back(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(model=model, prompt="dog", best_of=4, n=2, max_tokens=4, seed=1)
    assert len(answer.choices) == 2


def test_a_streamed_answer_is_the_whole_one(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "messages": HELLO, "max_completion_tokens": 16, "seed": 5, "n": 2}
    whole = client.chat.completions.create(**given)
    texts, reasons, roles = ["", ""], ["", ""], 0
    usage = None
    for part in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **given):
        assert usage is None, "usage comes last"
        usage = part.usage
        for choice in part.choices:
            roles += choice.delta.role == "assistant"
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices] and set(reasons) <= {"stop", "length"}
    assert roles == 2 and usage is not None and whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_parts_of_a_message_are_one_text(client: openai.OpenAI, model: str) -> None:
    parts: list[Any] = [{"type": "text", "text": "the quick "}, {"type": "text", "text": "brown fox"}]
    given: dict[str, Any] = {"model": model, "max_tokens": 8, "temperature": 0}
    in_parts = client.chat.completions.create(messages=[{"role": "user", "content": parts}], **given)
    assert in_parts.choices[0].message.content == (
        client.chat.completions.create(messages=HELLO, **given).choices[0].message.content
    )


def test_stop_strings_end_an_answer(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "prompt": "the quick", "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**given).choices[0].text
    stop = whole[3:5]
    for stated in (stop, [stop, "never said"]):
        choice = client.completions.create(stop=stated, **given).choices[0]
        assert (choice.text, choice.finish_reason) == (whole.partition(stop)[0], "stop")


def test_sampling_is_passed_on(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "prompt": "the quick", "max_tokens": 6, "temperature": 0}
    biased = client.completions.create(logit_bias={"75": 100}, extra_body={"ignore_eos": True}, **given)
    token = client.completions.create(model=model, prompt=[75], echo=True, max_tokens=1).choices[0].text[0]
    assert biased.choices[0].text == 6 * token
    more = {"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.2, "min_tokens": 2, "priority": "interactive"}
    kept = client.completions.create(
        presence_penalty=0.5, frequency_penalty=0.5, top_p=0.9, user="me", extra_body=more, **given
    )
    assert kept.choices[0].text


def test_log_probabilities_are_told_with_their_alternatives(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "max_tokens": 5, "temperature": 0}
    more = {"ignore_eos": True}
    chat = client.chat.completions.create(messages=HELLO, logprobs=True, top_logprobs=3, extra_body=more, **given)
    told = chat.choices[0].logprobs
    assert told and told.content and len(told.content) == 5
    for token in told.content:
        assert len(token.top_logprobs) == 3 and token.logprob <= 0
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, token.top_logprobs[0].logprob), "greedy"
    assert b"".join(bytes(token.bytes or []) for token in told.content).decode(errors="replace") == (
        chat.choices[0].message.content
    )
    plain = client.chat.completions.create(messages=HELLO, logprobs=True, **given).choices[0].logprobs
    assert plain and plain.content and plain.content[0].top_logprobs == []
    streamed = [
        token.logprob
        for part in client.chat.completions.create(
            messages=HELLO, logprobs=True, top_logprobs=3, stream=True, extra_body=more, **given
        )
        for choice in part.choices
        if choice.logprobs
        for token in choice.logprobs.content or []
    ]
    assert streamed == pytest.approx([token.logprob for token in told.content], abs=1e-4)
    old = client.completions.create(prompt="the quick", logprobs=2, extra_body=more, **given).choices[0]
    assert old.logprobs and old.logprobs.tokens and old.logprobs.top_logprobs and old.logprobs.text_offset
    assert len(old.logprobs.tokens) == 5 and len(old.logprobs.top_logprobs[0]) == 2
    assert old.logprobs.text_offset[1] == len(old.logprobs.tokens[0])


def test_an_answer_keeps_to_a_schema(client: openai.OpenAI, model: str) -> None:
    schema = {"name": "switch", "schema": SWITCH, "strict": True}
    form: Any = {"type": "json_schema", "json_schema": schema}
    answer = client.chat.completions.create(model=model, messages=HELLO, response_format=form, max_tokens=60)
    assert isinstance(json.loads(answer.choices[0].message.content or "")["on"], bool)
    assert answer.choices[0].finish_reason == "stop"
    more = {"response_format": form}
    continued = client.completions.create(model=model, prompt="the", max_tokens=60, extra_body=more)
    assert isinstance(json.loads(continued.choices[0].text)["on"], bool)


def test_a_model_is_made_to_call_a_tool(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "messages": HELLO, "tools": TOOLS, "max_tokens": 80}
    named: Any = {"type": "function", "function": {"name": "radio"}}
    choice = client.chat.completions.create(tool_choice=named, **given).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None and choice.message.tool_calls
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "radio"
    assert isinstance(json.loads(call.function.arguments)["on"], bool)
    choice = client.chat.completions.create(tool_choice="required", **given).choices[0]
    assert choice.message.tool_calls and choice.message.tool_calls[0].type == "function"
    assert choice.message.tool_calls[0].function.name in ("light", "radio")


def test_a_tool_without_parameters_takes_none(client: openai.OpenAI, model: str) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "bell"}}]
    given: dict[str, Any] = {"model": model, "messages": HELLO, "tools": tools, "max_tokens": 20}
    choice = client.chat.completions.create(tool_choice="required", **given).choices[0]
    assert choice.message.tool_calls and choice.message.tool_calls[0].type == "function"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {}


def newest(direct: Client) -> RequestRow:
    """The engine's request that came last."""
    return max(direct.snapshot().requests, key=lambda row: row.number)


def as_call(name: str) -> Any:
    """A schema whose one document is a call as models write it that are not made to."""
    call = {"name": {"const": name}, "arguments": {"const": {"on": True}}}
    schema = {"type": "object", "properties": call, "required": ["name", "arguments"], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def test_calls_are_found_in_what_a_model_writes(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "messages": HELLO, "tools": TOOLS, "max_tokens": 80}
    choice = client.chat.completions.create(response_format=as_call("light"), **given).choices[0]
    assert choice.message.tool_calls and choice.message.tool_calls[0].type == "function"
    assert choice.message.tool_calls[0].function.name == "light"
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"on": True}
    choice = client.chat.completions.create(response_format=as_call("kettle"), **given).choices[0]
    assert choice.message.tool_calls is None and "kettle" in (choice.message.content or "")
    calls, reasons, text = [], [], ""
    for part in client.chat.completions.create(stream=True, response_format=as_call("light"), **given):
        calls += part.choices[0].delta.tool_calls or []
        reasons.append(part.choices[0].finish_reason)
        text += part.choices[0].delta.content or ""
    assert [call.function and call.function.name for call in calls] == ["light"] and text == ""
    assert reasons[-1] == "tool_calls"


def test_calls_and_results_go_through_the_chat_template(engine: Any, client: openai.OpenAI, model: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "light", "arguments": '{"on": true}'}}
    messages: list[Any] = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is on."},
    ]
    given: dict[str, Any] = {"model": model, "messages": messages, "tools": TOOLS[:1], "max_tokens": 2}
    client.chat.completions.create(**given)
    with Client(engine.connection) as direct:
        prompt = direct.describe_request(newest(direct).id).prompt_text
    assert prompt == (
        f"<tool>light: {json.dumps(SWITCH)}\n<|user|>the quick brown fox<|assistant|><call>light True"
        "<|tool|>It is on.<for call_1><|assistant|>"
    )


def test_many_at_once_over_the_asynchronous_client(gateway: Any, model: str) -> None:
    async def work() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1",
            api_key="none",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as client:

            async def one(number: int) -> str:
                answer = await client.completions.create(
                    model=model, prompt=f"fox {number}", max_tokens=6, temperature=0
                )
                return answer.choices[0].text

            async def streamed(number: int) -> str:
                parts = await client.completions.create(
                    model=model, prompt=f"fox {number}", max_tokens=6, temperature=0, stream=True
                )
                return "".join([choice.text async for part in parts for choice in part.choices])

            whole = await asyncio.gather(*(one(number) for number in range(8)))
            assert await asyncio.gather(*(streamed(number) for number in range(8))) == whole

    asyncio.run(work())


def test_leaving_a_stream_cancels_it(engine: Any, client: openai.OpenAI, model: str) -> None:
    parts = client.completions.create(
        model=model, prompt="the", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
    )
    next(part for part in parts if part.choices[0].text)
    with Client(engine.connection) as direct:
        request = newest(direct)
        assert request.state == "running"
        parts.close()
        while (row := direct.describe_request(request.id).row) and row.state == "running":
            pass
        assert row is not None and row.state == "cancelled"


def test_a_full_queue_is_said_with_the_time_to_wait(engine: Any, client: openai.OpenAI, model: str) -> None:
    with Client(engine.connection) as direct:
        before = {setting.name: setting.value for setting in direct.config()}
        direct.reconfigure({"max_queue": 1, "max_batch_size": 1})
        try:
            running = direct.submit("the", max_tokens=4000, ignore_eos=True)
            next(iter(running))
            waiting = direct.submit("the", max_tokens=4000, ignore_eos=True)
            assert waiting.accepted
            with pytest.raises(openai.RateLimitError, match="max_queue") as error:
                client.completions.create(model=model, prompt="the")
            assert 1 <= int(error.value.response.headers["retry-after"]) <= 60
            running.cancel()
            waiting.cancel()
        finally:
            direct.reconfigure({name: before[name] for name in ("max_queue", "max_batch_size")})


@pytest.mark.parametrize(
    ("given", "param", "says"),
    [
        ({"messages": []}, "messages", "messages is []"),
        ({"temperature": -1}, "temperature", "temperature is -1"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty", "from 0.01 to 100"),
        ({"max_tokens": "many"}, "max_tokens", "max_tokens is 'many'"),
        ({"top_logprobs": 2}, "top_logprobs", "set logprobs to true"),
        ({"stop": [""]}, "stop", "stop is ''"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "A key of logit_bias"),
        ({"logit_bias": {"1": 1000}}, "logit_bias", "logit_bias is {'1': 1000}"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "token ids from 0 to 319"),
        (
            {"messages": [{"role": "usr", "content": "x"}]},
            "messages[0].role",
            "'assistant' or 'developer' or",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0]", "tool_call_id"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "content is missing"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "role is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
            "'image_url'; accepted are parts of type 'text'",
        ),
        ({"functions": [{"name": "f"}]}, "functions", "state tools"),
        ({"max_token": 3}, "max_token", "There is no field 'max_token'"),
        ({"tool_choice": "required"}, "tool_choice", "without tools"),
        ({"tools": [{"type": "function", "function": {"nam": "f"}}]}, "tools[0].function.nam", "There is no field"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]},
            "tools[0].function.parameters",
            "3",
        ),
        ({"tools": [*TOOLS[:1], *TOOLS[:1]]}, "tools", "two of the same name"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "oven"}}},
            "tool_choice",
            "'oven'; accepted is one of light, radio",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format", "without json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'json_object' or 'json_schema' or 'text'"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "without stream"),
        ({"priority": "urgent"}, "priority", "'urgent'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_served_is_said_by_field(
    client: openai.OpenAI, model: str, given: dict[str, Any], param: str, says: str
) -> None:
    body = {"model": model, "messages": HELLO, "max_tokens": 1} | given
    with pytest.raises(openai.BadRequestError) as error:
        client.post("/chat/completions", body=body, cast_to=object)
    assert error.value.param == param and says in error.value.message
    assert error.value.type == "invalid_request_error" and error.value.code


@pytest.mark.parametrize(
    ("given", "param", "says"),
    [
        ({"prompt": "dog " * 5000}, "prompt", "accepted are up to 4,095"),
        ({"prompt": []}, "prompt", "a text, its token ids"),
        ({"prompt": [1, "a"]}, "prompt", "a text, its token ids"),
        ({"prompt": [10**9]}, "prompt", "token ids from 0 to 319"),
        ({"prompt": ["a"] * 257}, "prompt", "accepted are up to 256"),
        ({"suffix": "x"}, "suffix", "leave suffix out"),
        ({"echo": True, "logprobs": 1}, "logprobs", "with echo"),
        ({"n": 3, "best_of": 2}, "best_of", "from n (3)"),
        ({"prompt": None}, "prompt", "prompt is None"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_completed_is_said_by_field(
    client: openai.OpenAI, model: str, given: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.post("/completions", body={"model": model, "prompt": "a", "max_tokens": 1} | given, cast_to=object)
    assert error.value.param == param and says in error.value.message


def test_what_is_not_there_is_not_found(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError, match="no embeddings"):
        client.embeddings.create(model=model, input="x")
    with pytest.raises(openai.NotFoundError, match="There is no model 'gpt-4' here") as error:
        client.chat.completions.create(model="gpt-4", messages=HELLO)
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="There is no /v1/audio/speech here"):
        client.audio.speech.create(model=model, input="x", voice="alloy")
