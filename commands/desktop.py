"""``pagedeck desktop``: the app among this user's programs, where the desktop follows the freedesktop.org rules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

from ..ipc.vocabulary import Refused

#: Where each of our assets belongs below the user's data folder.
_PLACES = {
    "pagedeck.desktop": "applications/pagedeck.desktop",
    "icons/pagedeck.svg": "icons/hicolor/scalable/apps/pagedeck.svg",
    "pagedeck.xml": "mime/packages/pagedeck.xml",
}

#: What makes the desktop look again, and the folder that it looks at; each is optional.
_REFRESHERS = (
    (("update-desktop-database", "-q"), "applications"),
    (("update-mime-database",), "mime"),
    (("gtk-update-icon-cache", "-q", "-t", "-f"), "icons/hicolor"),
)


def install() -> int:
    """Put entry, icon and file type in their places, replacing those that are there."""
    home = _data_home()
    for asset, place in _PLACES.items():
        text = resources.files(__package__.rpartition(".")[0]).joinpath("assets", asset).read_text(encoding="utf-8")
        if asset.endswith(".desktop"):
            text = text.replace("Exec=pagedeck ", f"Exec={_quoted(_program())} ")
        path = home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    _refresh(home)
    print("Pagedeck is among your programs; a recording (*.pagedeck) opens in it.")
    return 0


def remove() -> int:
    """Take away what :func:`install` put there."""
    home = _data_home()
    found = [path for place in _PLACES.values() if (path := home / place).exists()]
    for path in found:
        path.unlink()
        print(path)
    if found:
        _refresh(home)
    print("Pagedeck is no longer among your programs." if found else "Pagedeck was not among your programs.")
    return 0


def _data_home() -> Path:
    if sys.platform in ("darwin", "win32"):
        raise Refused("Desktop entries are for Linux and the BSDs; here, start the app with `pagedeck`.")
    stated = os.environ.get("XDG_DATA_HOME", "")
    # A relative path is to be ignored, says the specification.
    return Path(stated) if Path(stated).is_absolute() else Path.home() / ".local" / "share"


def _program() -> list[str]:
    """What starts this very installation, whatever the desktop's search path is."""
    beside = Path(sys.executable).with_name("pagedeck")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "pagedeck"]


def _quoted(words: list[str]) -> str:
    """Arguments as an Exec line has them: in quotes, four characters escaped in them, and percent signs doubled."""
    escaped = (word.translate({ord(mark): f"\\\\{mark}" for mark in '"`$'}).replace("%", "%%") for word in words)
    return " ".join(f'"{word}"' for word in escaped)


def _refresh(home: Path) -> None:
    for command, folder in _REFRESHERS:
        if shutil.which(command[0]) and (home / folder).is_dir():
            subprocess.run([*command, str(home / folder)], check=False, capture_output=True)
