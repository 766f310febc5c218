"""The app's start: options, application, session, window."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QSettings, QTimer
from PySide6.QtWidgets import QApplication

from .. import __version__
from ..ipc.collector import calm
from . import theme
from .attached.link import AttachedLink, Source
from .attached.window import AttachedWindow
from .i18n import Languages, parse_language
from .icons import app_icon
from .link import EngineLink
from .main_window import MainWindow
from .presence import Presence, show_running
from .recording.file import check
from .session import EngineSession


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="pagedeck app",
        description="Open the app: attach to a running engine, or start one.",
        epilog="Any other option is a setting of the engine, as in `pagedeck serve`.",
        allow_abbrev=False,
    )
    made.add_argument("-n", "--name", help="the engine's name; it is started when it does not run")
    made.add_argument("--connection", metavar="FILE", help="attach to the engine of this connection file")
    made.add_argument("--replay", metavar="FILE", type=Path, help="show a recording; no engine is started")
    made.add_argument("--results", metavar="FILE", type=Path, help="show what `pagedeck bench` or `tune` measured")
    made.add_argument(
        "--attach", metavar="ADDRESS", help="show the prefix cache of the server that publishes its KV events there"
    )
    made.add_argument("--attach-replay", metavar="ADDRESS", default="", help="where that server repeats them")
    made.add_argument("--attach-metrics", metavar="URL", default="", help="where its figures for Prometheus are")
    made.add_argument("--attach-bind", action="store_true", help="listen at the address: the server connects")
    made.add_argument("--language", choices=("en", "zh"), help="the window's language (default: the system's)")
    made.add_argument("--theme", choices=("system", "light", "dark"), help="(default: follow the system)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Open the window and return its exit code. Options that are not the app's own are passed on to the engine."""
    options, engine_arguments = parser().parse_known_args(arguments)
    if options.replay is not None:
        check(options.replay)
    app = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(app, QApplication)
    app.setApplicationName("pagedeck")
    app.setOrganizationName("pagedeck")
    app.setApplicationDisplayName("Pagedeck")
    app.setApplicationVersion(__version__)
    app.setDesktopFileName("pagedeck")
    app.setWindowIcon(app_icon())
    if is_plain(options, engine_arguments) and show_running():
        return 0
    settings = QSettings(QSettings.Format.IniFormat, QSettings.Scope.UserScope, "pagedeck", "app")

    languages = Languages()
    languages.switch(parse_language(options.language or _stored(settings, "window/language")))
    theme.current().set_mode(options.theme or stored_theme(settings))
    if options.attach is not None:
        source = Source(options.attach, options.attach_replay, options.attach_metrics, options.attach_bind)
        return _show_attached(app, source)
    session = EngineSession(EngineLink(), engine_arguments)
    window = MainWindow(session, languages, settings)
    window.toolbar.themeChosen.connect(lambda mode: settings.setValue("window/theme", mode))
    window.toolbar.languageChosen.connect(lambda language: settings.setValue("window/language", language))
    app.setQuitOnLastWindowClosed(False)  # the window may only have gone to the tray
    window.left.connect(app.quit)
    presence = Presence(window)
    presence.called.connect(window.come_back)
    presence.begin()
    window.show()
    if options.replay is not None:
        QTimer.singleShot(0, lambda: window.open_recording(options.replay))
    else:
        QTimer.singleShot(0, lambda: session.open(options.connection or options.name))
        if not states_engine(options, engine_arguments):
            QTimer.singleShot(0, window.welcome_newcomer)
    if options.results is not None:
        QTimer.singleShot(0, lambda: window.open_results(options.results))
    awake = _close_on_signals(window)
    calm()
    code = app.exec()
    awake.stop()
    presence.end()
    session.close()
    return code


def is_plain(options: argparse.Namespace, engine_arguments: Sequence[str]) -> bool:
    """Whether the command line asks for the app and for nothing in particular: any window that is there will do."""
    asked = ("name", "connection", "replay", "results", "attach", "language", "theme")
    return not engine_arguments and all(getattr(options, name) is None for name in asked)


def states_engine(options: argparse.Namespace, engine_arguments: Sequence[str]) -> bool:
    """Whether the command line says which engine to show, or which model it runs: then nobody is to be asked."""
    named = options.connection is not None or options.name is not None
    return named or any(argument.partition("=")[0] == "--model" for argument in engine_arguments)


def _show_attached(app: QApplication, source: Source) -> int:
    """A window on another server's prefix cache and no other. Raises :class:`Refused` for an address that is none."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: QTimer.singleShot(0, app.closeAllWindows))
    window = AttachedWindow(AttachedLink(source))
    window.show()
    awake = _keep_awake()
    calm()
    code = app.exec()
    awake.stop()
    return code


def _stored(settings: QSettings, key: str) -> str | None:
    value = settings.value(key)
    return value if isinstance(value, str) else None


def stored_theme(settings: QSettings) -> str:
    """The theme that was chosen last; the system's where the file holds none that there is."""
    stored = _stored(settings, "window/theme")
    return stored if stored in theme.MODES else "system"


def _close_on_signals(window: MainWindow) -> QTimer:
    """Ctrl-C and a terminate close the window for good. Python runs a handler only when Python runs: hence
    the timer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: window.quit())
    return _keep_awake()


def _keep_awake() -> QTimer:
    awake = QTimer(interval=250)
    awake.timeout.connect(lambda: None)
    awake.start()
    return awake
