"""The block map shows each block's true colour, from one to a million, and acts on hover, click and legend."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from pagedeck.gui import theme
from pagedeck.gui.class_table import ClassTable
from pagedeck.gui.codes import (
    CODE_CLASS,
    CODE_DIMMED,
    CODE_NEUTRAL,
    CODE_RAMP,
    CODE_REQUEST,
    CODE_STATE,
    CODE_TRACED,
    CODE_VOID,
    RAMP_STEPS,
)  # fmt: skip
from pagedeck.gui.i18n import Languages
from pagedeck.gui.link import EngineLink
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.map.block_image import AGE_TOP, BlockImage, Colouring, arrange
from pagedeck.gui.map.block_map import BlockMap
from pagedeck.gui.map.legend import Legend
from pagedeck.gui.map.slot_layer import SLOT_CELL, in_characters, seen, slot_grid
from pagedeck.gui.selection import Selection
from pagedeck.gui.state import ConnectionState, TierView
from pagedeck.ipc.protocol import BlockDetail, BlockOwner, DescribeBlock, DescribeRequest
from pagedeck.ipc.telemetry import BlocksUpdate, GroupBlocks
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication, QStyle, QStyleOptionComboBox
from pytestqt.qtbot import QtBot

from .feeder import Feeder, Tier
from .scripted_link import ScriptedLink

S = BlockState


# --- the image, without Qt --------------------------------------------------------------------------------------


def tier_of(states: list[int] | np.ndarray, block_size: int = 16) -> tuple[TierView, Tier]:
    source = Tier(len(states), block_size)
    for block, state in enumerate(states):
        if state:
            source.put(block, S(state), int(state == S.SHARED) + 1, block_size, block + 1, 1)
    view = TierView()
    view.replace(source.blocks(None))
    source.changed.clear()
    return view, source


@pytest.mark.parametrize("blocks", [1, 10, 96, 1_000, 4_032, 65_536, 1_000_000])
@pytest.mark.parametrize("size", [(968, 310), (500, 150), (300, 700), (1880, 900), (3, 2)])
def test_every_block_has_a_place_inside_of_the_view(blocks: int, size: tuple[int, int]) -> None:
    grid = arrange(blocks, *size)
    assert grid.columns * grid.rows >= blocks
    assert grid.columns * grid.width <= size[0]
    assert grid.rows * grid.height <= size[1]
    some = np.unique(np.linspace(0, blocks - 1, 500).astype(np.int64))
    rows, columns = grid.place(some)
    assert (rows < grid.rows).all() and (columns < grid.columns).all()
    np.testing.assert_array_equal(grid.blocks_at(rows, columns), some)


@pytest.mark.parametrize("size", [(968, 310), (300, 700), (1280, 800)])
def test_a_fitted_pool_fills_its_view(size: tuple[int, int]) -> None:
    for blocks in (1_500, 4_032, 16_000, 70_000, 150_000, 260_000, 400_000, 700_000, 1_000_000, 1_800_000):
        grid = arrange(blocks, *size)
        assert blocks * grid.width * grid.height >= 0.75 * size[0] * size[1], blocks
        assert max(grid.width, grid.height) <= 2 * min(grid.width, grid.height)


def test_a_small_pool_grows_with_its_view() -> None:
    for blocks, size in ((150, (900, 260)), (150, (2200, 560)), (29, (2000, 115))):
        grid = arrange(blocks, *size)
        assert blocks * grid.width * grid.height >= 0.5 * size[0] * size[1]


def test_few_blocks_make_large_square_cells() -> None:
    grid = arrange(12, 900, 500)
    assert grid.width == grid.height >= 32
    assert 1 <= grid.columns / grid.rows <= 4


def test_spread_agrees_with_place() -> None:
    grid = arrange(5_000, 130, 90)
    assert grid.tile > 1
    cells = grid.spread(np.arange(grid.rows * grid.columns))
    rows, columns = grid.place(np.arange(5_000))
    np.testing.assert_array_equal(cells[rows, columns], np.arange(5_000))


@pytest.mark.parametrize("colouring", Colouring)
@pytest.mark.parametrize("shown", [frozenset(), frozenset({S.ACTIVE, S.FREE})])
def test_deltas_give_the_same_image_as_a_fresh_drawing(colouring: Colouring, shown: frozenset[S]) -> None:
    rng = np.random.default_rng(7)
    view, source = tier_of(rng.integers(0, 6, 3_001))
    live = BlockImage(view)
    live.set_grid(arrange(3_001, 120, 80))
    live.set_colouring(colouring)
    live.set_shown(shown)
    live.trace(np.array([5, 900, 17], np.uint32))
    live.refresh(1)
    live.level(3)
    for step in range(2, 12):
        for block in rng.choice(3_001, 40, replace=False).tolist():
            source.put(block, S(int(rng.integers(6))), int(rng.integers(1, 99)), int(rng.integers(17)), block, step)
        view.update(source.delta())
        assert live.refresh(step)
    fresh = BlockImage(view)
    fresh.set_grid(live.grid)
    fresh.set_colouring(colouring)
    fresh.set_shown(shown)
    fresh.trace(live.traced)
    fresh.refresh(11)
    for level in range(4):
        np.testing.assert_array_equal(live.level(level), fresh.level(level))


def test_nothing_is_drawn_when_nothing_changed() -> None:
    view, _ = tier_of([S.ACTIVE] * 20)
    image = BlockImage(view)
    image.set_grid(arrange(20, 100, 100))
    assert image.refresh(1)
    assert not image.refresh(5)
    image.set_colouring(Colouring.AGE)
    assert image.refresh(5)
    assert image.refresh(6)
    assert not image.refresh(6)


def test_a_lone_active_block_among_a_million_survives_every_level() -> None:
    view, source = tier_of(np.zeros(1_000_000, np.uint8))
    image = BlockImage(view)
    image.set_grid(arrange(1_000_000, 900, 300))
    image.refresh(0)
    image.level(8)
    source.put(777_777, S.ACTIVE, 1, 16, 1, 1)
    view.update(source.delta())
    image.refresh(1)
    for level in range(9):
        assert np.count_nonzero(image.level(level) == CODE_STATE + S.ACTIVE) == 1
    source.put(777_777, S.FREE, 0, 0, 0, 2)
    view.update(source.delta())
    image.refresh(2)
    assert not np.any(image.level(8) == CODE_STATE + S.ACTIVE)


def codes_of(colouring: Colouring, source: Tier, step: int = 0) -> list[int]:
    view = TierView()
    view.replace(source.blocks(None))
    image = BlockImage(view)
    image.set_grid(arrange(source.num_blocks, source.num_blocks, 1))
    image.set_colouring(colouring)
    image.refresh(step)
    return image.level(0).ravel().tolist()


def test_each_colouring_tells_its_quantity() -> None:
    source = Tier(6, 16)
    source.put(1, S.RESERVED, 1, 0, 7, 90)
    source.put(2, S.CACHED, 0, 16, 0, 100 - 50)
    source.put(3, S.ACTIVE, 1, 4, 7, 100)
    source.put(4, S.SHARED, 9, 16, 8, 99)
    source.put(5, S.SWAPPED, 1, 16, 7 + 24, 1)
    by_state = codes_of(Colouring.STATE, source)
    assert by_state == [CODE_STATE + state for state in (S.FREE, S.RESERVED, S.CACHED, S.ACTIVE, S.SHARED, S.SWAPPED)]
    by_request = codes_of(Colouring.REQUEST, source)
    assert by_request[:3] == [CODE_NEUTRAL + state for state in (S.FREE, S.RESERVED, S.CACHED)]
    assert by_request[3] == CODE_REQUEST + 7 == by_request[5]
    assert by_request[4] == CODE_REQUEST + 8
    by_ref = codes_of(Colouring.REF, source)
    assert by_ref[3] < by_ref[4]
    by_age = codes_of(Colouring.AGE, source, step=100)
    assert by_age[3] == CODE_RAMP + RAMP_STEPS - 1
    assert by_age[3] > by_age[4] > by_age[2] > by_age[5]
    assert codes_of(Colouring.AGE, source, step=100 + 2 * AGE_TOP)[5] == CODE_RAMP
    source.depth[2:5] = 300, 2, 1
    by_depth = codes_of(Colouring.DEPTH, source)
    assert by_depth[2] == CODE_RAMP + RAMP_STEPS - 1 > by_depth[3] > by_depth[4] >= CODE_RAMP
    assert by_depth[5] == CODE_NEUTRAL + S.CACHED  # not known
    by_fill = codes_of(Colouring.FILL, source)
    assert by_fill[3] < by_fill[4] == by_fill[2] == CODE_RAMP + RAMP_STEPS - 1


def test_classes_have_shades_and_a_change_of_class_is_drawn() -> None:
    source, classes = Tier(4, 16), ClassTable()
    for block, owner in enumerate((0, 7, 8, 9)):
        source.put(block, S.ACTIVE if owner else S.CACHED, 1, 16, owner, 1)
    classes.put(7, "interactive")
    classes.put(9, "batch")
    view = TierView(classes)
    view.replace(source.blocks(None))
    image = BlockImage(view)
    image.set_grid(arrange(4, 4, 1))
    image.set_colouring(Colouring.CLASS)
    image.refresh(0)
    codes = image.level(0).ravel().tolist()
    assert codes == [CODE_NEUTRAL + S.CACHED, CODE_CLASS + 2, CODE_CLASS + 1, CODE_CLASS]
    assert len(set(theme.lookup_table(theme.LIGHT)[codes].tolist())) == 4
    assert not image.refresh(0)
    classes.put(9, "interactive")
    assert image.refresh(0)
    assert image.level(0).ravel().tolist()[3] == CODE_CLASS + 2


def test_the_legend_dims_what_is_not_singled_out() -> None:
    view, _ = tier_of([S.FREE, S.CACHED, S.ACTIVE])
    image = BlockImage(view)
    image.set_grid(arrange(3, 3, 1))
    image.set_shown(frozenset({S.CACHED}))
    image.refresh(0)
    assert image.level(0).ravel().tolist() == [CODE_DIMMED, CODE_STATE + S.CACHED, CODE_DIMMED]
    assert image.level(2).max() == CODE_STATE + S.CACHED


def test_a_trace_outshines_everything_and_the_rest_of_the_grid_is_void() -> None:
    view, _ = tier_of([S.SHARED] * 10)
    image = BlockImage(view)
    image.set_grid(arrange(10, 900, 500))
    assert image.trace(np.array([3], np.uint32))
    assert not image.trace(np.array([3], np.uint32))
    image.refresh(0)
    codes = image.level(0).ravel()
    assert codes[3] == CODE_STATE + S.SHARED + CODE_TRACED
    assert (codes[10:] == CODE_VOID).all()
    assert image.level(4).max() == codes[3]


# --- the widget -------------------------------------------------------------------------------------------------


class Shown:
    """A block map over a fed link."""

    def __init__(
        self,
        qtbot: QtBot,
        link: ScriptedLink,
        feeder: Feeder,
        size: tuple[int, int] = (900, 520),
        *,
        motion: bool = False,
    ) -> None:
        self.link, self.feeder, self.selection = link, feeder, Selection()
        link.view.begin(feeder.epoch)
        link.view.apply_snapshot(feeder.snapshot())
        self.map = BlockMap(link, self.selection)
        self.map.motion.setChecked(motion)
        qtbot.addWidget(self.map)
        self.map.resize(*size)
        with qtbot.waitExposed(self.map):
            self.map.show()

    def advance(self, steps: int, arrivals: float = 0.5) -> None:
        for message in self.feeder.advance(steps, arrivals=arrivals):
            self.link.view.apply(*message)
        self.map._figures.stop()  # as if the last figures had been read already
        self.link.blocksChanged.emit()
        self.link.requestsChanged.emit()

    @property
    def pool(self):
        return self.map.pools["device"]

    def colour_at(self, block: int, part: float = 0.5) -> str:
        """The colour in the middle of a cell as painted, ``part`` of the way across."""
        canvas = self.pool.canvas
        cell = canvas.cell_rect(block)
        image = canvas.grab().toImage()
        return QColor(image.pixel(int(cell.left() + part * cell.width()), int(cell.center().y()))).name()

    def colour_at_slot(self, block: int, slot: int) -> str:
        """The colour in a slot's lower right corner, where no text is."""
        canvas = self.pool.canvas
        cell = canvas.cell_rect(block)
        columns, rows = slot_grid(self.pool.canvas.image.tier.block_size, cell.width(), cell.height())
        row, column = divmod(slot, columns)
        x = cell.left() + (column + 1) * cell.width() / columns - 3
        y = cell.top() + (row + 1) * cell.height() / rows - 3
        return QColor(canvas.grab().toImage().pixel(int(x), int(y))).name()

    def click(self, qtbot: QtBot, block: int) -> None:
        canvas = self.pool.canvas
        at = canvas.cell_rect(block).center().toPoint()
        qtbot.mouseClick(canvas.viewport(), Qt.MouseButton.LeftButton, pos=at)


