"""The window under load, for seconds or (``--long MINUTES -s``) as long as one likes: memory stays flat, no frame is
dropped, and what the window takes of a core is told.

The load is a steady one, of a model that takes a dozen milliseconds a step, as small models do on a CPU; or a flood, of
one that makes hundreds of steps and thousands of tokens a second, all of them for this window.

How busy the window is, is counted in its own processor time, so that what else the machine does changes nothing.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest
from pagedeck.gui.link import FRAME_MS, EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.rail import PAGES
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.collector import calm
from pagedeck.ipc.protocol import Failed, Finished, Submit
from pagedeck.ipc.vocabulary import PRIORITIES, SamplingParams
from PySide6.QtCore import QAbstractEventDispatcher, QTimer
from pytestqt.qtbot import QtBot

from ..conftest import write_llama, write_tokenizer
from .conftest import OpenWindow

LOADED_MS = 120_000
SHORT_S = 4.0
LIVE = 12  # requests at once
SAMPLE_MS = 1000
FRAME_S = 0.100  # a frame that takes longer is one that is seen to be missing
GROWTH = 0.05
SHARE = 0.15  # of a core, at 30 deliveries a second, under a steady load
WARM_UP = 1 / 3  # of the time: histories fill, pages are made

ARGUMENTS = ["--device", "cpu", "--num-blocks", "2048", "--block-size", "16", "--threads", "1"]
ARGUMENTS += ["--swap-space-gib", "0.01"]


@pytest.fixture
def model(load: str, tiny_model_folder: Path, tmp_path: Path) -> Path:
    """Of the load ``flood``, or ``steady``."""
    if load == "flood":
        return tiny_model_folder
    folder = tmp_path / "model"
    folder.mkdir()
    write_tokenizer(folder)
    write_llama(folder, vocabulary=320, hidden=384, layers=8, heads=6, kv_heads=2, inner=1536)
    return folder


@pytest.fixture
def window(model: Path, open_window: OpenWindow, qtbot: QtBot) -> Iterator[MainWindow]:
    made = open_window(["--model", str(model), *ARGUMENTS])
    made.session.open()
    qtbot.waitUntil(lambda: made.session.state == ConnectionState.READY, timeout=LOADED_MS)
    thresholds = gc.get_threshold()
    calm()  # as the app does
    yield made
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Load:
    """Keeps so many requests of different lengths alive, of all classes, some with a beginning that they share."""

    def __init__(self, link: EngineLink) -> None:
        self.ended = 0
        self.failed: list[Failed] = []
        self._link = link
        self._numbers = itertools.count()

    def begin(self) -> None:
        number = next(self._numbers)
        prompt = "the quick brown fox jumps over the lazy dog " * (1 + number % 7) + (f"{number}" if number % 3 else "")
        sampling = SamplingParams(
            max_tokens=40 + 37 * (number % 11), ignore_eos=True, n=2 if number % 13 == 0 else 1, seed=number
        )
        self._link.submit(
            Submit(prompt=prompt, sampling=sampling, priority=[*PRIORITIES][number % len(PRIORITIES)]), self._heard
        )

    def _heard(self, message: object) -> None:
        if isinstance(message, Failed):
            self.failed.append(message)
        elif isinstance(message, Finished):
            self.ended += 1
            self.begin()


@dataclass
class Page:
    """What the window did while it showed a page."""

    seconds: float = 0.0  # of the processor
    lasted: float = 0.0  # by the clock
    frames: int = 0
    longest: float = 0.0  # processor time of one turn of the event loop

    @property
    def share(self) -> float:
        """Of a core, at 30 deliveries a second."""
        return self.seconds / self.frames * 1000 / FRAME_MS if self.frames else 0.0


@dataclass
class Watch:
    """Counts what the window's thread does, by page, and how much memory there is every second."""

    window: MainWindow
    pages: dict[str, Page] = field(default_factory=dict)
    memory: list[tuple[float, int]] = field(default_factory=list)
    process: psutil.Process = field(default_factory=psutil.Process)
    _dispatcher: QAbstractEventDispatcher = field(init=False)
    _rested: float | None = None
    _before: tuple[float, float] = (0.0, 0.0)  # by the processor and by the clock

    def start(self) -> None:
        dispatcher = QAbstractEventDispatcher.instance()
        assert dispatcher is not None
        dispatcher.aboutToBlock.connect(self._rests)
        self._dispatcher = dispatcher
        deliver = self.window.session.link._deliver

        def counted() -> None:
            self._page.frames += 1
            deliver()

        self.window.session.link._frame.timeout.disconnect()
        self.window.session.link._frame.timeout.connect(counted)
        self._before = time.process_time(), time.monotonic()

    def stop(self) -> None:
        """The window may go from here on."""
        self._dispatcher.aboutToBlock.disconnect(self._rests)

    @property
    def _page(self) -> Page:
        return self.pages.setdefault(self.window.rail.current, Page())

    def turn_to(self, key: str) -> None:
        """Turn to another page; what that takes once is nobody's frame."""
        self.sample()
        self.window.rail.choose(key)
        self.window.grab()
        self._rested = None
        self._before = time.process_time(), time.monotonic()

    def sample(self) -> None:
        before, now = self._before, (time.process_time(), time.monotonic())
        self._page.seconds += now[0] - before[0]
        self._page.lasted += now[1] - before[1]
        self._before = now
        self.memory.append((now[1], self.process.memory_info().rss))

    def _rests(self) -> None:
        """A turn of the event loop ends; waiting for the next one takes no processor time."""
        now = time.thread_time()
        if self._rested is not None:
            self._page.longest = max(self._page.longest, now - self._rested)
        self._rested = now

    @property
    def frames(self) -> int:
        return sum(page.frames for page in self.pages.values())

    @property
    def growth(self) -> float:
        """By which share memory grew after the warm-up, by a straight line through it."""
        at, size = np.array(self.memory, float).T
        late = at >= at[0] + WARM_UP * (at[-1] - at[0])
        slope = np.polyfit(at[late] - at[0], size[late], 1)[0]
        return float(slope * (at[late][-1] - at[late][0]) / size[late][0])

    def report(self) -> str:
        lines = [f"{'page':<12}{'frames':>8}{'of a core':>12}{'at 30 Hz':>12}{'longest':>12}"]
        for key, page in self.pages.items():
            used = page.seconds / page.lasted
            lines.append(f"{key:<12}{page.frames:>8}{used:>12.1%}{page.share:>12.1%}{1000 * page.longest:>9.1f} ms")
        last = self.memory[-1][1] / 2**20
        return "\n".join([*lines, f"memory {last:.0f} MiB, {self.growth:+.1%} after the warm-up"])


