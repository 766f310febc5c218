"""Colours and type: a light and a dark palette, the fixed hues of block states, and the map's lookup tables.

State hues follow Okabe and Ito's colour-blind-safe set (https://jfly.uni-koeln.de/color/), tuned in lightness for each
background so that what matters more stands out more. Hues tell states; a request's class is told by shade.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QFontMetrics, QGuiApplication, QPalette
from PySide6.QtWidgets import QAbstractSpinBox, QApplication

from .. import assets
from ..ipc.vocabulary import BlockState
from .codes import (
    CODE_CLASS,
    CODE_DIMMED,
    CODE_NEUTRAL,
    CODE_RAMP,
    CODE_REQUEST,
    CODE_STATE,
    CODE_TRACED,
    RAMP_STEPS,
    REQUEST_COLOURS,
)
from .state import ConnectionState

#: Style sheets cannot tint an image: the chevron's grey shows on both themes, checks are there once for each.
_ICONS = (Path(assets.__file__).parent / "icons").as_posix()

#: All distances are multiples of it, in device-independent pixels.
GRID = 8

#: What can be chosen: as the system is, or one of the two.
MODES = ("system", "light", "dark")


@dataclass(frozen=True)
class Palette:
    """One theme. Colours are ``#rrggbb``."""

    name: str
    window: str  # behind everything
    surface: str  # behind content: tables, plots, fields
    raised: str  # tooltips, menus, cards that float
    ink: str  # text
    muted: str  # secondary text
    line: str  # hairlines and axes
    accent: str  # the one colour of controls, focus and selection
    on_accent: str  # text on the accent
    error: str
    warning: str
    good: str
    prefill: str  # the timeline's two kinds of tokens
    decode: str
    states: dict[BlockState, str]
    ramp: tuple[str, str, str]  # low, middle, high of ordered quantities
    request_lightness: tuple[int, int]  # HSL saturation and lightness of request colours

    @property
    def dark(self) -> bool:
        return QColor(self.window).lightness() < 128


LIGHT = Palette(
    name="light",
    window="#f5f6f8",
    surface="#ffffff",
    raised="#ffffff",
    ink="#1a1f26",
    muted="#586273",
    line="#d9dee5",
    accent="#3d55c9",
    on_accent="#ffffff",
    error="#b3261e",
    warning="#8a5200",
    good="#1b6e4b",
    prefill="#aab7ee",
    decode="#3d55c9",
    states={
        BlockState.FREE: "#dfe4ea",
        BlockState.RESERVED: "#a3cdee",
        BlockState.CACHED: "#73c4a8",
        BlockState.SWAPPED: "#c2609a",
        BlockState.ACTIVE: "#0072b2",
        BlockState.SHARED: "#e07b00",
    },
    ramp=("#dbe4f5", "#5b86c5", "#132a63"),
    request_lightness=(150, 125),
)

DARK = Palette(
    name="dark",
    window="#14171c",
    surface="#1a1e25",
    raised="#252b35",
    ink="#e7eaef",
    muted="#9ba6b5",
    line="#323945",
    accent="#8fa4ff",
    on_accent="#10131a",
    error="#ff8a80",
    warning="#f2b84b",
    good="#6fd3a3",
    prefill="#5566b8",
    decode="#a9b8ff",
    states={
        BlockState.FREE: "#2a313c",
        BlockState.RESERVED: "#3c5a75",
        BlockState.CACHED: "#2f7d66",
        BlockState.SWAPPED: "#cc79a7",
        BlockState.ACTIVE: "#56b4e9",
        BlockState.SHARED: "#f5a623",
    },
    ramp=("#2c3a55", "#5b8fd0", "#dcecff"),
    request_lightness=(140, 160),
)

#: A class is told by shade, so that hues stay free for what they mean: the share of the background mixed in.
CLASS_SHADES: dict[str, float] = {"interactive": 0.0, "normal": 0.3, "batch": 0.55}


def mix(first: str, second: str, share: float) -> str:
    """The colour ``share`` of the way from ``first`` to ``second`` (0 to 1), in sRGB."""
    return QColor(*(round(a + (b - a) * share) for a, b in zip(_rgb(first), _rgb(second), strict=True))).name()


def _rgb(colour: str) -> tuple[int, int, int]:
    c = QColor(colour)
    return c.red(), c.green(), c.blue()


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1 to 21."""

    def luminance(colour: str) -> float:
        c = QColor(colour)
        channels = (c.redF(), c.greenF(), c.blueF())
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def request_colour(palette: Palette, number: int) -> str:
    """A request's colour where requests are told apart by colour. Neighbouring numbers get distant hues."""
    saturation, lightness = palette.request_lightness
    slot = number % REQUEST_COLOURS
    hue = round(slot * 360 * 0.618034) % 360
    return QColor.fromHsl(hue, saturation, lightness + (-22 if slot % 2 else 14)).name()


