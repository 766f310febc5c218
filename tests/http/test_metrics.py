"""What /metrics tells, as Prometheus reads it, and the dashboard made of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import openai
import pytest
from pagedeck.ipc.client import Client
from pagedeck.ipc.http.metrics import RequestCounts, exposition
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parent.parent.parent

VLLM = {
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total",
    "prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total", "generation_tokens_total",
    "request_success_total", "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
    "e2e_request_latency_seconds_bucket", "request_queue_time_seconds_bucket", "request_prefill_time_seconds_bucket",
    "request_decode_time_seconds_bucket", "iteration_tokens_total_bucket", "cache_config_info",
}  # fmt: skip

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def look(engine: Any, gateway: Any) -> Callable[[], Samples]:
    """Reads all figures, which are those of everything that happened until now: the engine makes them once a second."""

    def look() -> Samples:
        asked = time.time()
        with Client(engine.connection) as direct:
            while not (stats := direct.status().stats) or stats.time <= asked:
                pass
        return samples(gateway)

    return look


def samples(gateway: Any) -> Samples:
    """Every value by its name and labels; that it parses is Prometheus' own word for it."""
    answer = gateway.http.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    return parsed(answer.text)


def parsed(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, "told once"
            found[key] = sample.value
    return found


def total(found: Samples, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    values = [value for (known, with_), value in found.items() if known == name and wanted <= with_]
    assert values, f"{name} is not told"
    return sum(values)


def test_figures_add_up(look: Callable[[], Samples], client: openai.OpenAI, model: str) -> None:
    more = {"ignore_eos": True}
    client.completions.create(model=model, prompt="the quick", max_tokens=7, extra_body=more)
    before = look()
    usage = client.completions.create(model=model, prompt="the quick", max_tokens=7, n=2, extra_body=more).usage
    assert usage is not None
    after = look()

    def grown(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert grown("vllm:generation_tokens_total", model_name=model) == grown("pagedeck_output_tokens_total") == 14
    assert grown("vllm:prompt_tokens_total") == grown("pagedeck_prompt_tokens_total") == usage.prompt_tokens
    assert grown("vllm:request_success_total", finished_reason="length") == 2
    assert grown("pagedeck_samples_ended_total", reason="length") == 2
    assert grown("pagedeck_requests_ended_total", state="finished") == 1
    assert total(after, "pagedeck_engine_state", state="ready") == 1 == total(after, "pagedeck_engine_state")
    assert total(after, "pagedeck_blocks", tier="device") == 256 and total(after, "pagedeck_blocks", tier="host") == 0
    assert total(after, "vllm:cache_config_info", block_size="16", num_gpu_blocks="256") == 1
    assert grown("pagedeck_http_requests_total", path="/v1/completions", code="200") == 1
    assert grown("pagedeck_computed_tokens_total") == pytest.approx(grown("pagedeck_step_tokens_sum"))


def test_histograms_count_upwards(look: Callable[[], Samples], client: openai.OpenAI, model: str) -> None:
    client.completions.create(model=model, prompt="the quick", max_tokens=4, extra_body={"ignore_eos": True})
    found = look()
    for name in {name.removesuffix("_bucket") for name, _ in found if name.endswith("_bucket")}:
        series: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
        for (known, labels), value in found.items():
            if known == f"{name}_bucket":
                rest = frozenset(pair for pair in labels if pair[0] != "le")
                series.setdefault(rest, []).append((float(dict(labels)["le"]), value))
        for labels, buckets in series.items():
            counts = [count for _, count in sorted(buckets)]
            assert counts == sorted(counts) and counts[-1] == found[f"{name}_count", labels]
            assert max(buckets)[0] == float("inf") and found[f"{name}_sum", labels] >= 0
    assert total(found, "vllm:time_to_first_token_seconds_sum") > 0


def test_vllm_s_names_are_there(gateway: Any, client: openai.OpenAI, model: str) -> None:
    client.completions.create(model=model, prompt="the quick", max_tokens=2)
    names = {name for name, _ in samples(gateway)}
    assert {f"vllm:{name}" for name in VLLM} <= names


def test_the_dashboard_shows_what_is_told(look: Callable[[], Samples], client: openai.OpenAI, model: str) -> None:
    client.completions.create(model=model, prompt="the quick", max_tokens=2, extra_body={"ignore_eos": True})
    found = look()
    labels: dict[str, set[str]] = {}
    for name, with_ in found:
        labels.setdefault(name, {"instance"}).update(label for label, _ in with_)
    dashboard = json.loads(ROOT.joinpath("assets/grafana/pagedeck.json").read_text(encoding="utf-8"))
    asked = list(expressions(dashboard["panels"]))
    assert len(asked) > 30
    for expression in asked:
        used = re.findall(r"(pagedeck_\w+)\{([^}]*)\}", expression)
        assert used and expression.count("pagedeck_") == len(used), expression
        for name, matchers in used:
            assert name in labels, f"{name} is not told"
            by = re.findall(r"by \(([^)]*)\)", expression)
            wanted = re.findall(r"(\w+)=~?\"", matchers) + [label.strip() for each in by for label in each.split(",")]
            assert set(wanted) <= labels[name], expression


def expressions(panels: list[dict[str, Any]]) -> Iterable[str]:
    for panel in panels:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_without_an_engine_only_the_gateway_is_told_of() -> None:
    counts = RequestCounts()
    counts.ended["/v1/models", 503] += 2
    found = parsed(exposition(None, counts).decode())
    assert total(found, "pagedeck_engine_state", state="absent") == 1
    assert total(found, "pagedeck_http_requests_total", path="/v1/models", code="503") == 2
    assert not any(name.startswith("vllm:") for name, _ in found)


def test_paths_that_nobody_knows_are_counted_as_one(gateway: Any) -> None:
    for number in range(3):
        gateway.http.get(f"/scan/{number}")
    gateway.http.get("/v1/models/no-such")
    found = samples(gateway)
    assert total(found, "pagedeck_http_requests_total", path="other", code="404") >= 3
    paths = {dict(labels)["path"] for name, labels in found if name == "pagedeck_http_requests_total"}
    assert paths <= {
        "/v1/models", "/v1/models/{model:path}", "/v1/completions", "/v1/chat/completions", "/health", "/metrics",
        "/openapi.json", "other",
    }  # fmt: skip
