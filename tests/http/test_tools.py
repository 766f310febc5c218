"""Calls found in what models write, however it comes in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedeck.ipc.http.schema import FunctionTool
from pagedeck.ipc.http.tools import CallReader, ForcedReader, ToolUse, forced_schema
from pagedeck.ipc.vocabulary import Refused

OFFERED = frozenset({"light", "radio"})
LIGHT = '{"name": "light", "arguments": {"on": true}}'

#: What a model wrote, the text of it that is none of a call, and the names of the tools called.
WRITTEN: list[tuple[str, str, list[str]]] = [
    ("Just text.", "Just text.", []),
    ("", "", []),
    (f"<tool_call>\n{LIGHT}\n</tool_call>", "", ["light"]),
    (f"Let me see.\n<tool_call>{LIGHT}</tool_call>\n<tool_call>{LIGHT}</tool_call>", "Let me see.", ["light", "light"]),
    (f"<tool_call>{LIGHT}</tool_call> Done.", "Done.", ["light"]),
    ("<tool_call>nothing</tool_call> then", "<tool_call>nothing</tool_call> then", []),
    ('<tool_call>{"name": "oven", "arguments": {}}</tool_call>', "", []),
    ('<tool_call>{"name": "light", "argum', '<tool_call>{"name": "light", "argum', []),
    ("a < b <tool", "a < b <tool", []),
    ('{"name": "radio", "parameters": {"on": false}}', "", ["radio"]),
    ('<|python_tag|>{"name": "radio", "parameters": {}}', "", ["radio"]),
    (f"[TOOL_CALLS] [{LIGHT}, {LIGHT}]", "", ["light", "light"]),
    (f"[{LIGHT}]", "", ["light"]),
    ('{"name": "oven", "parameters": {}}', '{"name": "oven", "parameters": {}}', []),
    ('{"name": "light", "parameters": 3}', '{"name": "light", "parameters": 3}', []),
    ("[1, 2] are numbers", "[1, 2] are numbers", []),
    ("{" * 3000, "{" * 3000, []),
    ("  {", "  {", []),
]  # fmt: skip


def read(reader: Any, pieces: list[str]) -> tuple[str, list[str], str]:
    """The text given out, the names of the calls, and the text that came before the end."""
    early = "".join(reader.push(piece) for piece in pieces)
    late, calls = reader.finish()
    for call in calls:
        assert isinstance(json.loads(call.function.arguments), dict) and call.id.startswith("call_")
    return early + late, [call.function.name for call in calls], early


@pytest.mark.parametrize(("written", "text", "names"), WRITTEN, ids=range(len(WRITTEN)))
def test_calls_are_told_from_text(written: str, text: str, names: list[str]) -> None:
    whole = read(CallReader(OFFERED), [written])
    assert whole[1] == names
    assert whole[0] == (text or written if not names else text)
    assert read(CallReader(OFFERED), list(written))[:2] == whole[:2], "letter by letter"


@given(written=st.sampled_from([w for w, _, _ in WRITTEN]) | st.text('<>tol_ca/{}[]" :n', max_size=40), data=st.data())
def test_pieces_make_no_difference(written: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=8)))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    whole, cut = read(CallReader(OFFERED), [written]), read(CallReader(OFFERED), pieces)
    assert whole[:2] == cut[:2]
    if not whole[1]:
        assert whole[0] == written, "nothing is lost that is no call"


def test_text_is_not_held_back_without_need() -> None:
    reader = CallReader(OFFERED)
    given = [reader.push(piece) for piece in ("The ", "light <", "b>", " is <to", "ol_c", "old")]
    assert given == ["The", " light", " <b>", " is", "", " <tool_cold"]
    reader = CallReader(frozenset())
    assert reader.push('{"name"') == '{"name"', "without tools there are no calls"


def test_one_call_at_a_time_where_that_is_asked_for() -> None:
    reader = CallReader(OFFERED, parallel=False)
    reader.push(f"[{LIGHT}, {LIGHT}]")
    assert len(reader.finish()[1]) == 1


def test_a_forced_call_that_was_cut_off_is_told_as_far_as_it_goes() -> None:
    reader = ForcedReader("light")
    assert reader.push('{"on": tr') == ""
    _, [call] = reader.finish()
    assert (call.function.name, call.function.arguments) == ("light", '{"on": tr')
    reader = ForcedReader("")
    reader.push('{"name": "li')
    assert reader.finish() == ('{"name": "li', [])


def test_definitions_of_tools_stay_where_references_find_them() -> None:
    def tool(name: str, color: str) -> FunctionTool:
        reference = {"$ref": "#/$defs/color"}
        return FunctionTool(name, parameters={"properties": {"c": reference}, "$defs": {"color": {"enum": [color]}}})

    def asked(*tools: FunctionTool) -> dict[str, Any]:
        names = frozenset(tool.name for tool in tools)
        return json.loads(forced_schema(ToolUse(names, True), list(tools)))

    schema = asked(tool("a", "red"), tool("b", "red"))
    assert schema["$defs"] == {"color": {"enum": ["red"]}}
    assert [call["properties"]["name"] for call in schema["anyOf"]] == [{"const": "a"}, {"const": "b"}]
    with pytest.raises(Refused, match="define 'color' differently"):
        asked(tool("a", "red"), tool("b", "blue"))