def state_colour(state: ConnectionState) -> QColor:
    """The hue of how an engine is, in the palette of the moment."""
    palette = current().palette
    hues = {
        ConnectionState.READY: palette.good,
        ConnectionState.CONNECTING: palette.warning,
        ConnectionState.LOADING: palette.warning,
        ConnectionState.DRAINING: palette.warning,
        ConnectionState.NOT_ANSWERING: palette.error,
        ConnectionState.DIED: palette.error,
    }
    return QColor(hues.get(state, palette.muted))


def ramp_colour(palette: Palette, share: float) -> str:
    """The colour of an ordered quantity, 0 (low) to 1 (high)."""
    low, middle, high = palette.ramp
    return mix(low, middle, share * 2) if share < 0.5 else mix(middle, high, share * 2 - 1)


def lookup_table(palette: Palette, *, tracing: bool = False) -> np.ndarray:
    """uint32 ``[256]``: each code's colour as ``0xffRRGGBB``. One table serves every colouring of the map.

    The upper half repeats the lower for the blocks of a traced request; while ``tracing``, the lower half is faded.
    """
    free = palette.states[BlockState.FREE]
    colours = dict.fromkeys(range(CODE_TRACED), palette.window)
    colours[CODE_DIMMED] = mix(free, palette.window, 0.5)
    colours.update((CODE_STATE + state, colour) for state, colour in palette.states.items())
    for state, share in ((BlockState.FREE, 0.0), (BlockState.RESERVED, 0.1), (BlockState.CACHED, 0.22)):
        colours[CODE_NEUTRAL + state] = mix(free, palette.muted, share)
    colours.update((CODE_RAMP + step, ramp_colour(palette, step / (RAMP_STEPS - 1))) for step in range(RAMP_STEPS))
    shades = reversed(CLASS_SHADES.values())
    colours.update((CODE_CLASS + n, mix(palette.decode, palette.window, shade)) for n, shade in enumerate(shades))
    colours.update((CODE_REQUEST + n, request_colour(palette, n)) for n in range(REQUEST_COLOURS))
    table = np.zeros(256, np.uint32)
    for code, colour in colours.items():
        table[code] = QColor(mix(colour, palette.window, 0.72) if tracing else colour).rgb()
        table[code + CODE_TRACED] = QColor(colour).rgb()
    return table


def number_font(font: QFont) -> QFont:
    """``font`` with digits of one width, so that live numbers do not jump."""
    result = QFont(font)
    if hasattr(result, "setFeature"):  # Qt 6.7
        result.setFeature(QFont.Tag("tnum"), 1)
    return result


def mono_font(size_delta: int = 0) -> QFont:
    """The system's monospace font, for ids and tokens only."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    font.setPointSize(max(6, QApplication.font().pointSize() + size_delta))
    return font


def line_height(metrics: QFontMetrics) -> int:
    """What a line of text in a row of its own takes: the grid's, or more where the system's font is larger."""
    return max(2 * GRID, metrics.height())


def pad(field: QAbstractSpinBox) -> None:
    """The room beside a number that other fields have: a style sheet's padding does not reach the field inside."""
    field.lineEdit().setTextMargins(GRID, 0, GRID, 0)


def qt_palette(palette: Palette) -> QPalette:
    result = QPalette()
    role = QPalette.ColorRole
    colours = {
        role.Window: palette.window,
        role.WindowText: palette.ink,
        role.Base: palette.surface,
        role.AlternateBase: palette.window,
        role.Text: palette.ink,
        role.Button: palette.window,
        role.ButtonText: palette.ink,
        role.BrightText: palette.error,
        role.ToolTipBase: palette.raised,
        role.ToolTipText: palette.ink,
        role.PlaceholderText: palette.muted,
        role.Highlight: palette.accent,
        role.HighlightedText: palette.on_accent,
        role.Link: palette.accent,
        role.Light: palette.raised,
        role.Midlight: palette.line,
        role.Mid: palette.line,
        role.Dark: palette.line,
        role.Shadow: palette.line,
    }
    for which, colour in colours.items():
        result.setColor(which, QColor(colour))
    faint = QColor(mix(palette.muted, palette.window, 0.35))
    for which in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, which, faint)
    return result


