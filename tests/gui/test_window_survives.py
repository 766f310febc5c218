"""What engines do to a window: flood it, die under it, come back as another one. It says so, answers its user
meanwhile, and goes on without a restart of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from pagedeck.gui import log_view
from pagedeck.gui.link import INBOX_MAX, EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.state import EVENTS_KEPT, ConnectionState
from pagedeck.ipc.client import Client
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from .conftest import OpenWindow
from .loading_engines import loading_engine

SOON_MS = 60_000


@pytest.fixture
def window(open_window: OpenWindow) -> MainWindow:
    return open_window([])


def attach(window: MainWindow, name: str, qtbot: QtBot) -> None:
    """Show an engine of that name when there is one."""
    qtbot.waitUntil(lambda: any(engine.name == name for engine in window.engines), timeout=SOON_MS)
    window.engines.show(next(engine for engine in window.engines if engine.name == name))


class Probe:
    """Asks again and again for a moment of the window's thread, as a click does, and counts the deliveries that come
    before it gets one."""

    def __init__(self, link: EngineLink) -> None:
        self.waited: list[int] = []
        self._deliveries = self._asked = 0
        link._frame.timeout.connect(self._delivered)
        self._ask()

    def _delivered(self) -> None:
        self._deliveries += 1

    def _ask(self) -> None:
        self._asked = self._deliveries
        QTimer.singleShot(0, self._answered)

    def _answered(self) -> None:
        self.waited.append(self._deliveries - self._asked)
        QTimer.singleShot(5, self._ask)


def test_a_flood_of_telemetry_keeps_nobody_waiting(window: MainWindow, qtbot: QtBot) -> None:
    link, log = window.session.link, window.log
    window.rail.choose("log")
    with loading_engine("flood", flood=True) as engine:
        attach(window, "flood", qtbot)
        seen: list[str] = []
        link.eventReceived.connect(lambda event: seen.append(event.text))
        qtbot.waitUntil(lambda: len(seen) > 100, timeout=SOON_MS)
        probe = Probe(link)
        for page in ("map", "requests", "log"):  # the user looks around meanwhile
            window.rail.choose(page)
            enough = len(seen) + 3000, len(probe.waited) + 3
            qtbot.waitUntil(lambda enough=enough: len(seen) > enough[0], timeout=SOON_MS)  # type: ignore[misc]
            qtbot.waitUntil(lambda enough=enough: len(probe.waited) > enough[1], timeout=SOON_MS)  # type: ignore[misc]
        assert max(probe.waited) <= 2, "deliveries came before the user"
        assert window.session.state == ConnectionState.LOADING, "its replies come through, too"

        # Nothing grows with the flood.
        assert link._wire is not None and len(link._wire.inbox) <= INBOX_MAX
        assert len(link.live.events) <= EVENTS_KEPT and log.model.rowCount() <= log_view.KEPT

        # The engine stands still, goes on, is killed: each is said.
        os.kill(engine.pid, signal.SIGSTOP)
        qtbot.waitUntil(lambda: window.session.state == ConnectionState.NOT_ANSWERING, timeout=SOON_MS)
        assert "has not answered" in window.banner.title.text()
        os.kill(engine.pid, signal.SIGCONT)
        qtbot.waitUntil(lambda: window.session.state == ConnectionState.LOADING, timeout=SOON_MS)
        engine.kill()
        qtbot.waitUntil(lambda: window.session.state == ConnectionState.DIED, timeout=SOON_MS)
        assert window.banner.isVisible() and "died" in window.banner.title.text()
        assert window.said.text() == "Engine flood: died"

    # Another life of it, a quiet one, is followed by itself.
    with loading_engine("flood"):
        qtbot.waitUntil(lambda: window.session.state == ConnectionState.LOADING, timeout=SOON_MS)
        count = len(seen)
        qtbot.waitUntil(lambda: link.live.status is not None, timeout=SOON_MS)
        assert len(seen) - count < 100


def test_an_engine_that_comes_back_under_another_configuration_is_shown_as_it_is_now(
    engine_process: Callable[..., object], window: MainWindow, qtbot: QtBot
) -> None:
    view, session = window.session.link.view, window.session

    def pool() -> tuple[int, int]:
        return view.device.num_blocks, view.device.block_size

    with engine_process(name="one", num_blocks=64, block_size=16) as engine:  # type: ignore[attr-defined]
        attach(window, "one", qtbot)
        qtbot.waitUntil(lambda: pool() == (64, 16) and bool(view.settings), timeout=SOON_MS)
        with Client("one") as client:
            stream = client.submit(prompt="the quick brown fox", max_tokens=900, ignore_eos=True)
            qtbot.waitUntil(lambda: any(row.state == "running" for row in view.live()), timeout=SOON_MS)
            window.show_on_map(view.live()[0].number)
            stream.cancel()
        engine.process.kill()
        qtbot.waitUntil(lambda: session.state == ConnectionState.DIED, timeout=SOON_MS)
        assert pool() == (64, 16), "what was known last stays to be seen"

    with engine_process(name="one", num_blocks=96, block_size=32):  # type: ignore[attr-defined]
        qtbot.waitUntil(lambda: session.state == ConnectionState.READY, timeout=SOON_MS)
        qtbot.waitUntil(lambda: pool() == (96, 32) and bool(view.settings), timeout=SOON_MS)
        assert view.live() == [] and not window.banner.isVisible()
        window.map.refresh()
        window.grab()
        assert len(window.map.pools["device"].canvas.image.tier.state) == 96
        field = window.settings_panel.editors["block_size"].field
        assert isinstance(field, QComboBox)
        qtbot.waitUntil(lambda: field.currentData() == 32, timeout=SOON_MS)
        with Client("one") as client:
            assert client.submit(prompt="the fox", max_tokens=4, ignore_eos=True).text()
        qtbot.waitUntil(lambda: any(row.state == "finished" for row in view.requests.values()), timeout=SOON_MS)
