"""Files that are whole or not there: what a full disk cuts off never takes the place of what was there before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` make a file beside ``path``, which takes that place once it is complete. Raises ``OSError``."""
    part = path.with_name(f"{path.name}.part")
    try:
        write(part)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