def style_sheet(palette: Palette) -> str:
    """What QPalette cannot say. Widgets opt in by the dynamic property ``role``: title, muted, number, error,
    warning, good, primary (the one main button of a view), flat, chip, rail."""
    hover = mix(palette.window, palette.ink, 0.07)
    pressed = mix(palette.window, palette.ink, 0.13)
    chosen = mix(palette.window, palette.accent, 0.16)
    title = round(1.25 * QFontInfo(QApplication.font()).pixelSize())
    return f"""
    QToolTip {{
        background: {palette.raised}; color: {palette.ink}; border: 1px solid {palette.line}; padding: 4px 8px; }}
    QLabel[role="title"] {{ font-size: {title}px; font-weight: 600; }}
    QLabel[role="muted"] {{ color: {palette.muted}; }}
    QLabel[role="error"] {{ color: {palette.error}; }}
    QLabel[role="warning"] {{ color: {palette.warning}; }}
    QLabel[role="good"] {{ color: {palette.good}; }}
    QPushButton, QComboBox, QToolButton {{
        border: 1px solid {palette.line}; border-radius: 4px; padding: 4px 12px; background: {palette.surface};
        color: {palette.ink}; }}
    QComboBox::drop-down {{ border: none; width: 24px; }}
    QComboBox::down-arrow {{ image: url("{_ICONS}/chevron.svg"); width: 12px; height: 12px; }}
    QPushButton:hover, QComboBox:hover, QToolButton:hover {{ background: {hover}; }}
    QPushButton:pressed, QToolButton:pressed {{ background: {pressed}; }}
    QPushButton:focus, QComboBox:focus, QToolButton:focus, QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus,
    QSpinBox:focus, QDoubleSpinBox:focus {{ border: 1px solid {palette.accent}; }}
    QPushButton:disabled, QToolButton:disabled, QComboBox:disabled {{ color: {palette.muted}; }}
    QPushButton[role="primary"] {{
        background: {palette.accent}; color: {palette.on_accent}; border: 1px solid {palette.accent};
        font-weight: 600; }}
    QPushButton[role="primary"]:hover {{ background: {mix(palette.accent, palette.ink, 0.12)}; }}
    QPushButton[role="primary"]:disabled {{
        background: {hover}; color: {palette.muted}; border: 1px solid {palette.line}; }}
    QPushButton[role="flat"], QToolButton[role="flat"], QPushButton[role="chip"], QToolButton[role="rail"] {{
        border: 1px solid transparent; background: transparent; padding: 4px 8px; }}
    QPushButton[role="chip"] {{ text-align: left; }}
    QPushButton[role="flat"]:hover, QToolButton[role="flat"]:hover, QPushButton[role="chip"]:hover,
    QToolButton[role="rail"]:hover {{ background: {hover}; }}
    QPushButton[role="flat"]:focus, QToolButton[role="flat"]:focus, QPushButton[role="chip"]:focus,
    QToolButton[role="rail"]:focus {{ border: 1px solid {palette.accent}; }}
    QPushButton[role="chip"]:checked, QToolButton[role="flat"]:checked, QToolButton[role="rail"]:checked {{
        background: {chosen}; }}
    QLabel[role="question"] {{ background: {chosen}; border-radius: 8px; padding: 8px 12px; }}
    QRadioButton::indicator {{
        width: 10px; height: 10px; border: 1px solid {palette.muted}; border-radius: 6px;
        background: {palette.surface}; }}
    QRadioButton::indicator:checked {{
        border: 3px solid {palette.accent}; width: 6px; height: 6px; background: {palette.on_accent}; }}
    QCheckBox::indicator, QMenu::indicator {{
        width: 12px; height: 12px; border: 1px solid {palette.muted}; border-radius: 2px;
        background: {palette.surface}; }}
    QCheckBox::indicator:checked, QMenu::indicator:checked {{
        border: 1px solid {palette.accent}; background: {palette.accent};
        image: url("{_ICONS}/check-{palette.name}.svg"); }}
    QCheckBox::indicator:disabled, QMenu::indicator:disabled {{ border: 1px solid {palette.line}; }}
    QMenu {{ background: {palette.raised}; color: {palette.ink}; border: 1px solid {palette.line}; padding: 4px; }}
    QMenu::item {{ padding: 4px 24px 4px 8px; border-radius: 4px; }}
    QMenu::item:selected {{ background: {chosen}; }}
    QMenu::item:disabled {{ color: {palette.muted}; }}
    QMenu::separator {{ height: 1px; background: {palette.line}; margin: 4px 8px; }}
    QMenu::indicator {{ margin-left: 8px; }}
    QRadioButton:focus {{ color: {palette.accent}; }}
    QFrame[role="card"] {{ background: {palette.surface}; border: 1px solid {palette.line}; border-radius: 8px; }}
    QFrame[role="banner"] {{ background: {chosen}; border-bottom: 1px solid {palette.line}; }}
    QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox {{
        border: 1px solid {palette.line}; border-radius: 4px; padding: 4px 8px; background: {palette.surface};
        color: {palette.ink}; selection-background-color: {palette.accent};
        selection-color: {palette.on_accent}; }}
    QSpinBox, QDoubleSpinBox {{ padding: 3px 0; }}
    QAbstractSpinBox QLineEdit, QAbstractSpinBox QLineEdit:focus {{
        border: none; padding: 0 8px; background: transparent; }}
    QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ width: 0; border: none; }}
    QTextBrowser[role="answer"] {{ border: 1px solid transparent; background: transparent; padding: 0; }}
    QTextBrowser[role="answer"]:focus {{ border: 1px solid {palette.accent}; }}
    QTableView, QTreeView, QListView {{
        border: 1px solid {palette.surface}; background: {palette.surface}; gridline-color: {palette.line};
        selection-background-color: {mix(palette.surface, palette.accent, 0.2)}; selection-color: {palette.ink}; }}
    QTableView:focus, QTreeView:focus, QListView:focus {{ border: 1px solid {palette.accent}; }}
    QTableView::item {{ padding: 0 5px; }}
    QHeaderView::up-arrow, QHeaderView::down-arrow {{
        subcontrol-position: top center; width: 8px; height: 6px; }}
    QHeaderView::section {{
        background: {palette.surface}; color: {palette.muted}; border: none;
        border-bottom: 1px solid {palette.line}; padding: 4px 8px; }}
    QToolBar {{ border: none; border-bottom: 1px solid {palette.line}; background: {palette.window}; spacing: 8px;
        padding: 4px 8px; }}
    QStatusBar {{ border-top: 1px solid {palette.line}; background: {palette.window}; color: {palette.muted}; }}
    QStatusBar::item {{ border: none; }}
    QSplitter::handle {{ background: {palette.line}; }}
    QSplitter[role="quiet"]::handle {{ background: transparent; }}
    QSplitter::handle:horizontal {{ width: 1px; }}
    QSplitter::handle:vertical {{ height: 1px; }}
    QScrollBar {{ background: transparent; border: none; }}
    QScrollBar:vertical {{ width: 10px; }}
    QScrollBar:horizontal {{ height: 10px; }}
    QScrollBar::handle {{ background: {mix(palette.window, palette.ink, 0.25)}; border-radius: 3px; margin: 2px; }}
    QScrollBar::handle:vertical {{ min-height: 24px; }}
    QScrollBar::handle:horizontal {{ min-width: 24px; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    QSlider:horizontal {{ min-height: 20px; }}
    QSlider::groove:horizontal {{
        height: 4px; border-radius: 2px; background: {mix(palette.window, palette.ink, 0.25)}; }}
    QSlider::sub-page:horizontal {{ border-radius: 2px; background: {palette.accent}; }}
    QSlider::handle:horizontal {{
        width: 14px; margin: -6px 0; border: 1px solid {palette.accent}; border-radius: 8px;
        background: {palette.accent}; }}
    QSlider::handle:horizontal:focus {{ border: 3px solid {palette.surface}; }}
    QSlider::handle:horizontal:disabled, QSlider::sub-page:horizontal:disabled {{
        border-color: {palette.muted}; background: {palette.muted}; }}
    QProgressBar {{ border: none; background: {hover}; border-radius: 2px; max-height: 4px; color: transparent; }}
    QProgressBar::chunk {{ background: {palette.accent}; border-radius: 2px; }}
    """


