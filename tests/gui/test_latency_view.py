"""Latency charts show what was measured, with units, and nothing where nothing was."""

from __future__ import annotations

import numpy as np
import pytest
from pagedeck.gui import theme
from pagedeck.gui.chart import POINTS, format_value
from pagedeck.gui.i18n import Languages
from pagedeck.gui.latency_view import LatencyView
from pagedeck.gui.state import StepHistory
from pagedeck.gui.step_split import PARTS, split_by_second
from pagedeck.ipc.telemetry import Percentiles, StepRecord
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink


class Shown:
    def __init__(self, qtbot: QtBot, link: ScriptedLink) -> None:
        self.link, self.feeder = link, Feeder()
        link.view.begin(self.feeder.epoch)
        self.view = LatencyView(link)
        qtbot.addWidget(self.view)
        self.view.resize(900, 600)
        with qtbot.waitExposed(self.view):
            self.view.show()

    def seconds(self, count: int, **latency: Percentiles) -> None:
        for _ in range(count):
            self.feeder.time += 1
            stats = self.feeder.stats()
            stats.latency |= latency
            self.link.view.apply(*self.feeder.message(b"stats", stats))
        self.link.statsChanged.emit()

    def curve(self, chart: str, index: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.view.charts[chart]._curves[index].getData()
        return np.asarray(x), np.asarray(y)


@pytest.fixture
def shown(qtbot: QtBot, link: ScriptedLink, languages: Languages) -> Shown:
    return Shown(qtbot, link)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_every_line_can_be_seen(shown: Shown, mode: str) -> None:
    before = theme.current().mode
    theme.current().set_mode(mode)
    window = theme.current().palette.window
    for name, chart in shown.view.charts.items():
        if name != "split":
            for series in chart._series:
                assert theme.contrast(series.colour, window) >= 3, (name, series.name)
    theme.current().set_mode(before)


def test_a_chart_without_values_has_no_scale(shown: Shown) -> None:
    shown.seconds(5, ttft=Percentiles(5, 0.2, 0.3, 0.4), e2e=Percentiles(0, 0.0, 0.0, 0.0))
    empty, filled = (shown.view.charts[name]._left for name in ("e2e", "ttft"))
    assert [empty.tickStrings([0.0, value], 1, 1) for value in (0.5, 1.0)] == [["0", ""]] * 2
    assert filled.tickStrings([0.0, 0.5], 1, 1)[1].startswith("0.5")


def test_percentiles_are_drawn_over_the_time_before_now(shown: Shown) -> None:
    shown.seconds(30, ttft=Percentiles(5, 0.2, 0.3, 0.4))
    for index, value in enumerate((0.2, 0.3, 0.4)):
        x, y = shown.curve("ttft", index)
        assert x[-1] == 0 and x[0] == -29
        np.testing.assert_allclose(y, value)
    assert [text for _, text in shown.view.charts["ttft"]._values._shown] == [
        "0.20\u00a0s",
        "0.30\u00a0s",
        "0.40\u00a0s",
    ]


def test_work_done_again_is_told_as_a_share_of_all_work(shown: Shown) -> None:
    assert shown.view._redone.text() == ""
    shown.seconds(1)
    text = shown.view._redone.text().replace("\u00a0", " ")
    assert text == "Redone after preemption: 1.0 % (last minute), 2.5 % (since the start)"


def test_what_was_not_measured_is_not_drawn(shown: Shown) -> None:
    shown.seconds(5, queue=Percentiles())
    assert np.isnan(shown.curve("queue", 0)[1]).all()
    assert [text for _, text in shown.view.charts["queue"]._values._shown] == ["–"] * 3


@pytest.mark.parametrize("width", [300, 430, 1200])
def test_names_stay_beside_their_values_however_narrow(shown: Shown, width: int) -> None:
    """Four names, in the longest texts that a step's times have: on two lines where one is too short."""
    chart = shown.view.charts["split"]
    chart.setParent(None)
    chart.resize(width, 200)
    chart.show()
    legend = chart._values
    legend.show_values(chart._series, ["0.40\u00a0s", "6.7\u00a0ms", "0.03\u00a0ms", "0.25\u00a0ms"])
    shown.link.statsChanged.emit()
    measure = legend.fontMetrics().horizontalAdvance
    places = legend.places()
    for (series, value), place in zip(legend._shown, places, strict=True):
        assert place.x() + 12 + measure(f"{series.name} {value}") <= legend.width()
        assert place.y() + legend.fontMetrics().height() <= legend.height() + 2
    assert len({(place.x(), place.y()) for place in places}) == 4
    assert len({place.y() for place in places}) == (1 if width == 1200 else 2)
    chart.close()


def test_a_silence_interrupts_the_curve(shown: Shown) -> None:
    shown.seconds(10)
    shown.feeder.time += 40
    shown.seconds(10)
    _, y = shown.curve("ttft", 0)
    assert np.isnan(y).sum() == 1


def test_only_the_span_is_shown(qtbot: QtBot, shown: Shown) -> None:
    shown.seconds(400)
    assert shown.curve("ttft", 0)[0][0] >= -120
    qtbot.mouseClick(shown.view._span_buttons[1], Qt.MouseButton.LeftButton)
    assert shown.curve("ttft", 0)[0][0] == -399


def test_long_curves_are_thinned_but_keep_their_peaks(shown: Shown) -> None:
    shown.seconds(3_000)
    shown.seconds(1, ttft=Percentiles(5, 9.0, 9.0, 9.0))
    shown.seconds(3_000)
    shown.view.set_span(7200)
    x, y = shown.curve("ttft", 0)
    assert len(x) <= POINTS + 1
    assert np.nanmax(y) == 9.0


def test_before_anything_is_measured_the_view_says_so(shown: Shown) -> None:
    assert shown.view._empty.isVisible()
    shown.seconds(1)
    shown.view.refresh()
    assert not shown.view._empty.isVisible()
    assert shown.view.charts["ttft"].isVisible()


def test_throughput_has_output_and_prompt(shown: Shown) -> None:
    shown.seconds(3)
    latency = shown.link.view.latency
    np.testing.assert_array_equal(shown.curve("throughput", 0)[1], latency.column("output_tokens_per_s"))
    np.testing.assert_array_equal(shown.curve("throughput", 1)[1], latency.column("prompt_tokens_per_s"))


def test_a_steps_time_is_split_by_second() -> None:
    steps = StepHistory()
    for n in range(10):
        record = StepRecord(
            n, 100.0 + 0.5 * n, 8, 0, 1, 1, 0, 0, 1.0, 10.0 + 10 * (n % 2), 2.0, 3.0, [], [], [], []
        )  # fmt: skip
        steps.add(record, {})
    seconds, parts = split_by_second(steps, 102.0)
    assert seconds.tolist() == [102.5, 103.5, 104.5]
    by_name = dict(zip(PARTS, parts, strict=True))
    assert by_name["forward_ms"].tolist() == [0.015] * 3
    assert by_name["sample_ms"].tolist() == [0.002] * 3
    assert [len(p) for p in split_by_second(StepHistory(), 0.0)[1]] == [0] * 4


def test_the_split_is_stacked(shown: Shown) -> None:
    for message in shown.feeder.advance(20, arrivals=1.0, stats=True):
        shown.link.view.apply(*message)
    shown.view.refresh()
    tops = [shown.curve("split", index)[1][-1] for index in range(4)]
    assert tops == sorted(tops)
    _, parts = split_by_second(shown.link.view.steps, 0.0)
    assert tops[-1] == pytest.approx(sum(part[-1] for part in parts))


def test_values_have_units(languages: Languages) -> None:
    assert format_value(0.034, "s") == "34\u00a0ms"
    assert format_value(148.2, "tok/s") == "148\u00a0tok/s"
    assert format_value(float("nan"), "s") == "–"


def test_a_hidden_view_draws_nothing(shown: Shown) -> None:
    shown.seconds(3)
    shown.view.hide()
    shown.seconds(3)
    assert len(shown.curve("ttft", 0)[0]) == 3
    shown.view.show()
    assert len(shown.curve("ttft", 0)[0]) == 6
