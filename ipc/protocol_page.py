"""The tables and the example of ``PROTOCOL.md``, made from the messages themselves.

``python -m pagedeck.ipc.protocol_page`` writes them into the page again, between its marks.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from . import endpoint, protocol, telemetry, vocabulary
from .protocol import (
    Accepted,
    Cancel,
    Done,
    EngineStatus,
    Finished,
    GetStatus,
    Hello,
    Message,
    SampleResult,
    StatusReply,
    Submit,
    Tokens,
    Welcome,
)
from .vocabulary import SamplingParams

PAGE = Path(__file__).parent / "PROTOCOL.md"

_MARKED = re.compile(r"(<!-- (?P<name>[\w-]+): generated -->\n).*?(<!-- end -->)", re.DOTALL)
_COMMENT = re.compile(r"^    (\w+): [^#]*?(?:  # (.*))?$", re.MULTILINE)
_ROLE = re.compile(r":\w+:`[~.]*(?:[\w.]*\.)?(\w+)`")

#: Fields of every message: told once.
_COMMON = tuple(field.name for field in msgspec.structs.fields(Message))

_WORDS: dict[Any, str] = {
    str: "text", int: "integer", float: "number", bool: "true or false", bytes: "binary", Any: "anything",
    type(None): "nil",
}  # fmt: skip


def render(page: str) -> str:
    """The page with everything between its marks made anew."""
    return _MARKED.sub(lambda part: part[1] + _PARTS[part["name"]]() + part[3], page)


# --- tables -----------------------------------------------------------------------------------------------------


def _client_messages() -> str:
    return _sections(get_args(protocol.ClientMessage))


def _engine_messages() -> str:
    return _sections(get_args(protocol.EngineMessage))


def _topics() -> str:
    return _sections(telemetry._TYPES.values())


def _parts_of_messages() -> str:
    known = [*get_args(protocol.ClientMessage), *get_args(protocol.EngineMessage), *telemetry._TYPES.values()]
    return _sections([kind for kind in _reached(known) if kind not in known])


def _connection_file() -> str:
    return _table(endpoint.Connection, without=("path",))


def _limits() -> str:
    rows = (
        ("Protocol version", f"{protocol.PROTOCOL_VERSION}"),
        ("Bytes of a message", f"{protocol.MAX_MESSAGE_BYTES:,}"),
        ("Seconds between a client's pings", f"{protocol.HEARTBEAT_S:g}"),
        ("Seconds of silence after which the other side counts as gone", f"{protocol.GONE_AFTER_S:g}"),
        ("`blocks` and `step` messages in a second, at most", f"{telemetry.MAX_RATE_HZ:g}"),
        ("Blocks told on either side of one in its prefix tree", f"{protocol.FAMILY_MAX}"),
    )
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)


def _states() -> str:
    text = "| Code | Block state |\n|---|---|\n"
    return text + "".join(f"| {state.value} | {state.name.lower()} |\n" for state in vocabulary.BlockState)


def _sections(kinds: typing.Iterable[type]) -> str:
    return "".join(_section(kind, _title(kind)) for kind in kinds)


def _title(kind: type) -> str:
    return f"`{kind.__struct_config__.tag}`" if issubclass(kind, Message) else kind.__name__


def _section(kind: type, title: str) -> str:
    doc = inspect.cleandoc(kind.__doc__ or "") if "__doc__" in vars(kind) and not _is_made(kind) else ""
    shape = "An array, in this order.\n\n" if _is_array(kind) else ""
    told = _ROLE.sub(r"`\1`", doc).replace("``", "`")
    return f"### {title}\n\n" + (f"{told}\n\n" if told else "") + shape + _table(kind)


def _is_made(kind: type) -> bool:
    """Whether its docstring is what dataclasses write where there is none."""
    return dataclasses.is_dataclass(kind) and (kind.__doc__ or "").startswith(f"{kind.__name__}(")


def _is_array(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) and bool(kind.__struct_config__.array_like)


def _table(kind: type, without: tuple[str, ...] = ()) -> str:
    fields = [f for f in _fields(kind) if f[0] not in without and not (issubclass(kind, Message) and f[0] in _COMMON)]
    if not fields:
        return "No further fields.\n\n"
    comments = dict(_COMMENT.findall(inspect.getsource(kind)))
    rows = "".join(
        f"| `{name}` | {_word(hint)} | {default} | {comments.get(name, '')} |\n" for name, hint, default in fields
    )
    return f"| Field | Type | Default | |\n|---|---|---|---|\n{rows}\n"


def _fields(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Name, type and default of each, as text; no default where the field is always there."""
    hints = _hints(kind)
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield field.name, hints[field.name], _default(field.default, dataclasses.MISSING, field.default_factory)
        return
    for each in msgspec.structs.fields(kind):
        yield each.name, hints[each.name], _default(each.default, msgspec.NODEFAULT, each.default_factory)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _default(value: Any, missing: Any, factory: Any) -> str:
    if value is missing:
        value = factory() if callable(factory) else missing
    if value is missing:
        return ""
    if isinstance(value, SamplingParams):
        return "all defaults"
    if isinstance(value, tuple | list | dict | bytes) and not value:
        return "empty"
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    return "empty" if value == "" else f"`{value}`"


