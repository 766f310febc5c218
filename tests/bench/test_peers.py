"""The whole comparison on a tiny model: systems in processes of their own, and a server, on one load."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from pagedeck.bench import peers, server_peer, variants
from pagedeck.bench.systems import Comparison, System
from pagedeck.bench.workload import Item
from pagedeck.commands import bench
from pagedeck.ipc.client import EngineError
from pagedeck.ipc.launch import LaunchFailed
from pagedeck.ipc.vocabulary import Refused


@pytest.fixture
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))


@pytest.mark.usefixtures("private_folders")
def test_all_systems_answer_the_same_load_with_the_same_tokens(tiny_model_folder: Path) -> None:
    reports: list[tuple[str, float | None]] = []
    comparison = peers.compare(
        tiny_model_folder,
        list(peers.transformers_peers(tiny_model_folder).values()),
        requests=5,
        outputs=(4, 20),
        threads=1,
        seed=0,
        report=lambda text, share: reports.append((text, share)),
        settings=["--block-size", "16"],
    )
    names = ["Pagedeck", "transformers, one by one", "transformers, batches of 8", "transformers, continuous batching"]
    assert [system.name for system in comparison.systems] == names
    lengths = [item.output_tokens for item in comparison.items]
    ours = comparison.systems[0]
    for system in comparison.systems:
        assert [len(output) for output in system.outputs] == lengths
        assert system.output_tokens == sum(lengths)
        assert system.agreement(ours) == 5
        assert all(finished > 0 for finished in system.finished)
        assert system.memory_bytes is not None and system.memory_bytes > 50e6  # torch alone is more
        assert (system.name, 1.0) in reports
    for streaming in (ours, comparison.systems[3]):
        for times, finished, length in zip(streaming.arrivals, streaming.finished, lengths, strict=True):
            assert len(times) == length and times == sorted(times) and times[0] > 0 and times[-1] <= finished
    facts = json.loads(json.dumps(comparison.facts()))
    assert facts["load"]["output_tokens"] == lengths
    assert [system["same_tokens_as_ours"] for system in facts["systems"]] == [5] * 4
    assert [system["inter_token_p95_s"] is None for system in facts["systems"]] == [False, True, True, False]


def test_the_table_says_how_much_faster_and_how_equal() -> None:
    items = [Item([1] * 10, 2), Item([1] * 20, 3)]
    ours = System("Pagedeck", 5, [1.0, 2.0], [[1, 2], [3, 4, 5]], [[0.5, 1.0], [1.0, 1.5, 2.0]], 3 << 30)
    batched = System("batched", 5, [4.0, 5.0], [[1, 2], [3, 5, 5]])
    served = System("served", 5, [1.0, 1.0], [], [[0.5, 0.9], [0.7, 0.8, 0.9]], precision="Q4_1")
    text = bench.render(Comparison([ours, batched, served], items, threads=2, seed=0))
    assert "2 requests at once, 30 prompt and 5 output tokens, greedy, 2 threads" in text
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in text.splitlines()}
    assert rows["Pagedeck"] == "Pagedeck float32 2.5 1.00 s 2.00 s 500 ms 500 ms 3.00 GiB"
    assert rows["batched"] == "batched float32 1.0 2.50 × as fast 4.00 s 5.00 s 1 of 2"
    assert rows["served"] == "served Q4_1 5.0 0.50 × as fast 1.00 s 1.00 s 100 ms 400 ms"


class Completions(BaseHTTPRequestHandler):
    """As many tokens as are asked for, one event each; a prompt that begins with 0 gets one too few."""

    models: ClassVar[list[dict]] = []  # what it says that it serves; empty where it does not say

    def do_GET(self) -> None:
        self.send_response(200 if self.models else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": self.models}).encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/completions" and asked["ignore_eos"] and asked["stream"] and not asked["temperature"]
        assert asked.get("model") == (self.models[0]["id"] if self.models else None)
        assert ("cache_prompt" in asked) == any(model["owned_by"] == "llamacpp" for model in self.models)
        self.send_response(200)
        self.end_headers()
        count = asked["max_tokens"] - (asked["prompt"][0] == 0)
        for _ in range(count):
            self.say({"choices": [{"text": "word "}]})
        self.say({"choices": [], "usage": {"completion_tokens": count}})
        self.wfile.write(b"data: [DONE]\n\n")

    def say(self, event: dict) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def completions_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "models", [[], [{"id": "m", "owned_by": "vllm"}], [{"id": "m.gguf", "owned_by": "llamacpp"}]], ids=len
)
def test_a_server_is_a_peer(completions_url: str, models: list[dict], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for the model that it serves, and what only llama.cpp's server knows is said to that alone."""
    monkeypatch.setattr(Completions, "models", models)
    items = [Item([5] * 20, 4), Item([6] * 3, 7)]
    system = server_peer.measure("peer", completions_url + "/v1", items, lambda *_: None, "Q8_0")
    assert system.output_tokens == 11
    assert [len(times) for times in system.arrivals] == [4, 7]
    for times, finished in zip(system.arrivals, system.finished, strict=True):
        assert times == sorted(times) and times[-1] <= finished
    assert system.precision == "Q8_0" and system.memory_bytes  # it listens in this very process
    assert system.agreement(system) is None


