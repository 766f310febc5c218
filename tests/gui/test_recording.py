"""Recordings: the file survives what files suffer, and replaying it shows what was seen."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pagedeck.bench.traces import read_trace
from pagedeck.gui.link import EngineLink
from pagedeck.gui.recording.export import write_trace
from pagedeck.gui.recording.file import MAGIC, Frame, Header, Recording, Writer
from pagedeck.gui.recording.recorder import Recorder, keyframe
from pagedeck.gui.recording.replay import Replay
from pagedeck.gui.state import LATENCY_COLUMNS, STEP_COLUMNS, EngineView, TierView
from pagedeck.ipc.endpoint import Connection
from pagedeck.ipc.protocol import DescribeRequest, Failed, Finished, Submit
from pagedeck.ipc.telemetry import Event, decode_frames, encode_frames
from pagedeck.ipc.vocabulary import Refused, SamplingParams
from pytestqt.qtbot import QtBot

from .feeder import FIELDS, Feeder
from .scripted_link import ScriptedLink

WAIT_MS = 30_000
PROMPT = "the quick brown fox jumps over the lazy dog and then sleeps in the sun"


def seen(view: EngineView, steps: int = 0, latency: int = 0, events: int = 0) -> dict[str, Any]:
    """Everything that a view shows, but for the first so many rows of its past; it stays as it is."""
    tiers = {
        f"{name}.{field}": getattr(view.tier(name), field).copy() for name in ("device", "host") for field in FIELDS
    }
    shapes = {name: _shape(view.tier(name)) for name in ("device", "host")}
    past = {f"steps.{c}": view.steps.column(c)[steps:].copy() for c in STEP_COLUMNS}
    past |= {f"latency.{c}": view.latency.column(c)[latency:].copy() for c in LATENCY_COLUMNS}
    records = [view.steps.record(index) for index in range(steps, len(view.steps))]
    known = {
        "requests": dict(view.requests),
        "stats": view.stats,
        "step": view.step,
        "connection": view.connection,
        "settings": list(view.settings),
        "model": view.status.model if view.status else "",
        "events": [*view.events][events:],
        "records": records,
    }
    return tiers | shapes | past | msgspec.to_builtins(known)


def _shape(tier: TierView) -> tuple[int, ...]:
    return (tier.num_blocks, tier.block_size, tier.block_bytes, tier.held, *tier.counts)


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, other[name], err_msg=name)
        else:
            assert value == other[name], name


def read(path: Path) -> Replay:
    replay = Replay(Recording(path))
    assert [*replay.read()][-1] == 1.0
    return replay


@pytest.fixture
def made(tmp_path: Path, qtbot: QtBot) -> Path:
    """A recording of a scripted engine, of three sections."""
    path = tmp_path / "made.pagedeck"
    write(path)
    return path


def write(path: Path, seen_at: Callable[[int, EngineView], None] = lambda at, view: None) -> None:
    """Sections of two seconds; a hundred milliseconds between two things. What happens is the same every time."""
    feeder = Feeder(400, 16, 100, seed=3)
    view = EngineView()
    view.begin(feeder.epoch)
    view.apply_snapshot(feeder.snapshot())
    writer = Writer(path, Header("scripted", 1_700_000_000.0))
    for tenth in range(60):
        at = 100 * tenth
        if tenth % 20 == 0:
            writer.add(keyframe(view, at, fresh=tenth == 0))
        for topic, sequence, message in feeder.advance(2, arrivals=0.4, stats=tenth % 10 == 9):
            frames = encode_frames(topic, sequence, message)
            view.apply(*decode_frames(frames))
            writer.add(Frame(at, topic, sequence, frames[2]))
        writer.flush()
        seen_at(at, view)
    writer.close()


def test_a_recording_is_a_load_that_can_be_repeated(made: Path, tmp_path: Path) -> None:
    recording = Recording(made)
    frames = [record for n in range(len(recording)) for record in recording.records(n) if isinstance(record, Frame)]
    events = [message for frame in frames if isinstance(message := frame.message(), Event)]
    ended = {event.row.number: event.row for event in events if event.kind == "finished" and event.row is not None}
    write_trace(recording, tmp_path / "trace.jsonl")
    lines = read_trace(tmp_path / "trace.jsonl")
    assert len(lines) == len(ended) > 3
    assert sorted(line.prompt_tokens for line in lines) == sorted(row.prompt_tokens for row in ended.values())


def test_every_moment_is_shown_as_it_was_forwards_and_backwards(tmp_path: Path, qtbot: QtBot) -> None:
    moments: dict[int, dict[str, Any]] = {}
    path = tmp_path / "made.pagedeck"
    write(path, lambda at, view: moments.__setitem__(at, seen(view)))
    replay = read(path)
    assert replay.end == 5900
    assert any(len(moment["requests"]) for moment in moments.values())
    straight = {}
    for at in moments:
        replay.play(at)
        straight[at] = seen(replay.view)
        assert_same(straight[at], moments[at])
    for at in random.Random(1).sample([*moments], len(moments)):
        replay.seek(at + 50)
        assert_same(seen(replay.view), moments[at])


def test_a_torn_file_is_read_up_to_the_tear(made: Path, tmp_path: Path) -> None:
    whole = made.read_bytes()
    ends = []
    for share in (0.3, 0.6, 0.9, 0.999):
        torn = tmp_path / f"torn{share}.pagedeck"
        torn.write_bytes(whole[: int(share * len(whole))])
        replay = read(torn)
        assert replay.recording.torn
        ends.append(replay.end)
        until = read(made)
        until.seek(replay.end)
        replay.seek(replay.end)
        assert_same(seen(replay.view), seen(until.view))
    assert ends == sorted(ends) and 0 < ends[0] < ends[-1] < 5900
    assert not read(made).recording.torn


def test_a_damaged_chunk_ends_the_file_there(made: Path) -> None:
    data = bytearray(made.read_bytes())
    data[int(0.7 * len(data))] ^= 0xFF
    made.write_bytes(data)
    replay = read(made)
    assert replay.recording.torn and 0 < replay.end < 5900


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "x.pagedeck is not a recording of Pagedeck."),
        (b"GIF89a" + bytes(100), "x.pagedeck is not a recording of Pagedeck."),
        (
            MAGIC + struct.pack("<H", 7) + bytes(100),
            "x.pagedeck is a recording of version 7; this Pagedeck reads version 1.",
        ),
        (MAGIC + struct.pack("<H", 1), "x.pagedeck ends before its beginning: there is nothing to replay."),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "x.pagedeck"
    path.write_bytes(content)
    with pytest.raises(Refused) as refusal:
        Recording(path)
    assert str(refusal.value) == sentence


# --- over a real engine -----------------------------------------------------------------------------------------------


def prompt(output: int, **options: Any) -> Submit:
    return Submit(prompt=PROMPT, sampling=SamplingParams(max_tokens=output, ignore_eos=True, **options))


def test_a_real_session_is_replayed_as_it_was_seen(qtbot: QtBot, tmp_path: Path, shared_engine: Any) -> None:
    """Requests run while it records; at moments in between everything that is seen is noted. Replayed, everything is
    the same at these moments, in whatever order they are visited."""
    link = EngineLink()
    link.attach(shared_engine.connection)
    qtbot.waitUntil(lambda: link.view.known and bool(link.view.settings), timeout=WAIT_MS)
    view = link.view
    before = len(view.steps), len(view.latency), len(view.events)
    recorder = Recorder(link)
    recorder.start("shared", tmp_path / "real.pagedeck")
    moments: dict[int, dict[str, Any]] = {}
    link.stepsChanged.connect(lambda: moments.__setitem__(recorder.elapsed_ms, seen(view, *before)))
    ended: list[Any] = []
    for output, options in ((60, {"n": 2}), (40, {}), (80, {"temperature": 0.9})):
        link.submit(prompt(output, **options), lambda m: ended.append(m) if isinstance(m, Finished | Failed) else None)
    qtbot.waitUntil(lambda: len(ended) == 3, timeout=WAIT_MS)
    assert all(isinstance(message, Finished) for message in ended)
    qtbot.waitUntil(lambda: not view.live(), timeout=WAIT_MS)
    recorder.stop()
    link.detach()
    replay = read(tmp_path / "real.pagedeck")
    assert len(moments) >= 2 and replay.view.status is not None
    assert any(row["state"] == "running" for moment in moments.values() for row in moment["requests"].values())
    for at in [*moments, *reversed(moments)]:
        replay.seek(at)
        assert_same(seen(replay.view), moments[at])


def test_no_prompt_and_no_path_of_the_machine_is_in_the_file(qtbot: QtBot, tmp_path: Path, shared_engine: Any) -> None:
    link = EngineLink()
    recorder = Recorder(link)
    recorder.start("shared", tmp_path / "real.pagedeck")
    link.attach(shared_engine.connection)
    qtbot.waitUntil(lambda: link.view.known and bool(link.view.settings), timeout=WAIT_MS)
    ended: list[Any] = []
    link.submit(prompt(10), lambda m: ended.append(m) if isinstance(m, Finished | Failed) else None)
    qtbot.waitUntil(lambda: bool(ended), timeout=WAIT_MS)
    number = max(link.view.requests)
    details: list[Any] = []
    link.request(DescribeRequest(request=link.view.requests[number].id), details.append)
    qtbot.waitUntil(lambda: bool(details), timeout=WAIT_MS)
    recorder.stop()
    log = link.view.status.log if link.view.status else ""
    link.detach()
    recording = Recording(tmp_path / "real.pagedeck")
    content = b"".join(msgspec.msgpack.encode(r) for s in range(len(recording)) for r in recording.records(s))
    assert b"running" in content or b"finished" in content
    assert PROMPT.encode() not in content and b"quick brown" not in content
    assert log and log.encode() not in content


def test_an_engine_that_follows_another_is_replayed_too(tmp_path: Path, qtbot: QtBot) -> None:
    """Two lives in one recording: the past of the first is not that of the second."""
    link = ScriptedLink()
    path = tmp_path / "two.pagedeck"
    recorder = Recorder(link)
    states = []
    for seed in (1, 2):
        feeder = Feeder(200, 16, 0, seed=seed, epoch=f"life{seed}")
        link.view.begin(feeder.epoch)
        link.become_ready(feeder.status())
        link.view.apply_snapshot(feeder.snapshot())
        if not recorder.recording:
            recorder.start("two", path)
        else:
            link.told.emit(Connection("two", 1, feeder.epoch, 1, "ipc://none", "ipc://none"))
        for _ in range(5):
            link.tell([decode_frames(encode_frames(*m)) for m in feeder.advance(3, arrivals=0.5, stats=True)])
        states.append((recorder.elapsed_ms, seen(link.view)))
        until = recorder.elapsed_ms + 5
        qtbot.waitUntil(lambda until=until: recorder.elapsed_ms > until)
    recorder.stop()
    replay = read(path)
    for at, state in [*states, *reversed(states)]:
        replay.seek(at)
        shown = seen(replay.view)
        state["events"] = shown["events"] = []  # they go on through all lives
        assert_same(shown, state)
