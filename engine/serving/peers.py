"""What the engine's side keeps of each client: what waits for it, what it has not seen, whether it is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from ...ipc import protocol
from ...ipc.endpoint import process_alive
from ...ipc.ledger import Ledger
from ...ipc.protocol import EngineMessage, Failed, Finished, Tokens

#: What may wait for one client before it is given up.
MAX_BACKLOG_BYTES = 64 * 1024 * 1024
MAX_BACKLOG_MESSAGES = 100_000


@dataclass(slots=True)
class Peer:
    """A client that said hello. ``backlog`` holds what its socket did not take yet, after what is to be repeated."""

    identity: bytes
    name: str
    heard: float
    ledger: Ledger | None = None  # of a client that numbers its messages
    pid: int = 0  # its process, where that can be looked at
    away: bool = False  # its connection broke, and it did not come back yet
    probed: float = 0.0
    again: deque[bytes] = field(default_factory=deque)  # frames sent once that it has not seen
    backlog: deque[EngineMessage] = field(default_factory=deque)
    backlog_bytes: int = 0
    unsent: dict[tuple[str, int], Tokens] = field(default_factory=dict)

    def write(self, message: EngineMessage) -> bytes:
        """The message's frame; of a client that numbers messages, it is the next one as soon as it :meth:`left`."""
        return protocol.encode(message) if self.ledger is None else self.ledger.write(message)

    def left(self, frame: bytes) -> None:
        if self.ledger is not None:
            self.ledger.sent(frame)

    def hold(self, message: EngineMessage) -> None:
        self.backlog_bytes += _size(message)
        if isinstance(message, Tokens):
            earlier = self.unsent.get((message.id, message.index))
            if earlier is not None:
                earlier.token_ids = earlier.token_ids + message.token_ids
                earlier.text += message.text
                return
            self.unsent[message.id, message.index] = message
        self.backlog.append(message)

    @property
    def waiting(self) -> bool:
        return bool(self.again or self.backlog)

    def send_waiting(self, send: Callable[[bytes], None]) -> None:
        """Send what waits, until ``send`` raises."""
        while self.again:
            send(self.again[0])
            self.again.popleft()
        while self.backlog:
            message = self.backlog[0]
            frame = self.write(message)
            send(frame)
            self.left(frame)
            self.backlog.popleft()
            self.backlog_bytes -= _size(message)
            if isinstance(message, Tokens):
                del self.unsent[message.id, message.index]

    @property
    def too_far_behind(self) -> bool:
        return self.backlog_bytes > MAX_BACKLOG_BYTES or len(self.backlog) > MAX_BACKLOG_MESSAGES

    def lost(self) -> bool:
        """Whether a client whose connection broke cannot come back: its process has ended."""
        return self.pid > 0 and not process_alive(self.pid, 0.0)


def _size(message: EngineMessage) -> int:
    """About how many bytes a message takes; of tokens that melted together, the sum of theirs."""
    if isinstance(message, Tokens):
        return 5 * len(message.token_ids) + len(message.text)
    return len(protocol.encode(message))


@dataclass(slots=True)
class GivenUp:
    """A client that does not know yet that it was given up; ``ends`` is what became of its requests."""

    name: str
    numbered: bool
    notice: Failed
    ends: list[Failed] = field(default_factory=list)

    def end(self, message: EngineMessage) -> None:
        """None of its requests stays open for the client, nor seems whole with some of it missing."""
        if isinstance(message, Finished):
            self.ends.append(msgspec.structs.replace(self.notice, id=message.id))
        elif isinstance(message, Failed):
            self.ends.append(message)
