"""A file of results, shown: where it was measured, figures with intervals, claims, trials, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from .. import engine_texts, theme, words
from ..i18n import Translated, fill_in
from ..scroll import Column
from . import wording as measure_words
from .pictures import Distribution, Pareto
from .table import Cell, Table

_DISTRIBUTIONS = ("ttft", "itl", "e2e")
_TRIAL_FIGURES = ("tokens_per_s", "ttft_p95", "e2e_p95", "goodput")


class ResultsView(Translated, Column):
    """What ``pagedeck bench summary`` tells of a file. ``previewed`` asks for the chosen settings to be staged."""

    previewed = Signal(object)  # settings -> values

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.summary: dict[str, Any] = {}
        self.title = QLabel()
        self.title.setProperty("role", "title")
        self.facts = Table(stretch=(0, 1), lined=False)
        self.chosen = ChosenSettings()
        self.chosen.preview_button.clicked.connect(lambda: self.previewed.emit(self.summary["chosen"]))
        self.claims = Table(stretch=(3, 2, 4, 0, 4))
        self.figures = Table()
        self.trials = Table(stretch=(0, 1))
        self.pareto = Pareto()
        self.distributions = [Distribution() for _ in _DISTRIBUTIONS]
        self._pictures = QWidget()
        beside = QHBoxLayout(self._pictures)
        beside.setContentsMargins(0, 0, 0, 0)
        beside.setSpacing(2 * theme.GRID)
        for picture in self.distributions:
            beside.addWidget(picture, 1)
        self._notes = QLabel(wordWrap=True)
        self._notes.setProperty("role", "muted")
        self._confidence = QLabel(wordWrap=True)
        self._confidence.setProperty("role", "muted")
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        column.setSpacing(2 * theme.GRID)
        above: tuple[QWidget, ...] = (self.title, self.facts, self.chosen, self.claims, self.pareto, self._confidence)
        for part in above:
            column.addWidget(part)
        column.addWidget(self.figures, 0, Qt.AlignmentFlag.AlignLeft)
        below: tuple[QWidget, ...] = (self._pictures, self.trials, self._notes)
        for part in below:
            column.addWidget(part)
        column.addStretch(1)
        theme.current().changed.connect(self.retranslate)
        self.retranslate()

    def show_summary(self, summary: dict[str, Any]) -> None:
        self.summary = summary
        self.retranslate()

    def retranslate(self) -> None:
        shown = self.summary
        self.setVisible(bool(shown))
        if not shown:
            return
        self.title.setText(measure_words.kind(shown["kind"]))
        facts = [[Cell(name, "muted"), Cell(text)] for name, text in measure_words.surroundings(shown)]
        self.facts.show_rows((), facts)
        self._show_claims(shown["claims"])
        self._show_figures(shown["systems"], shown["figures"])
        self._show_trials(shown)
        self._notes.setText("\n".join(_notes(shown)))
        self._notes.setVisible(bool(self._notes.text()))

    def _show_claims(self, claims: Sequence[dict[str, Any]]) -> None:
        roles = {True: "good", False: "error", None: ""}
        rows = [
            [
                Cell(engine_texts.say(claim["name"])),
                Cell(engine_texts.say(claim["claimed"])),
                Cell(_measured(claim)),
                Cell(measure_words.met(claim["met"]), roles[claim["met"]]),
                Cell(engine_texts.say(claim["how"]), "muted"),
            ]
            for claim in claims
        ]
        heads = (self.tr("Claim"), self.tr("Claimed"), self.tr("Measured"), "", self.tr("How"))
        self.claims.show_rows(heads, rows)
        self.claims.setVisible(bool(rows))

    def _show_figures(self, systems: Sequence[dict[str, Any]], figures: Mapping[str, Any]) -> None:
        """Systems beside one another, a figure a line."""
        names = [measure_words.system(system["role"] or system["name"]) for system in systems]
        rows = [
            [
                Cell(measure_words.figure(key)),
                *(Cell(measure_words.with_interval(key, system["figures"].get(key)), "", True) for system in systems),
            ]
            for key in figures
        ]
        rows.append([Cell(self.tr("Failed requests")), *(Cell(str(s["failed"]), "", True) for s in systems)])
        self.figures.show_rows(("", *names), rows)
        self._confidence.setText(self.tr("Below each figure: the interval that holds it with 95 % confidence."))
        for part in (self.figures, self._pictures, self._confidence):
            part.setVisible(bool(systems))
        for key, picture in zip(_DISTRIBUTIONS, self.distributions, strict=True):
            picture.show_curves(key, systems, names)

    def _show_trials(self, shown: dict[str, Any]) -> None:
        trials = shown["trials"]
        known = [key for key in _TRIAL_FIGURES if any(key in trial["figures"] for trial in trials)]
        varied = [
            name
            for name in (trials[0]["settings"] if trials else ())
            if len({str(trial["settings"][name]) for trial in trials}) > 1
        ]
        rows = [
            [
                Cell(measure_words.stage(trial["stage"]) + (f"\n{self.tr('chosen')}" if trial["chosen"] else "")),
                Cell(" · ".join(measure_words.settings({n: trial["settings"][n] for n in varied}).splitlines())),
                *(Cell(measure_words.with_interval(key, trial["figures"].get(key)), "", True) for key in known),
            ]
            for trial in trials
        ]
        heads = (self.tr("Stage"), self.tr("Settings"), *(measure_words.figure(key) for key in known))
        self.trials.show_rows(heads, rows)
        self.trials.setVisible(bool(trials))
        self.pareto.setVisible(bool(trials))
        if trials:
            self.pareto.show_trials(trials, shown["front"])
        self.chosen.show_choice(shown)


def _measured(claim: Mapping[str, Any]) -> str:
    spread = engine_texts.say(claim["spread"])
    lines = map(engine_texts.say, claim["measured"].splitlines())
    return "\n".join(lines) + (f"\n({spread})" if spread else "")


def _notes(shown: Mapping[str, Any]) -> list[str]:
    """What else is to be said; what changed is said beside the settings."""
    said = len(shown["changed"])
    return [engine_texts.say(note) for note in (shown["notes"][:-said] if said else shown["notes"])]


class ChosenSettings(Translated, QWidget):
    """What a search chose: each changed setting with its evidence, and the button that stages them."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: Mapping[str, Any] = {}
        self.verdict = QLabel(wordWrap=True)
        self.changes = Table(stretch=(0, 0, 1))
        self.preview_button = QPushButton()
        self.preview_button.setProperty("role", "primary")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GRID)
        column.addWidget(self.verdict)
        column.addWidget(self.changes)
        column.addWidget(self.preview_button, 0, Qt.AlignmentFlag.AlignLeft)
        self.retranslate()

    def show_choice(self, shown: Mapping[str, Any]) -> None:
        self._shown = shown
        self.setVisible(shown["kind"] == "tune")
        self.retranslate()

    def retranslate(self) -> None:
        self.preview_button.setText(self.tr("Preview these settings …"))
        self.preview_button.setToolTip(
            self.tr("See on the settings page what they would do to the engine; there they are applied and undone")
        )
        shown = self._shown
        if not shown:
            return
        self.verdict.setText(self._verdict(shown))
        self.changes.show_rows((), [self._row(change) for change in shown["changed"]])
        self.changes.setVisible(bool(shown["changed"]))
        self.preview_button.setVisible(bool(shown["changed"]))

    def _verdict(self, shown: Mapping[str, Any]) -> str:
        if not shown["chosen"]:
            text = self.tr("This search has not ended; %1 trials are kept, and the same search goes on from there.")
            return fill_in(text, str(shown["measured"]))
        if not shown["gain"]:
            return self.tr("Nothing that was tried is better than the settings as they are, beyond noise.")
        return fill_in(self.tr("%1 as good as before"), measure_words.ratio(shown["gain"]))

    def _row(self, change: Mapping[str, Any]) -> list[Cell]:
        evidence = self.tr("measured together with the others only")
        if change["gain"]:
            text = self.tr("alone %1 as good, %2")
            evidence = fill_in(text, measure_words.ratio(change["gain"]), measure_words.stage(change["stage"]))
        values = f"{words.value(change['before'])} → {words.value(change['after'])}"
        return [Cell(words.title(change["setting"])), Cell(values, "", True), Cell(evidence, "muted")]
