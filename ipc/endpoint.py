"""Where engines are: connection files, addresses, keys.

A running engine keeps one file ``<name>.json`` (mode 0600) in the user's runtime folder (0700). It says where the
sockets are, which process owns them, and on TCP the engine's public key. Reading that file is what entitles a client
to connect: an ``ipc`` socket lies in the same private folder, and a TCP socket answers only those who know the key.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import stat
import sys
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import zmq

from .protocol import HEARTBEAT_S, MAX_MESSAGE_BYTES, PROTOCOL_VERSION
from .vocabulary import Refused

#: Overrides of the two folders.
RUNTIME_VARIABLE = "PAGEDECK_RUNTIME"
STATE_VARIABLE = "PAGEDECK_STATE"

#: The longest path of a Unix socket: sun_path less its final zero (104 bytes on macOS and the BSDs).
MAX_SOCKET_PATH = 107 if sys.platform.startswith("linux") else 103

#: Silence after which a TCP connection counts as broken, and another one is tried.
_CONNECTION_DEAD_S = 10.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Connection:
    """One engine as its connection file describes it. ``started`` is the start of its process, in Unix seconds."""

    name: str
    pid: int
    epoch: str
    protocol: int
    control: str
    telemetry: str
    server_key: str = ""  # Z85 text; empty for ipc
    log: str = ""
    model: str = ""
    started: float = 0.0
    path: str = ""  # of the file itself

    @property
    def local(self) -> bool:
        """Whether the engine's process can be looked at from here."""
        if self.control.startswith("ipc://"):
            return True
        host = tcp_host(self.control)
        return host == "localhost" or _is_loopback(host)

    def process_alive(self) -> bool:
        """Whether the engine's process still runs, and is not another one that got its number."""
        return process_alive(self.pid, self.started)


# --- folders ----------------------------------------------------------------------------------------------------


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
    return _private(folder.absolute(), RUNTIME_VARIABLE)


def state_folder() -> Path:
    """The folder of log files, made when missing."""
    stated = os.environ.get(STATE_VARIABLE)
    if stated:
        return _private(Path(stated).absolute(), STATE_VARIABLE)
    import platformdirs

    return _private(Path(platformdirs.user_log_dir("pagedeck", appauthor=False)), STATE_VARIABLE)


def _private(folder: Path, variable: str) -> Path:
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


# --- processes --------------------------------------------------------------------------------------------------


def process_started(pid: int) -> float:
    """Start of a process in Unix seconds; 0 when there is none."""
    import psutil

    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except (psutil.Error, ValueError):
        return 0.0


def process_alive(pid: int, started: float) -> bool:
    """Whether process ``pid`` runs and is the one that started at ``started`` (0 is any: numbers are used again)."""
    now = process_started(pid)
    # The system's boot time, which start times are counted from, moves a little when the clock is set.
    return now > 0 and (not started or abs(now - started) < 2.0)


# --- connection files -------------------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raises :class:`Refused` for a name that cannot be a file's."""
    if not _NAME.fullmatch(name):
        raise Refused.value(
            "name", name, "1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
        )


def write_connection(connection: Connection) -> Connection:
    """Claim the engine's name by writing its file; returns the connection with ``path`` set.

    Raises:
        Refused: a live engine has the name.
    """
    check_name(connection.name)
    folder = runtime_folder()
    path = folder / f"{connection.name}.json"
    fresh = folder / f".{connection.name}.{connection.epoch}"
    text = msgspec.json.format(msgspec.json.encode(replace(connection, path="")))
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    try:
        while not _publish(fresh, path):
            check_free(connection.name)
    finally:
        fresh.unlink(missing_ok=True)
    return replace(connection, path=str(path))


def _publish(fresh: Path, path: Path) -> bool:
    """Give a finished file its name, unless another has it: two engines that start at once cannot both win."""
    try:
        if sys.platform == "win32":
            fresh.rename(path)
        else:
            path.hardlink_to(fresh)
    except FileExistsError:
        return False
    return True


def check_free(name: str) -> None:
    """Make sure that no live engine has the name; a dead one's file is removed.

    Raises:
        Refused: a live engine has it, named by its pid.
    """
    check_name(name)
    path = runtime_folder() / f"{name}.json"
    try:
        other = read_connection(path)
    except FileNotFoundError:
        return
    except Refused:
        path.unlink(missing_ok=True)  # no engine writes half a file, so nobody lives behind this one
        return
    if other.process_alive():
        raise Refused(
            f"An engine named {name!r} runs already (process {other.pid}); choose another name or stop that one.",
            field="name",
        )
    remove_connection(other)


