"""PROTOCOL.md: its tables are the messages', and its session is one that the engine's socket thread really has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
from pagedeck.ipc import protocol, protocol_page
from pagedeck.ipc.protocol import Failed

TEXT = protocol_page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert protocol_page.render(TEXT) == TEXT, "run: python -m pagedeck.ipc.protocol_page"


def test_every_message_and_every_code_is_on_the_page() -> None:
    for kind in (*protocol.ClientMessage.__args__, *protocol.EngineMessage.__args__):
        assert f"### `{kind.__struct_config__.tag}`\n" in TEXT
    stated = re.search(r"Codes: (.*?)\.", " ".join((Failed.__doc__ or "").split()))
    assert stated is not None
    for code in re.findall(r"``(\w+)``", stated[1]):
        assert re.search(rf"^\|[^|]*`{code}`", TEXT, re.MULTILINE), code


def test_links_lead_somewhere() -> None:
    titles = {title.strip("`").lower() for title in re.findall(r"^### (.+)$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", TEXT)) <= titles


def frames() -> list[tuple[str, str, bytes]]:
    """Who speaks, what it is called, and its frame, as the page has them."""
    part = TEXT.partition("<!-- session: generated -->")[2]
    found = re.findall(r"^([CE]) (\w+)\n((?:  [0-9a-f ]+\n)+)", part, re.MULTILINE)
    return [(who, name, bytes.fromhex(data)) for who, name, data in found]


def test_the_session_is_what_an_engine_says(board: Callable[..., Any]) -> None:
    made = board()
    made.status = protocol_page.STATUS
    made.answer(lambda _client, message: protocol_page.answers(message))
    context: zmq.Context[Any] = zmq.Context()
    socket: Any = None
    heard: list[bytes] = []
    said = frames()
    assert len(said) == len(protocol_page.SESSION)
    for who, name, frame in said:
        if name == "hello":  # over a connection of its own, under the same routing id
            if socket is not None:
                socket.close(linger=0)
            socket = context.socket(zmq.DEALER)
            socket.set(zmq.ROUTING_ID, b"an id of its own")
            socket.set(zmq.RCVTIMEO, 30_000)
            socket.connect(made.connection.control)
        if who == "C":
            socket.send(frame)
        else:
            heard.append(socket.recv())
            assert heard[-1] == frame, name
    socket.close(linger=0)
    context.term()


# --- the clients ------------------------------------------------------------------------------------------------------

CLIENTS = Path(protocol_page.__file__).parents[1] / "assets" / "clients"


@pytest.fixture
def node_packages() -> Path:
    """A folder with the packages that the client for Node.js needs: where ``PAGEDECK_NODE`` says."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    stated = os.environ.get("PAGEDECK_NODE")
    if not stated or not (Path(stated) / "node_modules" / "zeromq").is_dir():
        pytest.skip("PAGEDECK_NODE names no folder in which `npm install zeromq @msgpack/msgpack` was run")
    return Path(stated)


def run_client(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def check(engine: Any, command: list[str], folder: Path) -> None:
    """A client of another make prints what ours does, and says so when it is refused."""
    from pagedeck.ipc.client import Client

    with Client(engine.connection) as client:
        stream = client.submit(prompt="the quick brown fox", max_tokens=20, temperature=0.0)
        text, finished = stream.text(), stream.finished
    said = run_client([*command, engine.connection.path, "the quick brown fox", "20"], folder)
    assert said.returncode == 0, said.stderr
    assert said.stdout == f"{text}\n[{finished.samples[0].finish_reason}, {finished.output_tokens} tokens]\n"
    refused = run_client([*command, engine.connection.path, "x", "0"], folder)
    assert refused.returncode == 1 and "invalid: max_tokens is 0" in refused.stderr


def test_the_client_in_plain_python(shared_engine: Any, tmp_path: Path) -> None:
    pytest.importorskip("msgpack", reason="msgpack is not installed")
    client = CLIENTS / "client.py"
    assert len(client.read_text().splitlines()) <= 60
    for words in re.findall(r"^(?:from|import) (\w+)", client.read_text(), re.MULTILINE):
        assert words in ("msgpack", "zmq") or words in sys.stdlib_module_names
    check(shared_engine, [sys.executable, "-I", str(client)], tmp_path)


def test_the_client_for_node(shared_engine: Any, node_packages: Path) -> None:
    client = CLIENTS / "client.mjs"
    assert len(client.read_text().splitlines()) <= 60
    check(shared_engine, ["node", str(client)], node_packages)
