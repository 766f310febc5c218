"""Models of the hub: what one is made of before it is downloaded, and a download that can be broken off and goes on.

The hub's own library keeps nothing of a download that was broken off. So the weights, of which the hub tells size and
SHA-256, are brought here into the hub's cache, under the name that the library looks for; the rest is left to it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ipc.vocabulary import Refused
from ..config import EngineConfig
from .checkpoint import HUB_DUPLICATES, HUB_FILES, HUB_ID, Checkpoint, locate
from .library import PART, PLAN, repository

if TYPE_CHECKING:
    import httpx

Told = Callable[[int, int], None]
"""Told how many bytes of how many are there."""

TIMEOUT_S = 20.0
TRIES = 5  # connections in a row that may bring nothing before the download is given up


@dataclass(frozen=True, slots=True)
class HubFile:
    """``sha256`` is empty for what the hub does not keep as a large file."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model as the hub has it now. Only files that are wanted are listed."""

    name: str
    revision: str
    files: tuple[HubFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def large(self) -> list[HubFile]:
        """What is downloaded here, rather than by the hub's own library."""
        return [file for file in self.files if file.sha256]


def describe(name: str) -> HubModel:
    """Ask the hub what ``name`` is made of.

    Raises:
        Refused: it cannot be had from there, or holds no safetensors.
    """
    if not HUB_ID.fullmatch(name):
        raise _refused(f"model is {name!r}; accepted is the hub id of a model, such as owner/name.")
    from huggingface_hub import HfApi

    with _explained(name):
        found = HfApi().model_info(name, files_metadata=True, timeout=TIMEOUT_S)
    files = tuple(
        HubFile(one.rfilename, one.size or 0, one.lfs.sha256 if one.lfs is not None else "")
        for one in found.siblings or ()
        if _wanted(one.rfilename)
    )
    if not any(file.path.endswith(".safetensors") for file in files):
        raise _refused(f"The model {name} has no safetensors weights; accepted are models of the hub that have them.")
    return HubModel(name, str(found.sha), files)


def configuration(model: HubModel, folder: Path) -> Checkpoint:
    """Download a model's config.json alone to ``folder``.

    Raises:
        Refused: it has none, or the hub does not give it.
    """
    from huggingface_hub import hf_hub_download

    with _explained(model.name):
        hf_hub_download(model.name, "config.json", revision=model.revision, local_dir=folder, etag_timeout=TIMEOUT_S)
    return Checkpoint(model.name, folder)


def missing(model: HubModel) -> int:
    """Bytes of the model that are not on this machine yet."""
    blobs = repository(model.name) / "blobs"
    return model.bytes - sum(_have(blobs, file) for file in model.large)


def download(model: HubModel, told: Told) -> Checkpoint:
    """Bring a model into the hub's cache. A process that is ended meanwhile leaves what it has, and another goes on
    there.

    Raises:
        Refused: it cannot be had, or stored, or is not what the hub says that it is.
    """
    import filelock

    folder = repository(model.name)
    blobs = folder / "blobs"
    try:
        blobs.mkdir(parents=True, exist_ok=True)
        _require_space(model, folder)
        plan = folder / PLAN
        plan.write_text(json.dumps({"bytes": model.bytes, "revision": model.revision}))
        with filelock.FileLock(folder / "pagedeck-download.lock"):  # whoever wants the same at once finds it then
            done = model.bytes - sum(file.bytes for file in model.large)
            for file in model.large:
                _bring(model, file, blobs, partial(_tell, told, model.bytes, done))
                done += file.bytes
            found = locate(EngineConfig(model=model.name), lambda _text, _share: None)
            plan.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _no_space(model, folder) from error
        reason = error.strerror or str(error)
        raise _refused(f"{model.name} cannot be stored in {folder} ({reason}); HF_HOME names another place.") from error
    told(model.bytes, model.bytes)
    return found


# --- inner ----------------------------------------------------------------------------------------------------------


def _wanted(path: str) -> bool:
    return any(fnmatch(path, p) for p in HUB_FILES) and not any(fnmatch(path, p) for p in HUB_DUPLICATES)


def _have(blobs: Path, file: HubFile) -> int:
    for path in (blobs / file.sha256, blobs / (file.sha256 + PART)):
        if path.exists():
            return path.stat().st_size
    return 0


def _require_space(model: HubModel, folder: Path) -> None:
    if shutil.disk_usage(folder).free < missing(model):
        raise _no_space(model, folder)


def _no_space(model: HubModel, folder: Path) -> Refused:
    free = shutil.disk_usage(folder).free
    return _refused(
        f"The disk is too full for {model.name}: {folder} needs {missing(model):,} more bytes and has {free:,} free; "
        "make room there, or set HF_HOME to a folder with more."
    )


def _bring(model: HubModel, file: HubFile, blobs: Path, told: Callable[[int], None]) -> None:
    """One file, continued where an earlier download of it was broken off, and checked."""
    import httpx

    target, part = blobs / file.sha256, blobs / (file.sha256 + PART)
    if target.exists():
        return
    fruitless = 0
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S) as client:
        while _size(part) < file.bytes:
            before = _size(part)
            try:
                _continue(client, model, file, part, told)
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
            except httpx.HTTPStatusError as error:
                reason = f"it answered {error.response.status_code}"
                if error.response.status_code < 500:
                    raise _unreachable(model.name, reason) from error
            else:
                reason = "it sent less than the whole file"
            fruitless = 0 if _size(part) > before else fruitless + 1
            if fruitless >= TRIES:
                raise _unreachable(model.name, reason)
            time.sleep(0.5 * fruitless)
    with part.open("rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest() != file.sha256:
            part.unlink()
            raise _refused(
                f"{file.path} of {model.name} is not what the hub says that it is; it was removed, try again."
            )
    part.replace(target)


def _continue(client: httpx.Client, model: HubModel, file: HubFile, part: Path, told: Callable[[int], None]) -> None:
    """One connection: append what it brings. A server without ranges starts from the beginning again."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    have = _size(part)
    headers: dict[str, Any] = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with client.stream("GET", hf_hub_url(model.name, file.path, revision=model.revision), headers=headers) as response:
        response.raise_for_status()
        continued = response.status_code == 206
        have = have if continued else 0
        with part.open("ab" if continued else "wb") as target:
            for chunk in response.iter_raw():
                target.write(chunk)
                have += len(chunk)
                if have > file.bytes:
                    return  # not the file that was asked for; its SHA-256 will say so
                told(have)


def _tell(told: Told, total: int, before: int, have: int) -> None:
    told(before + have, total)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """What the hub's library raises, said as a refusal."""
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        yield
    except GatedRepoError as error:
        raise _refused(
            f"The hub gives {name} only to those whom its owner granted access; ask for it there, then `hf auth login`."
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise _refused(
            f"The hub has no model {name}, or it is private; accepted is a hub id such as owner/name."
        ) from error
    except EntryNotFoundError as error:
        raise _refused(f"The model {name} has no config.json, so it cannot be loaded.") from error
    except Exception as error:  # the library changed what it sends its requests with, and so what they raise
        raise _unreachable(name, (str(error).strip() or type(error).__name__).splitlines()[0]) from error


def _unreachable(name: str, reason: str) -> Refused:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return _refused(f"{name} was not looked up, since HF_HUB_OFFLINE is set; unset it to reach the hub.")
    return _refused(
        f"The hub cannot give {name} ({reason.rstrip('.')}). It was asked at {constants.ENDPOINT}; check the network, "
        "or set HF_ENDPOINT to a mirror's address."
    )


def _refused(reason: str) -> Refused:
    return Refused(reason, field="model", code="model")
