"""What another server's /metrics tell of its KV cache: how many blocks it has, and how full they are. No Qt."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass

#: Of an answer no more is read.
_LONGEST = 4 * 1024 * 1024

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """``blocks`` 0 and ``usage`` None are not told."""

    blocks: int = 0
    block_size: int = 0
    usage: float | None = None  # 0 to 1


def read(url: str, timeout: float = 2.0) -> CacheFigures:
    """Ask a server. Raises ``OSError`` or ``ValueError`` where that cannot be."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no address that begins with http:// or https://")
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return parse(reply.read(_LONGEST).decode(errors="replace"))


def parse(text: str) -> CacheFigures:
    """The figures in Prometheus' text format, of vLLM, SGLang or this engine's gateway."""
    blocks = size = tokens = 0
    usage: float | None = None
    for line in _LINE.finditer(text):
        name, labels = line["name"], dict(_LABEL.findall(line["labels"] or ""))
        value = _number(line["value"])
        if name == "vllm:cache_config_info":
            blocks, size = int(_number(labels.get("num_gpu_blocks", ""))), int(_number(labels.get("block_size", "")))
        elif name in ("vllm:kv_cache_usage_perc", "sglang:token_usage"):
            usage = value
        elif name == "sglang:max_total_num_tokens":
            tokens = int(value)
    return CacheFigures(blocks or tokens, size or (1 if tokens else 0), usage)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if abs(value) < 1e15 else 0.0