@pytest.fixture
def shown(qtbot: QtBot, link: ScriptedLink, languages: Languages) -> Shown:
    return Shown(qtbot, link, Feeder(400, 16, 60, seed=2))


def test_painted_cells_have_their_states_colours(shown: Shown) -> None:
    shown.advance(40)
    tier, palette = shown.link.view.device, theme.current().palette
    full = (tier.state < S.CACHED) | (tier.fill == tier.block_size)
    assert len(set(tier.state.tolist())) >= 2
    for block in np.flatnonzero(full)[::17].tolist():
        assert shown.colour_at(block) == palette.states[S(int(tier.state[block]))], block


def test_a_partly_filled_block_looks_partial(shown: Shown) -> None:
    feeder = shown.feeder
    feeder.device.put(0, S.ACTIVE, 1, 8, 1, 1)
    shown.advance(1, arrivals=0)
    palette = theme.current().palette
    assert shown.colour_at(0, 0.25) == palette.states[S.ACTIVE]
    assert shown.colour_at(0, 0.75) not in (palette.states[S.ACTIVE], palette.window)


def test_the_theme_recolours_the_map(shown: Shown) -> None:
    shown.feeder.device.put(0, S.SHARED, 2, 16, 1, 1)
    shown.advance(1, arrivals=0)
    theme.current().set_mode("dark")
    assert shown.colour_at(0) == theme.DARK.states[S.SHARED]


