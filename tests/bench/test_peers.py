"""The whole comparison on a tiny model: systems in processes of their own, and a server, on one load."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pagedeck.bench import peers, results, server_peer, variants
from pagedeck.bench.drive import Outcome
from pagedeck.bench.peers import TRANSFORMERS, Others
from pagedeck.bench.results import Run
from pagedeck.bench.workload import Item
from pagedeck.cli import main
from pagedeck.commands import bench
from pagedeck.ipc.client import EngineError
from pagedeck.ipc.launch import LaunchFailed
from pagedeck.ipc.vocabulary import Refused


@pytest.fixture
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))


def quiet(text: str, share: float | None) -> None:
    """Nobody is told."""


@pytest.mark.usefixtures("private_folders")
def test_all_systems_answer_the_same_load_with_the_same_tokens(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "EngineConfig", lambda: None)
    monkeypatch.setattr(bench, "locate", lambda *_: type("At", (), {"folder": tiny_model_folder}))
    monkeypatch.setattr(bench, "OUTPUTS", (4, 20))
    output = tmp_path / "peers.json"
    command = f"bench peers --requests 5 --threads 1 --setting block-size=16 --output {output}"
    assert main(command.split()) == 0
    found = results.read(output)
    assert found.kind == "peers" and found.names() == ["pagedeck", *TRANSFORMERS]
    ours = found.runs[0]
    assert ours.settings == {"block-size": "16"}
    for run in found.runs:
        assert [one.tokens for one in run.outcomes] == [one.tokens for one in ours.outcomes]
        assert [one.prompt_tokens for one in run.outcomes] == [one.prompt_tokens for one in ours.outcomes]
        assert all(one.ended > 0 and not one.due for one in run.outcomes) and run.precision == "float32"
        assert run.memory_bytes is not None and run.memory_bytes > 50e6  # torch alone is more
    for streaming in (ours, found.runs[-1]):
        for one in streaming.outcomes:
            assert len(one.arrivals) == len(one.tokens) and one.arrivals == sorted(one.arrivals)
            assert one.arrivals[0] > 0 and one.arrivals[-1] <= one.ended
    rows = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert all(rows[peers.title(name)].endswith("5 of 5") for name in TRANSFORMERS)


def test_a_peer_takes_a_load_with_its_times(tiny_model_folder: Path) -> None:
    items = [Item([300 + n] * 5, 3, at=at) for n, at in enumerate((0.0, 0.0, 0.4, 0.4))]
    run = variants.measure("continuous", tiny_model_folder, items, threads=1, report=quiet)
    assert run.name == "continuous" and [one.due for one in run.outcomes] == [item.at for item in items]
    assert all(len(one.tokens) == 3 and one.arrivals[0] > one.due for one in run.outcomes)
    with pytest.raises(Refused, match="requests wait for others"):
        variants.measure("continuous", tiny_model_folder, [*items, Item([5], 1, after=0)], threads=1, report=quiet)


def test_the_table_says_how_much_faster_and_how_equal() -> None:
    def run(
        name: str, ended: Sequence[float], arrivals: Sequence[Sequence[float]], *, last: int = 4, **more: Any
    ) -> Run:
        tokens = ([1, 2], [3, last, 5])
        outcomes = [
            Outcome(0, 0, end, times, of, 10 * (n + 1))
            for n, (end, times, of) in enumerate(zip(ended, arrivals, tokens, strict=True))
        ]
        return Run(name, outcomes, **more)

    ours = run("pagedeck", [1.0, 2.0], [[0.5, 1.0], [1.0, 1.5, 2.0]], memory_bytes=3 << 30)
    batched = run("static", [4.0, 5.0], [[4.0], [5.0]], last=5)
    served = run("http://peer", [1.0, 1.0], [[0.5, 0.9], [0.7, 0.8, 0.9]], precision="Q4_1")
    text = bench.render(results.new("peers", load={"threads": 2}, runs=[ours, batched, served]))
    assert "2 requests at once, 30 prompt and 5 output tokens, greedy, 2 threads" in text
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in text.splitlines()}
    assert rows["Pagedeck"] == "Pagedeck float32 2.5 1.00 s 2.00 s 500 ms 500 ms 3.00 GiB"
    name = "transformers, batches of 8"
    assert rows[name] == f"{name} float32 1.0 2.50 × as fast 4.00 s 5.00 s 1 of 2"
    assert rows["http://peer"] == "http://peer Q4_1 5.0 0.50 × as fast 1.00 s 1.00 s 100 ms 400 ms"


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
    others = Others(served_precision="Q8_0")
    run = variants.measure(completions_url + "/v1", Path(), items, threads=1, others=others, report=quiet)
    assert [len(one.arrivals) for one in run.outcomes] == [4, 7]
    for one in run.outcomes:
        assert one.arrivals == sorted(one.arrivals) and one.arrivals[-1] <= one.ended
    assert run.precision == "Q8_0" and run.memory_bytes  # it listens in this very process


def test_a_server_that_makes_another_length_is_no_peer(completions_url: str) -> None:
    with pytest.raises(EngineError, match=r"peer made 3 tokens where 4 were asked for\."):
        server_peer.drive("peer", completions_url, [Item([0] * 20, 4)], quiet)


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
    variants.check_names(["pagedeck", completions_url], Others())
    with pytest.raises(Refused, match="known beforehand"):
        variants.measure(
            completions_url, Path(), [Item([5], 1), Item([5], 1, after=0, continues=True)], threads=1,
            report=lambda *_: None,
        )  # fmt: skip


def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(EngineError, match=r"peer at http://127\.0\.0\.1:9 cannot be used"):
        server_peer.drive("peer", "http://127.0.0.1:9", [Item([1], 1)], quiet)


def test_a_python_that_is_not_there_or_lacks_openvino_is_told(tmp_path: Path) -> None:
    program = tmp_path / "python"

    def measure() -> Run:
        others = Others(str(tmp_path), str(program))
        return variants.measure("openvino", Path(), [Item([1], 1)], threads=1, others=others, report=quiet)

    with pytest.raises(LaunchFailed, match=r"OpenVINO GenAI, continuous batching cannot be started: .*No such file"):
        measure()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without any package that is installed
    program.chmod(0o755)
    with pytest.raises(LaunchFailed, match="OpenVINO GenAI, continuous batching failed: ModuleNotFoundError"):
        measure()


def test_openvino_is_sent_what_is_due(tmp_path: Path) -> None:
    """Its program, with a library of the test's in the place of OpenVINO's."""
    (tmp_path / "numpy.py").write_text("int64 = 0\narray = lambda value, kind: value\n")
    (tmp_path / "openvino.py").write_text("Tensor = lambda value: value\n")
    (tmp_path / "openvino_genai.py").write_text(GENAI)
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    items = [Item([300 + n] * 5, n + 1, at=at) for n, at in enumerate((0.0, 0.0, 0.3))]
    others = Others(str(tmp_path), str(program), "int8")
    run = variants.measure("openvino", Path(), items, threads=1, others=others, report=quiet)
    assert run.precision == "int8" and [one.tokens for one in run.outcomes] == [[300], [301] * 2, [302] * 3]
    assert all(one.arrivals[0] > one.due and one.ended == one.arrivals[-1] for one in run.outcomes)


GENAI = """
class SchedulerConfig: pass
class GenerationConfig: pass

class Handle:
    def __init__(self, token, count):
        self.token, self.left, self.ready = token, count, 0
    def can_read(self):
        return self.ready > 0
    def read(self):
        part = GenerationConfig()
        part.generated_ids, self.ready = [self.token] * self.ready, 0
        return {0: part}

class ContinuousBatchingPipeline:
    def __init__(self, *_):
        self.live = []
    def add_request(self, number, tokens, generation):
        self.live.append(Handle(tokens[0][0], generation.max_new_tokens))
        return self.live[-1]
    def step(self):
        for handle in self.live:
            if handle.left:
                handle.left, handle.ready = handle.left - 1, handle.ready + 1
"""


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
