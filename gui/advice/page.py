"""The advisor's page: what could be set better and why, and how changes that were followed went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from .. import theme, words
from ..card import paint_raised
from ..i18n import Translated
from ..link import EngineLink
from ..scroll import Column, plain_scroll
from . import wording as advice_words
from .advisor import Advisor
from .rule import Finding, Measurement, Quantity, Verdict
from .trial import Stage, Trial

WIDTH = 80 * theme.GRID  # longer lines are hard to read
_ROLES = {Verdict.BETTER: "good", Verdict.WORSE: "error"}


class AdvicePage(Translated, QWidget):
    """Cards, one under the other: trials first, then advice."""

    def __init__(self, advisor: Advisor, link: EngineLink, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._advisor, self._link = advisor, link
        self.cards: list[FindingCard] = []
        self.trials: list[TrialCard] = []
        self._title = QLabel()
        self._title.setProperty("role", "title")
        self._about = QLabel(wordWrap=True)
        self._about.setProperty("role", "muted")
        self.empty = QLabel(wordWrap=True)
        self.empty.setProperty("role", "muted")
        self.restore_button = QPushButton()
        self.restore_button.setProperty("role", "flat")
        self.restore_button.clicked.connect(advisor.restore)
        inner = Column()
        inner.setMaximumWidth(WIDTH)
        self._column = QVBoxLayout(inner)
        self._column.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        self._column.setSpacing(2 * theme.GRID)
        head = QVBoxLayout()
        head.setSpacing(theme.GRID // 2)
        head.addWidget(self._title)
        head.addWidget(self._about)
        self._column.addLayout(head)
        self._column.addWidget(self.empty)
        self._column.addWidget(self.restore_button, 0, Qt.AlignmentFlag.AlignLeft)
        self._column.addStretch(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(plain_scroll(inner))
        advisor.changed.connect(self.refresh)
        self.retranslate()

    def refresh(self) -> None:
        """Show what the advisor says now; cards that stay keep their place and the keyboard's focus."""
        advice, trials = self._advisor.advice, self._advisor.trials
        if [card.finding.rule for card in self.cards] != [finding.rule for finding in advice]:
            self._renew(self.cards, [FindingCard(self._advisor, finding) for finding in advice])
        if [card.trial for card in self.trials] != trials:
            self._renew(self.trials, [TrialCard(self._advisor, trial) for trial in trials])
        settings = {info.name: info for info in self._link.live.settings}
        for card, finding in zip(self.cards, advice, strict=True):
            card.show_finding(finding, settings)
        for shown in self.trials:
            shown.show_trial(settings)
        self.empty.setVisible(not advice and not trials)
        self.restore_button.setVisible(bool(self._advisor.dismissed))
        self.restore_button.setText(self.tr("Show %Ln dismissed", "", len(self._advisor.dismissed)))

    def _renew(self, old: list[Any], new: Sequence[QWidget]) -> None:
        """Other cards in the place of ``old``: trials stand before advice."""
        for card in old:
            self._column.removeWidget(card)
            card.hide()
            card.deleteLater()
        old[:] = new
        first = 1 if old is self.trials else 1 + len(self.trials)
        for place, card in enumerate(new):
            self._column.insertWidget(first + place, card)

    def retranslate(self) -> None:
        self._title.setText(self.tr("Advice"))
        self._about.setText(
            self.tr(
                "What this session's figures say about the settings. Nothing changes before you apply it, and "
                "afterwards the same figure is measured again."
            )
        )
        self.empty.setText(
            self.tr("Nothing to improve so far. It takes about a minute of work under the same settings to say more.")
        )
        self.refresh()