def test_a_click_selects_the_block_and_its_request(qtbot: QtBot, shown: Shown) -> None:
    shown.feeder.device.put(42, S.ACTIVE, 1, 16, 9, 1)
    shown.advance(1, arrivals=0)
    with qtbot.waitSignal(shown.selection.changed):
        shown.click(qtbot, 42)
    assert shown.selection.block == ("device", 42)
    assert shown.selection.request == 9


def test_the_selected_request_is_traced_in_the_order_of_its_table(qtbot: QtBot, shown: Shown) -> None:
    request = shown.feeder.submit(200, 50, priority=0)
    shown.advance(20, arrivals=0)
    number, table = request.row.number, list(request.table)
    shown.link.view.requests[number] = request.row
    shown.selection.select_request(number)
    canvas = shown.pool.canvas
    assert set(canvas.image.traced.tolist()) == set(table)  # by owner, until the table is known
    assert shown.link.last(DescribeRequest)[0].request == request.row.id
    detail = shown.feeder.detail(number)
    detail.block_tables[0].reverse()
    shown.link.answer(DescribeRequest, detail)
    assert canvas.image.traced.tolist() == table[::-1]
    other = next(b for b in range(400) if b not in table)
    states, tier = theme.current().palette.states, shown.link.view.device
    assert shown.colour_at(other) != states[S(int(tier.state[other]))]  # faded
    shown.selection.clear()
    assert not canvas.image.traced.size
    assert shown.colour_at(other) == states[S(int(tier.state[other]))]


