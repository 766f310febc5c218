"""Where engines are: connection files, addresses, keys.

A running engine keeps one file ``<name>.json`` (mode 0600) in the user's runtime folder (0700). It says where the
sockets are, which process owns them, and on TCP the engine's public key and a key pair to come with. Reading that file
is what makes a client the owner's: an ``ipc`` socket lies in the same private folder, and a TCP socket answers only
those who come with a key that it knows. Others are given a file of the same form with a key of theirs (:mod:`.keys`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import sys
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import zmq

from .folders import RUNTIME_VARIABLE, check_name, check_private, runtime_folder
from .keys import KeyPair, engine_keys
from .protocol import HEARTBEAT_S, MAX_MESSAGE_BYTES, PROTOCOL_VERSION
from .vocabulary import Refused

#: The longest path of a Unix socket: sun_path less its final zero (104 bytes on macOS and the BSDs).
MAX_SOCKET_PATH = 107 if sys.platform.startswith("linux") else 103

_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")  # Z85

#: Where ZeroMQ asks about keys.
_GATE = "inproc://zeromq.zap.01"

#: Silence after which a TCP connection counts as broken, and another one is tried.
_CONNECTION_DEAD_S = 10.0


@dataclass(frozen=True, slots=True)
class Connection:
    """One engine as its connection file describes it. ``started`` is the start of its process, in Unix seconds.

    Keys are Z85 text, and empty for ipc: the engine's public one, and the pair that a client comes with. In a file that
    was made for a client ``pid`` is 0: it tells where the engine is, whichever runs there.
    """

    name: str
    pid: int
    epoch: str
    protocol: int
    control: str
    telemetry: str
    server_key: str = ""
    public_key: str = ""
    secret_key: str = ""
    log: str = ""
    model: str = ""
    started: float = 0.0
    path: str = ""  # of the file itself
    private: bool = False  # made by a program for itself: nobody means it who names none

    @property
    def local(self) -> bool:
        """Whether the engine's process can be looked at from here."""
        if self.control.startswith("ipc://"):
            return True
        return self.pid > 0 and is_loopback(tcp_host(self.control))

    def __str__(self) -> str:
        where = f"process {self.pid}" if self.pid else f"at {self.control}"
        return f"The engine {self.name!r} ({where})"

    def process_alive(self) -> bool:
        """Whether the engine's process still runs, and is not another one that got its number."""
        return process_alive(self.pid, self.started)


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
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{path} is not a connection file: {error}.") from error
    keys = (connection.server_key, connection.public_key, connection.secret_key)
    if any(keys) and not all(_KEY.fullmatch(key) for key in keys):
        raise Refused(f"{path} is not a connection file: its keys are none.")
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
    """The engine of that name (or the connection file at that path); without a name, the only one that runs, not
    counting those that programs made for themselves where there is another.

    Raises:
        Refused: there is none, or no name was given and several run.
    """
    if name is not None and (os.sep in name or name.endswith(".json")):
        try:
            connection = read_connection(name)
            if connection.secret_key:
                check_private(Path(name))
            return connection
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
    live = [connection for connection in live if not connection.private] or live
    names = ", ".join(c.name for c in live)
    if len(live) > 1:
        raise Refused(f"Several engines run: {names}; say which: --name NAME, or in code its name.", field="name")
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


def reached_at(address: str, name: str, server_key: str, telemetry: str = "") -> Connection:
    """An engine as a client elsewhere sees it, whichever runs at ``address``.

    Raises:
        Refused: that is no address of an engine on TCP.
    """
    match = re.fullmatch(r"(tcp://(?:\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]\s]+)):(\d{1,5})", address)
    if not match or not 0 < int(match[2]) < 65_535:
        raise Refused.value("address", address, "tcp://HOST:PORT, as the client reaches it, PORT from 1 to 65534")
    telemetry = telemetry or f"{match[1]}:{int(match[2]) + 1}"
    return Connection(name, 0, "", PROTOCOL_VERSION, address, telemetry, server_key)


