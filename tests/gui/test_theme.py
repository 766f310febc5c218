"""Colours can be read by everybody: text contrast, and states that stay apart for colour-blind eyes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pagedeck.gui import theme
from pagedeck.gui.codes import CODE_DIMMED, CODE_STATE, CODE_TRACED
from pagedeck.ipc.vocabulary import BlockState
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

PALETTES = (theme.LIGHT, theme.DARK)

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
VISIONS = {
    "normal": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def lab(colour: str, vision: list[list[float]]) -> np.ndarray:
    c = QColor(colour)
    rgb = np.array([c.redF(), c.greenF(), c.blueF()])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(vision) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    x, y, z = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("palette", PALETTES, ids=lambda p: p.name)
def test_text_can_be_read(palette: theme.Palette) -> None:
    for text in (palette.ink, palette.muted, palette.error, palette.warning, palette.good, palette.accent):
        for ground in (palette.window, palette.surface, palette.raised):
            assert theme.contrast(text, ground) >= 4.5, (text, ground)
    assert theme.contrast(palette.on_accent, palette.accent) >= 4.5
    chosen = theme.mix(palette.surface, palette.accent, 0.2)
    assert theme.contrast(palette.ink, chosen) >= 4.5


def test_contrast_is_the_standard_one() -> None:
    assert theme.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert theme.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("palette", PALETTES, ids=lambda p: p.name)
def test_states_stay_apart(palette: theme.Palette, vision: str) -> None:
    seen = {state: lab(colour, VISIONS[vision]) for state, colour in palette.states.items()}
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) >= 13, (palette.name, vision, one.name, other.name)
    for state in BlockState:
        assert np.linalg.norm(seen[state] - lab(palette.window, VISIONS[vision])) >= 5, state.name


@pytest.mark.parametrize("palette", PALETTES, ids=lambda p: p.name)
def test_busier_states_stand_out_more(palette: theme.Palette) -> None:
    from_ground = {s: theme.contrast(c, palette.window) for s, c in palette.states.items()}
    busy = min(from_ground[s] for s in (BlockState.SWAPPED, BlockState.ACTIVE, BlockState.SHARED))
    assert from_ground[BlockState.FREE] < from_ground[BlockState.CACHED] < busy


def test_a_trace_fades_everything_else() -> None:
    plain, tracing = theme.lookup_table(theme.DARK), theme.lookup_table(theme.DARK, tracing=True)
    active = CODE_STATE + BlockState.ACTIVE
    assert plain[active] == QColor(theme.DARK.states[BlockState.ACTIVE]).rgb()
    assert tracing[active + CODE_TRACED] == plain[active]
    assert tracing[active] != plain[active]
    assert plain[CODE_DIMMED] != plain[CODE_STATE]


def test_the_theme_switches_live(qapp: QApplication, qtbot: QtBot) -> None:
    current = theme.current()
    assert theme.current() is current
    with qtbot.waitSignal(current.changed):
        current.set_mode("dark")
    assert current.palette.dark
    assert qapp.palette().window().color().name() == theme.DARK.window
    with pytest.raises(ValueError, match="accepted is system, light or dark"):
        current.set_mode("sepia")
