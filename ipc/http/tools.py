"""Tools: which the model may call, how it is made to, and its calls found in what it writes.

Models write a call as JSON, in tags (``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, Hermes and Qwen), or as
their whole answer (``{"name": …, "parameters": {…}}``, Llama; a list of them, Mistral), after a marker or without one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from ..vocabulary import Refused
from .schema import ChatRequest, FunctionCall, FunctionTool, NamedTool, ToolCall

#: The schema of a tool that states none.
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
#: What stands before calls that are the whole answer.
_MARKERS = ("<|python_tag|>", "[TOOL_CALLS]")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says of tools. ``offered`` are the names of those that the model is told of; with ``forced`` it
    must call one, by writing JSON: the arguments where only one comes into question (``name``), or a name too."""

    offered: frozenset[str] = frozenset()
    forced: bool = False
    name: str = ""
    parallel: bool = True

    def reader(self) -> CallReader | ForcedReader:
        """Reads one answer."""
        return ForcedReader(self.name) if self.forced else CallReader(self.offered, self.parallel)


def tool_use(request: ChatRequest) -> ToolUse:
    """Raises :class:`Refused` for a choice among tools that are not there."""
    functions = [tool.function for tool in request.tools or []]
    names = [function.name for function in functions]
    choice = request.tool_choice or ("auto" if names else "none")
    if len(set(names)) < len(names):
        raise Refused("tools has two of the same name; accepted are different ones.", field="tools")
    if choice == "none":
        return ToolUse()
    if not names:
        raise Refused("tool_choice is stated without tools; state tools, or none.", field="tool_choice")
    parallel = request.parallel_tool_calls is not False
    if isinstance(choice, NamedTool):
        if choice.function.name not in names:
            raise Refused.value("tool_choice", choice.function.name, "one of " + ", ".join(names))
        return ToolUse(frozenset(names), True, choice.function.name)
    single = names[0] if choice == "required" and len(names) == 1 else ""
    return ToolUse(frozenset(names), choice == "required", single, parallel)


def forced_schema(use: ToolUse, tools: list[FunctionTool]) -> str:
    """The JSON schema, as text, of what a forced model writes."""
    if use.name:
        return _text(next(_parameters(tool) for tool in tools if tool.name == use.name))
    calls: list[dict[str, Any]] = []
    shared: dict[str, dict[str, Any]] = {}
    for tool in tools:
        parameters = _parameters(tool)
        for key in ("$defs", "definitions"):  # references to them start at the document's root
            for name, meaning in parameters.pop(key, {}).items():
                if shared.setdefault(key, {}).setdefault(name, meaning) != meaning:
                    text = f"Two tools define {name!r} differently; accepted is one meaning for all of them."
                    raise Refused(text, field="tools")
        properties = {"name": {"const": tool.name}, "arguments": parameters}
        calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"],
                      "additionalProperties": False})  # fmt: skip
    return _text({"anyOf": calls, **shared})


def _parameters(tool: FunctionTool) -> dict[str, Any]:
    return {"type": "object", **(tool.parameters or NO_PARAMETERS)}


def _text(schema: dict[str, Any]) -> str:
    return msgspec.json.encode(schema).decode()


class ForcedReader:
    """Of an answer that is one call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = ""

    def push(self, text: str) -> str:
        self._text += text
        return ""

    def finish(self) -> tuple[str, list[ToolCall]]:
        if self._name:  # cut off, the arguments are what there is of them
            return "", [_call(self._name, self._text)]
        found = _calls_in(self._text, None)
        return ("", found) if found else (self._text, [])


class CallReader:
    """Of an answer that may hold calls of the tools ``offered``: gives out text, and holds back what may be a call."""

    def __init__(self, offered: frozenset[str], parallel: bool = True) -> None:
        self._offered = offered
        self._parallel = parallel
        self._held = ""
        self._begun = not offered  # whether the answer began with text, and is no call as a whole
        self._after_call = False  # whether nothing but space came since
        self._calls: list[ToolCall] = []

    def push(self, text: str) -> str:
        """The text that became certain to be text."""
        if not self._offered:
            return text
        self._held += text
        if not self._begun and _may_be_call(self._held):
            return ""
        self._begun = True
        return self._release()

    def finish(self) -> tuple[str, list[ToolCall]]:
        """What is left of the text, and all calls."""
        if not self._begun:
            self._calls = _calls_in(self._held, self._offered)
            self._held = "" if self._calls else self._held
        text = self._release() + self._given(self._held)
        return ("" if self._calls and not text.strip() else text), self._calls if self._parallel else self._calls[:1]

    def _release(self) -> str:
        """Take calls in tags out of what is held, with the space around them, and text that cannot belong to one."""
        text = ""
        while (start := self._held.find(_OPEN)) >= 0 and (end := self._held.find(_CLOSE, start)) >= 0:
            calls = _calls_in(self._held[start + len(_OPEN) : end], self._offered)
            stop = end + len(_CLOSE)
            text += self._given(self._held[:start].rstrip() if calls else self._held[:stop])
            self._after_call = self._after_call or bool(calls)
            self._held = self._held[stop:]
            self._calls += calls
        uncertain = len(self._held) - start if start >= 0 else _beginning_of(_OPEN, self._held)
        certain = self._held[: len(self._held) - uncertain].rstrip()
        self._held = self._held[len(certain) :]
        return text + self._given(certain)

    def _given(self, text: str) -> str:
        text = text.lstrip() if self._after_call else text
        self._after_call = self._after_call and not text
        return text


def _may_be_call(text: str) -> bool:
    """Whether an answer that begins like this may be a call as a whole."""
    text = text.lstrip()
    return not text or text[0] in "{[" or any(text.startswith(m) or m.startswith(text) for m in _MARKERS)


def _beginning_of(word: str, text: str) -> int:
    """How many letters at the end of ``text`` may be the beginning of ``word``."""
    return next((n for n in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:n])), 0)


def _calls_in(text: str, offered: frozenset[str] | None) -> list[ToolCall]:
    """The calls that a text consists of; none if it is anything else. ``offered`` None is any tool."""
    text = text.strip()
    for marker in _MARKERS:
        text = text.removeprefix(marker).lstrip()
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return []
    calls = []
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, dict):
            return []
        name, arguments = one.get("name"), one.get("arguments", one.get("parameters"))
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return []
        if offered is not None and name not in offered:
            return []
        calls.append(_call(name, msgspec.json.encode(arguments).decode()))
    return calls


def _call(name: str, arguments: str) -> ToolCall:
    return ToolCall(f"call_{uuid.uuid4().hex[:24]}", FunctionCall(name, arguments))
