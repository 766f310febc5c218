"""What moves in the pools flashes and fades, by what the deltas tell, at a bounded cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pagedeck.gui import theme
from pagedeck.gui.bench import frame_times
from pagedeck.gui.link import FRAME_MS
from pagedeck.gui.map import pool_canvas
from pagedeck.gui.map.block_image import Colouring
from pagedeck.gui.map.block_map import BlockMap
from pagedeck.gui.motion import FADE_S, FLASHES_MAX, Flashes, Motion, blend
from pagedeck.gui.selection import Selection
from pagedeck.gui.state import EngineView
from pagedeck.ipc.protocol import DescribeRequest, RequestDetail
from pagedeck.ipc.telemetry import BlocksUpdate, RequestRow
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtCore import QEvent, QObject, QRect, QSettings, Qt
from PySide6.QtGui import QPaintEvent, QRegion
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import Clock, ScriptedLink
from .test_block_map import Shown

S = BlockState


@pytest.fixture
def watched() -> tuple[EngineView, Feeder]:
    feeder, view = Feeder(20, 16, 10), EngineView()
    feeder.device.put(0, S.SHARED, 2, 5, 1, 1)
    feeder.device.put(1, S.ACTIVE, 1, 16, 2, 1)
    feeder.host.put(0, S.SWAPPED, 1, 16, 3, 1)
    view.begin(feeder.epoch)
    view.apply_snapshot(feeder.snapshot())
    view.watch_motion = True
    return view, feeder


def tell(view: EngineView, feeder: Feeder) -> tuple[dict[int, Motion], dict[int, Motion]]:
    """Apply what changed; what moved on the device and on the host."""
    update = BlocksUpdate(feeder.epoch, 2, False, feeder.device.delta(), feeder.host.delta())
    view.apply(*feeder.message(b"blocks", update))
    moved = []
    for tier in (view.device, view.host):
        latest = zip(*tier.moves.pop(), strict=True) if tier.moves else ()
        moved.append({int(block): Motion(kind) for block, kind in latest if kind})
    return moved[0], moved[1]


def test_taking_freeing_and_growing_are_told_apart(watched: tuple[EngineView, Feeder]) -> None:
    view, feeder = watched
    feeder.device.put(1, S.CACHED, 0, 16, 0, 2)
    feeder.device.put(2, S.ACTIVE, 1, 1, 4, 2)
    feeder.device.put(0, S.SHARED, 3, 5, 1, 2)  # shared once more: nothing moves
    assert tell(view, feeder) == ({1: Motion.FREED, 2: Motion.ALLOCATED}, {})
    feeder.device.put(2, S.ACTIVE, 1, 2, 4, 3)
    assert tell(view, feeder) == ({}, {})


def test_a_copy_on_write_is_a_shared_block_that_loses_a_holder_to_one_as_full(
    watched: tuple[EngineView, Feeder],
) -> None:
    view, feeder = watched
    feeder.device.put(0, S.ACTIVE, 1, 5, 1, 2)
    feeder.device.put(7, S.ACTIVE, 1, 6, 1, 2)
    feeder.device.put(8, S.ACTIVE, 1, 16, 4, 2)
    feeder.device.put(9, S.ACTIVE, 1, 1, 5, 2)
    kinds = {7: Motion.COPIED, 8: Motion.ALLOCATED, 9: Motion.ALLOCATED}
    assert tell(view, feeder) == (kinds, {})


def test_a_swap_shows_on_both_sides(watched: tuple[EngineView, Feeder]) -> None:
    view, feeder = watched
    feeder.device.put(1, S.FREE, 0, 0, 0, 2)
    feeder.host.put(4, S.SWAPPED, 1, 16, 2, 2)
    feeder.device.put(5, S.ACTIVE, 1, 3, 9, 2)
    assert tell(view, feeder) == ({1: Motion.SWAPPED, 5: Motion.ALLOCATED}, {4: Motion.SWAPPED})
    feeder.host.put(0, S.FREE, 0, 0, 0, 3)
    feeder.device.put(6, S.ACTIVE, 1, 16, 3, 3)
    assert tell(view, feeder) == ({6: Motion.SWAPPED}, {0: Motion.SWAPPED})
    feeder.host.put(4, S.FREE, 0, 0, 0, 4)  # ended while it was away: nothing came back
    assert tell(view, feeder) == ({}, {4: Motion.FREED})


def test_nothing_is_looked_for_unwatched(watched: tuple[EngineView, Feeder]) -> None:
    view, feeder = watched
    view.watch_motion = False
    feeder.device.put(1, S.FREE, 0, 0, 0, 2)
    update = BlocksUpdate(feeder.epoch, 2, False, feeder.device.delta(), feeder.host.delta())
    view.apply(*feeder.message(b"blocks", update))
    assert not view.device.moves and view.device.state[1] == S.FREE


def test_flashes_fade_are_forgotten_and_bounded() -> None:
    flashes = Flashes()
    flashes.add(np.array([3, 4], np.uint32), np.array([Motion.ALLOCATED, Motion.NONE], np.uint8), 10.0)
    flashes.add(np.array([5], np.uint32), np.array([Motion.FREED], np.uint8), 10.0 + FADE_S / 2)
    ids, kinds, strength = flashes.seen(10.0 + FADE_S * 0.75)
    assert ids.tolist() == [3, 5] and kinds.tolist() == [Motion.ALLOCATED, Motion.FREED]
    assert 0 < strength[0] < strength[1] < 1
    assert flashes.seen(10.0 + FADE_S * 1.25)[0].tolist() == [5]
    assert flashes.seen(10.0 + FADE_S * 2)[0].tolist() == [] and not flashes
    many = np.arange(1_000_000, dtype=np.uint32)
    flashes.add(many, np.full(len(many), Motion.FREED, np.uint8), 20.0)
    ids = flashes.seen(20.0)[0]
    assert FLASHES_MAX / 2 < len(ids) <= FLASHES_MAX and ids.max() > 900_000


def test_blending_goes_from_one_colour_to_the_other() -> None:
    pixels, colours = np.array([0xFF102030] * 3, np.uint32), np.array([0xFFF0E0D0] * 3, np.uint32)
    blended = blend(pixels, colours, np.array([0.0, 0.5, 1.0]))
    assert blended.tolist() == [0xFF102030, 0xFF808080, 0xFFF0E0D0]


class Painted(QObject):
    """What of a widget was painted."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.region = QRegion()
        widget.installEventFilter(self)

    def eventFilter(self, _: QObject, event: QEvent) -> bool:
        if isinstance(event, QPaintEvent):
            self.region = self.region.united(event.region())
        return False

    def covers(self, place: QRect) -> bool:
        return self.region.intersected(place) == QRegion(place)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pool_canvas, "time", made)
    return made