class Theme(QObject):
    """The application's theme. ``mode`` is ``system`` (follow the desktop, the default), ``light`` or ``dark``."""

    changed = Signal()

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._app = app
        self._mode = "system"
        app.setStyle("Fusion")
        app.styleHints().colorSchemeChanged.connect(self._follow)
        self._palette = self._system()
        self._install()

    @property
    def mode(self) -> str:
        return self._mode

    @property
    def palette(self) -> Palette:
        return self._palette

    def set_mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"theme is {mode!r}; accepted is system, light or dark")
        self._mode = mode
        self._use({"light": LIGHT, "dark": DARK}.get(mode) or self._system())

    @staticmethod
    def _system() -> Palette:
        return DARK if QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT

    def _follow(self) -> None:
        if self._mode == "system":
            self._use(self._system())

    def _use(self, palette: Palette) -> None:
        if palette is not self._palette:
            self._palette = palette
            self._install()
            self.changed.emit()

    def _install(self) -> None:
        self._app.setPalette(qt_palette(self._palette))
        self._app.setStyleSheet(style_sheet(self._palette))


def current() -> Theme:
    """The theme of the running QApplication; the first call installs it."""
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        raise RuntimeError("A theme needs a QApplication.")
    found = app.findChild(Theme)
    return found if isinstance(found, Theme) else Theme(app)