def test_hovering_tells_a_blocks_story(qtbot: QtBot, shown: Shown) -> None:
    request = shown.feeder.submit(40, 50, priority=0)
    shown.advance(5, arrivals=0)
    shown.link.view.requests[request.row.number] = request.row
    block = request.table[0]
    canvas, card = shown.pool.canvas, shown.pool._card
    with qtbot.waitSignal(canvas.blockHovered):
        qtbot.mouseMove(canvas.viewport(), canvas.cell_rect(block).center().toPoint())
    assert card.isVisible()
    text = card._head.text() + card._body.text()
    for part in (f"Block {block}", "active", f"#{request.row.number}", request.row.id, "16 of 16 tokens", "step 1"):
        assert part in text
    qtbot.waitUntil(lambda: shown.link.count(DescribeBlock) == 1)
    detail = BlockDetail(
        tier="device",
        block=block,
        prefix_hash="ab12cd34",
        text="Once upon",
        owners=[BlockOwner(request.row.number, 0, 0)],
        depth=3,
        child_count=2,
        copy=41,
    )
    shown.link.answer(DescribeBlock, detail)
    assert card._text.text() == "Once upon"
    body = card._body.text()
    for part in (
        "ab12cd34",
        "block 3 of its prefix, continued by 2",
        f"slots {block * 16:,} –",
        "copy in host block 41",
        f"held by #{request.row.number}, sample 1, position 0",  # as the inspector says it
    ):
        assert part in body
    assert shown.pool.rect().contains(card.geometry())


