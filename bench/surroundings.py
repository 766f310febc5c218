"""What results depend on beside what was measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import Any

from .. import __version__


def surroundings() -> dict[str, Any]:
    """What results depend on: versions, the machine, the day."""
    return {
        "pagedeck": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()},
        "libraries": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "numpy")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
