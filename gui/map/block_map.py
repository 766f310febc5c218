"""The block map: both tiers' pools as they live, how full they are, and what each colour means."""

from __future__ import annotations

import time

import numpy as np
from PySide6.QtCore import QSettings, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QHideEvent, QPixmap, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QMenu,
    QPushButton,
    QSplitter,
    QStyle,
    QVBoxLayout,
    QWidget,
)

from ...ipc.protocol import DescribeRequest, EngineMessage, RequestDetail
from ...ipc.telemetry import RequestRow
from ...ipc.vocabulary import BlockState
from .. import theme, words
from ..i18n import Translated
from ..link import EngineLink
from ..selection import Selection
from .block_image import Colouring
from .ghosts import GhostKind, make_ghost
from .legend import Legend
from .pool_view import PoolView

TIERS = ("device", "host")
DESCRIBE_S = 0.5  # between two questions for the selected request's block table
FIGURES_MS = 200  # between two updates of the numbers around the map
ROOMY = 100 * theme.GRID  # from this width on, choices have their names beside them
WIDE = 2.4  # from this ratio of width to height on, the pools stand side by side


class BlockMap(Translated, QWidget):
    """Device and host pools, their headers, and one legend for both."""

    sampleRequested = Signal()
    blockOpened = Signal()  # the selected block is to be seen in full

    def __init__(
        self,
        link: EngineLink,
        selection: Selection,
        parent: QWidget | None = None,
        *,
        settings: QSettings | None = None,
    ) -> None:
        """``settings`` keeps between starts what the map's menu says."""
        super().__init__(parent)
        self._link = link
        self._settings = settings
        self._offered: tuple[list[str], str] | None = None  # groups of layers, and the one that is shown
        self._followed: tuple[str, int] | None = None  # the block that following a request brought into view
        self._selection = selection
        self._table: RequestDetail | None = None  # of the selected request
        self._described = 0.0  # monotonic; when its table was last asked for
        self.pools = {name: PoolView(name, link, selection) for name in TIERS}
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.setHandleWidth(2 * theme.GRID)
        self._splitter.setProperty("role", "quiet")
        for pool in self.pools.values():
            self._splitter.addWidget(pool)
            pool.blockOpened.connect(self.blockOpened)
        self._group_label = QLabel()
        self._group = QComboBox()
        self._colouring_label = QLabel()
        self._colouring = QComboBox()
        for colouring in Colouring:
            self._colouring.addItem("", colouring)
        self._ghost_label = QLabel()
        self._ghost = QComboBox()
        for kind in GhostKind:
            self._ghost.addItem("", kind)
        self._fit = QPushButton()
        self._fit.setProperty("role", "flat")
        for choice in (self._colouring, self._ghost):
            choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            choice.setMinimumContentsLength(11)
        self._more = QPushButton("⋯")
        self._more.setProperty("role", "flat")
        self._more.setStyleSheet("QPushButton::menu-indicator { image: none; width: 0; }")
        self.motion = QAction(self, checkable=True, checked=self._kept("map/motion", default=not reduced_motion(self)))
        self.following = QAction(self, checkable=True, checked=self._kept("map/follow", default=False))
        menu = QMenu(self)
        menu.addActions([self.motion, self.following])
        self._more.setMenu(menu)
        self.legend = Legend()
        self._figures_due = False
        self._figures = QTimer(self, interval=FIGURES_MS, singleShot=True)
        self._figures.timeout.connect(self._write_figures)
        self._lay_out()
        self._connect()
        self.retranslate()

    def _lay_out(self) -> None:
        controls = QHBoxLayout()
        controls.setSpacing(theme.GRID)
        controls.addWidget(self._group_label)
        controls.addWidget(self._group)
        controls.addWidget(self._colouring_label)
        controls.addWidget(self._colouring)
        controls.addWidget(self._ghost_label)
        controls.addWidget(self._ghost)
        controls.addWidget(self._fit)
        controls.addWidget(self._more)
        self.pools["device"].add_controls(controls)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addWidget(self._splitter, 1)
        layout.addWidget(self.legend)
        self._colouring_label.setBuddy(self._colouring)
        self._group_label.setBuddy(self._group)
        self._ghost_label.setBuddy(self._ghost)
        self._offer_groups()

    def _connect(self) -> None:
        self._link.blocksChanged.connect(self.refresh)
        self._link.requestsChanged.connect(self._follow_request)
        self._link.connectionChanged.connect(self.refresh)
        self._selection.changed.connect(self._selected)
        self._colouring.currentIndexChanged.connect(self._recolour)
        self._group.activated.connect(lambda index: self.show_group(self._group.itemData(index)))
        self._ghost.currentIndexChanged.connect(self._lay_ghost)
        self.motion.toggled.connect(self._set_motion)
        self.following.toggled.connect(self._set_following)
        self._fit.clicked.connect(self.fit)
        self.legend.shownChanged.connect(self._filter)
        self.pools["device"].sampleRequested.connect(self.sampleRequested)
        theme.current().changed.connect(self._restyle)

    # --- drawing ------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Draw what changed; nothing while hidden."""
        if self.isVisible():
            self._watch_motion(self.motion.isChecked())
            self._draw()

    def picture(self) -> QPixmap:
        """The map as it is now, also while another page is shown."""
        self._draw()
        return self.grab()

    def _draw(self) -> None:
        self._offer_groups()
        has_host = self._link.view.host.num_blocks > 0
        if has_host == self.pools["host"].isHidden():
            self.pools["host"].setVisible(has_host)
            self._arrange()
        self._trace()
        for pool in self.pools.values():
            pool.draw()
        self._figures_due = True
        if not self._figures.isActive():
            self._write_figures()

    def _write_figures(self) -> None:
        """Numbers change a few times a second: the eye reads no faster, and laying out text costs more than the map."""
        if self._figures_due:
            self._figures_due = False
            self._figures.start()
            for pool in self.pools.values():
                pool.write_header()
            self.legend.refresh(self._link.view.device, self._link.view.host)
            self._lay_ghost()

    def set_ghost(self, kind: GhostKind) -> None:
        self._ghost.setCurrentIndex(list(GhostKind).index(kind))

    def _lay_ghost(self) -> None:
        self.pools["device"].show_ghost(make_ghost(GhostKind(self._ghost.currentData()), self._link.view))

    def fit(self) -> None:
        for pool in self.pools.values():
            pool.canvas.fit()

    def show_group(self, name: str) -> None:
        """Show the pools of another group of layers."""
        self._link.view.show_group(name)
        self._selection.select_request(self._selection.request)  # a block's number means another one now
        self._table = None
        self._described = 0.0
        self._follow_request()
        self.refresh()

    def _offer_groups(self) -> None:
        """Layers with sliding windows have pools of their own; where there are some, they can be chosen."""
        view = self._link.view
        if self._offered == (view.groups, view.group):
            return
        self._offered = view.groups, view.group
        if [self._group.itemData(index) for index in range(self._group.count())] != view.groups:
            self._group.clear()
            for name in view.groups:
                self._group.addItem(words.layer_group(name), name)
        self._group.setCurrentIndex(self._group.findData(view.group))
        self._group.setVisible(bool(view.groups))
        self._group_label.setVisible(bool(view.groups))

    def set_colouring(self, colouring: Colouring) -> None:
        self._colouring.setCurrentIndex(list(Colouring).index(colouring))

    def _recolour(self) -> None:
        colouring = self._colouring.currentData()
        for pool in self.pools.values():
            pool.canvas.image.set_colouring(Colouring(colouring))
        self.legend.set_colouring(Colouring(colouring), self._link.view.device.block_size)
        self.refresh()

    def _filter(self, states: frozenset[BlockState]) -> None:
        for pool in self.pools.values():
            pool.canvas.image.set_shown(states)
        self.refresh()

    def _restyle(self) -> None:
        for pool in self.pools.values():
            pool.restyle()
        self.legend.restyle()

    def _arrange(self) -> None:
        """Side by side in a flat view, above each other in a tall one; the host gets its share but never the most."""
        wide = self.width() > WIDE * max(self.height(), 1)
        orientation = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        device, host = self._link.view.device.num_blocks, self._link.view.host.num_blocks
        if orientation != self._splitter.orientation() or self._splitter.sizes()[1] == 0:
            self._splitter.setOrientation(orientation)
            share = min(0.5, max(0.25, host / max(device + host, 1)))
            whole = self._splitter.width() if wide else self._splitter.height()
            self._splitter.setSizes([round(whole * (1 - share)), round(whole * share)])

    # --- motion and following ------------------------------------------------------------------------------------

    def _set_motion(self, on: bool) -> None:
        self._keep("map/motion", on)
        self._watch_motion(on)

    def _watch_motion(self, on: bool) -> None:
        """What moves is only looked for while it is shown; a recording that is played is another view."""
        self._link.view.watch_motion = on
        for pool in self.pools.values():
            pool.canvas.set_moving(on)

    def _set_following(self, on: bool) -> None:
        self._keep("map/follow", on)
        self._followed = None
        self.refresh()

    def _follow(self) -> None:
        """Keep the end of the selected request's block table in view."""
        table = self._table.block_tables[0] if self._table is not None and self._table.block_tables else []
        if not self.following.isChecked() or self._table is None or not table:
            self._followed = None
            return
        last = self._table.tier, table[-1]
        if last != self._followed:
            self._followed = last
            self.pools[last[0]].canvas.show_block(last[1])

    def _kept(self, key: str, *, default: bool) -> bool:
        return default if self._settings is None else bool(self._settings.value(key, default, type=bool))

    def _keep(self, key: str, on: bool) -> None:
        if self._settings is not None:
            self._settings.setValue(key, on)

    # --- the selected request ------------------------------------------------------------------------------------

    def _selected(self) -> None:
        request = self._selection.request
        if self._table is None or self._table.row is None or self._table.row.number != request:
            self._table = None
        for name, pool in self.pools.items():
            block = self._selection.block
            pool.canvas.mark(block[1] if block is not None and block[0] == name else None)
        self._described = 0.0
        self._follow_request()
        self.refresh()

    def _follow_request(self) -> None:
        """Ask for the selected request's block table, again while it grows."""
        row = self._selected_row()
        if row is None or not row.id or not self.isVisible() or time.monotonic() - self._described < DESCRIBE_S:
            return
        self._described = time.monotonic()
        self._link.request(DescribeRequest(request=row.id, group=self._link.view.group), self._take_table)

    def _take_table(self, reply: EngineMessage) -> None:
        is_selected = (
            isinstance(reply, RequestDetail)
            and reply.row is not None
            and (reply.row.number, reply.group) == (self._selection.request, self._link.view.group)
        )
        self._table = reply if is_selected and isinstance(reply, RequestDetail) else None
        self.refresh()

    def _selected_row(self) -> RequestRow | None:
        number = self._selection.request
        return None if number is None else self._link.view.requests.get(number)

    def _trace(self) -> None:
        """Outline the selected request's blocks: in order once its table is known, by owner until then."""
        number = self._selection.request
        for name, pool in self.pools.items():
            if number is None:
                pool.canvas.trace(np.zeros(0, np.uint32), ordered=False)
            elif self._table is not None:
                tables = self._table.block_tables if self._table.tier == name else []
                blocks = np.array([block for table in tables for block in table], np.uint32)
                pool.canvas.trace(blocks, ordered=len(tables) == 1)
            else:
                owned = np.flatnonzero(self._link.view.tier(name).owner == number).astype(np.uint32)
                pool.canvas.trace(owned, ordered=False)
        self._follow()

    # --- events -------------------------------------------------------------------------------------------------

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._watch_motion(False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for label in (self._colouring_label, self._ghost_label):
            label.setVisible(self.width() >= ROOMY)
        self._arrange()

    def retranslate(self) -> None:
        self._group_label.setText(self.tr("Layers"))
        for index, name in enumerate(self._link.view.groups[: self._group.count()]):
            self._group.setItemText(index, words.layer_group(name))
        self._colouring_label.setText(self.tr("Colour by"))
        self._colouring.setAccessibleName(self.tr("Colour by"))
        self._colouring.setToolTip(self.tr("Colour by"))
        texts = {
            Colouring.STATE: self.tr("state"),
            Colouring.REQUEST: self.tr("request"),
            Colouring.CLASS: self.tr("class"),
            Colouring.REF: self.tr("reference count"),
            Colouring.AGE: self.tr("last use"),
            Colouring.FILL: self.tr("fill"),
            Colouring.DEPTH: self.tr("prefix depth"),
        }
        for index, colouring in enumerate(Colouring):
            self._colouring.setItemText(index, texts[colouring])
        self._ghost_label.setText(self.tr("Ghost"))
        self._ghost.setAccessibleName(self.tr("Ghost"))
        for part in (self._ghost_label, self._ghost):
            part.setToolTip(self.tr("Lay over the map what other ways to keep the cache would take"))
        ghosts = {
            GhostKind.NONE: self.tr("none"),
            GhostKind.CONTIGUOUS: self.tr("contiguous"),
            GhostKind.UNSHARED: self.tr("no sharing"),
        }
        for index, kind in enumerate(GhostKind):
            self._ghost.setItemText(index, ghosts[kind])
        self._fit.setText(self.tr("Fit"))
        self._fit.setToolTip(self.tr("Show the whole pool (F)"))
        self._more.setAccessibleName(self.tr("More of the map"))
        self._more.setToolTip(self.tr("More of the map"))
        self.motion.setText(self.tr("Flash what moves"))
        self.following.setText(self.tr("Follow the selected request"))


def reduced_motion(widget: QWidget) -> bool:
    """Whether the system asks for no animations."""
    return not widget.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration, None, widget)
