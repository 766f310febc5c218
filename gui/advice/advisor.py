"""The advisor: watches what the engine tells, says what could be set better, and measures whether it was."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, QSettings, Signal

from ...ipc.endpoint import Connection
from ...ipc.protocol import ReconfigureReport
from ...ipc.telemetry import Stats
from ..link import EngineLink
from .dismissals import Dismissals
from .evidence import Evidence, Window, window
from .rule import Finding, Rule
from .rules import RULES
from .trial import Stage, Trial, begin

LOOK_EVERY = 5  # seconds between two looks at the evidence
#: Advice that no longer holds stays for so many seconds: the reader may be about to follow it.
LINGER_S = 60.0
#: A change of settings makes what is measured in the first seconds after it a mixture.
SETTLE_S = 5.0


class Advisor(QObject):
    """Advice on the live engine, and trials of what was followed: of this session of the window. What was dismissed
    stays so in the next ones, too."""

    changed = Signal()
    previewRequested = Signal(object)  # settings -> values to try
    undoRequested = Signal(object)  # settings -> values from before

    def __init__(self, link: EngineLink, parent: QObject | None = None, settings: QSettings | None = None) -> None:
        """``settings`` keeps between starts what was dismissed."""
        super().__init__(parent)
        self._link = link
        self._dismissals = Dismissals(settings)
        self.evidence = Evidence()
        self.trials: list[Trial] = []
        self._found: dict[str, tuple[Finding, float]] = {}  # by rule, with when it last held
        self._since = 0.0  # when settings were last changed, in the engine's time
        self._settings: dict[str, Any] = {}
        link.told.connect(self._told)
        link.settingsChanged.connect(self._settings_changed)

    @property
    def advice(self) -> list[Finding]:
        """What could be tried now, in the order of the rules."""
        tried = {trial.rule.key for trial in self.trials}
        found = [self._found[rule.key][0] for rule in RULES if rule.key in self._found and rule.key not in tried]
        return [finding for finding in found if not self._dismissals.cover(self._engine, finding)]

    @property
    def dismissed(self) -> set[str]:
        """Keys of the rules whose advice on this engine was dismissed."""
        return self._dismissals.of(self._engine)

    @property
    def _engine(self) -> str:
        """The engine with its model: another one's dismissed advice is not this one's."""
        status = self._link.live.status
        return f"{status.name} · {status.model}" if status is not None else ""

    # --- what the reader does ---------------------------------------------------------------------------------------

    def try_out(self, finding: Finding) -> None:
        """Show what the change would do; applying it is the reader's."""
        self.previewRequested.emit(finding.changes)

    def dismiss(self, finding: Finding) -> None:
        """Say it no more, before it says something else."""
        self._dismissals.add(self._engine, finding)
        self.changed.emit()

    def restore(self) -> None:
        """Show again what was dismissed."""
        self._dismissals.clear(self._engine)
        self.changed.emit()

    def close(self, trial: Trial) -> None:
        """A trial was read. What did not help is not advised again."""
        self.trials.remove(trial)
        if trial.verdict != "better" or trial.stage is Stage.UNDONE:
            self._dismissals.add(self._engine, trial.finding)
        self.changed.emit()

    def undo(self, trial: Trial) -> None:
        self.undoRequested.emit(trial.undo)

    # --- what happens -----------------------------------------------------------------------------------------------

    def note(self, report: ReconfigureReport) -> None:
        """The window applied a change: a trial begins, or ends, if it is one that was advised."""
        now, after = self._now, {name: value for name, (_, value) in report.changes.items()}
        if not after:
            return
        undone = next((trial for trial in self.trials if trial.undo == after), None)
        if undone is not None:
            undone.stage = Stage.UNDONE
        self._disturb()
        followed = next((rule for rule in RULES if rule.key in self._found and self._follows(rule, after)), None)
        if followed is not None and undone is None:
            finding, _ = self._found[followed.key]
            before = {name: value for name, (value, _) in report.changes.items()}
            durations = self._link.live.durations
            self.trials.insert(0, begin(followed, finding, before, self.evidence, durations, self._since, now))
        self._settings |= after
        self._start_afresh(now)

    def _follows(self, rule: Rule, after: dict[str, Any]) -> bool:
        finding, _ = self._found[rule.key]
        return finding.changes == after and not self._dismissals.cover(self._engine, finding)

    def _told(self, told: object) -> None:
        if isinstance(told, Connection):
            self.evidence = Evidence()
            self._settings = {}
            self._disturb()
            self._start_afresh(0.0)
        elif isinstance(told, tuple) and isinstance(told[2], Stats) and told[2].epoch == self._link.live.epoch:
            self._take(told[2])

    def _take(self, stats: Stats) -> None:
        view = self._link.live
        self.evidence.take(view, stats)
        measuring = [trial for trial in self.trials if trial.stage is Stage.MEASURING]
        for trial in measuring:
            trial.go_on(self.evidence, view.durations)
        looked = self.evidence.total % LOOK_EVERY == 0
        if looked:
            self._look()
        if looked or measuring:
            self.changed.emit()

    def _look(self) -> None:
        """Ask the rules; what no longer holds is forgotten after a while."""
        now, seen = self._now, dict[int, Window]()
        for rule in RULES:
            if rule.seconds not in seen:
                seen[rule.seconds] = window(
                    self.evidence, self._link.live.durations, rule.seconds, self._since + SETTLE_S
                )
            evidence = seen[rule.seconds]
            finding = rule.look(evidence, self._settings) if evidence.seconds >= rule.seconds else None
            if finding is not None:
                self._found[rule.key] = finding, now
            elif rule.key in self._found and now - self._found[rule.key][1] > LINGER_S:
                del self._found[rule.key]

    def _settings_changed(self) -> None:
        """Settings that somebody else changed make what was measured before another matter."""
        if self._link.replaying:
            return
        now = {info.name: info.value for info in self._link.live.settings if info.live}
        if now and now != self._settings:
            if self._settings:
                self._disturb()
                self._start_afresh(self._now)
            self._settings = now
            self.changed.emit()

    def _disturb(self) -> None:
        for trial in self.trials:
            if trial.stage is Stage.MEASURING:
                trial.stage = Stage.DISTURBED

    def _start_afresh(self, now: float) -> None:
        self._since = now
        self._found.clear()
        self.changed.emit()

    @property
    def _now(self) -> float:
        """The engine's time, as far as it was told."""
        return float(self.evidence.column("time")[-1]) if len(self.evidence) else 0.0
