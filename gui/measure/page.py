"""Measuring: start it, watch it, read what came of it, and take what was found over to the settings."""

from __future__ import annotations

import contextlib
import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from ...ipc.folders import state_folder
from ...ipc.vocabulary import Refused
from .. import engine_texts, theme
from ..i18n import Translated, fill_in
from ..scroll import plain_scroll
from ..session import EngineSession
from .claims import ClaimsForm
from .command import MeasureCommand, ask
from .compare import CompareForm
from .load import LoadForm
from .results import ResultsView
from .run import MeasureRun
from .tune import TuneForm

SUFFIX = ".json"
_UNFINISHED = "unfinished"


def results_folder() -> Path:
    """Where the window keeps what it measured, made when missing."""
    folder = state_folder() / "measured"
    folder.mkdir(exist_ok=True)
    return folder


class MeasurePage(Translated, QWidget):
    """``previewed`` asks for settings to be staged; ``said`` carries a sentence for the status bar and its level."""

    previewed = Signal(object)
    said = Signal(object, str)  # Said

    def __init__(self, session: EngineSession, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.claims, self.load, self.tune = ClaimsForm(), LoadForm(), TuneForm()
        self.compare, self.results = CompareForm(), ResultsView()
        self.run = MeasureRun()
        self.model = QLineEdit(clearButtonEnabled=True)
        self.files = QComboBox()
        self.open_button = QPushButton()
        self.problem = QLabel(wordWrap=True)
        self.disturbance = QLabel(wordWrap=True)
        self.stop_button = QPushButton()
        self._output: Path | None = None  # of the run
        self._reading: MeasureCommand | None = None
        self._lay_out()
        for form in (self.claims, self.load, self.tune):
            form.started.connect(lambda form=form: self.start(form))
        self.run.ended.connect(self._ended)
        self.results.previewed.connect(self.previewed)
        self.files.activated.connect(lambda place: self.open(Path(self.files.itemData(place))))
        self.open_button.clicked.connect(self.choose)
        self.stop_button.clicked.connect(session.stop)
        session.changed.connect(self._show_state)
        session.link.statsChanged.connect(self._show_state)
        self.retranslate()

    def _lay_out(self) -> None:
        tabs = QHBoxLayout()
        tabs.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, 0)
        self._group = QButtonGroup(self)
        self.tabs = {name: QPushButton() for name in ("claims", "load", "tune", "results", "compare")}
        self.stack = QStackedWidget()
        self._views: dict[str, QWidget] = {
            "claims": plain_scroll(self.claims),
            "load": plain_scroll(self.load),
            "tune": plain_scroll(self.tune),
            "results": self._results_view(),
            "compare": plain_scroll(self.compare),
        }
        for name, button in self.tabs.items():
            button.setCheckable(True)
            button.setProperty("role", "chip")
            button.clicked.connect(lambda _=False, name=name: self.turn_to(name))
            self._group.addButton(button)
            self.stack.addWidget(self._views[name])
            tabs.addWidget(button)
        tabs.addStretch(1)
        self._model_label = QLabel()
        self._model_label.setBuddy(self.model)
        self.model.setFixedWidth(36 * theme.GRID)
        tabs.addWidget(self._model_label)
        tabs.addWidget(self.model)
        self._warning = QWidget()
        warning = QHBoxLayout(self._warning)
        warning.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, 0)
        warning.addWidget(self.disturbance, 1)
        warning.addWidget(self.stop_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GRID)
        column.addLayout(tabs)
        column.addWidget(self.run)
        column.addWidget(self._warning)
        column.addWidget(self.stack, 1)
        self.turn_to("claims")

    def _results_view(self) -> QWidget:
        self._files_label = QLabel()
        self._files_label.setBuddy(self.files)
        self.files.setMinimumWidth(40 * theme.GRID)
        row = QHBoxLayout()
        row.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, 0)
        row.addWidget(self._files_label)
        row.addWidget(self.files)
        row.addWidget(self.open_button)
        row.addWidget(self.problem, 1)
        view = QWidget()
        column = QVBoxLayout(view)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(row)
        column.addWidget(plain_scroll(self.results), 1)
        return view

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.claims.look()
        self.list_files()

    # --- what can be done ---------------------------------------------------------------------------------------

    def turn_to(self, name: str) -> None:
        self.tabs[name].setChecked(True)
        for button in self.tabs.values():  # Tab goes to the pressed one; Qt sees to it where it was clicked
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus if button.isChecked() else Qt.FocusPolicy.ClickFocus)
        self.stack.setCurrentWidget(self._views[name])
        self._show_state()

    def start(self, form: ClaimsForm | LoadForm | TuneForm) -> None:
        """Begin what a form says, in a process of its own."""
        if self.run.running:
            return
        model = self.model.text().strip() or self._engines_model()
        named = ["--model", model] if model else []
        try:
            self._output = self._file_for(form, named)
        except (OSError, Refused) as error:
            self.said.emit(partial(self._no_place, str(error)), "error")
            return
        self.run.begin([*form.arguments(), *named, "--output", str(self._output)])
        self._show_state()

    def open(self, path: Path) -> None:
        """Show a file of results, as soon as it is read."""
        self.turn_to("results")
        if self._reading is not None:
            self._reading.stop()
        self._say_problem(fill_in(self.tr("Reading %1 …"), path.name), "muted")
        self._reading = ask(["bench", "summary", str(path)], self._read, self)
        self.list_files(path)

    def choose(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, self.tr("A file of results"), "", f"*{SUFFIX}")
        if name:
            self.open(Path(name))

    def list_files(self, shown: Path | None = None) -> None:
        """The files that were measured here, the newest first, and the one that is shown."""
        shown = shown or (Path(self.files.currentData()) if self.files.currentData() else None)
        found = _measured_here()
        self.files.clear()
        for path in dict.fromkeys([*([shown] if shown is not None else []), *found]):
            self.files.addItem(path.name, str(path))
        self.files.setEnabled(self.files.count() > 0)

    def close_run(self) -> None:
        """End what runs; what was measured is kept."""
        self.run.stop()

    # --- what happens -------------------------------------------------------------------------------------------

    def _file_for(self, form: ClaimsForm | LoadForm | TuneForm, named: list[str]) -> Path:
        """Where results go. A search has one place while it has not ended, so that it goes on from there."""
        if isinstance(form, TuneForm):
            same = hashlib.sha256("\n".join([*form.same_search(), *named]).encode()).hexdigest()[:8]
            return results_folder() / f"{form.key()}-{_UNFINISHED}-{same}{SUFFIX}"
        return results_folder() / f"{form.key()}-{time.strftime('%Y%m%d-%H%M%S')}{SUFFIX}"

    def _ended(self, whole: bool, problem: str) -> None:
        path, self._output = self._output, None
        assert path is not None
        if problem:
            self.said.emit(lambda: fill_in(self.tr("The measurement failed: %1"), engine_texts.say(problem)), "error")
        elif whole:
            path = measured = _finished(path)
            self.said.emit(lambda: fill_in(self.tr("Measured: %1"), str(measured)), "info")
        else:
            self.said.emit(lambda: self.tr("The measurement was interrupted; what was measured is kept"), "info")
        self._show_state()
        self.list_files()
        if path.exists():
            self.open(path)
        self._say_problem(engine_texts.say(problem), "error") if problem else None

    def _read(self, summary: Any, problem: str) -> None:
        self._reading = None
        self._say_problem(engine_texts.say(problem), "error")
        if summary is not None:
            self.results.show_summary(summary)

    def _engines_model(self) -> str:
        """The model of the engine that is shown; empty where that is not known."""
        known = {info.name: info.value for info in self._session.link.live.settings}
        return str(known.get("model") or "")

    def _show_state(self) -> None:
        stats = self._session.link.live.stats
        busy = self._session.alive and stats is not None and stats.running + stats.waiting > 0
        for form in (self.claims, self.load, self.tune):
            form.setEnabled(not self.run.running)
        starting = self.stack.currentWidget() not in (self._views["results"], self._views["compare"])
        self._warning.setVisible(self._session.alive and (starting or self.run.running))
        text = self.tr("The window's engine is answering requests now, which disturbs what is measured.")
        if not busy:
            text = self.tr("The window's engine runs on. While it answers requests it disturbs what is measured.")
        if self.disturbance.text() != text:
            self.disturbance.setText(text)
            _set_role(self.disturbance, "warning" if busy else "muted")
        self.stop_button.setVisible(self._session.alive)

    def _no_place(self, why: str) -> str:
        return fill_in(self.tr("There is no place for results: %1"), engine_texts.say(why))

    def _say_problem(self, text: str, role: str) -> None:
        self.problem.setText(text)
        _set_role(self.problem, role)

    def retranslate(self) -> None:
        titles = {
            "claims": self.tr("Claims"),
            "load": self.tr("A load"),
            "tune": self.tr("Tune"),
            "results": self.tr("Results"),
            "compare": self.tr("Compare"),
        }
        for name, button in self.tabs.items():
            button.setText(titles[name])
        self._model_label.setText(self.tr("Model"))
        self.model.setPlaceholderText(self.tr("that of the engine, else the default"))
        self._files_label.setText(self.tr("File"))
        self.open_button.setText(self.tr("Open …"))
        self.stop_button.setText(self.tr("Stop the engine"))
        self._show_state()


def _measured_here() -> list[Path]:
    """The newest first; none where there is no place for them, and without those that vanish meanwhile."""
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError, Refused):
        for path in results_folder().glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def _finished(path: Path) -> Path:
    """A search that has ended gives its place free for the next one."""
    if f"-{_UNFINISHED}-" not in path.name or not path.exists():
        return path
    new = path.with_name(f"tune-{time.strftime('%Y%m%d-%H%M%S')}{SUFFIX}")
    path.rename(new)
    page = path.with_suffix(".html")
    if page.exists():
        page.rename(new.with_suffix(".html"))
    return new


def _set_role(label: QWidget, role: str) -> None:
    if label.property("role") != role:
        label.setProperty("role", role)
        label.style().unpolish(label)
        label.style().polish(label)