def test_a_block_that_is_taken_flashes_and_fades(qtbot: QtBot, link: ScriptedLink, clock: Clock) -> None:
    shown = Shown(qtbot, link, Feeder(60, 16, 0), motion=True)
    states, canvas = theme.current().palette.states, shown.pool.canvas
    shown.feeder.device.put(7, S.ACTIVE, 1, 16, 1, 1)
    shown.advance(1, arrivals=0)
    assert shown.colour_at(7) not in (states[S.ACTIVE], states[S.FREE])
    assert shown.colour_at(8) == states[S.FREE]
    clock.now += FADE_S
    qtbot.waitUntil(lambda: not canvas._fade.isActive())
    assert shown.colour_at(7) == states[S.ACTIVE]
    shown.map.motion.setChecked(False)
    shown.feeder.device.put(9, S.ACTIVE, 1, 16, 1, 1)
    shown.advance(1, arrivals=0)
    assert shown.colour_at(9) == states[S.ACTIVE] and not canvas._fade.isActive()


def test_only_what_changed_or_fades_is_painted_anew(qtbot: QtBot, link: ScriptedLink, clock: Clock) -> None:
    shown = Shown(qtbot, link, Feeder(600, 16, 0), motion=True)
    canvas = shown.pool.canvas
    first, last = (canvas.cell_rect(block).toRect() for block in (40, 590))
    shown.feeder.device.put(590, S.ACTIVE, 1, 16, 1, 1)
    shown.advance(1, arrivals=0)
    painted = Painted(canvas.viewport())
    qtbot.waitUntil(lambda: painted.covers(first) and painted.covers(last))  # all that has never been painted
    painted.region = QRegion()
    qtbot.waitUntil(lambda: painted.covers(last))  # it fades
    assert not painted.covers(first)
    shown.feeder.device.put(40, S.CACHED, 0, 16, 1, 1)  # which does not flash
    shown.advance(1, arrivals=0)
    qtbot.waitUntil(lambda: painted.covers(first))
    painted.region = QRegion()
    clock.now += FADE_S  # what has faded is painted once more as it is
    qtbot.waitUntil(lambda: not canvas._fade.isActive() and painted.covers(last))
    assert not painted.covers(first)
    painted.region = QRegion()
    shown.map.set_colouring(Colouring.FILL)
    qtbot.waitUntil(lambda: painted.covers(first) and painted.covers(last))