def remove_connection(connection: Connection) -> None:
    """Remove an engine's file and its sockets; a file that meanwhile belongs to another engine stays."""
    for address in (connection.control, connection.telemetry):
        if address.startswith("ipc://"):
            with contextlib.suppress(OSError):
                Path(address.removeprefix("ipc://")).unlink()
    if connection.path:
        with contextlib.suppress(OSError, Refused):
            if read_connection(Path(connection.path)).epoch == connection.epoch:
                Path(connection.path).unlink()


def read_connection(path: str | Path) -> Connection:
    """The connection that a file describes.

    Raises:
        FileNotFoundError: there is no such file.
        Refused: it is not a connection file, or one of another protocol version.
    """
    path = Path(path)
    try:
        connection = msgspec.json.decode(path.read_bytes(), type=Connection)
    except FileNotFoundError:
        raise
    except (OSError, msgspec.DecodeError) as error:
        raise Refused(f"{path} is not a connection file: {error}.") from error
    return replace(connection, path=str(path))


def list_connections() -> list[Connection]:
    """The live engines, oldest first. Files and sockets of dead ones are removed."""
    live = []
    for path in runtime_folder().glob("*.json"):
        try:
            connection = read_connection(path)
        except (Refused, FileNotFoundError):
            continue
        if connection.process_alive():
            live.append(connection)
        else:
            remove_connection(connection)
    return sorted(live, key=lambda c: (c.started, c.name))


def find(name: str | None = None) -> Connection:
    """The engine of that name (or the connection file at that path); without a name, the only one that runs.

    Raises:
        Refused: there is none, or no name was given and several run.
    """
    if name is not None and (os.sep in name or name.endswith(".json")):
        try:
            return read_connection(name)
        except FileNotFoundError:
            raise Refused(f"There is no connection file {name}.", field="name") from None
    live = list_connections()
    names = ", ".join(c.name for c in live)
    if name is not None:
        for connection in live:
            if connection.name == name:
                return connection
        raise Refused(f"No engine named {name!r} runs" + (f"; these do: {names}." if names else "."), field="name")
    if not live:
        raise Refused("No engine runs; start one with `pagedeck serve`.", field="name")
    if len(live) > 1:
        raise Refused(f"Several engines run: {names}; say which one with --name.", field="name")
    return live[0]


def find_successor(connection: Connection) -> Connection | None:
    """The engine that took the name of one which ended, if there is one already."""
    if not connection.path:
        return None
    try:
        found = read_connection(connection.path)
    except (Refused, FileNotFoundError):
        return None
    alive = found.epoch != connection.epoch and (not found.local or found.process_alive())
    return found if alive else None


# --- addresses and sockets --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Endpoint:
    """An engine's two bound sockets and what clients need to know about them.

    ``control`` is a ROUTER, ``telemetry`` an XPUB (a PUB that is told what is subscribed).
    """

    control: zmq.Socket[bytes]
    telemetry: zmq.Socket[bytes]
    connection: Connection

    def close(self) -> None:
        self.control.close(linger=500)
        self.telemetry.close(linger=500)
        remove_connection(self.connection)


def bind(context: zmq.Context[zmq.Socket[bytes]], *, name: str, listen: str | None, model: str, log: str) -> Endpoint:
    """Open an engine's sockets and claim its name.

    ``listen`` None is ``ipc`` in the runtime folder (loopback TCP on systems without it); ``tcp://HOST:PORT`` is TCP
    with CURVE, telemetry on a port that the system chooses; port 0 lets it choose both.

    Raises:
        Refused: the name or the port is taken, the address is not understood, or the path is too long for a socket.
    """
    check_free(name)
    epoch = uuid.uuid4().hex
    control, telemetry = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    endpoint = Endpoint(
        control, telemetry, Connection(name, os.getpid(), epoch, PROTOCOL_VERSION, "", "", log=log, model=model)
    )
    try:
        for socket in (control, telemetry):
            set_defaults(socket)
        control.set(zmq.ROUTER_MANDATORY, 1)
        control.set(zmq.ROUTER_HANDOVER, 1)  # a client may come back before its old connection is known to be dead
        if listen is None and zmq.has("ipc"):
            addresses = _bind_ipc(control, telemetry, epoch)
        else:
            server_key = _secure(control, telemetry)
            addresses = _bind_tcp(control, telemetry, listen or "tcp://127.0.0.1:0")
            endpoint.connection = replace(endpoint.connection, server_key=server_key)
        endpoint.connection = replace(
            endpoint.connection, control=addresses[0], telemetry=addresses[1], started=process_started(os.getpid())
        )
        endpoint.connection = write_connection(endpoint.connection)
    except BaseException:
        endpoint.close()
        raise
    return endpoint


