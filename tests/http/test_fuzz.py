"""The OpenAPI document is true, and nothing that can be sent makes the gateway or the engine fail."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def bounded(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with requests for the model that is there and for few tokens of few samples only."""
    for name in ("CompletionRequest", "ChatRequest"):
        schema = document["components"]["schemas"][name]
        fields = schema["properties"]
        del fields["model"]
        for field, most in (("max_tokens", 4), ("n", 3), ("best_of", 3)):
            if field in fields:
                fields[field] = {"type": "integer", "minimum": 1, "maximum": most}
        fields.pop("max_completion_tokens", None)
        schema["required"].append("max_tokens")
    return document


@pytest.fixture(scope="module")
def operations(gateway: Any) -> dict[str, Any]:
    schema = schemathesis.openapi.from_dict(bounded(gateway.http.get("/openapi.json").json()))
    schema.config.update(base_url=gateway.url)
    found = (result.ok() for result in schema.get_all_operations())
    return {f"{operation.method.upper()} {operation.path}": operation for operation in found}


def test_the_document_describes_what_there_is(gateway: Any, operations: dict[str, Any]) -> None:
    assert set(operations) == {
        "GET /v1/models", "GET /v1/models/{model}", "POST /v1/completions", "POST /v1/chat/completions", "GET /health",
        "GET /metrics",
    }  # fmt: skip
    document = gateway.http.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert "temperature" in document["components"]["schemas"]["ChatRequest"]["properties"]


@pytest.mark.random
@pytest.mark.parametrize("name", ["POST /v1/completions", "POST /v1/chat/completions", "GET /v1/models/{model}"])
def test_whatever_the_document_allows_is_answered_as_it_says(operations: dict[str, Any], name: str) -> None:
    operation = operations[name]

    @EXAMPLES
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        answer = case.call(timeout=60)
        case.validate_response(answer, checks=CHECKS)

    ask()


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """A valid body with bytes of it replaced, or anything."""

    def replace(place: int, count: int, by: bytes) -> bytes:
        return valid[:place] + by + valid[place + count :]

    return st.binary(max_size=60) | st.builds(
        replace, st.integers(0, len(valid)), st.integers(0, 4), st.binary(max_size=6) | st.sampled_from(JSON)
    )


#: Pieces of JSON that decoders stumble over.
JSON = [
    b"null", b"-1", b"1e999", b"9" * 400, b"NaN", b'"\\ud800"', b"[" * 50, b"{}", b'"\\u0000"', b"true", b"1.5",
]  # fmt: skip

VALID = {
    "/v1/completions": {"prompt": [[1, 2], [3]], "max_tokens": 2, "stop": ["x"], "logit_bias": {"5": 1.5}, "seed": 1},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "max_tokens": 2,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"maximum": 3}}}],
        "response_format": {"type": "json_object"},
    },
}


@pytest.mark.random
@pytest.mark.parametrize("path", VALID)
def test_broken_bodies_are_refused_or_served(gateway: Any, path: str) -> None:
    valid = json.dumps(VALID[path]).encode()
    assert gateway.http.post(path, content=valid).status_code == 200

    @EXAMPLES
    @given(body=mutated(valid))
    def ask(body: bytes) -> None:
        answer: httpx.Response = gateway.http.post(path, content=body)
        assert answer.status_code in (200, 400), answer.text
        if answer.status_code == 400:
            assert answer.json()["error"]["message"]

    ask()
    assert gateway.http.get("/health").json()["status"] == "ready"