def _word(hint: Any) -> str:
    """A type in words that do not depend on a language."""
    if hint in _WORDS:
        return _WORDS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_word, arguments))
    if origin is dict:
        return f"map of {_word(arguments[0])} to {_word(arguments[1])}"
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        return f"array of {_word(arguments[0])}"
    if origin is tuple:
        return f"array: {', '.join(map(_word, arguments))}"
    return f"[{hint.__name__}](#{hint.__name__.lower()})"


def _reached(kinds: typing.Iterable[type]) -> list[type]:
    """Structs that stand in these, themselves included, in the order in which they are met."""
    found: list[type] = []

    def visit(hint: Any) -> None:
        for argument in get_args(hint):
            visit(argument)
        is_struct = isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or dataclasses.is_dataclass(hint))
        if is_struct and hint not in found:
            found.append(hint)
            for _, inner, _ in _fields(hint):
                visit(inner)

    for kind in kinds:
        visit(kind)
    return found


# --- a session --------------------------------------------------------------------------------------------------

STATUS = EngineStatus("example", "ready", "numbers", "0f1e2d3c", 4711, "1.0", telemetry="ipc:///run/example.tel")

#: Who speaks (``C`` the client, ``E`` the engine), and what. The engine's core is played by :func:`answers`.
SESSION: tuple[tuple[str, Message], ...] = (
    ("C", Hello(id="h", client="example", numbered=True)),
    ("E", Welcome(id="h", status=STATUS)),
    ("C", Submit(id="r1", serial=1, prompt="Once", sampling=SamplingParams(max_tokens=2, temperature=0.0))),
    ("E", Accepted(id="r1", serial=1, seen=1, number=1, prompt_tokens=1)),
    ("E", Tokens(id="r1", serial=2, seen=1, token_ids=[7], text=" upon")),
    ("E", Tokens(id="r1", serial=3, seen=1, token_ids=[8], text=" a")),
    (
        "E",
        Finished(id="r1", serial=4, seen=1, samples=[SampleResult(0, "length", 2)], prompt_tokens=1, output_tokens=2),
    ),
    ("C", GetStatus(id="s", serial=2, seen=4)),
    ("E", StatusReply(id="s", serial=5, seen=2, status=STATUS)),
    ("C", Cancel(id="c", serial=3, seen=5, request="r1")),
    ("E", Done(id="c", serial=6, seen=3)),
    # The connection breaks before the client has the last reply; over another one it says what it has seen.
    ("C", Hello(id="h2", client="example", numbered=True, resumes=True, seen=5)),
    ("E", Done(id="c", serial=6, seen=3)),
    ("E", Welcome(id="h2", seen=3, status=STATUS)),
)


def answers(message: Message) -> list[Message]:
    """What the engine of the session sends for a message that its core gets, without numbers."""
    replies = {said.serial: said for who, said in SESSION if who == "E" and said.id == message.id and said.serial}
    return [msgspec.structs.replace(said, serial=0, seen=0) for said in replies.values()]


def _session() -> str:
    lines = []
    for who, message in SESSION:
        data = protocol.encode(message).hex(" ")
        rows = [data[at : at + 96].rstrip() for at in range(0, len(data), 96)]
        lines += [f"{who} {_title(type(message)).strip('`')}", *(f"  {row}" for row in rows)]
    return "```\n" + "\n".join(lines) + "\n```\n"


_PARTS = {
    "connection-file": _connection_file,
    "limits": _limits,
    "client-messages": _client_messages,
    "engine-messages": _engine_messages,
    "topics": _topics,
    "parts": _parts_of_messages,
    "block-states": _states,
    "session": _session,
}

if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
