"""Advice over a real engine in a process of its own: found, previewed, followed, measured again, undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedeck.gui.advice import advisor, trial
from pagedeck.gui.advice.batch import Batch
from pagedeck.gui.advice.trial import Stage
from pagedeck.gui.link import EngineLink, StreamMessage
from pagedeck.gui.main_window import MainWindow
from pagedeck.ipc.protocol import Failed, Finished, Submit
from pagedeck.ipc.vocabulary import SamplingParams
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from .conftest import OpenWindow
from .test_window_end_to_end import LOADED_MS, start

ARGUMENTS = ["--device", "cpu", "--num-blocks", "256", "--block-size", "16", "--threads", "1", "--max-batch-size", "2"]
AT_ONCE = 8


@pytest.fixture
def served(tiny_model_folder: Path, open_window: OpenWindow, monkeypatch: pytest.MonkeyPatch) -> MainWindow:
    """A window whose advisor is quick to judge."""
    monkeypatch.setattr(Batch, "seconds", 3)
    monkeypatch.setattr(advisor, "LOOK_EVERY", 1)
    for module in (advisor, trial):
        monkeypatch.setattr(module, "SETTLE_S", 0.5)
    return open_window(["--model", str(tiny_model_folder), *ARGUMENTS])


class Load:
    """Always as many requests at once, of which few have a place."""

    def __init__(self, link: EngineLink) -> None:
        self.link, self.ended, self.going = link, False, 0
        for _ in range(AT_ONCE):
            self._ask()

    def _ask(self) -> None:
        self.going += 1
        sampling = SamplingParams(max_tokens=60, ignore_eos=True)
        self.link.submit(Submit(prompt="the quick brown fox", sampling=sampling), self._told)

    def _told(self, message: StreamMessage) -> None:
        if isinstance(message, Finished | Failed):
            self.going -= 1
            if not self.ended:
                self._ask()


def test_advice_is_followed_and_undone(served: MainWindow, qtbot: QtBot) -> None:
    start(served, qtbot)
    link, told = served.session.link, served.advisor
    load = Load(link)
    value = lambda: next(info.value for info in link.view.settings if info.name == "max_batch_size")  # noqa: E731
    served.rail.choose("advice")
    qtbot.waitUntil(lambda: "batch" in [finding.rule for finding in told.advice], timeout=LOADED_MS)
    card = next(card for card in served.advice_page.cards if card.finding.rule == "batch")
    qtbot.mouseClick(card.preview_button, Qt.MouseButton.LeftButton)
    panel = served.settings_panel
    assert panel.staged == {"max_batch_size": 4}
    qtbot.waitUntil(panel._preview_effects.isVisible, timeout=LOADED_MS)
    assert value() == 2

    qtbot.mouseClick(panel.apply_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(told.trials) == 1, timeout=LOADED_MS)
    followed = told.trials[0]
    assert followed.before.seconds == 3 and 2 < followed.before.load <= AT_ONCE
    qtbot.waitUntil(lambda: followed.stage is Stage.MEASURED, timeout=LOADED_MS)
    assert followed.after is not None and followed.after.value >= 0
    assert value() == 4

    served.rail.choose("advice")
    served.grab()
    qtbot.mouseClick(served.advice_page.trials[0].undo_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: value() == 2, timeout=LOADED_MS)
    assert followed.stage is Stage.UNDONE
    load.ended = True
    qtbot.waitUntil(lambda: load.going == 0, timeout=LOADED_MS)
