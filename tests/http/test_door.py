"""Who keeps a connection open and does nothing with it is given up; on a server in this process, whose limits are
short."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from pagedeck.ipc.http import door
from pagedeck.ipc.http.listener import open_listener

WAIT_S = 60.0  # generous: what is waited for is there at once
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Endless:
    """Answers without end, until nobody is there; then ``left`` is set."""

    def __init__(self) -> None:
        self.left = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        watched = asyncio.create_task(receive())
        while not watched.done():
            await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
            await asyncio.sleep(0)  # a connection that broke off takes no time to be written to
        assert watched.result()["type"] == "http.disconnect"
        self.left.set()


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def server(endless: Endless) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(endless, http=door.Door, ws="none", lifespan="off", log_level="critical"))


@pytest.fixture
def caller(server: uvicorn.Server) -> Iterator[socket.socket]:
    listener = open_listener("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        with socket.create_connection(listener.getsockname(), WAIT_S) as caller:
            yield caller
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def ended(caller: socket.socket, sent: bytes) -> bool:
    """Whether the server ends the connection without a word."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        caller.sendall(sent)
        return caller.recv(1) == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"G", HEAD])
def test_a_request_that_does_not_come(monkeypatch: pytest.MonkeyPatch, request: Any, sent: bytes) -> None:
    monkeypatch.setattr(door, "HEAD_S", 0.1)
    assert ended(request.getfixturevalue("caller"), sent)


def test_letters_one_by_one_win_no_time(monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    monkeypatch.setattr(door, "HEAD_S", 0.5)
    caller = request.getfixturevalue("caller")
    caller.settimeout(0.05)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(1000):
            caller.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                assert caller.recv(1) == b""
                return
        raise AssertionError("it was never given up")


def test_an_answer_that_is_not_read(monkeypatch: pytest.MonkeyPatch, caller: socket.socket, endless: Endless) -> None:
    monkeypatch.setattr(door, "UNREAD_S", 0.1)
    caller.sendall(HEAD + b"\r\n")
    assert endless.left.wait(WAIT_S)


def test_an_answer_may_take_its_time(server: uvicorn.Server, caller: socket.socket) -> None:
    caller.sendall(HEAD + b"\r\n")
    assert caller.recv(1)
    [connection] = server.server_state.connections
    assert isinstance(connection, door.Door) and connection._silence is None


def refused(address: Any, request: bytes) -> tuple[bytes, bytes]:
    """The head and the body of an answer, after which the connection ends."""
    with socket.create_connection(address, WAIT_S) as one:
        one.sendall(request)
        answer = b""
        while part := one.recv(65_536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.lower(), body


def test_one_connection_more_than_there_may_be(
    monkeypatch: pytest.MonkeyPatch, caller: socket.socket, server: uvicorn.Server
) -> None:
    """It is told so in words, also one that is still sending; one that sends nothing is given up; and there is room
    again once another has gone."""
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 1)
    address = caller.getpeername()
    caller.sendall(HEAD + b"\r\n")
    assert caller.recv(1)
    for request in (HEAD + b"\r\n", HEAD + b"Content-Length: 2000000\r\n\r\n" + bytes(2_000_000)):
        head, body = refused(address, request)
        assert head.startswith(b"http/1.1 503") and b"retry-after: " in head and b"connection: close" in head
        assert json.loads(body)["error"]["code"] == "too_many_connections"
    monkeypatch.setattr(door, "REFUSED_S", 0.1)
    with socket.create_connection(address, WAIT_S) as silent:
        assert ended(silent, b"")
    caller.close()
    while server.server_state.connections:
        pass
    with socket.create_connection(address, WAIT_S) as next_one:
        next_one.sendall(HEAD + b"\r\n")
        assert next_one.recv(12) == b"HTTP/1.1 200"


def test_far_too_many_connections_get_no_answer(monkeypatch: pytest.MonkeyPatch, caller: socket.socket) -> None:
    monkeypatch.setattr(door, "MAX_CONNECTIONS", 0)
    with socket.create_connection(caller.getpeername(), WAIT_S) as one:
        assert ended(one, HEAD + b"\r\n")
