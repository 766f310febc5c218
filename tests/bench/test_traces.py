from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from pagedeck.bench.traces import items, read_trace
from pagedeck.commands.trace import trace
from pagedeck.ipc.client import Client
from pagedeck.ipc.launch import Engine
from pagedeck.ipc.telemetry import Event
from pagedeck.ipc.trace import Line, line_of, write_line
from pagedeck.ipc.vocabulary import Refused


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    lines = [Line(0.0, 5, 7), Line(0.5, 40, 2, "interactive", (1, 2), 16), Line(2.25, 3, 1, "batch")]
    with (tmp_path / "t.jsonl").open("wb") as file:
        for line in reversed(lines):
            write_line(file, line)
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


def test_an_engine_s_requests_become_a_trace(
    tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAGEDECK_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("PAGEDECK_STATE", str(tmp_path / "state"))
    options = ["--model", str(tiny_model_folder), "--num-blocks", "64", "--threads", "1"]
    file = tmp_path / "asked.jsonl"
    engine = Engine("traced", options)
    with engine, Client(engine.wait_ready()) as client:
        writing = threading.Thread(target=lambda: trace("traced", str(file), minutes=None))
        writing.start()
        same = [300 + n % 20 for n in range(130)]
        lines: list[bytes] = []
        while len(lines) < 3:  # until it listens
            for number, prompt in enumerate((same, same[:70], [301] * 64)):
                client.submit(token_ids=prompt, max_tokens=2 + number, ignore_eos=True, priority="batch").token_ids()
            lines = file.read_bytes().splitlines() if file.exists() else []
        engine.stop()
        writing.join(60)
        assert not writing.is_alive()
    read = read_trace(file)
    by_length = {line.prompt_tokens: line for line in read}
    assert set(by_length) == {130, 70, 64} and {line.priority for line in read} == {"batch"}
    long, short, other = (by_length[length] for length in (130, 70, 64))
    assert [len(line.prefix) for line in (long, short, other)] == [2, 1, 1]
    assert long.prefix[:1] == short.prefix != other.prefix
    assert by_length[64].output_tokens == 4 and f"requests in {file}" in capsys.readouterr().out
    with pytest.raises(Refused, match="exists already"):
        trace("traced", str(file), minutes=1)
    assert line_of(Event("e", 0.0, "finished", "")) is None
