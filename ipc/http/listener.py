"""The socket that a gateway listens on, and what that says of who can reach it. Standard library only."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys

from ..vocabulary import Refused


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens. ``host``: an address of this machine, or localhost; ``port`` 0 is any free one.

    Raises:
        Refused: the port is taken, or the address is none of this machine's.
    """
    if not 0 <= port <= 65_535:
        raise Refused.value("port", port, "0 (any free one) to 65535")
    address = parse_host(host)
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers have the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            text = f"Port {port} of {address} is taken; state another, or 0 for any free one."
        elif error.errno == errno.EADDRNOTAVAIL:
            text = f"{address} is no address of this machine; state one that is, or 127.0.0.1."
        else:
            text = f"Port {port} of {address} cannot be listened on ({error.strerror}); state another."
        raise Refused(text, field="port") from None
    return listener


def parse_host(host: str) -> str:
    """Raises :class:`Refused` for what is no address; a name could resolve to one that was not meant."""
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise Refused.value("host", host, "an IP address of this machine, or localhost") from None
    return address


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def known_names(address: str) -> frozenset[str] | None:
    """What a server on that address is called in a Host header; None is anything."""
    return frozenset({"localhost", "127.0.0.1", "::1", address}) if is_loopback(address) else None


def url_of(listener: socket.socket) -> str:
    address, port = listener.getsockname()[:2]
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