class _Card(Translated, QFrame):
    """A raised surface with a title, a text, and verbs at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.title, self.text = QLabel(), QLabel(wordWrap=True)
        self.title.setProperty("role", "title")
        self.verbs = QHBoxLayout()
        self.verbs.setSpacing(theme.GRID)
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(*4 * [2 * theme.GRID])
        self.column.setSpacing(theme.GRID)
        self.column.addWidget(self.title)
        self.column.addWidget(self.text)

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_raised(self)


class FindingCard(_Card):
    """A piece of advice: why, what it would try, and the button that previews it."""

    def __init__(self, advisor: Advisor, finding: Finding) -> None:
        super().__init__()
        self.finding = finding
        self._change = QLabel(wordWrap=True)
        self.preview_button, self.dismiss_button = QPushButton(), QPushButton()
        self.preview_button.setProperty("role", "primary")
        self.preview_button.clicked.connect(lambda: advisor.try_out(self.finding))
        self.dismiss_button.clicked.connect(lambda: advisor.dismiss(self.finding))
        self.verbs.addWidget(self.preview_button)
        self.verbs.addWidget(self.dismiss_button)
        self.verbs.addStretch(1)
        self.column.addWidget(self._change)
        self.column.addLayout(self.verbs)
        self.retranslate()

    def show_finding(self, finding: Finding, settings: dict[str, Any]) -> None:
        self.finding = finding
        self.title.setText(advice_words.title(finding.rule))
        self.text.setText(advice_words.why(finding))
        now = {name: settings[name].value if name in settings else None for name in finding.changes}
        changes = {name: (now[name], value) for name, value in finding.changes.items()}
        self._change.setText(f"<b>{words.changes(changes, settings)}</b>")
        self.setAccessibleName(self.title.text())

    def retranslate(self) -> None:
        self.preview_button.setText(self.tr("Preview the change …"))
        self.preview_button.setToolTip(self.tr("See on the settings page what it would do; nothing is applied yet"))
        self.dismiss_button.setText(self.tr("Dismiss"))
        self.dismiss_button.setToolTip(self.tr("Do not say this again of this engine and its model"))


class TrialCard(_Card):
    """A change that was followed: the same figures before and after, and a way back."""

    def __init__(self, advisor: Advisor, trial: Trial) -> None:
        super().__init__()
        self.trial = trial
        self.progress = QProgressBar(maximum=1000, textVisible=False)
        self.rows = [(QLabel(), QLabel(), QLabel()) for _ in range(2)]
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * theme.GRID)
        grid.setVerticalSpacing(theme.GRID // 2)
        grid.setColumnStretch(2, 1)
        for line, labels in enumerate(self.rows):
            for column, label in enumerate(labels):
                label.setFont(theme.number_font(label.font()))
                grid.addWidget(label, line, column)
            labels[0].setProperty("role", "muted")
        self.undo_button, self.close_button = QPushButton(), QPushButton()
        self.undo_button.clicked.connect(lambda: advisor.undo(self.trial))
        self.close_button.clicked.connect(lambda: advisor.close(self.trial))
        self.verbs.addWidget(self.undo_button)
        self.verbs.addWidget(self.close_button)
        self.verbs.addStretch(1)
        self._stage = QLabel(wordWrap=True)
        self._stage.setProperty("role", "muted")
        self.column.addLayout(grid)
        self.column.addWidget(self._stage)
        self.column.addWidget(self.progress)
        self.column.addLayout(self.verbs)
        self.retranslate()

    def show_trial(self, settings: dict[str, Any]) -> None:
        trial = self.trial
        changes = {name: (trial.undo[name], value) for name, value in trial.finding.changes.items()}
        self.title.setText(words.changes(changes, settings))
        self.text.setText(advice_words.title(trial.rule.key))
        self._stage.setText(advice_words.stage(trial))
        self.progress.setVisible(trial.stage is Stage.MEASURING)
        self.progress.setValue(round(1000 * trial.progress))
        self.undo_button.setVisible(trial.stage is not Stage.UNDONE)
        self._show_row(0, trial.rule.quantity, trial.before, trial.after, trial.verdict)
        self._show_row(1, trial.rule.price, trial.price_before, trial.price_after, trial.price_verdict)
        self.setAccessibleName(self.title.text())

    def _show_row(
        self,
        line: int,
        quantity: Quantity | None,
        before: Measurement | None,
        after: Measurement | None,
        verdict: Verdict,
    ) -> None:
        name, values, said = self.rows[line]
        known = quantity is not None and before is not None
        for label in (name, values, said):
            label.setVisible(known)
        if quantity is None or before is None:
            return
        name.setText(advice_words.quantity(quantity))
        values.setText(advice_words.before_after(quantity, before, after))
        final = self.trial.stage is not Stage.MEASURING and after is not None
        said.setText(advice_words.verdict(verdict, before, after) if final else "")
        role = _ROLES.get(verdict, "muted") if final else "muted"
        if said.property("role") != role:
            said.setProperty("role", role)
            said.style().unpolish(said)
            said.style().polish(said)

    def retranslate(self) -> None:
        self.undo_button.setText(self.tr("Undo"))
        self.undo_button.setToolTip(self.tr("Give the changed settings their values from before"))
        self.close_button.setText(self.tr("Close"))
        self.close_button.setToolTip(self.tr("Strike this trial off the page"))
        self.progress.setAccessibleName(self.tr("How much was measured"))
