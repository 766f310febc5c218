"""Which requests the engine has seen, so that one that is submitted again is not run again."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from ...ipc.protocol import Submit, encode
from ...ipc.vocabulary import Refused
from ..request import Request


class Receipts:
    """Requests by their ids, each with the hash of what was asked, as long as the engine keeps their outputs."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Request]] = {}

    def note(self, message: Submit, request: Request) -> None:
        """``request`` is what became of ``message``."""
        self._known[message.id] = _digest(message), request
        for id in [id for id, _ in zip(self._known, range(2), strict=False)]:  # so that more are looked at than come
            known = self._known.pop(id)
            if known[1].sequences:
                self._known[id] = known

    def find(self, message: Submit) -> Request | None:
        """The request that was submitted with this id before, if its output is still there.

        Raises:
            Refused: it was another one, or its log-probabilities, which are not kept, were asked for.
        """
        digest, request = self._known.get(message.id, (b"", None))
        if request is None or not request.sequences:
            return None
        if digest != _digest(message):
            raise Refused(
                f"id is {message.id!r}, which an earlier request had that asked something else; state another id.",
                field="id",
                code="duplicate",
            )
        if message.sampling.logprobs is not None:
            raise Refused(
                f"id is {message.id!r}, which an earlier request had, and log-probabilities are not kept to be told "
                "again; accepted is another id.",
                field="id",
                code="duplicate",
            )
        return request

    def forget(self, ids: Iterable[str]) -> None:
        """These may be submitted and run again."""
        for id in ids:
            self._known.pop(id, None)


def _digest(message: Submit) -> bytes:
    """Equal for equal requests, whatever their numbers on the wire and their priorities."""
    return blake2b(encode(msgspec.structs.replace(message, serial=0, seen=0, priority=0)), digest_size=16).digest()
