"""The gateway's life beside its engine's, who may ask, and what it does with connections that break off."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from pagedeck.bench.traces import items, read_trace
from pagedeck.cli import main
from pagedeck.ipc.endpoint import list_connections
from pagedeck.ipc.http.app import Access, application
from pagedeck.ipc.http.link import EngineLink
from pagedeck.ipc.http.recorder import Recorder
from pagedeck.ipc.telemetry import Event, Percentiles, RequestRow
from pagedeck.ipc.trace import PIECE
from pagedeck.ipc.vocabulary import Refused

WORDS: dict[str, Any] = {"prompt": "one two three"}


def wait_for(gateway: Any, status: str) -> dict[str, Any]:
    """The gateway's health, as soon as it is that."""
    while True:
        answer = gateway.http.get("/health")
        assert answer.status_code == (200 if answer.json()["status"] == "ready" else 503)
        if answer.json()["status"] == status:
            return answer.json()


def complete(gateway: Any, **more: Any) -> httpx.Response:
    return gateway.http.post("/v1/completions", json=WORDS | more)


def refused(answer: httpx.Response, status: int, code: str) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), error
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) > 0
    return str(error["message"])


# --- an engine's life -------------------------------------------------------------------------------------------


def test_a_gateway_waits_for_its_engine_and_for_the_next_one(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    with start_gateway(tmp_path, "--name", "talker") as gateway:
        assert wait_for(gateway, "absent")["engine"] == "talker"
        assert "talker" in refused(complete(gateway), 503, "engine_gone")
        first = talker()
        assert wait_for(gateway, "ready")["model"] == "echo"
        assert complete(gateway).json()["choices"][0]["text"] == "onetwothree"
        with gateway.http.stream("POST", "/v1/completions", json={"prompt": "stall", "stream": True}) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith('data: {"id"')
            first.kill()
            rest = "".join(lines)
        assert "ended" in rest and '"type":"server_error"' in rest and rest.endswith("data: [DONE]")
        assert "ended" in wait_for(gateway, "absent")["detail"]
        refused(complete(gateway), 503, "engine_gone")
        talker()
        wait_for(gateway, "ready")
        assert complete(gateway).json()["choices"][0]["text"] == "onetwothree"


def test_what_was_asked_is_asked_again_of_an_engine_that_takes_over(
    tmp_path: Path, start_gateway: Any, talker: Any
) -> None:
    """Unless its reader saw some of an answer that another engine need not give."""
    first = talker()
    with start_gateway(tmp_path, owned=False) as gateway, ThreadPoolExecutor(1) as pool, ExitStack() as streams:
        wait_for(gateway, "ready")
        unseen = pool.submit(complete, gateway, prompt="stall")
        begun = []
        for more in ({}, {"temperature": 0}):
            body = {"prompt": "one two stall", "stream": True} | more
            lines = streams.enter_context(gateway.http.stream("POST", "/v1/completions", json=body)).iter_lines()
            assert any('"two"' in line for line in lines)
            begun.append(lines)
        assert [first.hears() for _ in range(3)] == ["stalled"] * 3
        first.kill()
        assert "ended" in (said := "".join(begun[0])) and said.endswith("data: [DONE]")
        refused(complete(gateway), 503, "engine_gone")
        second = talker()
        assert [second.hears(), second.hears()] == ["stalled"] * 2
        wait_for(gateway, "ready")
        assert complete(gateway).status_code == 200
        second.tell("finish")
        assert unseen.result().json()["choices"][0]["text"] == "end"
        said = "".join(begun[1])
        assert [said.count(f'"{word}"') for word in ("one", "two", "end")] == [0, 0, 1]
        second.kill()
        assert "ended" in wait_for(gateway, "absent")["detail"]
        talker().tell("loading", "Loading the model")
        wait_for(gateway, "loading")


def test_what_an_engine_does_is_its_gateway_s_health(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    engine = talker()
    engine.tell("loading", "Loading the model", "0.25")
    with start_gateway(tmp_path) as gateway:
        health = wait_for(gateway, "loading")
        assert (health["detail"], health["progress"], health["model"]) == ("Loading the model", 0.25, "echo")
        assert "Loading the model" in refused(complete(gateway), 503, "loading")
        refused(gateway.http.get("/v1/models"), 503, "loading")
        engine.tell("ready")
        wait_for(gateway, "ready")
        engine.tell("draining", "It was told to stop.")
        assert wait_for(gateway, "draining")["detail"] == "It was told to stop."
        assert complete(gateway).status_code == 200, "the engine itself says what it takes no more"
        refused(complete(gateway, prompt="fail:draining"), 503, "draining")


def test_an_engine_that_cannot_load_leaves_its_last_words(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    engine = talker()
    engine.tell("loading", "Loading the model")
    with start_gateway(tmp_path) as gateway:
        wait_for(gateway, "loading")
        engine.kill()
        assert "ended while it loaded" in wait_for(gateway, "failed")["detail"]
        refused(complete(gateway), 503, "engine_gone")


def test_an_engine_that_stands_still_is_told_of(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    engine = talker()
    with start_gateway(tmp_path) as gateway:
        wait_for(gateway, "ready")
        engine.process.send_signal(signal.SIGSTOP)
        assert "has not answered" in wait_for(gateway, "absent")["detail"]
        assert "absent" in gateway.http.get("/metrics").text
        engine.process.send_signal(signal.SIGCONT)
        wait_for(gateway, "ready")
        assert complete(gateway).status_code == 200


def test_an_engine_s_refusals_have_their_status(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    talker()
    with start_gateway(tmp_path) as gateway:
        wait_for(gateway, "ready")
        for code, status, told in (
            ("invalid", 400, "invalid_value"),
            ("too_long", 400, "context_length_exceeded"),
            ("too_large", 400, "too_large"),
            ("queue_full", 429, "rate_limit_exceeded"),
            ("too_many_requests", 429, "rate_limit_exceeded"),
            ("too_many_clients", 503, "too_many_clients"),
            ("forbidden", 403, "forbidden"),
            ("shutdown", 503, "shutdown"),
            ("model", 500, "model"),
        ):
            for stream in (False, True):
                answer = complete(gateway, prompt=f"fail:{code}", stream=stream)
                assert refused(answer, status, told) == "It is refused."
                assert answer.json()["error"]["param"] == "prompt"


@pytest.mark.parametrize(("waited", "told"), [(0.0, 1), (3.2, 4), (900.0, 60)])
def test_who_comes_to_a_full_queue_is_told_how_long_others_waited(waited: float, told: int) -> None:
    status: Any = SimpleNamespace(stats=SimpleNamespace(latency={"queue": Percentiles(8, waited, waited, waited)}))
    assert EngineLink(_status=status).queue_wait() == told


@pytest.mark.parametrize(
    ("state", "progress", "told"),
    [
        ("loading", 0.25, range(30, 60)),
        ("loading", 0.001, range(60, 61)),
        ("loading", None, range(5, 6)),
        ("stopped", 0.25, range(5, 6)),
    ],
    ids=str,
)
def test_who_comes_while_a_model_loads_is_told_how_long_it_may_take(
    state: str, progress: float | None, told: range
) -> None:
    status: Any = SimpleNamespace(state=state, detail="x", progress=progress, started=time.time() - 10, stats=None)
    link = EngineLink(_client=object(), _status=status)  # type: ignore[arg-type]
    app = application(link, Access())

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/completions", json=WORDS)

    assert int(asyncio.run(ask()).headers["retry-after"]) in told


def test_what_was_asked_is_written_down_and_can_be_repeated(
    engine: Any, runtime: Path, tmp_path: Path, start_gateway: Any
) -> None:
    """Without a word of it; also over another run of the gateway."""
    file = tmp_path / "asked.jsonl"
    body = {"prompt": "swordfish " * 20, "max_tokens": 3, "temperature": 0, "ignore_eos": True, "priority": "batch"}
    length = 0
    for run in (1, 2):
        with start_gateway(runtime, "--name", "http", "--trace", str(file)) as gateway:
            wait_for(gateway, "ready")
            before = len(file.read_bytes().splitlines())
            while len(file.read_bytes().splitlines()) < before + 2:  # until it listens
                answer = gateway.http.post("/v1/completions", json=body)
                length = answer.json()["usage"]["prompt_tokens"]
            assert b"sword" not in file.read_bytes()
            lines = read_trace(file)
            assert len(lines) >= 2 * run
            assert {(line.prompt_tokens, line.output_tokens, line.priority) for line in lines} == {(length, 3, "batch")}
    load = items(lines, seed=0, vocabulary=320, context_length=4096)
    assert [len(item.prompt) for item in load] == [length] * len(lines) and load[-1].at > load[0].at == 0
    assert length >= PIECE and load[0].prompt[:PIECE] == load[1].prompt[:PIECE]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here is full")
def test_a_trace_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the start, that is an error; later, answers matter more."""
    with pytest.raises(Refused, match="cannot be written"):
        Recorder(tmp_path / "missing" / "asked.jsonl")
    recorder = Recorder(Path("/dev/full"))
    event = Event("e", 0.0, "finished", "x", row=RequestRow(1, "x", "finished", 1, prompt_tokens=1))
    recorder.note(event)
    recorder.note(event)
    assert caplog.text.count("written no further") == 1
    assert main(["serve", "--trace", str(tmp_path / "asked.jsonl")]) == 1
    assert "state --http PORT too" in capsys.readouterr().err


# --- connections ------------------------------------------------------------------------------------------------


def test_whoever_hangs_up_cancels(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    engine = talker()
    with start_gateway(tmp_path) as gateway:
        wait_for(gateway, "ready")
        for stream in (b"false", b"true"):
            with connected(gateway) as caller:
                body = b'{"prompt": ["stall", "stall"], "stream": %s}' % stream
                caller.sendall(head(gateway, len(body)) + body)
                assert [engine.hears(), engine.hears()] == ["stalled", "stalled"]
            assert [engine.hears(), engine.hears()] == ["cancel", "cancel"]
        assert complete(gateway).status_code == 200


def test_a_request_cancelled_at_the_engine_is_an_error(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    """As somebody does in the app's window."""
    engine = talker()
    with start_gateway(tmp_path) as gateway:
        wait_for(gateway, "ready")
        with connected(gateway) as caller:
            body = b'{"prompt": "stall"}'
            caller.sendall(head(gateway, len(body)) + body)
            assert engine.hears() == "stalled"
            engine.tell("cancel")
            assert b"HTTP/1.1 503" in caller.recv(100)


def connected(gateway: Any) -> socket.socket:
    host, port = gateway.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)))


def head(gateway: Any, length: int) -> bytes:
    host = gateway.url.removeprefix("http://")
    return f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n".encode()


def test_a_body_that_is_too_large_is_not_read(gateway: Any) -> None:
    with connected(gateway) as caller:
        caller.sendall(head(gateway, 10**10))
        assert b"HTTP/1.1 413" in caller.recv(100)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b"{" * 10_000, b'{"prompt":' + b"[" * 100_000])