def test_a_story_that_grows_is_never_cut(qtbot: QtBot, shown: Shown) -> None:
    request = shown.feeder.submit(40, 50, priority=0)
    shown.advance(5, arrivals=0)
    block, canvas, card = request.table[0], shown.pool.canvas, shown.pool._card
    qtbot.mouseMove(canvas.viewport(), canvas.cell_rect(300).center().toPoint())  # where the pointer was not yet
    with qtbot.waitSignal(canvas.blockHovered):
        qtbot.mouseMove(canvas.viewport(), canvas.cell_rect(block).center().toPoint())
    narrow = card.size()
    shown.link.view.requests[request.row.number] = msgspec.structs.replace(request.row, id="W" * 24)
    shown.pool.draw()
    assert card.width() > narrow.width()
    QApplication.processEvents()  # what was laid out only asked for it
    assert card._body.width() >= card._body.sizeHint().width()
    assert card._body.height() >= card._body.sizeHint().height()


def test_choices_are_wide_enough_for_their_texts(shown: Shown) -> None:
    for choice in (shown.map._colouring, shown.map._ghost):
        option = QStyleOptionComboBox()
        choice.initStyleOption(option)
        part = QStyle.SubControl.SC_ComboBoxEditField
        room = choice.style().subControlRect(QStyle.ComplexControl.CC_ComboBox, option, part, choice).width()
        for index in range(choice.count()):
            text = choice.itemText(index)
            assert choice.fontMetrics().horizontalAdvance(text) <= room, text


@pytest.mark.parametrize("gone", [ConnectionState.DISCONNECTED, ConnectionState.DIED, ConnectionState.NOT_ANSWERING])
def test_the_last_figures_of_an_engine_are_not_told_as_those_of_now(shown: Shown, gone: ConnectionState) -> None:
    shown.advance(1)
    assert "last known" not in shown.pool._usage.text()
    shown.link.say_connection(gone)
    shown.map._figures.stop()
    shown.map.refresh()
    assert shown.pool._usage.text().startswith("last known · ")


def test_the_header_counts_with_units(shown: Shown) -> None:
    for block in range(100):
        shown.feeder.device.put(block, S.SHARED if block < 10 else S.ACTIVE, 3 if block < 10 else 1, 15, 1, 1)
    for block in range(100, 120):
        shown.feeder.device.put(block, S.RESERVED, 0, 0, 1, 1)
    shown.advance(1, arrivals=0)
    capacity, usage = shown.pool._capacity.text(), shown.pool._usage.text().replace("\u00a0", " ")
    assert "400 blocks × 16 tokens" in capacity
    for part in ("30 % allocated", "78 % of it filled", "120 blocks", "1,500 tokens"):
        assert part in usage.split(" · ")
    assert "saved" not in usage and "run" not in usage  # what is told once a second is not known yet
    shown.link.view.apply(*shown.feeder.message(b"stats", shown.feeder.stats()))
    shown.pool.write_header()
    usage = shown.pool._usage.text().replace("\u00a0", " ")
    assert usage.endswith("sharing saves 20 · mean run 5.2")


def test_the_legend_counts_and_singles_out(qtbot: QtBot, shown: Shown) -> None:
    shown.feeder.device.put(5, S.SHARED, 2, 16, 1, 1)
    shown.feeder.device.put(6, S.ACTIVE, 1, 16, 1, 1)
    shown.advance(1, arrivals=0)
    chip = shown.map.legend._chips[S.SHARED]
    assert "1" in chip.text()
    qtbot.mouseClick(chip, Qt.MouseButton.LeftButton)
    palette = theme.current().palette
    assert shown.colour_at(5) == palette.states[S.SHARED]
    assert shown.colour_at(6) == theme.mix(palette.states[S.FREE], palette.window, 0.5)
    qtbot.mouseClick(chip, Qt.MouseButton.LeftButton)
    assert shown.colour_at(6) == palette.states[S.ACTIVE]