def set_defaults(socket: zmq.Socket[Any]) -> None:
    """What ZeroMQ leaves open by default: endless lingering, endless messages."""
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)


def _notice_dead_connections(socket: zmq.Socket[Any]) -> None:
    """For TCP, which does not tell. A local socket does: there, silence only means that the other side stands still."""
    socket.set(zmq.HEARTBEAT_IVL, round(HEARTBEAT_S * 1000))
    socket.set(zmq.HEARTBEAT_TIMEOUT, round(_CONNECTION_DEAD_S * 1000))


def connect(socket: zmq.Socket[Any], address: str, server_key: str) -> None:
    """Connect a client's socket, with a key pair of its own where the engine has a key."""
    set_defaults(socket)
    if not address.startswith("ipc://"):
        _notice_dead_connections(socket)
    socket.set(zmq.IPV6, "[" in address)
    if server_key:
        public, secret = zmq.curve_keypair()
        socket.set(zmq.CURVE_PUBLICKEY, public)
        socket.set(zmq.CURVE_SECRETKEY, secret)
        socket.set(zmq.CURVE_SERVERKEY, server_key.encode())
    socket.connect(address)


def _secure(*sockets: zmq.Socket[bytes]) -> str:
    public, secret = zmq.curve_keypair()
    for socket in sockets:
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, secret)
    return public.decode()


def _bind_ipc(control: zmq.Socket[bytes], telemetry: zmq.Socket[bytes], epoch: str) -> tuple[str, str]:
    # Named by the epoch: a client of an engine that died must never reach the next one of the same name.
    folder = runtime_folder()
    addresses = (f"ipc://{folder}/{epoch[:12]}.ctl", f"ipc://{folder}/{epoch[:12]}.tel")
    for socket, address in zip((control, telemetry), addresses, strict=True):
        path = address.removeprefix("ipc://")
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise Refused(
                f"The socket path {path} has {len(os.fsencode(path))} bytes and a socket's may have {MAX_SOCKET_PATH}; "
                f"state a shorter folder with {RUNTIME_VARIABLE}."
            )
        socket.bind(address)
        Path(path).chmod(0o600)
    return addresses


def _bind_tcp(control: zmq.Socket[bytes], telemetry: zmq.Socket[bytes], listen: str) -> tuple[str, str]:
    host, port = _parse_tcp(listen)
    bound = []
    for socket, wanted in ((control, port), (telemetry, 0)):
        address = f"tcp://{host}:{wanted or '*'}"
        _notice_dead_connections(socket)
        socket.set(zmq.IPV6, "[" in host)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                raise Refused(
                    f"Port {wanted} of {host} is taken; choose another, or 0 for any.", field="listen"
                ) from None
            raise Refused(f"Cannot listen on {address}: {zmq.strerror(error.errno or 0)}.", field="listen") from None
        reached = socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        # Every address of the machine is one to listen on, not one to connect to.
        bound.append(reached.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"))
    return bound[0], bound[1]


def _parse_tcp(listen: str) -> tuple[str, int]:
    accepted = "tcp://HOST:PORT, HOST being an address of this machine"
    match = re.fullmatch(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]]+):(\d{1,5})", listen)
    if not match or int(match[2]) > 65_535:
        raise Refused.value("listen", listen, accepted)
    # A name can resolve to an address that was not meant; localhost alone is clear.
    host = "127.0.0.1" if match[1] == "localhost" else match[1]
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        raise Refused.value("listen", listen, accepted) from None
    return host, int(match[2])


def tcp_host(address: str) -> str:
    return address.removeprefix("tcp://").rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
