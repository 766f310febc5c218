"""Latency charts show what was measured, with units, and nothing where nothing was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pagedeck.gui import theme
from pagedeck.gui.chart import POINTS, Chart, Series, format_value
from pagedeck.gui.durations import EDGES
from pagedeck.gui.i18n import Language, Languages
from pagedeck.gui.latency.step_split import PARTS, split_by_second
from pagedeck.gui.latency.view import SHEETS, LatencyView
from pagedeck.gui.state import StepHistory
from pagedeck.ipc.telemetry import Percentiles, StepRecord
from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPixmap
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink
from .test_i18n import foreign, visible_texts


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


def test_a_scale_is_calm_only_for_who_looks_at_it(qtbot: QtBot, shown: Shown) -> None:
    shown.seconds(130, ttft=Percentiles(5, 9.0, 9.0, 9.0))
    shown.seconds(121, ttft=Percentiles(5, 0.01, 0.01, 0.01))
    axis = shown.view.charts["ttft"]._left
    assert axis.top == 10  # it was looked at, and the time is not up
    shown.view.hide()
    shown.view.show()
    assert axis.top == 0.01
    qtbot.mouseClick(shown.view._span_buttons[1], Qt.MouseButton.LeftButton)
    assert axis.top == 10
    qtbot.mouseClick(shown.view._span_buttons[0], Qt.MouseButton.LeftButton)
    assert axis.top == 0.01


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_legend_shows_lines_as_they_are_drawn(shown: Shown, mode: str) -> None:
    """Shades of one hue are not told apart beside each other; strokes are."""
    before = theme.current().mode
    theme.current().set_mode(mode)
    chart = shown.view.charts["ttft"]
    shown.seconds(3)
    assert len({tuple(curve.opts["pen"].dashPattern()) for curve in chart._curves}) == 3
    legend = chart._values
    image, window = legend.grab().toImage(), theme.current().palette.window
    drawn = []
    for place in legend.places():
        middle = place.y() + legend._line // 2
        row = [image.pixelColor(place.x() + x, middle).name() != window for x in range(16)]
        drawn.append(sum(row))
    assert drawn[0] > drawn[1] > drawn[2] > 0
    theme.current().set_mode(before)


@pytest.mark.parametrize("height", range(96, 160, 8))
def test_labels_of_a_scale_never_touch(qtbot: QtBot, height: int) -> None:
    chart = Chart(unit="s")
    qtbot.addWidget(chart)
    chart.set_series([Series("P50", "#000000", 1.0)])
    chart.resize(400, height)
    with qtbot.waitExposed(chart):
        chart.show()
    chart.draw(120, np.array([-2.0, -1.0, 0.0]), [np.array([0.1, 0.2, 0.3])])
    chart.grab()
    ground = QPixmap(1, 1)
    painter = QPainter(ground)
    labels = chart._left.generateDrawSpecs(painter)[2]
    painter.end()
    rows = sorted((rect.top(), rect.bottom()) for rect, _, _ in labels)
    assert len(rows) >= (3 if height > 140 else 2)
    assert all(above[1] <= below[0] for above, below in itertools.pairwise(rows))


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


# --- histograms and classes -----------------------------------------------------------------------------------------


def measure(shown: Shown, seconds: int, *, gpu: bool = False) -> None:
    for _ in range(seconds):
        shown.feeder.time += 1
        shown.link.view.apply(*shown.feeder.message(b"stats", shown.feeder.measured(gpu=gpu)))
    shown.link.statsChanged.emit()


def choose_class(shown: Shown, kind: str) -> None:
    shown.view.classes.setCurrentIndex(shown.view.classes.findData(kind))


def test_percentiles_of_one_class(shown: Shown) -> None:
    measure(shown, 70)
    everyone = shown.curve("itl", 0)[1][-1]
    choose_class(shown, "batch")
    batch = shown.curve("itl", 0)[1][-1]
    choose_class(shown, "interactive")
    interactive = shown.curve("itl", 0)[1][-1]
    assert interactive < everyone < batch
    assert batch == pytest.approx(3 * interactive, rel=0.2)


def test_histograms_count_what_the_span_holds_by_class(shown: Shown, qtbot: QtBot) -> None:
    measure(shown, 300)
    qtbot.mouseClick(shown.view.sheet_buttons[1], Qt.MouseButton.LeftButton)
    histogram = shown.view.histograms["itl"]
    assert histogram.bars.total == pytest.approx(120 * 180, rel=0.05)
    shown.view.set_span(900)
    assert histogram.bars.total == 299 * 180
    assert [series.name for series, _ in histogram.key._shown] == ["interactive", "normal", "batch"]
    assert sum(int(value.replace(",", "")) for _, value in histogram.key._shown) == 299 * 180
    choose_class(shown, "batch")
    assert histogram.bars.total == 299 * 60
    assert histogram.told.text().endswith(" · 17,940 measurements")
    assert [series.name for series, _ in histogram.key._shown] == ["batch"]


def test_bars_hold_every_bucket_once_and_tell_what_they_stand_for(shown: Shown) -> None:
    measure(shown, 60)
    shown.view.show_sheet("histograms")
    for width in (300, 900):
        shown.view.resize(width, 600)
        bars = shown.view.histograms["e2e"].bars
        groups = bars.groups()
        assert sum(int(bars._whole[first:last].sum()) for first, last in groups) == bars.total
        assert all(one[1] == other[0] for one, other in itertools.pairwise(groups))
        fullest = max(groups, key=lambda group: bars._whole[group[0] : group[1]].sum())
        x = (bars._across(EDGES[fullest[0]]) + bars._across(EDGES[fullest[1]])) / 2
        told = bars.told_at(x)
        assert str(int(bars._whole[fullest[0] : fullest[1]].sum())) in told
        assert " of all)" in told.replace("\u00a0", " ")
    assert bars.told_at(-5) == ""


def test_a_histogram_without_measurements_says_so(shown: Shown) -> None:
    shown.seconds(3)
    shown.view.show_sheet("histograms")
    bars = shown.view.histograms["ttft"].bars
    assert bars.groups() == [] and bars.told_at(100) == ""
    assert shown.view.histograms["ttft"].told.text() == "0 measurements"
    bars.grab()


# --- the machine ----------------------------------------------------------------------------------------------------


def visible(shown: Shown) -> set[str]:
    return {name for name, chart in shown.view.machine.charts.items() if chart.isVisible()}


def test_a_machine_with_a_gpu_shows_all_that_its_driver_tells(shown: Shown) -> None:
    shown.view.show_sheet("machine")
    measure(shown, 5, gpu=True)
    charts = shown.view.machine.charts
    assert visible(shown) == set(charts)
    assert [value for _, value in charts["power"]._values._shown] == ["240\u00a0W"]
    assert [value for _, value in charts["gpu_memory"]._values._shown] == ["8.0\u00a0GiB", "9.0\u00a0GiB"]
    assert charts["power"]._left.top == 350.0
    engine, machine = (float(curve.getData()[1][-1]) for curve in charts["cpu"]._curves)
    assert engine == pytest.approx(180 / 100 / 8)
    assert machine == shown.link.view.latency.column("cpu_load")[-1]
    assert not shown.view.classes.isVisible()


def test_what_is_not_told_is_absent_and_said(shown: Shown) -> None:
    shown.view.show_sheet("machine")
    measure(shown, 5)
    assert visible(shown) == {"cpu", "memory"}
    assert "no GPU" in shown.view.machine.note.text()


def test_an_older_engine_tells_nothing_of_its_machine(shown: Shown) -> None:
    shown.view.show_sheet("machine")
    shown.seconds(3)
    assert visible(shown) == {"memory"}
    assert "does not tell" in shown.view.machine.note.text()
    assert [value for _, value in shown.view.machine.charts["memory"]._values._shown] == ["3.0\u00a0GiB", "–"]


@pytest.mark.parametrize("sheet", SHEETS)
def test_nothing_of_a_sheet_is_left_in_english(shown: Shown, languages: Languages, qtbot: QtBot, sheet: str) -> None:
    measure(shown, 5, gpu=True)
    shown.view.show_sheet(sheet)
    languages.switch(Language.CHINESE)
    qtbot.waitUntil(lambda: shown.view.sheet_buttons[2].text() == "机器")
    shown.view.refresh()
    assert [text for _, text in visible_texts(shown.view) if foreign(text)] == []
