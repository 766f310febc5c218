"""``pagedeck chat``: talk to the model in the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ipc.client import Client, EngineError, EngineGone
from ..ipc.endpoint import Connection, find, list_connections
from ..ipc.launch import Engine
from ..ipc.protocol import ChatMessage, Finished, Submit
from ..ipc.vocabulary import EngineState, Refused, SamplingParams
from .terminal import Progress, duration

#: Seconds to wait for an answer to a cancel: the engine finishes its step first.
PATIENCE_S = 120.0

_HELP = "Ctrl-C cancels an answer, and leaves when pressed again; /new forgets the conversation."


@dataclass(slots=True)
class Conversation:
    """What was said, and how the next answer is sampled."""

    client: Client
    sampling: SamplingParams
    templated: bool  # whether the model knows roles; without them a prompt is only continued
    messages: list[ChatMessage] = field(default_factory=list)

    def ask(self, prompt: str) -> Finished | None:
        """Print the answer as it comes; None when Ctrl-C cancelled it."""
        asked = [*self.messages, ChatMessage(role="user", content=prompt)]
        message = Submit(sampling=self.sampling, priority="interactive")
        if self.templated:
            message.messages = asked
        else:
            message.prompt = prompt
        stream = self.client.submit(message)
        said: list[str] = []
        try:
            for tokens in stream:
                said.append(tokens.text)
                print(tokens.text, end="", flush=True)
        except KeyboardInterrupt:
            stream.cancel()
            for _ in stream:  # what was under way when the cancel arrived
                pass
            print(" [cancelled]")
            return None
        except EngineError:
            if said:
                print(flush=True)  # what went wrong stands on a line of its own
            raise
        finally:
            # A cancelled answer stays in the conversation: the person has read it.
            self.messages = [*asked, ChatMessage(role="assistant", content="".join(said))]
        print()
        return stream.finished


def chat(engine: str | None, prompt: str | None, *, system: str | None, sampling: SamplingParams) -> int:
    with _engine(engine) as client:
        client.timeout = PATIENCE_S
        if client.hello.state == EngineState.LOADING:
            print("Waiting for the engine to load its model", file=sys.stderr)
            client.wait_ready()
        conversation = Conversation(client, sampling, client.status().chat_template)
        if system:
            conversation.messages.append(ChatMessage(role="system", content=system))
        if prompt is None and not sys.stdin.isatty():
            prompt = sys.stdin.read()
        if prompt is not None:
            return 0 if conversation.ask(prompt) else 130
        return _converse(conversation)


@contextlib.contextmanager
def _engine(name: str | None) -> Iterator[Client]:
    """The engine of that name, or the only one that runs and stays, or else one for this conversation alone."""
    running = [find(name)] if name is not None else list_connections()
    staying = [connection for connection in running if _stays(connection)]
    if name is not None and not staying:
        raise Refused(f"The engine {name!r} is about to stop and takes nothing new.", field="name", code="draining")
    if staying:
        with Client(staying[0] if len(staying) == 1 else find()) as client:
            yield client
        return
    for connection in running:
        print(f"The engine {connection.name!r} is about to stop; another one is started.", file=sys.stderr)
    with Engine(f"chat-{os.getpid()}") as engine:
        with Progress() as progress:
            connection = engine.wait_ready(progress)
        with Client(connection) as client:
            yield client


def _stays(connection: Connection) -> bool:
    """Whether an engine goes on serving, as far as it knows: one that the app started ends with the app."""
    try:
        with Client(connection) as client:
            return client.hello.state in (EngineState.LOADING, EngineState.READY)
    except EngineGone as gone:
        if gone.code == "key":
            raise
        return False


def _converse(conversation: Conversation) -> int:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() a history and line editing
    print(_HELP, file=sys.stderr)
    beginning = conversation.messages
    cancelled = False
    while True:
        try:
            prompt = input("> ").strip()
        except EOFError:
            print()
            return 0
        except KeyboardInterrupt:
            print()
            if cancelled:
                return 0
            cancelled = True
            print("Press Ctrl-C again to leave.", file=sys.stderr)
            continue
        if prompt == "/new":
            conversation.messages = beginning
        elif prompt:
            cancelled = not _answer(conversation, prompt)


def _answer(conversation: Conversation, prompt: str) -> bool:
    """Whether the answer came to its end."""
    before = conversation.messages
    try:
        finished = conversation.ask(prompt)
    except EngineError as error:
        conversation.messages = before
        hint = " Begin a new conversation with /new." if error.code == "too_long" else ""
        print(f"{error}{hint}", file=sys.stderr)
        return True
    if finished is None:
        return False
    speed = finished.output_tokens / finished.e2e_s if finished.e2e_s else 0.0
    print(
        f"[{finished.output_tokens} tokens, first after {duration(finished.ttft_s)}, {speed:.1f} tokens/s]",
        file=sys.stderr,
    )
    return True
