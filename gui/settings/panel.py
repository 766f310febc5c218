"""The engine's settings: stage edits, preview what they would do, apply, read what happened, undo."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from ...ipc.presets import Preset
from ...ipc.protocol import EngineMessage, Failed, Reconfigure, Reconfigured, ReconfigureReport, SettingInfo
from .. import engine_texts, quantities, theme, words
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..scroll import Column, plain_scroll
from . import file as settings_file
from .editor import SettingEditor
from .presets import PresetChooser, differing, matching, said
from .restart import Restart
from .restart_box import RestartBox

#: A preview is asked for when no edit came for so long.
PREVIEW_AFTER_MS = 300

#: Wider lines are hard to read; where two such columns have room, they stand side by side.
SECTION_WIDTH = 78 * theme.GRID
#: Of what stands beside them, a fifth of the page in between; in the smallest window no setting is cut for it.
SIDE_WIDTHS = 36 * theme.GRID, 52 * theme.GRID
NARROWEST_SIDE = 24 * theme.GRID


def _set_role(label: QWidget, role: str) -> None:
    label.setProperty("role", role)
    label.style().unpolish(label)
    label.style().polish(label)


class Effects(QWidget):
    """What a change would do or did, as figures: blocks moved, bytes, pause, preempted, cached blocks given up."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(2 * theme.GRID)
        self._grid.setVerticalSpacing(theme.GRID // 2)
        self._grid.setColumnStretch(1, 1)
        self._cells = [(QLabel(), QLabel()) for _ in range(5)]
        for row, (name, figure) in enumerate(self._cells):
            name.setProperty("role", "muted")
            figure.setFont(theme.number_font(figure.font()))
            self._grid.addWidget(name, row, 0)
            self._grid.addWidget(figure, row, 1)
        self._notes = QLabel(wordWrap=True)
        self._grid.addWidget(self._notes, len(self._cells), 0, 1, 2)

    def show_report(self, report: ReconfigureReport) -> None:
        pause = quantities.duration(report.pause_ms / 1000)
        figures = (
            (self.tr("Blocks moved"), quantities.count(report.blocks_moved)),
            (self.tr("Copied"), quantities.size(report.bytes_copied)),
            (self.tr("Pause, estimated"), fill_in(self.tr("about %1"), pause))
            if report.dry_run
            else (self.tr("Pause"), pause),
            (self.tr("Preempted"), words.counted.sequences(report.preempted)),
            (self.tr("Cached blocks given up"), quantities.count(report.cached_dropped)),
        )
        for (name, figure), (title, text) in zip(self._cells, figures, strict=True):
            name.setText(title)
            figure.setText(text)
        self._notes.setText("\n".join(engine_texts.say(note) for note in report.notes))
        self._notes.setVisible(bool(report.notes))


class SettingsPanel(Translated, QWidget):
    """All settings of the engine. ``said`` carries the sentence for the status bar."""

    said = Signal(object)  # Said
    applied = Signal(object)  # ReconfigureReport

    def __init__(self, link: EngineLink, restart: Restart, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self.restart_box = RestartBox(restart, link)
        self.editors: dict[str, SettingEditor] = {}  # of what changes live
        self.fixed_editors: dict[str, SettingEditor] = {}  # of what needs a restart
        self._done: list[dict[str, tuple[Any, Any]]] = []  # what was changed, the newest last: setting -> before, after
        self._undoing = False
        self._epoch = ""  # of the engine whose changes these are
        self._engine = ""  # the connection file of the engine whose settings these are
        self._left: dict[str, dict[str, Any]] = {}  # what is staged of engines that are not shown
        self._preview: ReconfigureReport | None = None
        self._report: ReconfigureReport | None = None
        self._applying = False
        self._problem = ""  # a refusal that belongs to no field
        self._asked = 0  # previews asked for; an answer to an older one is stale

        self._heading, self._fixed_heading = QLabel(), QLabel()
        for heading in (self._heading, self._fixed_heading):
            heading.setProperty("role", "title")
        self._fixed_hint = QLabel(wordWrap=True)
        self._fixed_hint.setProperty("role", "muted")
        self.empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self.empty.setProperty("role", "muted")
        self.preset = PresetChooser()
        self.preset.chosen.connect(self._choose)
        self.import_button, self.export_button = QPushButton(), QPushButton()
        self.import_button.clicked.connect(self.choose_import)
        self.export_button.clicked.connect(self.choose_export)
        self.problems = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.problems.setProperty("role", "error")
        self.problems.hide()
        self._live_box = QVBoxLayout()
        self._live_box.setSpacing(0)
        self._fixed_box = QVBoxLayout()
        self._fixed_box.setSpacing(0)

        self._scroll = self._make_list()
        self._side = self._make_side()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._scroll, 1)
        layout.addWidget(self.empty, 1)
        layout.addWidget(self._side)

        self._preview_timer = QTimer(self, interval=PREVIEW_AFTER_MS, singleShot=True)
        self._preview_timer.timeout.connect(self.preview)
        link.settingsChanged.connect(self.show_settings)
        link.connectionChanged.connect(self._show_buttons)
        self._restart_run = restart
        self.restart_box.asked.connect(self._restart)
        restart.changed.connect(self._show_buttons)
        self.retranslate()
        self.show_settings()

    def _make_list(self) -> QScrollArea:
        """What changes live, and below it, or beside it where there is room, what needs a restart."""
        inner = Column()
        self._sections = QBoxLayout(QBoxLayout.Direction.TopToBottom, inner)
        self._sections.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        self._sections.setSpacing(3 * theme.GRID)
        files = QHBoxLayout()
        files.addWidget(self.import_button)
        files.addWidget(self.export_button)
        files.addStretch(1)
        self._sections.addWidget(_section(self._heading, self.preset, files, self.problems, self._live_box))
        self._sections.addWidget(_section(self._fixed_heading, self._fixed_hint, self._fixed_box))
        self._sections.addStretch(1)
        return plain_scroll(inner)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share_width()
        beside = self._scroll.width() >= 2 * SECTION_WIDTH
        directions = QBoxLayout.Direction
        self._sections.setDirection(directions.LeftToRight if beside else directions.TopToBottom)
        for section in range(2):  # as wide as they may be
            self._sections.setStretch(section, 1000 if beside else 0)

    def _share_width(self) -> None:
        wanted = min(max(self.width() // 5, SIDE_WIDTHS[0]), SIDE_WIDTHS[1])
        needed = self._sections.totalMinimumSize().width() + self._scroll.verticalScrollBar().sizeHint().width()
        self._side.setFixedWidth(max(NARROWEST_SIDE, min(wanted, self.width() - needed)))

    def _make_side(self) -> QWidget:
        """Preview above, what happened below, and the one place to apply."""
        self._preview_title, self._report_title = QLabel(), QLabel()
        self._preview_text, self._report_text = QLabel(wordWrap=True), QLabel(wordWrap=True)
        self._undo_text = QLabel(wordWrap=True)
        self._undo_text.setProperty("role", "muted")
        self._preview_effects, self._report_effects = Effects(), Effects()
        self.apply_button, self.discard_button, self.undo_button = QPushButton(), QPushButton(), QPushButton()
        self.apply_button.setProperty("role", "primary")
        self.apply_button.clicked.connect(self.apply)
        self.discard_button.clicked.connect(self.discard)
        self.undo_button.clicked.connect(self.undo)
        for title in (self._preview_title, self._report_title):
            title.setProperty("role", "title")

        buttons = QHBoxLayout()
        buttons.addWidget(self.apply_button, 1)
        buttons.addWidget(self.discard_button)
        side = Column()
        column = QVBoxLayout(side)
        column.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        column.setSpacing(theme.GRID)
        column.addWidget(self._preview_title)
        column.addWidget(self._preview_text)
        column.addWidget(self._preview_effects)
        column.addLayout(buttons)
        column.addWidget(self.restart_box)
        column.addSpacing(3 * theme.GRID)
        column.addWidget(self._report_title)
        column.addWidget(self._report_text)
        column.addWidget(self._report_effects)
        column.addWidget(self._undo_text)
        column.addWidget(self.undo_button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        return plain_scroll(side)

    # --- settings -----------------------------------------------------------------------------------------------

    def show_settings(self) -> None:
        """Take the settings as the link knows them; staged edits stay, or come back with their engine."""
        settings = self._link.view.settings
        self._turn_to(self._shown, bool(settings))
        if self._link.live.epoch != self._epoch:
            self._epoch, self._done, self._report = self._link.live.epoch, [], None
            self._problem, self._preview = "", None
        self._take(self.editors, [info for info in settings if info.live], self._live_box)
        self._take(self.fixed_editors, [info for info in settings if not info.live], self._fixed_box)
        if settings:
            self._stage_again(self._left.pop(self._engine, {}))
        self._show_preset(self.preset.preset)
        self._scroll.setVisible(bool(settings))
        self.empty.setVisible(not settings)
        self._show_buttons()
        self._share_width()

    @property
    def _shown(self) -> str:
        """The connection file of the engine that is shown; of one that was let go, and of a recording, the last one."""
        known = self._link.connection if not self._link.replaying else None
        return known.path if known is not None else self._engine

    def _turn_to(self, engine: str, known: bool) -> None:
        """Keep what is staged when another engine's settings are to come, or this one's once more."""
        if engine == self._engine and known:
            return
        if staged := {**self.staged, **self.staged_for_restart}:
            self._left[self._engine] = staged
        for editors in (self.editors, self.fixed_editors):
            self._take(editors, [], self._live_box)
        self._engine = engine

    def _stage_again(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            editor = (self.editors | self.fixed_editors).get(name)
            if editor is not None and (editor.info.choices is None or value in editor.info.choices):
                editor.stage(value)

    def _take(self, editors: dict[str, SettingEditor], infos: list[SettingInfo], box: QVBoxLayout) -> None:
        if [info.name for info in infos] == [*editors]:
            for info in infos:
                editors[info.name].show_info(info)
            return
        for editor in editors.values():
            editor.setParent(None)
            editor.deleteLater()
        editors.clear()
        for info in infos:
            editor = editors[info.name] = SettingEditor(info)
            editor.edited.connect(self._edited if info.live else self._fixed_edited)
            box.addWidget(editor)

    # --- verbs --------------------------------------------------------------------------------------------------

    @property
    def staged(self) -> dict[str, Any]:
        """What is staged of the settings that change live."""
        return {name: editor.value for name, editor in self.editors.items() if editor.staged}

    @property
    def staged_for_restart(self) -> dict[str, Any]:
        """What is staged of the settings that need a restart."""
        return {name: editor.value for name, editor in self.fixed_editors.items() if editor.staged}

    def stage(self, changes: Mapping[str, Any]) -> None:
        """Put these values, and no others, into the fields, to be previewed."""
        self.discard()
        editors = self.editors | self.fixed_editors
        for name, value in changes.items():
            if name in editors:
                editors[name].stage(value)
                self._scroll.ensureWidgetVisible(editors[name])
        self.preview()

    def change(self, changes: Mapping[str, Any]) -> None:
        """Apply these values as they are."""
        if changes and not self._applying:
            self._send(dict(changes))

    def preview(self) -> None:
        """Ask the engine what the staged edits would do."""
        changes = self.staged
        if not changes:
            return
        self._asked += 1
        asked = self._asked
        self._link.request(Reconfigure(changes=changes, dry_run=True), lambda reply: self._previewed(asked, reply))

    def apply(self) -> None:
        changes = self.staged
        if changes and not self._applying:
            self._send(changes)

    def undo(self) -> None:
        """Give the settings of the last change their values from before it; once more, those of the one before."""
        if self._done and not self._applying:
            self._undoing = True
            self._send({name: before for name, (before, _) in self._done[-1].items()})

    def discard(self) -> None:
        """Forget the staged edits."""
        for editor in (*self.editors.values(), *self.fixed_editors.values()):
            editor.stage(editor.known)
            editor.refuse("")

    def _send(self, changes: dict[str, Any]) -> None:
        self._applying = True
        self._show_buttons()
        self._link.request(Reconfigure(changes=changes), self._applied)

    # --- files --------------------------------------------------------------------------------------------------

    def choose_import(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, self.tr("Settings"), "", f"*{settings_file.SUFFIX}")
        if name:
            self.import_file(Path(name))

    def choose_export(self) -> None:
        status = self._link.view.status
        proposed = f"{status.name if status is not None else 'pagedeck'}{settings_file.SUFFIX}"
        name, _ = QFileDialog.getSaveFileName(self, self.tr("Settings"), proposed, f"*{settings_file.SUFFIX}")
        if name:
            self.export_file(Path(name))

    def import_file(self, path: Path) -> None:
        """Stage what a file states, as if it were edited, and tell what is wrong in it, line by line."""
        try:
            values, problems = settings_file.read(path, self._link.view.settings)
        except OSError as error:
            values, problems = {}, [fill_in(self.tr("%1 was not read: %2"), str(path), error.strerror or str(error))]
        self.problems.setText("\n".join(problems))
        self.problems.setVisible(bool(problems))
        if values:
            self.stage(values)
            staged = len(self.staged) + len(self.staged_for_restart)
            self.said.emit(
                lambda: fill_in(self.tr("%1 differs in %2"), path.name, self.tr("%Ln setting(s)", "", staged))
            )

    def export_file(self, path: Path) -> None:
        """Write the engine's settings, as they are now, to a file."""
        status = self._link.view.status
        try:
            settings_file.write(path, self._link.view.settings, status.name if status is not None else "")
        except OSError as error:
            why = error.strerror or str(error)
            self.said.emit(lambda: fill_in(self.tr("%1 was not written: %2"), str(path), why))
        else:
            self.said.emit(lambda: fill_in(self.tr("Exported to %1"), str(path)))

    def _choose(self, preset: Preset | None) -> None:
        """Stage a preset's values, or with None what the engine has."""
        if preset is None:
            self.discard()
        else:
            for name, value in preset.values.items():
                if name in self.editors:
                    self.editors[name].stage(value)
        self._show_preset(preset)

    def _restart(self, patient: bool) -> None:
        """Restart with all that is staged, of both kinds."""
        self._restart_run.begin({**self.staged, **self.staged_for_restart}, patient=patient)
        self.discard()

    # --- answers ------------------------------------------------------------------------------------------------

    def _edited(self) -> None:
        self._preview = None
        self._problem = ""
        self._asked += 1
        self._show_preset(self.preset.preset)
        if self.staged:
            self._preview_timer.start()
        else:
            self._preview_timer.stop()
        self._show_buttons()

    def _fixed_edited(self) -> None:
        for editor in self.fixed_editors.values():
            if editor.staged and not editor.refusal:
                editor.refuse(words.out_of_range(editor.info, editor.value))
        self._show_buttons()

    def _previewed(self, asked: int, reply: EngineMessage) -> None:
        if asked != self._asked:
            return
        if isinstance(reply, Reconfigured):
            self._preview = reply.report
        elif isinstance(reply, Failed):
            self._refused(reply)
        self._show_buttons()

    def _applied(self, reply: EngineMessage) -> None:
        self._applying, undone, self._undoing = False, self._undoing, False
        if isinstance(reply, Reconfigured):
            if undone:
                del self._done[-1:]  # which another engine may have emptied meanwhile
            elif reply.report.changes:
                self._done.append(dict(reply.report.changes))
            self._take_report(reply.report)
        elif isinstance(reply, Failed):
            self._refused(reply)
        self._show_buttons()

    def _take_report(self, report: ReconfigureReport) -> None:
        self._report = report
        self._preview = None
        self._problem = ""
        for name, (_, after) in report.changes.items():
            if name in self.editors:
                self.editors[name].settle(after)
        self._show_preset(self.preset.preset)
        self.said.emit(partial(words.report, report, list(self._link.view.settings)))
        self.applied.emit(report)

    def _refused(self, failed: Failed) -> None:
        why = words.refusal(failed, self._link.view.settings)
        editor = self.editors.get(failed.field)
        if editor is not None:
            editor.refuse(why)
            self._scroll.ensureWidgetVisible(editor)
        else:
            self._problem = why
        self._preview = None
        self.said.emit(partial(words.refused, failed, list(self._link.view.settings)))

    # --- showing ------------------------------------------------------------------------------------------------

    def _show_preset(self, preset: Preset | None) -> None:
        """Name ``preset`` while edits are staged, else the one that the engine's settings are; and its reasons."""
        values = {name: editor.value for name, editor in self.editors.items()}
        if not self.staged:
            preset = matching(values)
        self.preset.show_preset(preset, len(differing(preset, values)) if preset is not None else 0)
        for name, editor in self.editors.items():
            choice = preset.settings.get(name) if preset is not None else None
            editor.explain(said(choice.reason) if choice is not None and choice.value == values[name] else "")

    def _show_buttons(self) -> None:
        staged, fixed = self.staged, self.staged_for_restart
        refused = any(editor.refusal for editor in (*self.editors.values(), *self.fixed_editors.values()))
        reachable = bool(self._link.view.settings) and not self._applying
        self.apply_button.setEnabled(bool(staged) and not refused and reachable)
        self.discard_button.setEnabled(bool(staged or fixed) and not self._applying)
        known = {name: editor.known for name, editor in (self.editors | self.fixed_editors).items()}
        changes = {name: (known[name], value) for name, value in {**staged, **fixed}.items()} if fixed else {}
        self.restart_box.show_changes(changes, refused=refused)
        self.undo_button.setEnabled(reachable)
        for part in (self.undo_button, self._undo_text):
            part.setVisible(bool(self._done))
        self._undo_text.setText(self._undo_sentence())
        self._preview_effects.setVisible(self._preview is not None)
        if self._preview is not None:
            self._preview_effects.show_report(self._preview)
        self._report_title.setVisible(self._report is not None)
        self._report_text.setVisible(self._report is not None)
        self._report_effects.setVisible(self._report is not None)
        if self._report is not None:
            self._report_effects.show_report(self._report)
            self._report_text.setText(words.report(self._report, self._link.view.settings))
        self._preview_text.setText(self._preview_sentence(staged, refused))
        _set_role(self._preview_text, "error" if self._problem else "muted")

    def _undo_sentence(self) -> str:
        """Which change goes back next, and how many are behind it."""
        if not self._done:
            return ""
        back = {name: (after, before) for name, (before, after) in self._done[-1].items()}
        next_one = words.changes(back, {info.name: info for info in self._link.view.settings})
        more = self.tr("%Ln change(s) before it can be undone as well.", "", len(self._done) - 1)
        text = fill_in(self.tr("Undo gives back: %1."), next_one)
        return f"{text} {more}" if len(self._done) > 1 else text

    def _preview_sentence(self, staged: dict[str, Any], refused: bool) -> str:
        if self._applying:
            return self.tr("Applying …")
        if self._problem:
            return self._problem
        if not staged:
            return self.tr("Change a setting to see what it would do. Nothing changes before you apply it.")
        if refused:
            return self.tr("A value was refused; the reason stands beside its field.")
        if self._preview is None:
            return self.tr("Asking the engine …")
        infos = {name: editor.info for name, editor in self.editors.items()}
        return words.changes({name: (self.editors[name].known, value) for name, value in staged.items()}, infos)

    def retranslate(self) -> None:
        self._heading.setText(self.tr("While running"))
        self._fixed_heading.setText(self.tr("Needs a restart"))
        self._fixed_hint.setText(
            self.tr("These are chosen when the engine starts. What a restart means is said before it happens.")
        )
        self._preview_title.setText(self.tr("Preview"))
        self._report_title.setText(self.tr("What happened"))
        self.apply_button.setText(self.tr("Apply"))
        self.discard_button.setText(self.tr("Discard"))
        self.discard_button.setToolTip(self.tr("Forget the edits that are not applied"))
        self.undo_button.setText(self.tr("Undo"))
        self.undo_button.setToolTip(self.tr("Take the last change back, and with each press the one before it"))
        self.empty.setText(self.tr("The settings appear here when an engine is ready."))
        self.preset.retranslate()
        self.import_button.setText(self.tr("Import …"))
        self.import_button.setToolTip(self.tr("Stage the settings of a file; you see first what they would change"))
        self.export_button.setText(self.tr("Export …"))
        self.export_button.setToolTip(self.tr("Write all settings to a file"))
        for editor in (*self.editors.values(), *self.fixed_editors.values()):
            editor.retranslate()
        self._show_preset(self.preset.preset)
        self._show_buttons()
        self._share_width()


def _section(*parts: QWidget | QLayout) -> QWidget:
    section = QWidget()
    section.setMaximumWidth(SECTION_WIDTH)
    column = QVBoxLayout(section)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(theme.GRID)
    for part in parts:
        if isinstance(part, QLayout):
            column.addLayout(part)
        else:
            column.addWidget(part)
    column.addStretch(1)
    return section
