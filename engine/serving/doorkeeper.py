"""Who gets in over TCP, and as whom: the owner, and those whose keys this user's folder holds."""

from __future__ import annotations

import contextlib
import logging
import time

import zmq
from zmq.utils import z85

from ...ipc.endpoint import Endpoint
from ...ipc.keys import ClientKey, keys_state, read_keys
from ...ipc.vocabulary import Refused

#: The user that whoever holds the engine's own connection file is.
OWNER = ""

#: Whoever knocks without end does not fill the log.
WARN_S = 10.0

_log = logging.getLogger(__name__)


class Doorkeeper:
    """Answers ``endpoint``'s gate. A user is a key's name; over ``ipc``, and with the key of the connection file, it is
    the owner. Belongs to the thread that has the sockets."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.gate = endpoint.gate
        self._owner = endpoint.connection.public_key
        self._state: object = None
        self._keys: dict[str, ClientKey] = {}  # by the key itself
        self._inside: set[ClientKey] = set()  # who was let in
        self._complaints: list[str] = []
        self._warned = -WARN_S

    def knows(self, user: str) -> bool:
        return user == OWNER or any(key.name == user for key in self._keys.values())

    def is_operator(self, user: str) -> bool:
        return user == OWNER or any(key.operator for key in self._keys.values() if key.name == user)

    @property
    def knocked(self) -> bool:
        """Whether anybody is at the gate."""
        return self.gate is not None and bool(self.gate.poll(0))

    def answer(self) -> None:
        """Say of everybody who is at the gate whether he gets in."""
        with contextlib.suppress(zmq.Again):
            while self.gate is not None:
                version, id, _domain, _address, _identity, mechanism, *credentials = self.gate.recv_multipart(
                    zmq.NOBLOCK
                )
                user = self._user(credentials[0]) if mechanism == b"CURVE" and credentials else None
                status = [b"400", b"unknown key", b""] if user is None else [b"200", b"", user.encode()]
                self.gate.send_multipart([version, id, *status, b""])

    def _user(self, key: bytes) -> str | None:
        text = z85.encode(key).decode()
        if text == self._owner:
            return OWNER
        self._look()
        known = self._keys.get(text)
        if known is None:
            self._warn(text)
            return None
        self._inside.add(known)
        return known.name

    def _warn(self, key: str) -> None:
        if time.monotonic() - self._warned >= WARN_S:
            self._warned = time.monotonic()
            _log.warning("Somebody came with a key that is not known, %s, and was not let in", key)

    def revoked(self) -> set[str]:
        """Users who were let in with a key that counts no more, told once."""
        if not self._inside:
            return set()
        self._look()
        gone = self._inside - set(self._keys.values())
        self._inside -= gone
        return {key.name for key in gone}

    def _look(self) -> None:
        """Read the keys, where they are others than before. What cannot be read changes nothing."""
        try:
            state = keys_state()
            if state == self._state:
                return
            keys, complaints = read_keys()
        except (Refused, OSError) as error:
            self._complain([str(error)])
            return
        self._complain(complaints)
        self._state = state
        self._keys = {key.public: key for key in keys}

    def _complain(self, complaints: list[str]) -> None:
        if complaints != self._complaints:
            self._complaints = complaints
            for complaint in complaints:
                _log.warning("%s", complaint)
