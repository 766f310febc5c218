"""The legend of the block map: states with live counts, and the scale of other colourings."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QLinearGradient, QPainter, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QPushButton, QWidget

from ...ipc.vocabulary import BlockState
from .. import quantities, theme, words
from ..i18n import Translated
from ..state import CLASSES, TierView
from .block_image import Colouring


class Legend(Translated, QWidget):
    """What the colours mean, with live counts. Clicking states singles them out; clicking them again shows all."""

    shownChanged = Signal(object)  # frozenset[BlockState]; empty is all

    def __init__(self) -> None:
        super().__init__()
        self._counts = np.zeros((2, len(BlockState)), np.int64)
        self._chips = {state: self._chip() for state in BlockState}
        self._written: dict[BlockState, object] = {}  # what each chip says
        self._colouring = Colouring.STATE
        self._scale = Scale()
        self._layout = QGridLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setHorizontalSpacing(theme.GRID // 2)
        self._layout.setVerticalSpacing(0)
        self._columns = 0
        self._place(len(BlockState))
        self.restyle()

    @property
    def shown(self) -> frozenset[BlockState]:
        return frozenset(state for state, chip in self._chips.items() if chip.isChecked())

    def refresh(self, device: TierView, host: TierView) -> None:
        self._counts[0], self._counts[1] = device.counts, host.counts
        self._write_chips()
        self._scale.set_block_size(device.block_size)
        self._flow()

    def set_colouring(self, colouring: Colouring, block_size: int) -> None:
        self._colouring = colouring
        self._scale.set_colouring(colouring, block_size)
        self.restyle()
        self._flow()

    def restyle(self) -> None:
        filled = self._colouring is Colouring.STATE
        for state, chip in self._chips.items():
            chip.setIcon(_swatch(theme.current().palette.states[state], filled=filled))
        self._scale.update()

    def _chip(self) -> QPushButton:
        chip = QPushButton()
        chip.setCheckable(True)
        chip.setProperty("role", "chip")
        chip.setStyleSheet("padding-left: 0;")  # swatches stand at the page's margin
        chip.setFont(theme.number_font(chip.font()))
        chip.toggled.connect(lambda: self.shownChanged.emit(self.shown))
        return chip

    def _write_chips(self) -> None:
        # As wide as the largest count, so that the row stands still.
        largest = quantities.count(int(self._counts.sum()))
        host = bool(self._counts[1].sum())
        tip = self.tr("%1 in the device pool, %2 in the host pool. Click to single them out.")
        for (state, chip), counts in zip(self._chips.items(), self._counts.T.tolist(), strict=True):
            seen = host or state is not BlockState.SWAPPED or chip.isChecked()
            facts = words.block_state(state), largest, seen, *counts
            if facts == self._written.get(state):
                continue
            self._written[state] = facts
            name, on_device, on_host = facts[0], *counts
            chip.setText(f"{name} {quantities.count(on_device + on_host)}")
            # Fixed, so that nothing is laid out anew for a count.
            wide = chip.fontMetrics().horizontalAdvance(f"{name} {largest}") + 5 * theme.GRID
            chip.setFixedSize(wide, chip.sizeHint().height())
            chip.setVisible(seen)
            chip.setToolTip(tip.replace("%1", quantities.count(on_device)).replace("%2", quantities.count(on_host)))

    def _flow(self) -> None:
        """One row where there is room for all, else two."""
        visible = [chip for chip in self._chips.values() if not chip.isHidden()]
        whole = sum(chip.minimumWidth() + self._layout.horizontalSpacing() for chip in visible)
        if not self._scale.isHidden():
            whole += self._scale.sizeHint().width()
        self._place(len(BlockState) if whole <= self.width() else len(BlockState) // 2)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def _place(self, columns: int) -> None:
        if columns == self._columns:
            return
        self._columns = columns
        for index, chip in enumerate(self._chips.values()):
            self._layout.addWidget(chip, index // columns, index % columns, Qt.AlignmentFlag.AlignLeft)
        self._layout.addWidget(self._scale, 0, len(BlockState) + 1)
        self._layout.setColumnStretch(len(BlockState), 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._flow()

    def retranslate(self) -> None:
        self._write_chips()
        self._scale.retranslate()


def _swatch(colour: str, *, filled: bool) -> QIcon:
    """A square of a state's colour; only its outline where the map shows something else than states."""
    pixmap = QPixmap(QSize(24, 24))
    pixmap.setDevicePixelRatio(2.0)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setBrush(QColor(colour) if filled else Qt.BrushStyle.NoBrush)
    painter.setPen(QColor(colour))
    painter.drawRoundedRect(QRectF(1.5, 1.5, 9, 9), 2, 2)
    painter.end()
    return QIcon(pixmap)


class Scale(QWidget):
    """The scale of an ordered colouring: a strip of its colours between its lowest and its highest value."""

    def __init__(self) -> None:
        super().__init__()
        self._colouring = Colouring.STATE
        self._block_size = 0
        self._low, self._high = QLabel(), QLabel()
        self._strip = _Strip()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID)
        for part in (self._low, self._strip, self._high):
            part.setProperty("role", "muted")
            layout.addWidget(part)
        self.hide()

    def set_colouring(self, colouring: Colouring, block_size: int) -> None:
        self._colouring, self._block_size = colouring, block_size
        self.retranslate()

    def set_block_size(self, block_size: int) -> None:
        if block_size != self._block_size:
            self.set_colouring(self._colouring, block_size)

    def retranslate(self) -> None:
        ends = {
            Colouring.REF: (self.tr("1 use"), self.tr("64 or more")),
            Colouring.AGE: (self.tr("long ago"), self.tr("just now")),
            Colouring.FILL: (
                self.tr("empty"),
                self.tr("%1 tokens").replace("%1", quantities.count(self._block_size)),
            ),
            Colouring.DEPTH: (self.tr("first block"), self.tr("256th or deeper")),
            Colouring.REQUEST: (self.tr("a colour a request"), ""),
            Colouring.CLASS: (words.class_name(CLASSES[0]), words.class_name(CLASSES[-1])),
        }
        low, high = ends.get(self._colouring, ("", ""))
        self._low.setText(low)
        self._high.setText(high)
        self._strip.set_colouring(self._colouring)
        self.setVisible(bool(low))


class _Strip(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._colouring = Colouring.STATE
        self.setFixedSize(12 * theme.GRID, theme.GRID)

    def set_colouring(self, colouring: Colouring) -> None:
        self._colouring = colouring
        self.update()

    def _colours(self) -> list[str]:
        """Of cells side by side; none where the scale is continuous."""
        palette = theme.current().palette
        if self._colouring is Colouring.REQUEST:
            return [theme.request_colour(palette, n) for n in range(12)]
        if self._colouring is Colouring.CLASS:
            return [theme.mix(palette.decode, palette.window, theme.CLASS_SHADES[name]) for name in CLASSES]
        return []

    def paintEvent(self, event: QPaintEvent) -> None:
        palette, painter, colours = theme.current().palette, QPainter(self), self._colours()
        for n, colour in enumerate(colours):
            width = self.width() / len(colours)
            painter.fillRect(QRectF(n * width, 0, width - 1, self.height()), QColor(colour))
        if not colours:
            gradient = QLinearGradient(0, 0, self.width(), 0)
            for step in range(9):
                gradient.setColorAt(step / 8, QColor(theme.ramp_colour(palette, step / 8)))
            painter.fillRect(self.rect(), gradient)
