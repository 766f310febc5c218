"""A desktop whose font is half as large again, as people set it who read with difficulty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pagedeck.gui import theme
from pagedeck.gui.chart import Values
from pagedeck.gui.main_window import MainWindow
from PySide6.QtWidgets import QApplication, QLabel


@pytest.fixture
def _large(qapp: QApplication) -> Iterator[None]:
    usual = qapp.font()
    larger = qapp.font()
    larger.setPointSizeF(1.5 * usual.pointSizeF())
    qapp.setFont(larger)
    theme.current().set_mode("dark")  # the style sheet is written anew
    yield
    qapp.setFont(usual)
    theme.current().set_mode("light")


@pytest.fixture
def large(_large: None, window: MainWindow) -> MainWindow:
    return window


def test_titles_are_larger_than_what_they_head(large: MainWindow) -> None:
    large.rail.choose("latency")
    titles = [label for label in large.findChildren(QLabel) if label.isVisible() and label.property("role") == "title"]
    assert titles
    for title in titles:
        assert title.fontMetrics().height() > large.fontMetrics().height()


def test_values_beside_charts_have_a_line_each(large: MainWindow) -> None:
    legends = large.findChildren(Values)
    assert legends
    for legend in legends:
        assert legend.minimumHeight() >= legend.fontMetrics().height()


def test_the_fields_of_the_playground_show_what_is_in_them(large: MainWindow) -> None:
    large.rail.choose("playground")
    box = large.playground.parameters.priority
    assert box.width() >= box.sizeHint().width()
