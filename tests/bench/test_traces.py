from __future__ import annotations

import json
from pathlib import Path

import pytest
from pagedeck.bench.traces import Line, items, read_trace, write_trace
from pagedeck.ipc.vocabulary import Refused


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    lines = [Line(0.0, 5, 7), Line(0.5, 40, 2, "interactive", (1, 2), 16), Line(2.25, 3, 1, "batch")]
    write_trace(tmp_path / "t.jsonl", lines)
    assert read_trace(tmp_path / "t.jsonl") == lines


def test_public_formats(tmp_path: Path) -> None:
    mooncake = [
        {"timestamp": 5000, "input_length": 700, "output_length": 9, "hash_ids": [4, 5]},
        {"timestamp": 3000, "input_length": 600, "output_length": 8, "hash_ids": [4, 6]},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, mooncake)) + "\n")
    assert read_trace(tmp_path / "m.jsonl") == [
        Line(0.0, 600, 8, "normal", (4, 6), 512),
        Line(2.0, 700, 9, "normal", (4, 5), 512),
    ]
    rows = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
    )
    (tmp_path / "b.csv").write_text(rows + "45,ChatGPT,1087,0,1087,API log\n47.5,GPT-4,20,30,50,API log\n")
    assert read_trace(tmp_path / "b.csv") == [Line(0.0, 472, 18), Line(42.5, 20, 30)]


def test_prompts_share_what_the_trace_says_they_share() -> None:
    lines = [Line(0, 40, 5, prefix=(1, 2), piece=16), Line(1, 30, 5, prefix=(1, 3), piece=16), Line(2, 9, 5)]
    load = items(lines, seed=0, vocabulary=1000, context_length=64, speed=2.0)
    assert [len(item.prompt) for item in load] == [40, 30, 9] and [item.at for item in load] == [0, 0.5, 1.0]
    assert load[0].prompt[:16] == load[1].prompt[:16] and load[0].prompt[16:20] != load[1].prompt[16:20]
    short = items([Line(0, 100, 100)], seed=0, vocabulary=1000, context_length=64)[0]
    assert len(short.prompt) == 32 and short.output_tokens == 32


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.jsonl", "", "has no request"),
        ("t.jsonl", '{"at": 0, "prompt_tokens": 3, "output_tokens": 1}\n{"at": 1}', "Line 2 of the trace"),
        ("t.jsonl", "[1]", "Line 1 of the trace"),
        ("t.jsonl", '{"at": 0, "prompt_tokens": 0, "output_tokens": 1}', "out of range"),
        ("t.jsonl", '{"at": 0, "prompt_tokens": 1, "output_tokens": 1, "priority": "urgent"}', "priority 'urgent'"),
        ("t.csv", "Timestamp,Model\n3,x\n", "Line 2 of the trace is not BurstGPT's"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Refused, match=said):
        read_trace(tmp_path / name)
