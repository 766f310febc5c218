"""What two sides said to each other, so that their conversation outlives the connections that carry it.

A connection can break with messages under way that neither side knows the fate of. So each message carries its number
(``serial``) and the number of the last one that came from the other side (``seen``). What was not seen yet is kept;
over a new connection each side learns what the other one has seen, and sends the rest again. What comes twice, or
after a gap that is about to be filled, is not taken.
"""

from __future__ import annotations

from collections import deque

import msgspec

from .protocol import Envelope, Hello, Message, Ping, Pong, Welcome, encode

#: What is kept for one other side; of more, the oldest is forgotten, and missed should the connection break just then.
MAX_KEPT_BYTES = 16 * 1024 * 1024

#: What keeps a conversation going is no part of it, and may get lost.
_UNNUMBERED = (Hello, Welcome, Ping, Pong)


class Ledger:
    """One side's account of one conversation."""

    def __init__(self) -> None:
        self.heard = 0  # the number of the last message that was taken
        self.said = 0  # the number of the last message that was sent
        self._written = 0
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0

    def write(self, message: Message) -> bytes:
        """The frame that says ``message`` next; it counts as said with :meth:`sent`."""
        self._written = 0 if isinstance(message, _UNNUMBERED) else self.said + 1
        return encode(msgspec.structs.replace(message, serial=self._written, seen=self.heard))

    def sent(self, frame: bytes) -> None:
        """The frame that was written last went to the socket."""
        if not self._written:
            return
        self.said = self._written
        self._kept.append((self.said, frame))
        self._kept_bytes += len(frame)
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._forget_oldest()

    def takes(self, message: Message | Envelope) -> bool:
        """Whether a message that came is the next one; takes note of it, and of what its sender has seen."""
        while self._kept and self._kept[0][0] <= message.seen:
            self._forget_oldest()
        if not message.serial:
            return True
        if message.serial != self.heard + 1:
            return False
        self.heard = message.serial
        return True

    def unseen(self, seen: int) -> list[bytes] | None:
        """What the other side misses if ``seen`` is the last that it has; None if some of it is forgotten."""
        missing = [frame for serial, frame in self._kept if serial > seen]
        return missing if len(missing) == self.said - seen else None

    def _forget_oldest(self) -> None:
        _, frame = self._kept.popleft()
        self._kept_bytes -= len(frame)
