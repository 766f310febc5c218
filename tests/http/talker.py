"""An engine without a model: the real socket thread, and a core that echoes words or does what its input says.

Lines of input are ``STATE``, ``STATE<tab>DETAIL`` or ``STATE<tab>DETAIL<tab>PROGRESS``; ``cancel``, which ends what
stalls as if somebody else had cancelled it; or ``finish``, which ends it with the word ``end``. A prompt is answered
word by word; the word ``stall`` gets none, nor does the prompt an end, and ``fail:CODE`` is refused with that code.
Stalls and cancels are said on standard output.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from typing import Any

import msgspec
import zmq
from pagedeck.engine.serving.switchboard import Received, Switchboard
from pagedeck.ipc.endpoint import bind
from pagedeck.ipc.protocol import (
    Accepted,
    Cancel,
    Done,
    EngineMessage,
    EngineStatus,
    Failed,
    Finished,
    SampleResult,
    Submit,
    Tokens,
)
from pagedeck.ipc.telemetry import TOPIC_EVENT, Event


class Core:
    """Answers what the socket thread hands on."""

    def __init__(self, switchboard: Switchboard) -> None:
        self.switchboard = switchboard
        self.stalled: dict[str, str] = {}  # ids to clients

    def run(self, inbox: queue.SimpleQueue[object]) -> None:
        while True:
            item = inbox.get()
            if isinstance(item, Received):
                for answer in self.answers(item.client, item.message):
                    self.switchboard.send(item.client, answer)
            elif item == "cancel":
                for id, client in self.stalled.items():
                    self.switchboard.send(client, cancelled(id))
            elif item == "finish":
                for id, client in self.stalled.items():
                    self.switchboard.send(client, Tokens(id=id, token_ids=[99], text="end"))
                    self.switchboard.send(client, Finished(id=id, samples=[SampleResult(0, "stop", 1)]))

    def answers(self, client: str, message: Any) -> list[EngineMessage]:
        if isinstance(message, Cancel):
            print("cancel", flush=True)
            return [cancelled(message.request), Done(id=message.id)]
        assert isinstance(message, Submit)
        prompt = message.prompt or ""
        if prompt.startswith("fail:"):
            return [Failed(id=message.id, code=prompt.removeprefix("fail:"), message="It is refused.", field="prompt")]
        accepted = Accepted(id=message.id, prompt_tokens=1)
        *words, last = prompt.split(" ")
        words += [] if last == "stall" else [last]
        tokens = [Tokens(id=message.id, token_ids=[i], text=word) for i, word in enumerate(words)]
        if last == "stall":
            self.stalled[message.id] = client
            print("stalled", flush=True)
            return [accepted, *tokens]
        end = Finished(id=message.id, samples=[SampleResult(0, "stop", len(words))], output_tokens=len(words))
        return [accepted, *tokens, end]


def cancelled(id: str) -> Finished:
    return Finished(id=id, samples=[SampleResult(0, "cancelled", 0)])


endpoint = bind(zmq.Context.instance(), name=sys.argv[1], listen=None, model="echo", log="")
connection = endpoint.connection
status = EngineStatus(
    connection.name, "ready", "echo", connection.epoch, connection.pid, "0", started=time.time(), context_length=100
)
inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
switchboard = Switchboard(endpoint, inbox, lambda: status, list)
switchboard.start()
threading.Thread(target=Core(switchboard).run, args=(inbox,), daemon=True).start()
print("here", flush=True)
for line in sys.stdin:
    state, detail, progress, *_ = [*line.rstrip("\n").split("\t"), "", ""]
    if state in ("cancel", "finish"):
        inbox.put(state)
        print("done", flush=True)
        continue
    fraction = float(progress) if progress else None
    status = msgspec.structs.replace(status, state=state, detail=detail, progress=fraction)
    event = Event(connection.epoch, time.time(), "state", detail, state=state, progress=fraction)
    switchboard.publish(TOPIC_EVENT, event)
    print("done", flush=True)
switchboard.close()
