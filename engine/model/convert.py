"""A GGUF file, dequantised once into a folder that loads in a second."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...ipc.vocabulary import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Report = Callable[[str, float | None], None]


def convert_gguf(path: Path, folder: Path, report: Report) -> None:
    """Write the float32 safetensors, config, tokenizer and chat template of ``path`` to ``folder``, all or nothing.

    Raises:
        Refused: the file is damaged, or of an architecture that transformers cannot read from GGUF; or the disk does
            not take the result.
    """
    model, tokenizer = _read(path, report)
    report(f"Converting {path.name}, once: writing", None)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _require_space(folder.parent, sum(p.numel() * p.element_size() for p in model.parameters()))
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write(model, tokenizer, unfinished)
            _publish(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise _not_stored(folder.parent, error.strerror or str(error)) from error


def _read(path: Path, report: Report) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # progress goes to ``report``
    source: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    report(f"Converting {path.name}, once: weights", None)
    try:
        with _no_bar():
            model = AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=torch.float32, **source)
            report(f"Converting {path.name}, once: tokenizer", None)
            return model, AutoTokenizer.from_pretrained(str(path.parent), **source)
    except Exception as error:  # whatever a damaged file provokes in three libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise Refused(
            f"The GGUF file {path} cannot be read; it is damaged, incomplete or of a kind that transformers does not "
            f"know ({reason}).",
            field="model",
            code="model",
        ) from error


@contextmanager
def _no_bar() -> Iterator[None]:
    """transformers draws the bar of this one loop whatever its switch for bars says, and into the engine's log."""
    from transformers import modeling_gguf_pytorch_utils as reader

    drawn, reader.tqdm = reader.tqdm, lambda tensors, **_: tensors
    try:
        yield
    finally:
        reader.tqdm = drawn


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed and {free:,} free")


def _not_stored(folder: Path, reason: str) -> Refused:
    return Refused(
        f"The converted model cannot be stored in {folder} ({reason}); make room there, or set PAGEDECK_CACHE to "
        "another folder.",
        field="model",
        code="model",
    )


def _write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    from safetensors import SafetensorError

    # transformers would refuse to save it as quantised; it no longer is.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # how it wraps the system's errors
        raise OSError(str(error)) from error
    tokenizer.save_pretrained(folder)


def _publish(unfinished: Path, folder: Path) -> None:
    unfinished.chmod(0o755)
    try:
        unfinished.replace(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, with the same content
            raise
