"""What a restart with other settings means: for which requests, said before; what became of it, told after."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from .. import quantities, theme, words
from ..i18n import Translated, fill_in
from ..link import EngineLink
from .restart import Affected, Outcome, Restart


class RestartBox(Translated, QWidget):
    """``asked`` tells whether the restart lets what has begun finish first."""

    asked = Signal(bool)

    def __init__(self, restart: Restart, link: EngineLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._restart, self._link = restart, link
        self._changes: dict[str, tuple[Any, Any]] = {}
        self._refused = False
        self._outcome: Outcome | None = None
        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.explanation, self.outcome = QLabel(wordWrap=True), QLabel(wordWrap=True)
        self.explanation.setProperty("role", "muted")
        self.patient_button, self.now_button, self.back_button = QPushButton(), QPushButton(), QPushButton()
        self.patient_button.setProperty("role", "primary")
        self.patient_button.clicked.connect(lambda: self.asked.emit(True))
        self.now_button.clicked.connect(lambda: self.asked.emit(False))
        self.back_button.clicked.connect(restart.go_back)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 3 * theme.GRID, 0, 0)
        layout.setSpacing(theme.GRID)
        for part in (
            self.title,
            self.explanation,
            self.patient_button,
            self.now_button,
            self.outcome,
            self.back_button,
        ):
            layout.addWidget(part)
        link.requestsChanged.connect(self._count)
        restart.changed.connect(self._show)
        restart.ended.connect(self._ended)
        self.retranslate()

    def show_changes(self, changes: dict[str, tuple[Any, Any]], *, refused: bool) -> None:
        """``changes`` (setting -> before, after) are staged, and some may be ``refused``."""
        self._changes, self._refused = changes, refused
        self._show()

    def _ended(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._show()

    def _count(self) -> None:
        """Whom it would affect, while that is asked: requests change with every delivery."""
        if self._changes or self._restart.under_way:
            self._show()

    def _show(self) -> None:
        staged, running = bool(self._changes), self._restart.under_way
        told = self._outcome is not None and not running
        self.setVisible(staged or running or told)
        affected = self._restart.affected()
        self.explanation.setText(self._sentences(affected))
        self.explanation.setVisible(staged or running)
        for button in (self.patient_button, self.now_button):
            button.setVisible(staged)
            button.setEnabled(not self._refused and self._restart.possible)
        self.now_button.setVisible(staged and affected.any)
        self.outcome.setVisible(told)
        self.outcome.setText(self.told(self._outcome) if self._outcome is not None else "")
        self.back_button.setVisible(self._restart.can_go_back)

    def _sentences(self, affected: Affected) -> str:
        if self._restart.under_way:
            return self.tr("Restarting: what has begun is finished first, then the engine starts anew.")
        if not self._changes:
            return ""
        infos = {info.name: info for info in self._link.view.settings}
        texts = [words.changes(self._changes, infos)]
        if not affected.any:
            return "\n".join([*texts, self.tr("No request runs or waits. The cache begins empty.")])
        if affected.begun:
            text = self.tr("%Ln request(s) have begun and finish first.", "", affected.begun)
            if affected.unrepeatable:
                lost = self.tr("Restarting now ends %Ln of them, drawn without a seed.", "", affected.unrepeatable)
                text = f"{text} {lost}"
            texts.append(text)
        if affected.own:
            texts.append(self.tr("%Ln of this window wait and are asked again of the new engine.", "", affected.own))
        if affected.others:
            text = self.tr("%Ln of other programs wait: they are told to ask the new engine.", "", affected.others)
            texts.append(text)
        return "\n".join([*texts, self.tr("The cache begins empty.")])

    def told(self, outcome: Outcome) -> str:
        """What became of a restart, in words."""
        if not outcome.ready:
            return self.tr("The engine did not start with these settings; above the pages stands why.")
        infos = {info.name: info for info in self._link.view.settings}
        text = fill_in(self.tr("Restarted in %1."), quantities.duration(outcome.seconds))
        changed = words.changes(outcome.changes, infos)
        carried = self.tr("%Ln request(s) of this window were asked again.", "", outcome.carried)
        return "\n".join(filter(None, [text, changed, carried if outcome.carried else ""]))

    def retranslate(self) -> None:
        self.title.setText(self.tr("Restart"))
        self.patient_button.setText(self.tr("Restart with these settings"))
        self.now_button.setText(self.tr("Restart now"))
        self.now_button.setToolTip(self.tr("Do not wait for what has begun; what can be repeated is asked again"))
        self.back_button.setText(self.tr("Back to the settings from before"))
        self._show()
