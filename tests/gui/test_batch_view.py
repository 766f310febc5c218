"""The batch timeline draws each step's tokens to scale, follows or scrubs, and tells who was in a step."""

from __future__ import annotations

import numpy as np
import pytest
from pagedeck.gui import theme
from pagedeck.gui.batch.request_bars import stacked
from pagedeck.gui.batch.step_card import StepCard
from pagedeck.gui.batch.timeline import GUTTER, kind_colour
from pagedeck.gui.batch.view import BatchView
from pagedeck.gui.calm_scale import CalmScale, nice_ceiling
from pagedeck.gui.i18n import Languages
from pagedeck.gui.selection import Selection
from pagedeck.gui.state import ConnectionState
from pagedeck.ipc.telemetry import StepEntry, StepRecord, Steps
from pagedeck.ipc.vocabulary import Hold
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QWheelEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink


class Shown:
    def __init__(self, qtbot: QtBot, link: ScriptedLink) -> None:
        self.link, self.selection, self.feeder = link, Selection(), Feeder()
        link.view.begin(self.feeder.epoch)
        self.view = BatchView(link, self.selection)
        qtbot.addWidget(self.view)
        self.view.resize(800, 240)
        with qtbot.waitExposed(self.view):
            self.view.show()
        self.timeline = self.view.timeline

    def steps(self, count: int, **changes: object) -> None:
        first = self.link.view.steps.total
        records = [
            StepRecord(
                n + 1, 1e9 + n, 64, 40, 8, 2, 1, 0, 0.5, 10.0, 1.0, 0.5,
                [StepEntry(1, 40, True), StepEntry(2, 8, False)], [], [], [],
            )
            for n in range(first, first + count)
        ]  # fmt: skip
        for name, value in changes.items():
            setattr(records[-1], name, value)
        self.link.view.apply(*self.feeder.message(b"step", Steps("e1", records)))
        self.link.stepsChanged.emit()

    def colours_of(self, step: int) -> list[str]:
        """The colours of a step's column from bottom to top."""
        timeline = self.timeline
        image = timeline.grab().toImage()
        x = int(timeline._left(step)) + 2
        plot = timeline._plot
        return [QColor(image.pixel(x, y)).name() for y in range(plot.bottom(), plot.top() - 1, -1)]

    def click(self, qtbot: QtBot, step: int) -> None:
        at = QPoint(int(self.timeline._left(step)) + 2, self.timeline._plot.center().y())
        qtbot.mouseClick(self.timeline, Qt.MouseButton.LeftButton, pos=at)


@pytest.fixture
def shown(qtbot: QtBot, link: ScriptedLink, languages: Languages) -> Shown:
    return Shown(qtbot, link)


def test_a_column_is_as_tall_as_its_tokens(shown: Shown) -> None:
    shown.steps(50)
    palette, colours = theme.current().palette, shown.colours_of(40)
    decode = colours.count(kind_colour(palette, "decode", "normal"))
    prefill = colours.count(kind_colour(palette, "prefill", "normal"))
    assert colours[1] == kind_colour(palette, "decode", "normal")  # decode stands at the bottom
    assert prefill / decode == pytest.approx(5, abs=0.6)
    assert (prefill + decode) / len(colours) == pytest.approx(48 / shown.timeline._scale.top, abs=0.04)


