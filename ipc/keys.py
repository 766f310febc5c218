"""Who may connect over TCP: a key for each client, named, kept as files of this user.

The engines' own key pair lies in ``engine.json``, and of each client's key the public half in ``clients/NAME.json``.
The secret half is in the file that the client was given, and nowhere else. Files are read whenever somebody connects,
so that a key counts from the moment it is made until it is revoked.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq

from .folders import check_name, check_private, keys_folder, write_private
from .vocabulary import Refused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """CURVE keys as Z85 text."""

    public: str
    secret: str

    @classmethod
    def make(cls) -> KeyPair:
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())


@dataclass(frozen=True, slots=True)
class ClientKey:
    """What an engine knows of a client's key. An ``operator`` may do what the engine's owner may."""

    name: str
    public: str
    operator: bool = False
    created: float = 0.0  # Unix seconds


def engine_keys() -> KeyPair:
    """The key pair of this user's engines, made when there is none: clients know them by it, also after a restart.

    Raises:
        Refused: the file is open to others, or is no key file.
    """
    path = keys_folder() / "engine.json"
    try:
        if not path.exists():
            write_private(path, msgspec.json.encode(KeyPair.make()))
    except FileExistsError:
        pass  # another engine starts, too
    return _read(path, KeyPair)


def add_key(name: str, *, operator: bool = False) -> KeyPair:
    """Make a client's key; its secret half is not kept.

    Raises:
        Refused: there is one of that name, or it cannot be a name.
    """
    check_name(name)
    pair = KeyPair.make()
    key = ClientKey(name, pair.public, operator, time.time())
    try:
        write_private(_path(name), msgspec.json.encode(key))
    except FileExistsError:
        raise Refused(
            f"There is a key named {name!r}; choose another name, or revoke it with `pagedeck keys revoke {name}`.",
            field="name",
        ) from None
    return pair


def read_keys() -> tuple[list[ClientKey], list[str]]:
    """The keys that are accepted, by name; and what is wrong with files that hold none.

    Raises:
        Refused: the folder is open to others.
    """
    keys, complaints = [], []
    for path in _files():
        try:
            key = _read(path, ClientKey)
            if key.name != path.stem:
                raise Refused(f"{path} holds the key {key.name!r}; a key's file is named as it is.")
            keys.append(key)
        except Refused as refused:
            complaints.append(str(refused))
    return keys, complaints


def revoke_key(name: str) -> None:
    """Accept a key no more; running engines cut off who came with it.

    Raises:
        Refused: there is no such key.
    """
    check_name(name)
    try:
        _path(name).unlink()
    except FileNotFoundError:
        names = ", ".join(path.stem for path in _files()) or "none"
        raise Refused(f"There is no key named {name!r}; there are {names}.", field="name") from None


def keys_state() -> frozenset[tuple[str, int]]:
    """Cheap to ask for, and another one when keys were made or revoked since."""
    state = set()
    for path in _files():
        with contextlib.suppress(FileNotFoundError):  # revoked just now
            state.add((path.name, path.stat().st_mtime_ns))
    return frozenset(state)


def _clients() -> Path:
    folder = keys_folder() / "clients"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _files() -> list[Path]:
    return sorted(_clients().glob("[!.]*.json"))


def _path(name: str) -> Path:
    return _clients() / f"{name}.json"


def _read(path: Path, kind: type[T]) -> T:
    try:
        check_private(path)
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{path} is not a key file: {error}; remove it and make another key.") from error
