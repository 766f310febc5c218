"""Where a model's files are: the default model, the hub, a folder, a GGUF file. The answer is always a folder."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...ipc.vocabulary import Refused
from ..config import DEFAULT_MODEL, EngineConfig
from . import fetch
from .convert import convert_gguf

Report = Callable[[str, float | None], None]

HUB_ID = re.compile(r"(?!.*\.gguf$)[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
HUB_DUPLICATES = ["original/*", "consolidated*", "onnx/*"]
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")

ACCEPTED = (
    f"{DEFAULT_MODEL}, a hub id such as owner/name, a folder with config.json and safetensors, or a GGUF file"
    " (with load_format dummy also a config.json)"
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's folder (config.json, safetensors, perhaps a tokenizer) and what to call it."""

    name: str
    folder: Path


def locate(config: EngineConfig, report: Report) -> Checkpoint:
    """Find, download or convert the files of ``config.model``.

    Raises:
        Refused: there is no such model, or it cannot be had; the message says what is accepted or what to do.
    """
    dummy = config.load_format == "dummy"
    if config.model == DEFAULT_MODEL and not Path(config.model).exists():
        return _default(report)
    path = Path(config.model).expanduser()
    if path.is_dir():
        return Checkpoint(path.resolve().name, _checked(path.resolve(), dummy))
    if path.suffix == ".gguf" and path.is_file():
        return _gguf(path.resolve(), report)
    if dummy and path.suffix == ".json" and path.is_file():
        return Checkpoint(path.resolve().parent.name, path.resolve())
    if HUB_ID.fullmatch(config.model):
        return Checkpoint(config.model, _checked(_hub(config.model, dummy, report), dummy))
    raise _refused(Refused.value("model", config.model, ACCEPTED))


def default_folder() -> Path:
    """Where the default model is once it is converted."""
    return fetch.cache_folder() / "models" / f"{DEFAULT_MODEL}-{fetch.DEFAULT.file_sha256[:12]}"


def _default(report: Report) -> Checkpoint:
    folder = default_folder()
    if not folder.is_dir():
        convert_gguf(fetch.fetch_default(report), folder, report)
    return Checkpoint(DEFAULT_MODEL, folder)


def _gguf(path: Path, report: Report) -> Checkpoint:
    report(f"Reading {path.name}", None)
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    folder = fetch.cache_folder() / "models" / f"{path.stem}-{content[:12]}"
    if not folder.is_dir():
        convert_gguf(path, folder, report)
    return Checkpoint(path.stem, folder)


def _checked(folder: Path, dummy: bool) -> Path:
    """``folder``, when it holds what a model needs and nothing has to be unpickled."""
    config = folder / "config.json"
    if not config.is_file():
        raise _refused(f"The model folder {folder} has no config.json.")
    try:
        facts = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _refused(f"The config.json of the model folder {folder} is not valid JSON ({error}).") from error
    if not isinstance(facts, dict):
        raise _refused(f"The config.json of the model folder {folder} is not an object of settings.")
    if dummy:
        return folder
    if quantised := facts.get("quantization_config"):
        method = quantised.get("quant_method", "an unnamed method")
        raise _refused(
            f"The weights in {folder} are quantised by {method}; accepted are plain safetensors, or a GGUF file."
        )
    if not any(folder.glob("*.safetensors")):
        pickled = next((file.name for pattern in PICKLES for file in folder.glob(pattern)), None)
        if pickled:
            raise _refused(
                f"The model folder {folder} has its weights as a pickle ({pickled}), which could run code; accepted are"
                " safetensors. Where you trust it, convert it once with transformers: AutoModelForCausalLM"
                ".from_pretrained(FOLDER).save_pretrained(OTHER), and its AutoTokenizer alike."
            )
        raise _refused(f"The model folder {folder} has no safetensors weights.")
    for index in folder.glob("*.index.json"):
        _check_index(index)
    return folder


def _check_index(index: Path) -> None:
    """Weights in several files are named by an index, which may lead nowhere else and to nothing else."""
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(f"{index} is not an index of weights.") from error
    for name in named:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise _refused(f"{index} names {name!r}; accepted are safetensors beside it.")


def _hub(name: str, dummy: bool, report: Report) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    report(f"Looking for {name}", None)
    files = [pattern for pattern in HUB_FILES if not dummy or pattern != "*.safetensors"]
    try:
        return Path(
            snapshot_download(
                name,
                allow_patterns=files,
                ignore_patterns=HUB_DUPLICATES,
                etag_timeout=3,
                tqdm_class=_progress(name, report),
            )
        )
    except GatedRepoError as error:
        raise _refused(f"The hub gives {name} only to those whom its owner granted access; log in first.") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise _refused(f"The hub has no model {name}, or it is private; accepted is {ACCEPTED}.") from error
    except LocalEntryNotFoundError as error:
        raise _refused(f"The model {name} is not in the hub cache and the hub cannot be reached.") from error
    except (HfHubHTTPError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise _refused(f"The model {name} could not be downloaded: {reason}") from error


def _progress(name: str, report: Report) -> type[Any]:
    """A progress bar class for the hub's downloads that reports instead of drawing."""
    from tqdm import tqdm

    class Reporting(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "file": io.StringIO(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            shown = super().update(n)
            if self.unit == "B" and self.total:
                report(f"Downloading {name}", min(self.n / self.total, 1.0))
            return shown

    return Reporting


def _refused(reason: str | Refused) -> Refused:
    return Refused(str(reason), field="model", code="model")
