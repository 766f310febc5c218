"""What is wrong with a body is told in one sentence for people: the place, the value, what is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pagedeck.ipc.http.decoding import decode
from pagedeck.ipc.http.errors import HttpError
from pagedeck.ipc.http.schema import ChatRequest, CompletionRequest

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}


def refusal(body: Any) -> HttpError:
    kind = ChatRequest if isinstance(body, dict) and "messages" in body else CompletionRequest
    with pytest.raises(HttpError) as error:
        decode(json.dumps(body).encode(), kind)
    assert error.value.status == 400
    return error.value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([], "The body is no JSON object, which a request is."),
        ({"prompt": 3}, "prompt is 3; accepted is a text or a list."),
        ({"prompt": [["x"]]}, "prompt[0][0] is 'x'; accepted is a whole number from 0 to 2,147,483,647."),
        ({"prompt": "x", "temperature": "hot"}, "temperature is 'hot'; accepted is a number from 0 to 100."),
        ({"prompt": "x", "temperature": 101}, "temperature is 101; accepted is a number from 0 to 100."),
        ({"prompt": "x", "top_p": 0}, "top_p is 0; accepted is a number above 0, up to 1."),
        ({"prompt": "x", "stream": 1}, "stream is 1; accepted is true or false."),
        ({"prompt": "x", "stop": [3]}, "stop[0] is 3; accepted is a text."),
        ({"prompt": "x", "priority": True},
         "priority is True; accepted is 'batch' or 'interactive' or 'normal' or a whole number from -1,000,000 to "
         "1,000,000."),
        ({"prompt": "x", "logit_bias": {"1": 1000}},
         "logit_bias is {'1': 1000}; accepted is an object whose values are each a number from -100 to 100."),
        ({"prompt": "x", "logit_bias": {"a": 1}},
         "A key of logit_bias is not accepted; accepted are token ids, whole numbers from 0 to 2,147,483,647."),
        ({"messages": []}, "messages is []; accepted is a list that is not empty."),
        (CHAT | {"response_format": "json"}, "response_format is 'json'; accepted is an object."),
        (CHAT | {"tool_choice": 4},
         "tool_choice is 4; accepted is 'auto' or 'none' or 'required' or an object."),
        (CHAT | {"tools": [{"type": "function", "function": {"name": ""}}]},
         "tools[0].function.name is ''; accepted is a text of 1 to 64 characters."),
        (CHAT | {"n": 1.5}, "n is 1.5; accepted is a whole number from 1 to 64."),
        (CHAT | {"max_token": 3}, "There is no field 'max_token' in this request; did you mean max_tokens?"),
        (CHAT | {"repeat_penalty": 2}, "There is no field 'repeat_penalty' in this request; state repetition_penalty."),
        (CHAT | {"guided_json": {}},
         "There is no field 'guided_json' in this request; state response_format, with a JSON schema."),
        (CHAT | {"xyz": 1}, "There is no field 'xyz' in this request; leave it out."),
        (CHAT | {"tools": [{"type": "function", "function": {"nam": "f"}}]},
         "There is no field 'tools[0].function.nam' in this request; did you mean name?"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_one_sentence_says_it(body: Any, text: str) -> None:
    assert str(refusal(body)) == text


@pytest.mark.parametrize("body", [{"prompt": "x"}, CHAT])
def test_what_other_servers_know_and_no_answer_depends_on_is_ignored(body: dict[str, Any]) -> None:
    sent = {"cache_prompt": False, "id_slot": -1, "timings_per_token": True, "request_id": "x", "user": 3}
    decode(json.dumps(body | sent).encode(), ChatRequest if body is CHAT else CompletionRequest)