def test_what_is_no_request_is_refused(gateway: Any, body: bytes) -> None:
    for path in ("completions", "chat/completions"):
        answer = gateway.http.post(f"/v1/{path}", content=body)
        assert answer.status_code == 400 and answer.json()["error"]["message"].endswith(".")


def test_methods_and_paths_that_are_not_there(gateway: Any) -> None:
    refused(gateway.http.get("/v1/completions"), 405, "method_not_allowed")
    refused(gateway.http.get("/"), 404, "not_found")
    refused(gateway.http.post("/health"), 405, "method_not_allowed")


# --- who may ask ------------------------------------------------------------------------------------------------


def test_a_key_is_wanted_for_all_but_health(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    talker()
    with start_gateway(tmp_path, "--api-key", "other", key="secret") as gateway:
        wait_for(gateway, "ready")
        for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere"):
            assert "Bearer" in refused(gateway.http.get(path), 401, "invalid_api_key")
        with pytest.raises(openai.AuthenticationError):
            gateway.client("wrong").models.list()
        refused(gateway.http.get("/metrics", headers={"Authorization": "Basic secret"}), 401, "invalid_api_key")
        for key in ("secret", "other"):
            assert gateway.client(key).models.list().data[0].id == "echo"
            assert gateway.http.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_pages_ask_only_where_they_were_invited(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    talker()
    page, other = "https://page.example", "https://other.example"
    with start_gateway(tmp_path, "--cors", page) as gateway:
        wait_for(gateway, "ready")
        url = "/v1/completions"
        answer = gateway.http.post(url, json=WORDS, headers={"Origin": page})
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == page
        asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        answer = gateway.http.options(url, headers={"Origin": page} | asking)
        assert answer.status_code == 200 and "POST" in answer.headers["access-control-allow-methods"]
        for origin in (other, "null", "http://localhost:3000"):
            answer = gateway.http.post(url, json=WORDS, headers={"Origin": origin})
            assert f"--cors {origin}" in refused(answer, 403, "origin_not_allowed")
        refused(gateway.http.options(url, headers={"Origin": other} | asking), 403, "origin_not_allowed")


def test_a_name_that_was_made_to_mean_this_machine_is_not_served(gateway: Any) -> None:
    for host in ("page.example", "page.example:8000", "", "[bad"):
        refused(gateway.http.get("/v1/models", headers={"Host": host}), 403, "host_not_allowed")
    for host in ("localhost", "127.0.0.1:1", "[::1]:8000", "LOCALHOST:80"):
        assert gateway.http.get("/v1/models", headers={"Host": host}).status_code == 200


# --- the command line -------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_in_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for command in (["gateway", "--port", port], ["serve", "--http", port]):
            assert main(command) == 1
            expected = f"pagedeck: Port {port} of 127.0.0.1 is taken; state another, or 0 for any free one.\n"
            assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0", "--port", "0"], "state a key with --api-key-file"),
        (["--host", "nowhere", "--port", "0"], "host is 'nowhere'"),
        (["--host", "192.0.2.1", "--port", "0"], "192.0.2.1 is no address of this machine"),
        (["--port", "70000"], "port is 70000"),
        (["--api-key", "a b"], "without spaces"),
        (["--api-key-file", "no-such-file"], "no-such-file"),
    ],
)
def test_what_a_gateway_does_not_start_with(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGEDECK_API_KEY", raising=False)
    assert main(["gateway", *arguments]) == 1
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_keys_that_others_may_read_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys"
    file.write_text("# mine\nsecret\n")
    file.chmod(0o644)
    assert main(["gateway", "--port", "0", "--api-key-file", str(file)]) == 1
    assert f"chmod 600 {file}" in capsys.readouterr().err


def test_keys_come_from_a_file(tmp_path: Path, start_gateway: Any, talker: Any) -> None:
    talker()
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text("# mine\nsecret\n\nother\n")
    with start_gateway(tmp_path, "--api-key-file", str(file)) as gateway:
        wait_for(gateway, "ready")
        assert [gateway.client(key).models.list().data[0].id for key in ("secret", "other")] == ["echo", "echo"]


def test_serve_starts_a_gateway_and_ends_it(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "log"))
    settings = ["--model", str(tiny_model_folder), "--device", "cpu", "--num-blocks", "16", "--threads", "1"]
    command = [sys.executable, "-m", "pagedeck", "serve", "--http", "0", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        assert serving.stdout is not None
        url = serving.stdout.readline().split()[4].removesuffix("/v1,")
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            while http.get("/health").status_code != 200:
                assert serving.poll() is None
            answer = http.post("/v1/completions", json={"prompt": "fox", "max_tokens": 2})
            assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] <= 2
            [engine] = list_connections()
            serving.terminate()
            assert serving.wait(60) == 0
            assert not engine.process_alive()
            with pytest.raises(httpx.ConnectError):
                http.get("/health")
