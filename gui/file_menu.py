"""What goes to files and comes from them: recordings, pictures, tables."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QStandardPaths, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QFileDialog, QMenu, QWidget

from . import engine_texts, quantities
from .attached.dialog import AttachDialog
from .attached.link import AttachedLink
from .attached.window import AttachedWindow
from .i18n import Translated, fill_in
from .map.block_map import BlockMap
from .recording import export
from .recording.file import SUFFIX
from .recording.player import Player
from .recording.recorder import Recorder
from .session import EngineSession
from .whole_file import write_whole


class FileMenu(Translated, QMenu):
    """The menu, and what its entries do. ``said`` tells a sentence for the status bar and its level."""

    said = Signal(object, str)  # Said
    resultsChosen = Signal(object)  # Path
    shortcutsAsked = Signal()
    welcomeAsked = Signal()
    quitAsked = Signal()

    def __init__(
        self, session: EngineSession, recorder: Recorder, player: Player, map: BlockMap, parent: QWidget | None = None
    ) -> None:
        """``map``: what a picture is made of."""
        super().__init__(parent)
        self._session, self._recorder, self._player, self._map = session, recorder, player, map
        self.record = QAction(self, checkable=True)
        self.record.setShortcut(QKeySequence("Ctrl+R"))
        self.record.triggered.connect(self.toggle_recording)
        self.open_recording = self._entry(self.choose_recording, QKeySequence(QKeySequence.StandardKey.Open))
        self.insertAction(self.open_recording, self.record)
        self.open_results = self._entry(self.choose_results)
        self.attaching = self._entry(self.attach)
        self.attached: list[AttachedWindow] = []
        self.addSeparator()
        self.picture = self._entry(lambda: self._choose("map.png", self.save_picture))
        self.requests = self._entry(lambda: self._choose("requests.csv", self.save_requests))
        self.steps = self._entry(lambda: self._choose("steps.csv", self.save_steps))
        self.latency = self._entry(lambda: self._choose("latency.csv", self.save_latency))
        self.trace = self._entry(lambda: self._choose("trace.jsonl", self.save_trace))
        self.addSeparator()
        self.welcome = self._entry(self.welcomeAsked.emit)
        self.shortcuts = self._entry(self.shortcutsAsked.emit)
        self.shortcuts.setShortcuts([QKeySequence(QKeySequence.StandardKey.HelpContents), QKeySequence("?")])
        self.quit = self._entry(self.quitAsked.emit, QKeySequence("Ctrl+Q"))
        recorder.changed.connect(self.show_state)
        recorder.failed.connect(self._recording_failed)
        player.changed.connect(self.show_state)
        player.failed.connect(lambda error: self.said.emit(partial(self._why, error), "error"))
        session.changed.connect(self.show_state)
        self.retranslate()
        self.show_state()

    def _entry(self, act: Callable[[], None], shortcut: QKeySequence | None = None) -> QAction:
        entry = self.addAction("")
        if shortcut is not None:
            entry.setShortcut(shortcut)
        entry.triggered.connect(lambda _=False: act())
        return entry

    def show_state(self) -> None:
        recording = self._recorder.recording
        self.record.setChecked(recording)
        self.record.setEnabled(recording or (self._session.alive and self._player.replay is None))
        self.record.setText(self.tr("Stop recording") if recording else self.tr("Record"))
        self.trace.setEnabled(self._player.ready)

    # --- recordings ---------------------------------------------------------------------------------------------

    def toggle_recording(self) -> None:
        if self._recorder.recording:
            self.stop_recording()
            return
        try:
            self._recorder.start(self._session.name)
        except OSError as error:
            self._recording_failed(error, self._recorder.folder)
        self.show_state()

    def stop_recording(self) -> None:
        """End the recording that runs, if one does, and say where it is."""
        path, lasted = self._recorder.path, self._recorder.elapsed_ms / 1000
        self._recorder.stop()
        if path is not None and path.exists():
            parts = quantities.duration(lasted), str(path), quantities.size(path.stat().st_size)
            self.said.emit(lambda: fill_in(self.tr("Recorded %1 to %2 (%3)"), *parts), "info")

    def open(self, path: Path) -> None:
        """Show a recording; say why where that cannot be."""
        try:
            self._player.open(path)
        except (ValueError, OSError) as error:
            self.said.emit(partial(self._why, error), "error")

    def choose_recording(self) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self.parentWidget(), self.tr("Open a recording"), str(self._recorder.folder), f"*{SUFFIX}"
        )
        if name:
            self.open(Path(name))

    def choose_results(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self.parentWidget(), self.tr("Open results"), "", "*.json")
        if name:
            self.resultsChosen.emit(Path(name))

    def _recording_failed(self, error: OSError, path: Path) -> None:
        def said() -> str:
            text = self.tr("The recording ended: %1. What was recorded until then is in %2.")
            return fill_in(text, self._reason(error), str(path))

        self.said.emit(said, "error")

    # --- other servers --------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Ask where another server publishes its cache events, and open a window on its prefix cache."""
        dialog = AttachDialog(self.parentWidget())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.attached.connect(self.show_attached)
        dialog.open()

    def show_attached(self, link: AttachedLink) -> None:
        window = AttachedWindow(link)
        self.attached.append(window)
        window.closed.connect(lambda: self.attached.remove(window))
        window.show()

    def close_attached(self) -> None:
        for window in list(self.attached):
            window.close()

    # --- pictures and tables --------------------------------------------------------------------------------------

    def save_picture(self, path: Path) -> None:
        """The map as it is shown. Raises ``OSError``."""
        if not self._map.picture().save(str(path), "PNG"):
            raise OSError(errno.EIO, self.tr("the picture could not be written"))

    def save_requests(self, path: Path) -> None:
        export.write_requests(self._session.link.view, path)

    def save_steps(self, path: Path) -> None:
        export.write_steps(self._session.link.view, path)

    def save_latency(self, path: Path) -> None:
        export.write_latency(self._session.link.view, path)

    def save_trace(self, path: Path) -> None:
        """What the recording that is shown asked of its engine, as a load. Raises ``OSError``."""
        if self._player.replay is not None:
            export.write_trace(self._player.replay.recording, path)

    def _choose(self, name: str, save: Callable[[Path], None]) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        proposed = str(Path(folder or Path.home()) / f"{self._session.name} {name}")
        chosen, _ = QFileDialog.getSaveFileName(self.parentWidget(), self.tr("Export"), proposed)
        if chosen:
            self.save(Path(chosen), save)

    def save(self, path: Path, save: Callable[[Path], None]) -> None:
        """Write a file and say so, or say why not."""
        try:
            write_whole(path, save)
        except OSError as error:
            self.said.emit(partial(self._not_written, path, error), "error")
        else:
            self.said.emit(lambda: fill_in(self.tr("Exported to %1"), str(path)), "info")

    # --- words ----------------------------------------------------------------------------------------------------

    def _why(self, error: Exception) -> str:
        if isinstance(error, OSError):
            return fill_in(self.tr("The recording could not be read: %1"), self._reason(error))
        return engine_texts.say(str(error))

    def _not_written(self, path: Path, error: OSError) -> str:
        return fill_in(self.tr("%1 was not written: %2"), str(path), self._reason(error))

    def _reason(self, error: OSError) -> str:
        if error.errno == errno.ENOSPC:
            return self.tr("the disk is full")
        if error.errno == errno.EBUSY:
            return self.tr("the disk does not keep up")
        return error.strerror or str(error)

    def retranslate(self) -> None:
        self.setTitle(self.tr("File"))
        self.open_recording.setText(self.tr("Open a recording …"))
        self.open_results.setText(self.tr("Open results …"))
        self.attaching.setText(self.tr("Attach to vLLM or SGLang …"))
        self.picture.setText(self.tr("Export the map (PNG) …"))
        self.requests.setText(self.tr("Export requests (CSV) …"))
        self.steps.setText(self.tr("Export steps (CSV) …"))
        self.latency.setText(self.tr("Export latency (CSV) …"))
        self.trace.setText(self.tr("Export the recording's requests as a load (JSON lines) …"))
        self.welcome.setText(self.tr("Welcome …"))
        self.shortcuts.setText(self.tr("Keyboard shortcuts"))
        self.quit.setText(self.tr("Quit"))
        self.show_state()