def test_what_fades_is_drawn_with_what_is_delivered(qtbot: QtBot, link: ScriptedLink, clock: Clock) -> None:
    shown = Shown(qtbot, link, Feeder(60, 16, 0), motion=True)
    fade = shown.pool.canvas._fade
    for block in range(3):
        shown.feeder.device.put(block, S.ACTIVE, 1, 16, 1, 1)
        shown.advance(1, arrivals=0)
        assert fade.isActive() and fade.interval() > FRAME_MS
    qtbot.waitUntil(lambda: fade.interval() <= FRAME_MS)  # nothing is delivered: it goes on by itself
    clock.now += FADE_S
    qtbot.waitUntil(lambda: not fade.isActive())


def test_a_repage_flashes_the_whole_pool(qtbot: QtBot, link: ScriptedLink, clock: Clock) -> None:
    shown = Shown(qtbot, link, Feeder(60, 16, 0), motion=True)
    free, other = theme.current().palette.states[S.FREE], Feeder(120, 8, 0)
    assert shown.colour_at(3) == free  # the first sight of a pool is no motion
    whole = BlocksUpdate(shown.feeder.epoch, 5, True, other.device.blocks(None), other.host.blocks(None))
    link.view.apply(*shown.feeder.message(b"blocks", whole))
    link.blocksChanged.emit()
    assert shown.colour_at(3) != free
    clock.now += FADE_S
    qtbot.waitUntil(lambda: not shown.pool.canvas._fade.isActive())
    assert shown.colour_at(3) == free


def test_a_hidden_map_watches_nothing(qtbot: QtBot, link: ScriptedLink) -> None:
    shown = Shown(qtbot, link, Feeder(60, 16, 0), motion=True)
    assert link.view.watch_motion
    shown.map.hide()
    assert not link.view.watch_motion


def test_the_menu_is_kept_between_starts(qtbot: QtBot, link: ScriptedLink, tmp_path: Path) -> None:
    settings = QSettings(str(tmp_path / "map.ini"), QSettings.Format.IniFormat)
    first = BlockMap(link, Selection(), settings=settings)
    qtbot.addWidget(first)
    assert first.motion.isChecked() and not first.following.isChecked()
    first.motion.setChecked(False)
    first.following.setChecked(True)
    second = BlockMap(link, Selection(), settings=settings)
    qtbot.addWidget(second)
    assert not second.motion.isChecked() and second.following.isChecked()


def test_the_map_follows_the_end_of_the_selected_request(qtbot: QtBot, link: ScriptedLink) -> None:
    shown = Shown(qtbot, link, Feeder(400, 16, 0))
    canvas = shown.pool.canvas
    for _ in range(8):
        qtbot.keyClick(canvas, Qt.Key.Key_Plus)
    row = RequestRow(7, "chat-7", "running", 10)
    link.view.requests[7] = row
    shown.map.following.setChecked(True)
    shown.selection.select_request(7)
    for last in (399, 2):
        assert not canvas.rect().contains(canvas.cell_rect(last).center().toPoint())
        link.answer(DescribeRequest, RequestDetail(row=row, block_tables=[[200, last]]))
        assert canvas.rect().contains(canvas.cell_rect(last).center().toPoint())


def test_the_bench_draws_what_it_measures(qtbot: QtBot) -> None:
    times = frame_times(500, 3, moving=True, ghost="contiguous")
    assert len(times) == 3 and min(times) > 0