# --- addresses and sockets --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Endpoint:
    """An engine's two bound sockets and what clients need to know about them.

    ``control`` is a ROUTER, ``telemetry`` an XPUB (a PUB that is told what is subscribed). On TCP ``gate``, a REP, is
    asked about the key of everybody who connects (ZeroMQ's RFC 27), and nobody gets in without an answer.
    """

    control: zmq.Socket[bytes]
    telemetry: zmq.Socket[bytes]
    connection: Connection
    gate: zmq.Socket[bytes] | None = None
    _shut: list[tuple[zmq.Socket[bytes], str]] = field(default_factory=list)

    def shut(self) -> None:
        """Break all connections over TCP, and take no other until :meth:`reopen`."""
        for socket in (self.control, self.telemetry):
            address = socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
            socket.unbind(address)
            self._shut.append((socket, address))

    def reopen(self) -> bool:
        """Take connections again; False while the system still holds a port."""
        while self._shut:
            socket, address = self._shut[-1]
            try:
                socket.bind(address)
            except zmq.ZMQError as error:
                if error.errno == zmq.EADDRINUSE:
                    return False
                raise
            self._shut.pop()
        return True

    def close(self) -> None:
        self.control.close(linger=500)
        self.telemetry.close(linger=500)
        if self.gate is not None:
            self.gate.unbind(_GATE)
            self.gate.close(linger=0)
        remove_connection(self.connection)


def bind(
    context: zmq.Context[zmq.Socket[bytes]],
    *,
    name: str,
    listen: str | None,
    model: str,
    log: str,
    private: bool = False,
) -> Endpoint:
    """Open an engine's sockets and claim its name; ``private`` as in :class:`Connection`.

    ``listen`` None is ``ipc`` in the runtime folder (loopback TCP on systems without it); ``tcp://HOST:PORT`` is TCP
    with CURVE, telemetry on the port after it; port 0 lets the system choose both.

    Raises:
        Refused: the name or the port is taken, the address is not understood, or the path is too long for a socket.
    """
    check_free(name)
    epoch = uuid.uuid4().hex
    control, telemetry = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    connection = Connection(name, os.getpid(), epoch, PROTOCOL_VERSION, "", "", log=log, model=model, private=private)
    endpoint = Endpoint(control, telemetry, connection)
    try:
        for socket in (control, telemetry):
            set_defaults(socket)
        control.set(zmq.ROUTER_MANDATORY, 1)
        control.set(zmq.ROUTER_HANDOVER, 1)  # a client may come back before its old connection is known to be dead
        if listen is None and zmq.has("ipc"):
            addresses = _bind_ipc(control, telemetry, epoch)
        else:
            server, owner = engine_keys(), KeyPair.make()
            endpoint.gate = _secure(context, control, telemetry, secret=server.secret)
            addresses = _bind_tcp(control, telemetry, listen or "tcp://127.0.0.1:0")
            endpoint.connection = replace(
                endpoint.connection, server_key=server.public, public_key=owner.public, secret_key=owner.secret
            )
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


def connect(socket: zmq.Socket[Any], address: str, connection: Connection) -> None:
    """Connect a client's socket to one of the engine's addresses, with the client's keys where the engine has one."""
    set_defaults(socket)
    if not address.startswith("ipc://"):
        _notice_dead_connections(socket)
    socket.set(zmq.IPV6, "[" in address)
    if connection.server_key:
        socket.set(zmq.CURVE_SERVERKEY, connection.server_key.encode())
        socket.set(zmq.CURVE_PUBLICKEY, connection.public_key.encode())
        socket.set(zmq.CURVE_SECRETKEY, connection.secret_key.encode())
    socket.connect(address)


def _secure(context: zmq.Context[zmq.Socket[bytes]], *sockets: zmq.Socket[bytes], secret: str) -> zmq.Socket[bytes]:
    """Let only those in whom the gate lets in, which is returned."""
    gate = context.socket(zmq.REP)
    gate.bind(_GATE)
    for socket in sockets:
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, secret.encode())
        socket.set(zmq.ZAP_DOMAIN, b"pagedeck")
        socket.set(zmq.ZAP_ENFORCE_DOMAIN, 1)
    return gate


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
    for socket, wanted in ((control, port), (telemetry, port and port + 1)):
        address = f"tcp://{host}:{wanted or '*'}"
        _notice_dead_connections(socket)
        socket.set(zmq.IPV6, "[" in host)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            if error.errno == zmq.EADDRINUSE:
                text = f"Port {wanted} of {host} is taken; choose another, or 0 for any."
                if socket is telemetry:
                    text = f"Port {wanted} of {host}, where telemetry would be, is taken; choose another pair, or 0."
                raise Refused(text, field="listen") from None
            raise Refused(f"Cannot listen on {address}: {zmq.strerror(error.errno or 0)}.", field="listen") from None
        reached = socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        # Every address of the machine is one to listen on, not one to connect to.
        bound.append(reached.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:"))
    return bound[0], bound[1]


def _parse_tcp(listen: str) -> tuple[str, int]:
    accepted = "tcp://HOST:PORT, HOST being an address of this machine and PORT up to 65534"
    match = re.fullmatch(r"tcp://(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]]+):(\d{1,5})", listen)
    if not match or int(match[2]) > 65_534:
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


def is_loopback(host: str) -> bool:
    """Whether an address reaches this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
