"""A recording as an :class:`EngineView` at any moment of it. No Qt.

Blocks and requests are found by going to the nearest keyframe and on from there. The past (steps, latency) is read
once, whole; a moment shows its beginning.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ipc.telemetry import TOPIC_BLOCKS, Event, Stats, StepRecord
from ...ipc.vocabulary import Refused
from ..link import PARTS, parts_changed
from ..state import EVENTS_KEPT, ConnectionState, EngineView, History, LatencyHistory, StepHistory
from .file import AnyRecord, ConnectionTold, Frame, Keyframe, Recording, Resynced, SettingsTold, StatusTold


class _Tape(History):
    """A history that keeps all its rows, of which the first ``total`` are seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[call-arg]  # the capacities of the two real ones have defaults
        self.known = 0
        self.capacity = self._data.shape[1]

    def append(self, row: dict[str, float]) -> None:
        if self._end == self.capacity:
            self._data = np.concatenate([self._data, np.zeros_like(self._data)], axis=1)
            self.capacity = self._data.shape[1]
        super().append(row)
        self.known = self.total

    def show(self, rows: int) -> None:
        self._end = self.total = rows

    def clear(self) -> None:
        self.show(0)


class StepTape(_Tape, StepHistory):
    def __init__(self) -> None:
        super().__init__()
        self._details = deque()  # as many as there are rows

    def add(self, record: StepRecord, class_of: dict[int, str]) -> None:
        if self.total < self.known:
            self.show(self.total + 1)
        else:
            super().add(record, class_of)


class LatencyTape(_Tape, LatencyHistory):
    def add(self, stats: Stats) -> None:
        if self.total < self.known:
            self.show(self.total + 1)
        else:
            super().add(stats)


@dataclass(frozen=True)
class _Mark:
    """What was known of the past when a section began."""

    steps: StepTape
    latency: LatencyTape
    step_rows: int
    latency_rows: int
    events: int


class Replay:
    """``view`` shows the recording at ``at`` milliseconds of ``end``. Read it (:meth:`read`) before anything else.

    All methods raise :class:`Refused`, ``OSError`` or ``ValueError`` for what cannot be read.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.view = EngineView()
        self.at = 0
        self.end = 0
        self._starts: list[int] = []  # of sections
        self._marks: list[_Mark] = []
        self._events: list[Event] = []
        self._section = 0
        self._records: list[AnyRecord] = []
        self._place = 0  # of the next record

    @property
    def now(self) -> float:
        """The time shown, in Unix seconds."""
        return self.recording.header.started + self.at / 1000

    def read(self) -> Iterator[float]:
        """Read the past, a section each time; yields the share that is read. Then the beginning is shown.

        Raises :class:`Refused` where nothing can be read.
        """
        self.view.events = deque()
        for section in range(len(self.recording)):
            records = self.recording.records(section)
            if not records:
                break
            self._read_past(records)
            yield (section + 1) / len(self.recording)
        if not self._starts:
            name = self.recording.path.name
            raise Refused(f"{name} ends before its beginning: there is nothing to replay.", field="recording")
        self._events = [*self.view.events]
        self.view.events = deque(maxlen=EVENTS_KEPT)
        self._enter(0)
        self._go_on(0)

    def seek(self, at: int) -> Set[str]:
        """Show another moment; returns the parts of the view that changed."""
        at = min(max(at, 0), self.end)
        section = max(bisect_right(self._starts, at) - 1, 0)
        changed: Set[str] = set()
        if at < self.at or section != self._section:
            changed = self._enter(section)
        return changed | self._go_on(at)

    def play(self, at: int) -> Set[str]:
        """Go on to a later moment, through all that happened until then."""
        return self._go_on(min(max(at, self.at), self.end))

    def _read_past(self, records: list[AnyRecord]) -> None:
        view = self.view
        first = records[0]
        if isinstance(first, Keyframe) and first.fresh:
            view.steps, view.latency = StepTape(), LatencyTape()
            _show_keyframe(view, first)
        steps, latency = view.steps, view.latency
        assert isinstance(steps, StepTape) and isinstance(latency, LatencyTape)
        self._starts.append(first.at)
        self._marks.append(_Mark(steps, latency, steps.total, latency.total, len(view.events)))
        for record in records[1:]:
            if not isinstance(record, Frame) or record.topic != TOPIC_BLOCKS:
                _apply(view, record)
        self.end = records[-1].at

    def _enter(self, section: int) -> Set[str]:
        """Show a section's beginning."""
        view, mark = self.view, self._marks[section]
        before = _slow_parts(view)
        self._section, self._records, self._place = section, self._read(section), 1
        view.steps, view.latency = mark.steps, mark.latency
        view.events.clear()
        view.events.extend(self._events[: mark.events])
        first = self._records[0]
        assert isinstance(first, Keyframe)
        _show_keyframe(view, first)
        mark.steps.show(mark.step_rows)
        mark.latency.show(mark.latency_rows)
        after = _slow_parts(view)
        return PARTS - {name for name in after if after[name] == before[name]}

    def _read(self, section: int) -> list[AnyRecord]:
        records = self.recording.records(section)
        if not records:  # it could be read before
            name = self.recording.path.name
            raise Refused(f"{name} was changed while it was shown; open it again.", field="recording")
        return records

    def _go_on(self, at: int) -> Set[str]:
        changed: set[str] = set()
        while True:
            while self._place < len(self._records) and self._records[self._place].at <= at:
                changed |= _apply(self.view, self._records[self._place])
                self._place += 1
            following = self._section + 1
            if following == len(self._starts) or self._starts[following] > at:
                break
            changed |= self._turn_over(following)
        self.at = at
        return changed

    def _turn_over(self, section: int) -> Set[str]:
        """Go on with the next section. What its keyframe says is known, unless a new life begins with it."""
        records = self._read(section)
        if isinstance(records[0], Keyframe) and records[0].fresh:
            return self._enter(section)
        self._section, self._records, self._place = section, records, 1
        return set()


def _slow_parts(view: EngineView) -> dict[str, Any]:
    """The parts that seldom change and take long to draw."""
    return {"connection": (view.connection, view.detail, view.progress, view.status), "settings": view.settings}


def _show_keyframe(view: EngineView, keyframe: Keyframe) -> None:
    group = view.group
    view.begin(keyframe.snapshot.epoch)
    view.status, view.stats, view.settings = keyframe.status, keyframe.stats, keyframe.settings
    view.set_connection(ConnectionState(keyframe.connection), keyframe.detail, keyframe.progress)
    view.apply_snapshot(keyframe.snapshot)
    view.show_group(group)


def _apply(view: EngineView, record: AnyRecord) -> Set[str]:
    """Let the view take in what it took in when it was recorded; returns the parts that changed."""
    match record:
        case Frame() as frame:
            message = frame.message()
            view.apply(frame.topic, frame.sequence, message)
            return parts_changed(message)
        case Resynced(snapshot=snapshot):
            view.apply_snapshot(snapshot)
            return {"blocks", "requests"}
        case StatusTold(status=status):
            view.status = status
            return {"connection"}
        case SettingsTold(settings=settings):
            view.settings = settings
            return {"settings"}
        case ConnectionTold(connection=connection, detail=detail, progress=progress):
            view.set_connection(ConnectionState(connection), detail, progress)
            return {"connection"}
    return set()
