"""The user's own folders, and files that nobody else may read."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from pathlib import Path

from .vocabulary import Refused

#: Overrides of the folders.
RUNTIME_VARIABLE = "PAGEDECK_RUNTIME"
STATE_VARIABLE = "PAGEDECK_STATE"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def runtime_folder() -> Path:
    """The folder of connection files and sockets, made when missing.

    Raises:
        Refused: it belongs to somebody else or cannot be made.
    """
    stated = os.environ.get(RUNTIME_VARIABLE)
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if stated:
        folder = Path(stated)
    elif xdg and Path(xdg).is_dir():
        folder = Path(xdg) / "pagedeck"
    elif sys.platform in ("darwin", "win32"):
        import platformdirs

        folder = Path(platformdirs.user_runtime_dir("pagedeck", appauthor=False))
    else:
        folder = Path(tempfile.gettempdir()) / f"pagedeck-{os.getuid()}"
        if folder.is_symlink():  # anybody could have put it there, to have another folder of ours opened or closed
            raise Refused(f"{folder} leads somewhere else; remove it, or state a folder with {RUNTIME_VARIABLE}.")
    return _own(folder.absolute(), RUNTIME_VARIABLE)


def state_folder() -> Path:
    """The folder of log files, made when missing."""
    stated = os.environ.get(STATE_VARIABLE)
    if stated:
        return _own(Path(stated).absolute(), STATE_VARIABLE)
    import platformdirs

    return _own(Path(platformdirs.user_log_dir("pagedeck", appauthor=False)), STATE_VARIABLE)


def keys_folder() -> Path:
    """The folder of keys, made when missing.

    Raises:
        Refused: others may look into it, or it cannot be used.
    """
    stated = os.environ.get(STATE_VARIABLE)
    if stated:
        folder = Path(stated).absolute() / "keys"
    else:
        import platformdirs

        folder = Path(platformdirs.user_config_dir("pagedeck", appauthor=False)) / "keys"
    if folder.is_dir():
        _check_mode(folder, 0o700, "holds keys")
    return _own(folder, STATE_VARIABLE)


def _own(folder: Path, variable: str) -> Path:
    """The folder, made when missing, and closed to others."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
        if hasattr(os, "getuid"):
            if facts.st_uid != os.getuid():
                raise Refused(f"The folder {folder} belongs to another user; state one of yours with {variable}.")
            if stat.S_IMODE(facts.st_mode) & 0o077:
                folder.chmod(0o700)
    except OSError as error:
        raise Refused(
            f"The folder {folder} cannot be used ({error.strerror}); state another with {variable}."
        ) from error
    return folder


# --- files --------------------------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raises :class:`Refused` for a name that cannot be a file's."""
    if not _NAME.fullmatch(name):
        raise Refused.value(
            "name", name, "1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
        )


def write_private(path: Path, data: bytes) -> None:
    """Make a new file (0600) that is whole when it is there. Raises ``FileExistsError`` where there is one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        if sys.platform == "win32":
            part.rename(path)
        else:
            path.hardlink_to(part)  # unlike a rename, it replaces nothing
    finally:
        part.unlink(missing_ok=True)


def check_private(path: Path) -> None:
    """Raises :class:`Refused` where others may read a file that holds a key, and ``OSError`` where there is none."""
    _check_mode(path, 0o600, "holds a key")


def _check_mode(path: Path, mode: int, what: str) -> None:
    found = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and found & 0o077:
        raise Refused(
            f"{path} {what} and is open to others (mode {found:04o}); close it with `chmod {mode:o} {path}`, and if "
            f"anybody may have looked into it, make new keys (`pagedeck keys revoke`, `pagedeck keys add`)."
        )
