"""Restarting the engine, as it is or with other settings: what becomes of the requests is said before, and told
after."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from ..session import EngineSession
from ..state import ConnectionState


@dataclass(frozen=True, slots=True)
class Affected:
    """How many requests a restart meets: those that have begun, those of this window and of other programs that wait;
    and of those that have begun, this window's that cannot be repeated (drawn without a seed)."""

    begun: int
    own: int
    others: int
    unrepeatable: int

    @property
    def any(self) -> bool:
        return bool(self.begun or self.own or self.others)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``seconds`` until the engine was ready with ``changes`` (setting -> before, after), or did not start
    (``ready`` False); ``carried`` requests of this window were asked again."""

    ready: bool
    seconds: float
    changes: dict[str, tuple[Any, Any]]
    carried: int


class Restart(QObject):
    """``ended`` tells an :class:`Outcome`, ``changed`` that one began or ended."""

    ended = Signal(object)
    changed = Signal()

    def __init__(self, session: EngineSession, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self._began: float | None = None
        self._changes: dict[str, tuple[Any, Any]] = {}
        self._carried = 0
        self._left = False  # whether the old engine is gone
        self._before = ""  # its epoch
        self._which = ("", False)  # its name, and whether it is elsewhere
        self._good: list[str] | None = None  # the options of the last engine that got ready, while another is tried
        self._epoch = ""
        self._first: dict[str, Any] = {}  # the settings that this engine began with
        session.changed.connect(self._look)
        session.link.settingsChanged.connect(self._note_settings)
        session.link.carried.connect(self._note_carried)

    @property
    def under_way(self) -> bool:
        return self._began is not None

    @property
    def possible(self) -> bool:
        """Whether the engine can be started by this window at all."""
        return not self._session.elsewhere and not self.under_way and not self._session.link.replaying

    @property
    def can_go_back(self) -> bool:
        """Whether an engine did not start with other settings, and those from before are known."""
        return self._good is not None and not self.under_way and not self._session.alive

    def affected(self) -> Affected:
        link = self._session.link
        rows = link.live.live()
        waiting = [row for row in rows if row.state == "waiting"]
        begun = [row for row in rows if row.state != "waiting"]
        own = sum(row.id in link.asked for row in waiting)
        lost = sum(row.id in link.asked and not link.repeatable(row.id) for row in begun)
        return Affected(len(begun), own, len(waiting) - own, lost)

    def begin(self, changes: Mapping[str, Any], *, patient: bool) -> None:
        """Restart with ``changes``; what was changed while the engine ran stays changed."""
        known = {info.name: info.value for info in self._session.link.live.settings}
        self._changes = {name: (known.get(name), value) for name, value in changes.items()}
        here = self._session.knows(self._session.name)
        before = self._session.arguments if here else options(known)  # of one started elsewhere, what it tells itself
        if self._good is None:
            self._good = before
        self._start([*before, *options({**self._live_changes(), **changes})], patient=patient)

    def again(self) -> None:
        """Restart as it is. What has begun finishes first, unless this is asked once more meanwhile, or the engine does
        not answer; what has ended starts at once."""
        session = self._session
        if session.elsewhere or not session.alive:
            session.start()
        elif self.under_way:
            self._start(session.arguments, patient=False)
        else:
            self.begin({}, patient=session.state == ConnectionState.READY)

    def go_back(self) -> None:
        """Start with the settings with which it ran before."""
        if self._good is not None:
            self._changes = {}
            self._start(self._good, patient=False)

    # --- inner --------------------------------------------------------------------------------------------------

    def _start(self, arguments: list[str], *, patient: bool) -> None:
        self._began, self._carried = time.monotonic(), 0
        self._left, self._before = not self._session.alive, self._session.link.live.epoch
        self._which = self._shown
        self._session.restart_with(arguments, patient=patient)
        self.changed.emit()

    @property
    def _shown(self) -> tuple[str, bool]:
        return self._session.name, self._session.elsewhere

    def _live_changes(self) -> dict[str, Any]:
        return {
            info.name: info.value
            for info in self._session.link.live.settings
            if info.live and info.name in self._first and self._first[info.name] != info.value
        }

    def _note_settings(self) -> None:
        live = self._session.link.live
        if live.settings and live.epoch != self._epoch:
            self._epoch = live.epoch
            self._first = {info.name: info.value for info in live.settings}

    def _note_carried(self, amount: int) -> None:
        self._carried = amount

    def _look(self) -> None:
        """Follow the restart: the old engine ends, the new one gets ready or does not start."""
        state = self._session.state
        if not self.under_way:
            if state == ConnectionState.READY:
                self._good = None
            return
        if self._shown != self._which:  # the user turned to another engine
            self._began = self._good = None
            self.changed.emit()
            return
        self._left = self._left or self._session.starting or self._session.link.live.epoch != self._before
        if self._left and state == ConnectionState.READY:
            self._end(True)
        elif state in (ConnectionState.DIED, ConnectionState.STOPPED):
            QTimer.singleShot(0, self, self._give_up)  # unless the new one is about to be started

    def _give_up(self) -> None:
        if self.under_way and not self._session.alive and not self._session.followed:
            self._end(False)

    def _end(self, ready: bool) -> None:
        seconds = time.monotonic() - (self._began or 0.0)
        self._began = None
        if ready:
            self._good = None
        self.ended.emit(Outcome(ready, seconds, self._changes, self._carried))
        self.changed.emit()


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of ``pagedeck serve``."""
    return [f"--{name.replace('_', '-')}={'none' if value is None else value}" for name, value in settings.items()]