def test_a_pool_tells_what_it_keeps_beside_what_is_in_use(shown: Shown) -> None:
    assert "cached" not in shown.pool._usage.text()
    for block in range(150):
        shown.feeder.device.put(block, S.CACHED, 0, 16, 0, 1)
    shown.advance(1, arrivals=0)
    shown.pool.write_header()
    assert "150 more cached" in shown.pool._usage.text()


def test_the_legend_stays_true_when_the_pools_change(languages: Languages, qtbot: QtBot) -> None:
    legend, device, host = Legend(), TierView(), TierView()
    qtbot.addWidget(legend)
    device.replace(Tier(40, 16).blocks(None))
    away = Tier(4, 16)
    away.put(0, S.SWAPPED, 1, 16, 1, 1)
    host.replace(away.blocks(None))
    legend.set_colouring(Colouring.FILL, 16)
    legend.refresh(device, host)
    chip = legend._chips[S.SWAPPED]
    chip.click()
    host.replace(Tier(0, 16).blocks(None))
    device.replace(Tier(20, 32).blocks(None))
    legend.refresh(device, host)
    assert legend.shown == {S.SWAPPED} and not chip.isHidden()  # what filters can be seen, and taken back
    assert legend._scale._high.text() == "32 tokens"
    chip.click()
    legend.refresh(device, host)
    assert chip.isHidden()


def test_zoom_pan_and_fit(qtbot: QtBot, shown: Shown) -> None:
    canvas = shown.pool.canvas
    whole = canvas.visible_cells
    for _ in range(6):
        qtbot.keyClick(canvas, Qt.Key.Key_Plus)
    close = canvas.visible_cells
    assert close[1] - close[0] < whole[1] - whole[0]
    shown.map.resize(800, 500)  # a zoomed view stays zoomed
    assert canvas.visible_cells[1] - canvas.visible_cells[0] < whole[1] - whole[0]
    qtbot.keyClick(canvas, Qt.Key.Key_F)
    columns = canvas.image.grid.columns
    assert canvas.visible_cells[:2] == (0, columns)


def test_arrow_keys_walk_over_the_blocks(qtbot: QtBot, shown: Shown) -> None:
    canvas = shown.pool.canvas
    shown.selection.select_block("device", 0)
    qtbot.keyClick(canvas, Qt.Key.Key_Right)
    qtbot.keyClick(canvas, Qt.Key.Key_Down)
    assert shown.selection.block == ("device", 1 + canvas.image.grid.columns)
    qtbot.keyClick(canvas, Qt.Key.Key_Up)
    qtbot.keyClick(canvas, Qt.Key.Key_Up)
    assert shown.selection.block == ("device", 1)


def test_a_repage_is_drawn_whole(qtbot: QtBot, shown: Shown) -> None:
    other = Feeder(800, 8, 0)
    other.device.put(799, S.ACTIVE, 1, 8, 1, 1)
    whole = BlocksUpdate(shown.feeder.epoch, 5, True, other.device.blocks(None), other.host.blocks(None))
    shown.link.view.apply(*shown.feeder.message(b"blocks", whole))
    shown.link.blocksChanged.emit()
    qtbot.waitUntil(lambda: "800 blocks" in shown.pool._capacity.text())
    assert "800 blocks × 8 tokens" in shown.pool._capacity.text()
    assert shown.colour_at(799) == theme.current().palette.states[S.ACTIVE]
    assert shown.map.pools["host"].isHidden()


def test_pools_of_another_group_of_layers_can_be_shown(qtbot: QtBot, shown: Shown) -> None:
    assert shown.map._group.isHidden()
    window = Feeder(200, 16, 0)
    window.device.put(3, S.ACTIVE, 1, 16, 1, 1)
    whole = BlocksUpdate(
        shown.feeder.epoch, 5, True, shown.feeder.device.blocks(None), shown.feeder.host.blocks(None), name="full",
        groups=[GroupBlocks("window 512", window.device.blocks(None), window.host.blocks(None))],
    )  # fmt: skip
    shown.link.view.apply(*shown.feeder.message(b"blocks", whole))
    shown.link.blocksChanged.emit()
    chooser = shown.map._group
    assert not chooser.isHidden()
    assert [chooser.itemText(i) for i in range(chooser.count())] == ["all positions", "window of 512 tokens"]
    assert chooser.currentIndex() == 0
    shown.map.show_group("window 512")
    qtbot.waitUntil(lambda: "200 blocks" in shown.pool._capacity.text())
    assert shown.colour_at(3) == theme.current().palette.states[S.ACTIVE]
    assert chooser.currentText() == "window of 512 tokens"
    shown.map.show_group("full")
    qtbot.waitUntil(lambda: "400 blocks" in shown.pool._capacity.text())


