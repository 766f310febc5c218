"""What another server's /metrics tell of its KV cache: how many blocks it has, and how full they are. No Qt."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

#: Of an answer no more is read.
_LONGEST = 4 * 1024 * 1024
_PART = 64 * 1024

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """``blocks`` 0 and ``usage`` None are not told."""

    blocks: int = 0
    block_size: int = 0
    usage: float | None = None  # 0 to 1


def read(url: str, timeout: float = 2.0) -> CacheFigures:
    """Ask a server, and wait no longer than ``timeout`` seconds for all of its answer. Raises ``OSError`` or
    ``ValueError``, whose text says why, where that cannot be."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no address that begins with http:// or https://")
    until = time.monotonic() + timeout
    try:
        with urllib.request.urlopen(url, timeout=timeout) as reply:
            text = bytearray()
            while len(text) < _LONGEST and (more := reply.read1(_PART)):
                text += more
                if time.monotonic() > until:
                    raise TimeoutError("timed out")
    except urllib.error.HTTPError as error:
        raise OSError(f"HTTP {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise OSError(getattr(error.reason, "strerror", None) or str(error.reason)) from error
    except http.client.HTTPException as error:
        raise ValueError(f"not an answer of a web server: {error}") from error
    figures = parse(text.decode(errors="replace"))
    if figures == CacheFigures():
        raise ValueError("the answer has no figures of a KV cache")
    return figures


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
            usage = min(max(value, 0.0), 1.0)
        elif name == "sglang:max_total_num_tokens":
            tokens = int(value)
    blocks, size = (blocks, size) if blocks > 0 and size > 0 else (max(0, tokens), min(1, max(0, tokens)))
    return CacheFigures(blocks, size, usage)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if abs(value) < 1e15 else 0.0
