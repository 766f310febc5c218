"""What a client asked and has no end of yet, so that it can be asked again of an engine that takes over.

A request is repeated where its reader cannot notice: while nothing of its output came, or where the output depends on
the prompt alone (greedy, or with a seed). What comes a second time is then compared with the first and not given out.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import msgspec

from .line import EngineError, Receiver
from .protocol import Accepted, EngineMessage, Failed, Finished, Message, Submit, Tokens
from .vocabulary import EngineState

#: The id of what is asked of an engine that took over, until it can take requests; and the states in which it can.
TAKEOVER = "takeover"
SERVING = (EngineState.READY, EngineState.DRAINING)

#: Seconds between two looks for one.
LOOK_S = 0.25

#: How an engine that is about to end refuses a request that another one could take.
_LEAVING = ("shutdown", "draining")


class Course:
    """One submitted request: what its reader was given, however many engines it takes."""

    def __init__(self, submit: Submit) -> None:
        self.submit = submit
        self._accepted = False
        self._given: list[Tokens] = []
        self._owed: dict[int, tuple[list[int], str]] = {}  # by sample: what was given and has to come again

    @property
    def repeatable(self) -> bool:
        sampling = self.submit.sampling
        return not self._given or not sampling.temperature or sampling.seed is not None

    def repeat(self) -> Submit:
        """What to ask of another engine."""
        for index in {tokens.index for tokens in self._given}:
            given = [tokens for tokens in self._given if tokens.index == index]
            token_ids = [token for tokens in given for token in tokens.token_ids]
            self._owed[index] = token_ids, "".join(tokens.text for tokens in given)
        return self.submit

    def take(self, message: EngineMessage) -> EngineMessage | None:
        """What of a message its reader has not been given: all of it, the rest, or nothing (None)."""
        if isinstance(message, Tokens):
            return self._take_tokens(message)
        if isinstance(message, Accepted):
            known, self._accepted = self._accepted, True
            return None if known else message
        if isinstance(message, Finished) and any(ids or text for ids, text in self._owed.values()):
            return self._another()
        return message

    def _take_tokens(self, message: Tokens) -> Tokens | Failed | None:
        token_ids, text = self._owed.get(message.index, ([], ""))
        if token_ids or text:
            known, letters = min(len(token_ids), len(message.token_ids)), min(len(text), len(message.text))
            if token_ids[:known] != message.token_ids[:known] or text[:letters] != message.text[:letters]:
                return self._another()
            self._owed[message.index] = token_ids[known:], text[letters:]
            message = msgspec.structs.replace(message, token_ids=message.token_ids[known:], text=message.text[letters:])
            if not message.token_ids and not message.text:
                return None
        self._given.append(message)
        return message

    def _another(self) -> Failed:
        text = "The engine that took over gives another output than the one before it had begun."
        return Failed(id=self.submit.id, code="lost", message=text)


@dataclass(slots=True)
class _Wait:
    receive: Receiver
    course: Course | None  # of a request; any other message ends with its first answer


class Asked:
    """Who waits for which answer. Every method may be called from any thread.

    While :attr:`patient`, requests outlive their engine: what ends them because it does is kept from their readers,
    and :meth:`again` says what to ask of the next one.
    """

    def __init__(self, patient: bool) -> None:
        self.patient = patient
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}

    def add(self, message: Message, receive: Receiver) -> EngineError | None:
        """``receive`` waits for what answers ``message``; returns why it cannot."""
        with self._lock:
            if message.id in self._waits:
                text = f"The id {message.id!r} is in use by this client."
                return EngineError(text, code="duplicate", field="id")
            course = Course(message) if isinstance(message, Submit) else None
            self._waits[message.id] = _Wait(receive, course)
        return None

    def remove(self, id: str) -> None:
        """Nobody waits for that answer any more."""
        with self._lock:
            self._waits.pop(id, None)

    def answer(self, message: EngineMessage) -> None:
        """Give a message to who waits for it."""
        with self._lock:
            wait = self._waits.get(message.id)
            if wait is None or self._survives(wait, message):
                return
            new = message if wait.course is None else wait.course.take(message)
            if wait.course is None or isinstance(new, Finished | Failed):
                del self._waits[message.id]
        if new is not None:
            wait.receive(new)

    def fail(self, error: EngineError) -> None:
        """End what cannot be repeated; all of it, unless :attr:`patient`."""
        with self._lock:
            ending = {id: wait for id, wait in self._waits.items() if not self._repeatable(wait)}
            for id in ending:
                del self._waits[id]
        for wait in ending.values():
            wait.receive(error)

    def again(self) -> list[Submit]:
        """All requests that have no end yet, in the order in which they were asked."""
        with self._lock:
            return [wait.course.repeat() for wait in self._waits.values() if wait.course is not None]

    def _repeatable(self, wait: _Wait) -> bool:
        return self.patient and wait.course is not None and wait.course.repeatable

    def _survives(self, wait: _Wait, message: EngineMessage) -> bool:
        """Whether a request is told its end by an engine that ends, and can go on at the next one."""
        return isinstance(message, Failed) and message.code in _LEAVING and self._repeatable(wait)
