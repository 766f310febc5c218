"""``pagedeck keys``: who else may connect to engines that listen on TCP."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from ..ipc.endpoint import Connection, find, is_loopback, reached_at, tcp_host
from ..ipc.folders import write_private
from ..ipc.keys import add_key, engine_keys, read_keys, revoke_key
from ..ipc.vocabulary import Refused


def add(name: str, *, operator: bool, engine: str | None, address: str | None, output: str | None) -> int:
    """Make a key and write the file that its client connects with."""
    where = _where(engine, address)
    path = Path(output or f"{name}.json")
    if path.exists():
        raise Refused(f"{path} exists; state another file with --output.", field="output")
    pair = add_key(name, operator=operator)
    try:
        write_private(path, msgspec.json.format(msgspec.json.encode(
            replace(where, public_key=pair.public, secret_key=pair.secret)
        )))  # fmt: skip
    except OSError as error:
        revoke_key(name)
        raise Refused(f"{path} cannot be written ({error.strerror}); state another file with --output.") from error
    rights = "do all that you may" if operator else "submit requests, and see and cancel those"
    print(f"{path} connects to {where.control}; whoever has it may {rights}. Hand it over unread by others.")
    if is_loopback(tcp_host(where.control)):
        port = where.control.rpartition(":")[2]
        print(f"That address is this machine's own; for a client on another, state --address tcp://HOST:{port}.")
    print(f'There: pagedeck chat --connection {path.name}, or pagedeck.connect("{path.name}").')
    return 0


def show() -> int:
    """Print the keys that are accepted."""
    keys, complaints = read_keys()
    for complaint in complaints:
        print(f"pagedeck: {complaint}", file=sys.stderr)
    width = max((len(key.name) for key in keys), default=0)
    for key in keys:
        made = time.strftime("%Y-%m-%d", time.localtime(key.created))
        print(f"{key.name:<{width}}  {'operator' if key.operator else 'client':<8}  made {made}  {key.public}")
    if not keys:
        print("There are no keys; only you can connect. `pagedeck keys add NAME` makes one.", file=sys.stderr)
    return 1 if complaints else 0


def revoke(name: str) -> int:
    revoke_key(name)
    print(f"The key {name!r} is accepted no more; running engines cut its connections within a second.")
    return 0


def _where(engine: str | None, address: str | None) -> Connection:
    """Where the key's client finds the engine: as stated, or the engine that runs and listens on TCP."""
    server = engine_keys().public
    if address is not None:
        return reached_at(address, engine or "pagedeck", server)
    running = find(engine)
    if not running.server_key:
        raise Refused(
            f"{running.name} listens only for this user; start it with `--listen tcp://HOST:PORT`, or state with "
            f"--address where the key's client will find one that does.",
            field="address",
        )
    return reached_at(running.control, running.name, server, running.telemetry)
