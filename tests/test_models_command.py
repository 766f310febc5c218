"""``pagedeck models``, against a hub of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pagedeck.cli import main
from pagedeck.engine import footprint
from pagedeck.engine.model import library
from pagedeck.ipc.endpoint import Connection, process_started, write_connection

from .conftest import EngineProcess
from .fake_hub import MODEL, FakeHub, Handler, fake_hub


@pytest.fixture
def hub(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with fake_hub(tiny_model_folder, tmp_path / "hf") as made:
        private = {"RUNTIME": "run", "STATE": "state", "CACHE": "cache"}
        for name, folder in private.items():
            monkeypatch.setenv(f"PAGEDECK_{name}", str(tmp_path / folder))
        made.use(monkeypatch)
        yield made


class Command:
    """The command in this process, and what it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        code = main(["models", *arguments])
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    def answer(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refusal(self, *arguments: str) -> str:
        assert main(["models", *arguments]) == 1
        said = self._capsys.readouterr().err.splitlines()
        assert said[-1].startswith("pagedeck: ")
        return said[-1]


@pytest.fixture
def models(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_a_model_is_looked_at_downloaded_listed_and_deleted(hub: FakeHub, models: Command) -> None:
    size = sum(len(content) for content in hub.files.values())
    before = models.answer("show", MODEL)
    assert (before["installed"], before["to_download"]) == (None, size)
    estimated = before["footprint"]
    assert estimated["weight_bytes"] == estimated["parameters"] * 4
    # Keys and values of 2 layers, 2 heads, 16 numbers of 4 bytes.
    assert (estimated["token_bytes"], estimated["problem"]) == (2 * 2 * 2 * 16 * 4, "")
    assert estimated["tokens"] >= estimated["requests"] * estimated["request_tokens"] > 0
    assert [one["title"] for one in models.answer("list")] == ["SmolLM2-135M-Instruct"]  # a look leaves nothing behind

    lines = [json.loads(line) for line in models("fetch", MODEL, "--json").splitlines()]
    assert lines[-2] == {"model": MODEL, "bytes": size, "total": size}
    assert "done" in lines[-1]
    (found,) = models.answer("list")[1:]
    assert (found["title"], found["complete"]) == (MODEL, True)
    assert size <= found["bytes"] < size + 10_000  # and what the hub's library keeps beside it
    assert found["parameters"] == estimated["parameters"]
    assert (found["context_length"], found["used"], found["engine"]) == (4096, 0.0, "")

    assert "deleted" in models("remove", MODEL)
    assert models.answer("list")[1:] == []
    assert "on this machine" in models.refusal("remove", MODEL)


def test_a_download_that_was_broken_off_goes_on_there(hub: FakeHub, models: Command) -> None:
    hub.hold_after = 10_000
    command = [sys.executable, "-m", "pagedeck", "models", "fetch", MODEL, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["bytes"] >= 10_000
        child.kill()
    hub.go_on.set()
    hub.hold_after = None
    (part,) = models.answer("list")[1:]
    assert not part["complete"] and 0 < part["bytes"] < part["expected"]
    missing = models.answer("show", MODEL)["to_download"]
    assert 0 < missing < part["expected"]

    models("fetch", MODEL)
    assert hub.ranges == [None, f"bytes={len(hub.weights) - missing_weights(hub, missing)}-"]
    assert models.answer("list")[1]["complete"]


def missing_weights(hub: FakeHub, missing: int) -> int:
    """Of what is missing, the weights; small files come at the end."""
    return missing - sum(len(content) for name, content in hub.files.items() if name != "model.safetensors")


def test_a_connection_that_breaks_is_made_again(hub: FakeHub, models: Command) -> None:
    hub.break_after = [20_000, 5_000]
    models("fetch", MODEL)
    assert [asked is None for asked in hub.ranges] == [True, False, False]


def test_what_is_not_what_the_hub_says_is_removed(
    hub: FakeHub, models: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = hub.weights
    damaged = told[:-1] + bytes([told[-1] ^ 1])
    serve = Handler.serve_file

    def serve_damaged(self: Handler, name: str) -> None:
        hub.files["model.safetensors"] = damaged
        serve(self, name)
        hub.files["model.safetensors"] = told

    monkeypatch.setattr(Handler, "serve_file", serve_damaged)
    assert "not what the hub says" in models.refusal("fetch", MODEL)
    assert models.answer("show", MODEL)["to_download"] == sum(len(content) for content in hub.files.values())


def test_it_explains_why_a_model_cannot_be_had(hub: FakeHub, models: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    assert "The hub has no model owner/other" in models.refusal("show", "owner/other")
    assert "such as owner/name" in models.refusal("fetch", "a folder")
    assert "a folder with config.json and safetensors, or a GGUF file" in models.refusal("show", "/no/such/folder")
    assert "or a GGUF file" in models.refusal("show", "no_such/file.gguf")
    weights = hub.files.pop("model.safetensors")
    assert "no safetensors" in models.refusal("fetch", MODEL)
    hub.files["model.safetensors"] = weights
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    said = models.refusal("show", MODEL)
    assert "http://127.0.0.1:9" in said and "HF_ENDPOINT" in said
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in models.refusal("fetch", MODEL)


def test_a_model_that_cannot_be_served_says_so_before_it_is_downloaded(hub: FakeHub, models: Command) -> None:
    config = json.loads(hub.files["config.json"])
    hub.files["config.json"] = json.dumps(config | {"model_type": "t5", "architectures": ["T5Model"]}).encode()
    assert "cannot be served" in models.refusal("show", MODEL)
    assert hub.ranges == []


def test_settings_count_in_the_estimate(models: Command, tiny_model_folder: Path) -> None:
    plain = models.answer("show", str(tiny_model_folder))["footprint"]
    half = models.answer("show", str(tiny_model_folder), "--dtype", "bfloat16", "--kv-dtype", "int8")["footprint"]
    assert half["weight_bytes"] * 2 == plain["weight_bytes"]
    assert half["token_bytes"] * 2 == plain["token_bytes"]  # 16 of a byte, and 16 for their scale
    small = models.answer("show", str(tiny_model_folder), "--num-blocks", "100", "--block-size", "16")["footprint"]
    assert small["tokens"] == 1600
    assert "takes" in models.answer("show", str(tiny_model_folder), "--num-blocks", "90000000")["footprint"]["problem"]


def test_a_model_in_use_is_marked_and_not_deleted(models: Command) -> None:
    models("fetch", MODEL)
    library.note_use(MODEL)
    me = os.getpid()
    engine = Connection(
        "mine", me, "e" * 8, 1, "ipc:///none.ctl", "ipc:///none.tel", model=MODEL, started=process_started(me)
    )  # fmt: skip
    written = write_connection(engine)
    (found,) = models.answer("list")[1:]
    assert found["engine"] == "mine" and found["used"] > 0
    assert "The engine mine runs owner/tiny" in models.refusal("remove", MODEL)
    Path(written.path).unlink()
    models("remove", MODEL)


def test_what_an_engine_holds_counts_as_free_for_its_successor(
    models: Command, shared_engine: EngineProcess, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    free_memory = footprint.free_memory
    monkeypatch.setattr(footprint, "free_memory", lambda device: held.append(free_memory(device)) or held[-1])
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(Path(shared_engine.connection.path).parent))
    found = models.answer("show", str(tiny_model_folder), "--replaces", "shared")["footprint"]
    assert found["free"] > held[-1] + 50_000_000
