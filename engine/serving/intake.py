"""Prompts to tokens beside the core loop, and schemas to grammars: long ones must not make everybody else's tokens
wait, nor a schema that takes the compiler long the prompts that come without any."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ...ipc.protocol import Submit
from ...ipc.vocabulary import Refused
from ..rules import MakeRules, Rules
from .text import Text

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Prepared:
    """A submission that was read: its prompt's tokens and what its words mean in them, or why there are none."""

    client: str
    message: Submit
    outcome: tuple[list[int], Rules] | Refused


class Intake:
    """Reads prompts one after another on a thread of its own, those with a schema on a second one, and gives each to
    ``deliver``, called on that thread.

    All methods belong to the core's thread. A submission is known here until it was taken back or cancelled.
    """

    def __init__(self, text: Text, rules: MakeRules, deliver: Callable[[Prepared], None]) -> None:
        self._text = text
        self._rules = rules
        self._deliver = deliver
        self._plain: queue.SimpleQueue[tuple[str, Submit]] = queue.SimpleQueue()
        self._with_schema: queue.SimpleQueue[tuple[str, Submit]] = queue.SimpleQueue()
        self._tokenizing = threading.Lock()  # tokenizers change themselves when they are first used
        self._pending: dict[str, tuple[str, Submit]] = {}
        for name, waiting in (("intake", self._plain), ("schemas", self._with_schema)):
            threading.Thread(target=self._run, args=(waiting,), name=name, daemon=True).start()

    def __contains__(self, id: str) -> bool:
        return id in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def put(self, client: str, message: Submit) -> None:
        self._pending[message.id] = (client, message)
        waiting = self._with_schema if message.sampling.json_schema else self._plain
        waiting.put((client, message))

    def take(self, prepared: Prepared) -> bool:
        """Whether a delivered submission still counts; it is not known here any more."""
        pending = self._pending.get(prepared.message.id)
        if pending is None or pending[1] is not prepared.message:
            return False
        del self._pending[prepared.message.id]
        return True

    def count(self, client: str) -> int:
        """Submissions of a client."""
        return sum(owner == client for owner, _ in self._pending.values())

    def client_of(self, id: str) -> str:
        return self._pending[id][0]

    def cancel(self, id: str) -> str:
        """Forget a submission; returns its client."""
        return self._pending.pop(id)[0]

    def set_priority(self, id: str, priority: int) -> None:
        self._pending[id][1].priority = priority

    def cancel_client(self, client: str) -> int:
        """Forget all submissions of a client; how many there were."""
        theirs = [id for id, (owner, _) in self._pending.items() if owner == client]
        for id in theirs:
            del self._pending[id]
        return len(theirs)

    def cancel_all(self) -> list[tuple[str, str]]:
        """Forget everything; returns clients and ids."""
        all_of_them = [(client, id) for id, (client, _) in self._pending.items()]
        self._pending.clear()
        return all_of_them

    def _run(self, waiting: queue.SimpleQueue[tuple[str, Submit]]) -> None:
        while True:
            client, message = waiting.get()
            if self._pending.get(message.id, (None, None))[1] is message:  # else nobody waits for it any more
                self._deliver(Prepared(client, message, self._read(message)))

    def _read(self, message: Submit) -> tuple[list[int], Rules] | Refused:
        try:
            message.sampling.check()
            with self._tokenizing:
                prompt = self._text.prompt(message)
            return prompt, self._rules(message.sampling)
        except Refused as refused:
            return refused
        except Exception as error:
            _log.exception("A prompt could not be read: %s", type(error).__name__)  # its message may quote the prompt
            return Refused(f"The prompt could not be read: {type(error).__name__}: {error}", code="internal")
