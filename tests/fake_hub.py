"""A hub of our own over HTTP: one model, ranges, and breaks where a test wants them."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REVISION = "0123456789abcdef0123456789abcdef01234567"
MODEL = "owner/tiny"


class FakeHub(http.server.ThreadingHTTPServer):
    """Serves the files of ``folder`` as :data:`MODEL`. ``environment`` points the hub's library here."""

    daemon_threads = True

    def __init__(self, folder: Path, home: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.home = home
        self.ranges: list[str | None] = []  # the Range header of each download of weights
        self.break_after: list[int] = []  # bytes after which the next downloads of weights break off
        self.hold_after: int | None = None  # bytes after which weights wait for ``go_on``
        self.held, self.go_on = threading.Event(), threading.Event()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.server_port}",
            "HF_HOME": str(self.home),
            "HF_HUB_CACHE": str(self.home / "hub"),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the hub's library in this process, and in those that it starts, know this hub alone."""
        from huggingface_hub import constants

        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", self.environment["HF_HUB_CACHE"])
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", self.environment["HF_ENDPOINT"])
        template = self.environment["HF_ENDPOINT"] + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)

    @property
    def weights(self) -> bytes:
        return self.files["model.safetensors"]


class Handler(http.server.BaseHTTPRequestHandler):
    server: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith(f"/api/models/{MODEL}/tree/"):
            return self.reply(json.dumps(self.tree()).encode(), {"Content-Type": "application/json"})
        if path == f"/api/models/{MODEL}" or path.startswith(f"/api/models/{MODEL}/"):
            return self.reply(json.dumps(self.facts()).encode(), {"Content-Type": "application/json"})
        name = path.rpartition("/")[2]
        if path.startswith(f"/{MODEL}/resolve/") and name in self.server.files:
            return self.serve_file(name)
        code = "EntryNotFound" if path.startswith(f"/{MODEL}/") else "RepoNotFound"
        return self.reply(b"", {"X-Error-Code": code}, 404)

    def facts(self) -> dict[str, object]:
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": _blob(content)}
            | ({"lfs": {"size": len(content), "sha256": _sha256(content), "pointerSize": 1}} if _large(name) else {})
            for name, content in self.server.files.items()
        ]
        return {"id": MODEL, "modelId": MODEL, "sha": REVISION, "siblings": siblings, "tags": [], "private": False}

    def tree(self) -> list[dict[str, object]]:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": _blob(content)}
            | ({"lfs": {"size": len(content), "oid": _sha256(content), "pointerSize": 1}} if _large(name) else {})
            for name, content in self.server.files.items()
        ]

    def serve_file(self, name: str) -> None:
        content = self.server.files[name]
        etag = _sha256(content) if _large(name) else _blob(content)
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": REVISION}
        asked = self.headers["Range"]
        if self.command == "GET" and _large(name):
            self.server.ranges.append(asked)
        if asked:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self.reply(content[start:], headers, 206, _large(name))
        return self.reply(content, headers, 200, _large(name))

    def reply(self, content: bytes, headers: dict[str, str], status: int = 200, large: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if large and self.server.break_after:
            content = content[: self.server.break_after.pop(0)]
            self.close_connection = True
        if large and self.server.hold_after is not None:
            first, content = content[: self.server.hold_after], content[self.server.hold_after :]
            self.wfile.write(first)
            self.wfile.flush()
            self.server.held.set()
            self.server.go_on.wait(60)
        try:
            self.wfile.write(content)
        except OSError:  # whoever asked is gone
            self.close_connection = True


@contextmanager
def fake_hub(folder: Path, home: Path) -> Iterator[FakeHub]:
    hub = FakeHub(folder, home)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        hub.shutdown()
        hub.server_close()
        thread.join()


def _large(name: str) -> bool:
    return name.endswith(".safetensors")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