@pytest.mark.timeout(0)
@pytest.mark.parametrize("load", ["steady", "flood"])
def test_memory_stays_flat_and_no_frame_is_dropped(
    load: str, window: MainWindow, request: pytest.FixtureRequest, qtbot: QtBot
) -> None:
    minutes = request.config.getoption("--long")
    seconds = 60 * minutes or SHORT_S
    users, watch = Load(window.session.link), Watch(window)
    watch.start()
    for _ in range(LIVE):
        users.begin()
    sampler = QTimer(interval=SAMPLE_MS)
    sampler.timeout.connect(watch.sample)
    sampler.start()
    end = time.monotonic() + seconds
    pages = itertools.cycle(page.key for page in PAGES)
    stay = min(20.0, seconds / len(PAGES))
    while time.monotonic() < end:
        watch.turn_to(next(pages))
        until = time.monotonic() + stay
        while (left := until - time.monotonic()) > 0:
            qtbot.wait(round(1000 * left) + 1)
    sampler.stop()
    watch.sample()
    watch.stop()
    steps = window.session.link.view.step / seconds
    print(f"\n{load}: {users.ended} requests ended, {steps:.0f} steps a second\n{watch.report()}")
    qtbot.waitUntil(lambda: users.ended > 0 and watch.frames > 10, timeout=LOADED_MS)
    assert users.failed == [] and window.session.state == ConnectionState.READY
    if minutes:
        assert watch.growth < GROWTH
        assert max(page.longest for page in watch.pages.values()) < FRAME_S
    if minutes and load == "steady":
        assert max(page.share for page in watch.pages.values()) <= SHARE