def test_an_empty_pool_invites(qtbot: QtBot, shown: Shown) -> None:
    invitation = shown.pool._invitation
    assert invitation.isVisible()
    assert "6,400 tokens" in invitation._text.text()
    with qtbot.waitSignal(shown.map.sampleRequested):
        qtbot.mouseClick(invitation._button, Qt.MouseButton.LeftButton)
    shown.feeder.submit(100, 20)
    shown.advance(2, arrivals=0)
    assert not invitation.isVisible()


def test_before_an_engine_is_known_the_map_says_so(qtbot: QtBot) -> None:
    link = EngineLink()
    link.view.set_connection(ConnectionState.CONNECTING)
    view = BlockMap(link, Selection())
    qtbot.addWidget(view)
    view.show()
    invitation = view.pools["device"]._invitation
    assert invitation.isVisible()
    assert not invitation._button.isVisible()


def test_a_hidden_map_does_nothing(shown: Shown) -> None:
    shown.map.hide()
    version = shown.pool.canvas.image._version
    shown.advance(5)
    assert shown.pool.canvas.image._version == version
    shown.map.show()
    assert shown.pool.canvas.image._version == shown.link.view.device.version


def test_every_text_changes_with_the_language(shown: Shown) -> None:
    """A translator that marks all texts shows which ones go through translation, and again when it comes live."""
    from PySide6.QtCore import QCoreApplication, QTranslator

    class Marking(QTranslator):
        def translate(self, context: str, source: str, *_: object) -> str:
            return f"⟦{source}⟧"

        def isEmpty(self) -> bool:
            return False

    marking = Marking()
    QCoreApplication.installTranslator(marking)
    try:
        QCoreApplication.processEvents()
        pool = shown.pool
        texts = [pool._title.text(), pool._capacity.text(), pool._usage.text(), pool._invitation._text.text()]
        texts += [pool._invitation._button.text(), shown.map._fit.text(), shown.map._colouring.itemText(3)]
        texts += [chip.text() for chip in shown.map.legend._chips.values()]
        assert all("⟦" in text for text in texts), texts
    finally:
        QCoreApplication.removeTranslator(marking)


def test_a_click_beside_the_pool_clears_the_selection(qtbot: QtBot, link: ScriptedLink) -> None:
    shown = Shown(qtbot, link, Feeder(12, 16, 0))
    shown.selection.select_block("device", 3)
    qtbot.mouseClick(shown.pool.canvas.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(3, 3))
    assert shown.selection.block is None


