"""Ghosts: what the same requests would take under other rules, counted, drawn on the pool's cells, and said."""

from __future__ import annotations

import numpy as np
import pytest
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.map.block_image import arrange
from pagedeck.gui.map.ghost_layer import GhostLayer
from pagedeck.gui.map.ghosts import BEYOND, EMPTY, HELD, NOTHING, ODD, GhostKind, contiguous, unshared
from pagedeck.gui.state import TierView
from pagedeck.ipc.telemetry import RequestRow
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtCore import QRectF
from PySide6.QtGui import QImage, QPainter
from pytestqt.qtbot import QtBot

from .feeder import Feeder, Tier
from .scripted_link import ScriptedLink
from .test_block_map import Shown

S = BlockState


def row(number: int, prompt: int, output: int, computed: int, state: str = "running", samples: int = 1) -> RequestRow:
    return RequestRow(
        number, f"r{number}", state, 10, prompt_tokens=prompt, max_tokens=output, computed_tokens=computed,
        samples=samples,
    )  # fmt: skip


def tier(source: Tier) -> TierView:
    view = TierView()
    view.replace(source.blocks(None))
    return view


def test_each_running_request_takes_its_longest_length_in_one_piece() -> None:
    rows = [row(2, 20, 300, 20), row(1, 40, 24, 48), row(3, 16, 16, 0, "waiting"), row(4, 16, 16, 17)]
    ghost = contiguous(rows, tier(Tier(10, 16)), 0)
    assert (ghost.requests, ghost.fitting, ghost.reserved, ghost.needed, ghost.beyond) == (3, 2, 6, 26, 20)
    assert ghost.empty == pytest.approx(1 - (48 + 17) / 96)
    inside, outside = ghost.cells[:10].tolist(), ghost.cells[10:].tolist()
    assert inside == [HELD, HELD, HELD, EMPTY, HELD, HELD, NOTHING, NOTHING, NOTHING, NOTHING]
    assert outside == [BEYOND + ODD] * 10  # as many as the pool has are drawn


def test_no_piece_is_longer_than_the_context_and_each_sample_has_its_own() -> None:
    ghost = contiguous([row(1, 20, 10_000, 60, samples=2)], tier(Tier(10, 16)), 64)
    assert (ghost.reserved, ghost.beyond) == (8, 0)
    assert ghost.cells[:10].tolist() == [HELD, HELD, EMPTY, EMPTY] * 2 + [NOTHING] * 2


def test_without_sharing_copies_take_free_blocks_then_cached_ones_then_what_is_not_there() -> None:
    source = Tier(6, 16)
    source.put(0, S.SHARED, 5, 16, 1, 1)
    source.put(1, S.SHARED, 2, 16, 1, 1)
    source.put(2, S.CACHED, 0, 16, 0, 1)
    source.put(3, S.ACTIVE, 1, 16, 1, 1)
    view = tier(source)
    ghost = unshared(view)
    assert (ghost.copies, ghost.needed, ghost.evicting, ghost.beyond) == (5, 8, 1, 2)
    assert ghost.cells.tolist() == [NOTHING, NOTHING, HELD, NOTHING, HELD, HELD, BEYOND, BEYOND]
    source.changed.clear()
    source.put(0, S.ACTIVE, 1, 16, 1, 2)
    view.update(source.delta())
    assert unshared(view).copies == 1


@pytest.mark.parametrize("blocks", [60, 300_000])
def test_a_ghost_lies_on_the_pools_own_cells(qtbot: QtBot, blocks: int) -> None:
    """Whether cells are hatched or only pixels tinted, nothing is painted beside the ghost's cells."""
    view = tier(Tier(blocks, 16))
    rows = [row(1, 16 * blocks // 4, 16 * blocks // 4, 16 * blocks // 4)]
    grid = arrange(blocks, 600, 300)
    layer = GhostLayer()
    layer.show(contiguous(rows, view, 0), grid)
    image = QImage(600, 400, QImage.Format.Format_RGB32)
    image.fill(0xFFFFFFFF)
    painter = QPainter(image)
    painter.scale(grid.width, grid.height)
    layer.paint(painter, QRectF(0, 0, 600 / grid.width, 400 / grid.height), min(grid.width, grid.height))
    painter.end()
    pixels = 255.0 - (np.frombuffer(image.constBits(), np.uint32).reshape(400, 600) & 0xFF)
    y, x = (np.arange(400) + 0.5) / grid.height, (np.arange(600) + 0.5) / grid.width
    y, x = y[y < grid.rows].astype(int), x[x < grid.columns].astype(int)
    places = grid.blocks_at(y[:, None], x[None, :])
    pixels = pixels[: len(y), : len(x)]
    held = pixels[places < blocks // 4].mean()
    empty = pixels[(places >= blocks // 4) & (places < blocks // 2)].mean()
    nothing = pixels[places >= blocks // 2].mean()
    assert held > 1.5 * empty > 30 * nothing


def test_the_map_shows_a_ghost_and_says_it_live(qtbot: QtBot, link: ScriptedLink, languages: Languages) -> None:
    shown = Shown(qtbot, link, Feeder(40, 16, 0))
    line, canvas = shown.pool._ghost, shown.pool.canvas
    assert line.isHidden()
    shown.map.set_ghost(GhostKind.CONTIGUOUS)
    assert line.isVisible() and "No request" in line.text()
    before = canvas.cell_rect(39)
    request = shown.feeder.submit(100, 60, priority=0)
    shown.feeder.submit(100, 1000, priority=0)
    shown.advance(2, arrivals=0)
    for known in shown.feeder.rows.values():
        link.view.requests[known.number] = known
    shown.advance(1, arrivals=0)
    held = request.computed
    share = round(100 * (1 - held / 160))
    text = line.text().replace("\u00a0", " ")
    assert text.startswith(f"1 of 2 requests would fit · {share} % of what they reserve would be empty")
    assert text.endswith("1 would not (69 blocks too many) · 10 of 40 blocks reserved")
    assert canvas.cell_rect(39) == before  # what is beyond has its room: nothing jumps as it grows
    assert canvas.cell_rect(79).bottom() > before.bottom()
    languages.switch(Language.CHINESE)
    qtbot.waitUntil(lambda: "放不下" in line.text())
    shown.map.set_ghost(GhostKind.UNSHARED)
    assert "共享" in line.text()
    shown.map.set_ghost(GhostKind.NONE)
    assert line.isHidden() and canvas.ghost_rows == 0


@pytest.mark.parametrize("width", [1000, 500])
def test_a_ghosts_figures_take_a_second_line_before_they_are_cut(
    qtbot: QtBot, link: ScriptedLink, languages: Languages, width: int
) -> None:
    shown = Shown(qtbot, link, Feeder(40, 16, 0))
    line = shown.pool._ghost
    shown.map.resize(width, 400)
    shown.map.set_ghost(GhostKind.CONTIGUOUS)
    for output in (60, 1000):
        shown.feeder.submit(100, output, priority=0)
    shown.advance(2, arrivals=0)
    link.view.requests.update(shown.feeder.rows)
    shown.advance(1, arrivals=0)
    qtbot.waitUntil(lambda: line.width() == width - 32)
    measure = line.fontMetrics().horizontalAdvance
    places = line.places()
    assert all(p.x() + measure(text) <= line.width() for p, (_, text) in zip(places, line._parts, strict=True))
    assert all(p.y() + line.fontMetrics().height() <= line.height() for p in places)
    assert len({p.y() for p in places}) == (1 if width == 1000 else 2)
    line.grab()
