"""A GGUF file, dequantised once into a folder that loads in a second."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..ipc.vocabulary import Refused


def convert_gguf(path: Path, folder: Path, report: Callable[[str, float | None], None]) -> None:
    """Write the float32 safetensors, config, tokenizer and chat template of ``path`` to ``folder``, all or nothing.

    Raises:
        Refused: the file is damaged, or of an architecture that transformers cannot read from GGUF.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        _write(path, unfinished, report)
        _publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(path: Path, folder: Path, report: Callable[[str, float | None], None]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    try:
        report(f"Converting {path.name}, once: weights", 0.0)
        model = AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=torch.float32, **source)
        report(f"Converting {path.name}, once: tokenizer", 0.6)
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), **source)
    except Exception as error:  # whatever a damaged file provokes in three libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Refused(f"The GGUF file {path} cannot be read: {reason}", field="model", code="model") from error
    report(f"Converting {path.name}, once: writing", 0.8)
    # transformers would refuse to save it as quantised; it no longer is.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _publish(unfinished: Path, folder: Path) -> None:
    unfinished.chmod(0o755)
    try:
        unfinished.replace(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, with the same content
            raise