def test_a_server_that_makes_another_length_is_no_peer(completions_url: str) -> None:
    with pytest.raises(EngineError, match=r"peer made 3 tokens where 4 were asked for\."):
        server_peer.measure("peer", completions_url, [Item([0] * 20, 4)], lambda *_: None, "Q8_0")


def test_a_server_takes_a_load_with_its_times(completions_url: str) -> None:
    items = [Item([5] * 20, 4), Item([6] * 3, 7, at=0.05), Item([7], 2, at=0.05, after=1)]
    items += [Item([8], 1)] * server_peer.WARM_UP + [Item([0], 2)]
    run = variants.measure(completions_url, Path(), items, threads=1, report=lambda *_: None)
    first, second, last, *_, wrong = run.outcomes
    counts = [4, 7, 2, *[1] * server_peer.WARM_UP, 0]
    assert [len(one.tokens) for one in run.outcomes] == [len(one.arrivals) for one in run.outcomes] == counts
    assert all(one.due - 1e-3 <= one.sent <= one.ended for one in run.outcomes) and (first.due, second.due) == (0, 0.05)
    assert last.due == pytest.approx(second.ended + 0.05)
    assert "made 1 tokens where 2" in wrong.error and run.memory_bytes
    variants.check_names(["pagedeck", completions_url])
    with pytest.raises(Refused, match="known beforehand"):
        variants.measure(
            completions_url, Path(), [Item([5], 1), Item([5], 1, after=0, continues=True)], threads=1,
            report=lambda *_: None,
        )  # fmt: skip


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(EngineError, match=r"peer at http://127\.0\.0\.1:9 cannot be used"):
        server_peer.measure("peer", "http://127.0.0.1:9", [Item([1], 1)], lambda *_: None, "")


def test_a_python_that_is_not_there_or_lacks_openvino_is_told(tmp_path: Path) -> None:
    program = tmp_path / "python"
    with pytest.raises(LaunchFailed, match=r"OpenVINO GenAI, continuous batching cannot be started: .*No such file"):
        peers.openvino_peer(tmp_path, str(program)).run([Item([1], 1)], 1, lambda *_: None)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without any package that is installed
    program.chmod(0o755)
    with pytest.raises(LaunchFailed, match="OpenVINO GenAI, continuous batching failed: ModuleNotFoundError"):
        peers.openvino_peer(tmp_path, str(program)).run([Item([1], 1)], 1, lambda *_: None)


@pytest.mark.parametrize("chosen", ["one-by-one,llama", "openvino", "vllm"])
def test_peers_that_cannot_be_reached_are_refused(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_folder: Path
) -> None:
    monkeypatch.setattr(bench, "EngineConfig", lambda: None)
    monkeypatch.setattr(bench, "locate", lambda *_: type("At", (), {"folder": tiny_model_folder}))
    with pytest.raises(Refused, match=r"peers is .*accepted is one-by-one, static, continuous; openvino needs"):
        bench.peers(
            chosen=chosen, requests=1, threads=1, seed=0, settings=[], openvino_model=None, openvino_python="python",
            openvino_precision="int8", llama_url=None, llama_precision="", output=str(tmp_path / "out.json"),
        )  # fmt: skip
