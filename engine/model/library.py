"""The models on this machine: the default one, converted GGUF files, and what lies in the hub's cache. Reads no weight
and imports no torch."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...ipc.vocabulary import Refused
from ..config import DEFAULT_MODEL
from . import fetch
from .checkpoint import default_folder

#: A header of a safetensors file that is longer is none.
_HEADER_MAX = 100_000_000

#: What is being downloaded to a model's folder in the hub's cache, until all of it is there (see :mod:`.hub`).
PLAN = "pagedeck-download.json"
PART = ".part"


@dataclass(frozen=True, slots=True)
class Installed:
    """A model on this machine. ``model`` is what the setting of that name takes; ``bytes`` is what all of it takes on
    the disk, ``expected`` what it will take where a download is not complete, and ``used`` when an engine loaded it
    last (Unix seconds, 0 never)."""

    model: str
    title: str
    kind: str  # default, converted or hub
    folder: Path
    bytes: int
    expected: int
    complete: bool
    architecture: str = ""
    parameters: int = 0
    context_length: int = 0
    dtype: str = ""
    used: float = 0.0


def installed() -> list[Installed]:
    """All of them by title; the default model comes first, there or not."""
    default = default_folder()
    folders = sorted(path for path in _models_folder().glob("*") if path.is_dir() and not path.name.startswith("."))
    converted = [
        _describe(str(folder), folder.name.rpartition("-")[0], "converted", folder, [folder])
        for folder in folders
        if folder != default
    ]
    return [_default(default), *sorted([*converted, *_hub_models()], key=lambda model: model.title.casefold())]


def find(model: str) -> Installed | None:
    """The one that the setting ``model`` would load, or that is called so."""
    return next((one for one in installed() if model in (one.model, one.title)), None)


def remove(model: str) -> Installed:
    """Delete a model's files, downloaded in part or whole; returns what was there.

    Raises:
        Refused: there is no such model here, or its files cannot be deleted.
    """
    found = find(model)
    if found is None or not found.bytes:
        raise Refused(f"No model {model!r} is on this machine; `pagedeck models list` names those that are.")
    try:
        for path in _paths(found):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Refused(f"{found.title} cannot be deleted from {found.folder} ({reason}).", field="model") from error
    _used_file(found.title).unlink(missing_ok=True)
    return found


def note_use(title: str) -> None:
    """An engine loads the model of that title now."""
    path = _used_file(title)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


# --- where they are -------------------------------------------------------------------------------------------------


def repository(hub_id: str) -> Path:
    """A model's folder in the hub's cache, there or not."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}"


def snapshot(repository: Path) -> Path | None:
    """The folder with a hub model's files as its main branch has them, if any of them are there."""
    reference = repository / "refs" / "main"
    folder = repository / "snapshots" / reference.read_text().strip() if reference.is_file() else None
    return folder if folder is not None and folder.is_dir() else None


def _models_folder() -> Path:
    return fetch.cache_folder() / "models"


def _used_file(title: str) -> Path:
    return fetch.cache_folder() / "used" / quote(title, safe="")


def _paths(found: Installed) -> list[Path]:
    """All that belongs to a model."""
    if found.kind != "default":
        return [path for path in (found.folder, found.folder.parent / ".locks" / found.folder.name) if path.exists()]
    return [path for path in (found.folder, *fetch.cache_folder().glob(f"{fetch.DEFAULT.file_name}*")) if path.exists()]


# --- what they are --------------------------------------------------------------------------------------------------


def _default(folder: Path) -> Installed:
    parts = [path for path in fetch.cache_folder().glob(f"{fetch.DEFAULT.file_name}*") if path.suffix != ".lock"]
    if folder.is_dir():
        return _describe(DEFAULT_MODEL, DEFAULT_MODEL, "default", folder, [folder, *parts])
    size = _size(parts)
    expected = max(size, fetch.DEFAULT.wheel_bytes)  # what is unpacked and not converted yet is larger
    return Installed(DEFAULT_MODEL, DEFAULT_MODEL, "default", folder, size, expected, False)


def _hub_models() -> Iterator[Installed]:
    for folder in repository("x/y").parent.glob("models--*--*"):
        name = folder.name.removeprefix("models--").replace("--", "/", 1)
        files = snapshot(folder)
        plan = _json(folder / PLAN)
        if plan is not None:
            size = _size([folder / "blobs"])
            yield Installed(name, name, "hub", folder, size, max(size, int(plan.get("bytes", 0))), False)
        elif files is not None and weights_complete(files):
            yield _describe(name, name, "hub", folder, [folder], files)


def weights_complete(folder: Path) -> bool:
    """Whether a folder has a configuration and all the safetensors that its index names."""
    index = _json(folder / "model.safetensors.index.json")
    names = set((index or {}).get("weight_map", {}).values())
    there = (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    return there and all((folder / name).is_file() for name in names)


def _describe(
    model: str, title: str, kind: str, folder: Path, parts: list[Path], files: Path | None = None
) -> Installed:
    """``parts`` take room on the disk; the model's own ``files`` may lie deeper than its ``folder``."""
    files = files or folder
    facts = _json(files / "config.json") or {}
    text = facts.get("text_config") or facts
    used = _used_file(title)
    size = _size(parts)
    return Installed(
        model=model,
        title=title,
        kind=kind,
        folder=folder,
        bytes=size,
        expected=size,
        complete=True,
        architecture=str(next(iter(facts.get("architectures") or []), "")),
        parameters=sum(parameters(path) for path in files.glob("*.safetensors")),
        context_length=int(text.get("max_position_embeddings") or text.get("n_positions") or 0),
        dtype=str(text.get("dtype") or text.get("torch_dtype") or facts.get("dtype") or facts.get("torch_dtype") or ""),
        used=used.stat().st_mtime if used.exists() else 0.0,
    )


def parameters(path: Path) -> int:
    """How many numbers the tensors of a safetensors file have, from its header; 0 where it has none."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length < _HEADER_MAX else {}
    except (OSError, ValueError, struct.error):
        return 0
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _json(path: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _size(paths: list[Path]) -> int:
    """Bytes of all files; what several names link to counts once."""
    files = (file for path in paths for file in ([path] if path.is_file() else path.rglob("*")))
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())