def test_a_block_is_opened_by_a_double_click_or_by_enter(qtbot: QtBot, shown: Shown) -> None:
    shown.feeder.device.put(42, S.ACTIVE, 1, 16, 9, 1)
    shown.advance(1, arrivals=0)
    canvas = shown.pool.canvas
    at = canvas.cell_rect(42).center().toPoint()
    with qtbot.waitSignal(shown.map.blockOpened):
        shown.click(qtbot, 42)
        qtbot.mouseDClick(canvas.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert shown.selection.block == ("device", 42)
    with qtbot.waitSignal(shown.map.blockOpened):
        qtbot.keyClick(canvas, Qt.Key.Key_Return)


def test_an_opened_block_opens_the_inspector(window: MainWindow) -> None:
    window.dock.hide()
    window.map.blockOpened.emit()
    assert window.dock.isVisible()


def test_from_near_a_block_is_its_slots_and_their_tokens(qtbot: QtBot, shown: Shown) -> None:
    shown.feeder.device.put(0, S.ACTIVE, 1, 3, 9, 1)
    shown.advance(1, arrivals=0)
    canvas = shown.pool.canvas
    shown.selection.select_block("device", 0)
    assert shown.link.count(DescribeBlock) == 0  # from afar nothing is asked
    qtbot.keyClick(canvas, Qt.Key.Key_Z)
    assert min(canvas.cell_size) >= SLOT_CELL
    qtbot.waitUntil(lambda: shown.link.count(DescribeBlock) == 1)  # of all that is in view, this one holds tokens
    plain = canvas.grab().toImage()
    shown.link.answer(DescribeBlock, BlockDetail(tier="device", block=0, token_texts=["Once", " upon", "\n"]))
    assert shown.pool.canvas.texts_of(0) == ["Once", " upon", "\n"]
    assert canvas.grab().toImage() != plain  # the text is drawn
    palette = theme.current().palette
    assert shown.colour_at_slot(0, 2) == palette.states[S.ACTIVE]
    assert shown.colour_at_slot(0, 3) not in (palette.states[S.ACTIVE], palette.window)  # empty
    shown.feeder.device.put(0, S.ACTIVE, 1, 4, 9, 2)
    shown.advance(1, arrivals=0)
    qtbot.waitUntil(lambda: shown.link.count(DescribeBlock) == 2)  # it holds another token now
    shown.feeder.device.put(0, S.FREE, 0, 0, 0, 3)
    shown.advance(1, arrivals=0)
    qtbot.waitUntil(lambda: not shown.pool.canvas.texts_of(0))
    shown.link.answer(DescribeBlock, BlockDetail(tier="device", block=0, token_texts=["late"]))
    assert not shown.pool.canvas.texts_of(0)  # what it held is no longer what it holds


@pytest.mark.parametrize("block_size", [32, 64, 256])
def test_tokens_can_be_read_in_a_flat_view_too(
    qtbot: QtBot, link: ScriptedLink, languages: Languages, block_size: int
) -> None:
    flat = Shown(qtbot, link, Feeder(400, block_size, 60, seed=2), size=(880, 240))
    flat.feeder.device.put(150, S.ACTIVE, 1, block_size, 9, 1)
    flat.advance(1, arrivals=0)
    canvas = flat.pool.canvas
    assert canvas.viewport().height() < 200
    flat.selection.select_block("device", 150)
    qtbot.keyClick(canvas, Qt.Key.Key_Z)
    columns, rows = slot_grid(block_size, *canvas.cell_size)
    assert canvas.cell_size[0] / columns >= 40 and canvas.cell_size[1] / rows >= 14
    assert canvas.cell_rect(150).top() > -3 and canvas.cell_rect(150).left() > -3  # its beginning is in view
    qtbot.waitUntil(lambda: link.count(DescribeBlock) > 0)
    plain = canvas.grab().toImage()
    for message, reply in list(link.sent):
        if isinstance(message, DescribeBlock) and message.block == 150:
            reply(BlockDetail(tier="device", block=150, token_texts=["word"] * block_size))
    assert canvas.grab().toImage() != plain  # the text is drawn


@pytest.mark.parametrize("block_size", [1, 8, 16, 24, 32, 64, 256])
def test_slots_have_a_words_proportions(block_size: int) -> None:
    columns, rows = slot_grid(block_size, 400, 400)
    assert columns * rows == block_size
    assert block_size < 8 or 1 <= (400 / columns) / (400 / rows) <= 8


@pytest.mark.parametrize(
    ("texts", "text", "shown"),
    [
        (["a", " b"], "a b", ["a", " b"]),
        (["分", "\ufffd", "\ufffd", "注意"], "分页注意", ["分", "页", "⋯", "注意"]),
        (["\ufffd", "的", " \ufffd", "\ufffd", "\ufffd"], "\ufffd的 存页", ["⋯", "的", " 存页", "⋯", "⋯"]),
        ([" a", "\ufffd", "\ufffd"], "a页", [" a", "页", "⋯"]),
        (["<s>", "\ufffd", "\ufffd", "的"], "页的", ["<s>", "\ufffd", "\ufffd", "的"]),  # the text leaves one out
        (["\ufffd", "\ufffd", "的"], "", ["\ufffd", "\ufffd", "的"]),
        ([], "", []),
    ],
)
def test_a_character_of_several_tokens_is_shown_at_the_first(texts: list[str], text: str, shown: list[str]) -> None:
    assert in_characters(texts, text) == shown


def test_what_is_not_seen_of_a_token_is_made_visible() -> None:
    assert [seen(text) for text in (" the", "\n\n", "a b", "x\t", "", "  ")] == ["·the", "↵↵", "a b", "x⇥", "", "··"]
