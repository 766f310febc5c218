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
from pagedeck.gui.recorder import keyframe
from pagedeck.gui.recording import MAGIC, Frame, Header, Recording, Writer
from pagedeck.gui.replay import Replay
from pagedeck.gui.state import LATENCY_COLUMNS, STEP_COLUMNS, EngineView, TierView
from pagedeck.ipc.telemetry import decode_frames, encode_frames
from pagedeck.ipc.vocabulary import Refused
from pytestqt.qtbot import QtBot

from .feeder import FIELDS, Feeder

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
    for at in random.Random(1).sample([*moments] * 3, 3 * len(moments)):
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