def test_another_life_is_followed_from_its_start(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(50)
    shown.click(qtbot, 30)
    assert shown.timeline._chosen == 30 and not shown.view._live.isChecked()
    shown.link.view.begin("e2")
    shown.link.connectionChanged.emit()
    assert shown.timeline._chosen is None and shown.view._live.isChecked()


def test_the_figures_get_brief_before_the_key_gives_way(shown: Shown) -> None:
    seen = []
    shown.steps(3)
    for width in range(400, 1401, 20):
        shown.view.resize(width, 240)
        shown.view._write_now()
        shown.view.layout().activate()
        now, key = shown.view._now, shown.view._key
        needed = now.fontMetrics().horizontalAdvance(now.text())
        assert now.width() >= needed or not key.isVisible(), width
        assert key.isVisible() or now.width() < needed + key.width() + 16, width
        seen.append((key.isVisible(), "decode" in now.text()))
    assert [*dict.fromkeys(seen)] == [(False, True), (True, False), (True, True)]


@pytest.mark.parametrize("gone", [ConnectionState.DISCONNECTED, ConnectionState.DIED, ConnectionState.NOT_ANSWERING])
def test_the_last_figures_of_an_engine_are_not_told_as_those_of_now(shown: Shown, gone: ConnectionState) -> None:
    shown.steps(3)
    assert "last known" not in shown.view._now.text()
    shown.link.say_connection(gone)
    shown.view._write_now()
    assert shown.view._now.text().startswith("last known · ")
    shown.link.say_connection(ConnectionState.READY)
    shown.view._write_now()
    assert "last known" not in shown.view._now.text()


def test_classes_have_shades(shown: Shown) -> None:
    shown.link.view._classes[2] = "interactive"
    shown.steps(3)
    palette = theme.current().palette
    assert kind_colour(palette, "decode", "interactive") in shown.colours_of(2)
    assert len({kind_colour(palette, kind, name) for kind in ("decode", "prefill") for name in theme.CLASS_SHADES}) == 6


def test_the_newest_step_is_followed_until_one_scrolls_back(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(500)
    assert shown.timeline.visible_steps[1] == 500
    qtbot.keyClick(shown.timeline, Qt.Key.Key_PageUp)
    end = shown.timeline.visible_steps[1]
    assert end < 500
    assert not shown.view._live.isChecked()
    shown.steps(20)
    assert shown.timeline.visible_steps[1] == end
    qtbot.mouseClick(shown.view._live, Qt.MouseButton.LeftButton)
    assert shown.timeline.visible_steps[1] == 520


def test_dragging_scrubs_back_and_the_wheel_too(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(500)
    at = QPoint(300, 100)
    qtbot.mousePress(shown.timeline, Qt.MouseButton.LeftButton, pos=at)
    qtbot.mouseMove(shown.timeline, QPoint(480, 100))
    qtbot.mouseRelease(shown.timeline, Qt.MouseButton.LeftButton, pos=QPoint(480, 100))
    assert shown.timeline.visible_steps[1] == 500 - 180 // 6
    wheel = QWheelEvent(
        QPointF(at), QPointF(at), QPoint(), QPoint(0, -120 * 40), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(shown.timeline, wheel)
    assert shown.timeline.visible_steps[1] == 500
    assert shown.view._live.isChecked()


def test_the_oldest_steps_stay_in_reach(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(300)
    qtbot.keyClick(shown.timeline, Qt.Key.Key_Home)
    assert shown.timeline.visible_steps[0] == 0
    qtbot.keyClick(shown.timeline, Qt.Key.Key_End)
    assert shown.timeline.visible_steps[1] == 300


def test_a_click_gives_the_steps_record(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(100)
    with qtbot.waitSignal(shown.view.stepSelected) as told:
        shown.click(qtbot, 90)
    assert told.args[0].step == 91
    assert told.args[0].entries == [StepEntry(1, 40, True), StepEntry(2, 8, False)]
    with qtbot.waitSignal(shown.view.stepSelected) as told:
        qtbot.keyClick(shown.timeline, Qt.Key.Key_Left)
    assert told.args[0].step == 90


def test_hovering_tells_who_was_in_a_step(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(100, preempted=[7], swapped_out=[8])
    x = int(shown.timeline._left(99)) + 2
    qtbot.mouseMove(shown.timeline, QPoint(x, 60))
    card = shown.timeline._card
    assert card.isVisible()
    text = card._head.text() + card._body.text()
    for part in (
        "Step 100",
        "12\u00a0ms",
        "40 prefill + 8 decode of 64",
        "#1",
        "#2",
        "preempted: #7",
        "swapped out: #8",
    ):
        assert part in text, text
    assert shown.view.rect().contains(card.geometry())


def test_the_samples_of_a_request_are_one_share_of_a_step(shown: Shown) -> None:
    shown.steps(1, entries=[StepEntry(5, 1, False), StepEntry(6, 1, False), StepEntry(5, 1, False)])
    card = StepCard(shown.view)
    card.write(shown.link.view.steps.record(0), shown.link)
    shares = [line for line in card._body.text().splitlines() if line.startswith("#")]
    assert shares == ["#5 · decode 2", "#6 · decode 1"]


def test_of_the_samples_that_came_back_their_request_is_named_once(shown: Shown) -> None:
    shown.steps(1, resumed=[6, 8, 8, 8], preempted=[7, 7])
    card = StepCard(shown.view)
    card.write(shown.link.view.steps.record(0), shown.link)
    assert {"preempted: #7", "resumed: #6 #8"} <= {*card._body.text().splitlines()}


def test_preemptions_and_swaps_are_marked(shown: Shown) -> None:
    shown.steps(30, preempted=[7])
    timeline = shown.timeline
    image = timeline.grab().toImage()
    x = int(timeline._left(29)) + 2
    marks = {QColor(image.pixel(x, y)).name() for y in range(timeline._plot.top())}
    assert theme.current().palette.error in marks


def test_the_selected_requests_steps_are_underlined(shown: Shown) -> None:
    shown.steps(30)
    shown.selection.select_request(2)
    timeline = shown.timeline
    image = timeline.grab().toImage()
    foot = QColor(image.pixel(int(timeline._left(20)) + 2, timeline._plot.bottom() + 3)).name()
    assert foot == theme.current().palette.ink


def test_columns_widen_and_narrow(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(400)
    before = len(range(*shown.timeline.visible_steps))
    qtbot.keyClick(shown.timeline, Qt.Key.Key_Plus)
    assert len(range(*shown.timeline.visible_steps)) < before
    for _ in range(20):
        qtbot.keyClick(shown.timeline, Qt.Key.Key_Minus)
    assert len(range(*shown.timeline.visible_steps)) == (800 - 32 - GUTTER) // 2


def test_a_new_engine_starts_an_empty_timeline(shown: Shown) -> None:
    shown.steps(100)
    shown.link.view.begin("e2")
    shown.link.stepsChanged.emit()
    assert shown.timeline.visible_steps == (0, 0)
    shown.timeline.grab()


def test_a_calm_scale_grows_at_once_and_shrinks_late() -> None:
    scale = CalmScale(patience=3)
    assert scale.update(70) == 80
    assert scale.update(300) == 300
    assert [scale.update(20) for _ in range(2)] == [300, 300]
    assert scale.update(290) == 300
    assert [scale.update(20) for _ in range(3)] == [300, 300, 20]
    assert nice_ceiling(0.013) == pytest.approx(0.015)
    assert nice_ceiling(0) == 1


# --- who waited -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hold", "reason"),
    [
        (Hold.BATCH, "#7 waited because all places in the batch were taken"),
        (Hold.CLASS, "#7 waited because all places of its class were taken"),
        (Hold.BUDGET, "#7 waited because the token budget was spent on others"),
        (Hold.BLOCKS, "#7 waited because too few blocks were to be had"),
        ("", ""),
    ],
)
def test_a_clicked_step_tells_why_others_waited(qtbot: QtBot, shown: Shown, hold: str, reason: str) -> None:
    shown.steps(20)
    shown.steps(1, waited=[7, 9], hold=str(hold), waiting=2)
    shown.click(qtbot, 20)
    body = shown.timeline._card._body.text()
    assert "waited: #7 #9\n" in body + "\n"
    assert reason in body
    assert ("because" in body) == bool(reason)


def test_a_clicked_step_stays_told_until_it_is_clicked_again(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(20)
    shown.click(qtbot, 15)
    card = shown.timeline._card
    assert card.isVisible() and "Step 16" in card._head.text()
    assert not shown.view._live.isChecked()
    qtbot.mouseMove(shown.view, QPoint(5, 5))
    shown.steps(5)
    assert card.isVisible() and "Step 16" in card._head.text()
    shown.click(qtbot, 15)
    shown.timeline._hover(None)
    assert not card.isVisible()
    shown.click(qtbot, 15)
    shown.timeline._hover(None)
    qtbot.keyClick(shown.timeline, Qt.Key.Key_Escape)
    assert not card.isVisible()


def test_a_step_that_nobody_waited_for_says_nothing_of_it(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(5)
    shown.click(qtbot, 3)
    assert "waited" not in shown.timeline._card._body.text()


def test_each_request_can_have_a_colour(qtbot: QtBot, shown: Shown) -> None:
    shown.steps(50)
    qtbot.mouseClick(shown.view._by_request, Qt.MouseButton.LeftButton)
    palette, colours = theme.current().palette, shown.colours_of(40)
    decoded, prefilled = (theme.request_colour(palette, number) for number in (2, 1))
    assert colours[1] == decoded  # decode stands at the bottom
    assert colours.count(prefilled) / colours.count(decoded) == pytest.approx(5, abs=0.6)
    shown.selection.select_request(2)
    colours = shown.colours_of(40)
    assert decoded in colours and prefilled not in colours  # all others are faded
    qtbot.mouseClick(shown.view._by_request, Qt.MouseButton.LeftButton)
    assert kind_colour(palette, "decode", "normal") in shown.colours_of(40)


def test_parts_are_stacked_to_scale() -> None:
    columns, amounts, colours = np.array([0, 0, 2]), np.array([1, 2, 9]), np.array([5, 6, 7], np.uint32)
    pixels = stacked(columns, amounts, colours, 4, 6, 2.0)
    assert pixels[::-1, 0].tolist() == [5, 5, 6, 6, 6, 6]
    assert not pixels[:, (1, 3)].any()
    assert pixels[:, 2].tolist() == [7] * 6  # no higher than there is room
    assert not stacked(columns[:0], amounts[:0], colours[:0], 3, 6, 1.0).any()
