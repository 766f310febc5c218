"""The window on another server's prefix cache: read only, and open about what it cannot know."""

from __future__ import annotations

import time

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QPushButton, QSplitter, QVBoxLayout, QWidget

from ...ipc.vocabulary import Refused
from .. import engine_texts, quantities, theme
from ..card import QuietLabel
from ..i18n import Translated, fill_in
from ..icons import app_icon
from ..map.block_image import Colouring
from ..map.legend import Scale
from ..map.pool_view import Invitation
from .link import AttachedLink
from .view import AttachedView

# What can be told of a block that is known by its events alone.
COLOURINGS = (Colouring.DEPTH, Colouring.AGE)


class AttachedWindow(Translated, QWidget):
    """Draws what an :class:`AttachedLink` is told, until it is let go."""

    closed = Signal()

    def __init__(self, link: AttachedLink, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self._link = link
        self.setWindowIcon(app_icon())
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._title = QLabel(link.source.endpoint)
        self._title.setProperty("role", "title")
        self._facts = QuietLabel()
        self._notice = QLabel(wordWrap=True)
        self._notice.setProperty("role", "warning")
        self._colouring_label, self.colouring = QLabel(), QComboBox()
        for colouring in COLOURINGS:
            self.colouring.addItem("", colouring)
        self._colouring_label.setBuddy(self.colouring)
        self.fit = QPushButton()
        self.disconnecting = QPushButton()
        self._pools = QSplitter(Qt.Orientation.Vertical, childrenCollapsible=False)
        self._pools.setProperty("role", "quiet")
        self.views: dict[str, AttachedView] = {}
        self._scale = Scale()
        self._invitation = Invitation(self)
        self._ageing = QTimer(self, interval=1000)
        self._ageing.timeout.connect(self.draw)
        self._lay_out()
        self.colouring.currentIndexChanged.connect(self._recolour)
        self.fit.clicked.connect(self._fit_all)
        self.disconnecting.clicked.connect(self._toggle)
        theme.current().changed.connect(self._restyle)
        self._follow(link)
        self.retranslate()

    def sizeHint(self) -> QSize:
        return QSize(120 * theme.GRID, 80 * theme.GRID)

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(theme.GRID)
        head.addWidget(self._title)
        head.addWidget(self._facts, 1)
        for control in (self._colouring_label, self.colouring, self.fit, self.disconnecting):
            head.addWidget(control)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(self._scale)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*[2 * theme.GRID] * 4)
        layout.setSpacing(theme.GRID)
        layout.addLayout(head)
        layout.addWidget(self._notice)
        layout.addWidget(self._pools, 1)
        layout.addLayout(foot)

    # --- what it shows ------------------------------------------------------------------------------------------

    def _follow(self, link: AttachedLink) -> None:
        self._link = link
        link.setParent(self)
        for view in self.views.values():
            view.setParent(None)
            view.deleteLater()
        self.views.clear()
        link.changed.connect(self.draw)
        self._ageing.start()
        self._say_state()
        self.draw()

    def draw(self) -> None:
        """Draw what was told since the last time."""
        link = self._link
        step = round(time.time() - link.cache.since)
        for medium, pool in link.cache:
            if medium not in self.views:
                self.views[medium] = view = AttachedView(medium, pool, self._chosen)
                self._pools.addWidget(view)
                self._invitation.raise_()
            self.views[medium].draw(step, link.figures.usage if pool is link.cache.device else None)
        self._write()

    def _recolour(self) -> None:
        self._scale.set_colouring(self._chosen, 0)
        for view in self.views.values():
            view.set_colouring(self._chosen)
        self.draw()

    @property
    def _chosen(self) -> Colouring:
        return Colouring(self.colouring.currentData())

    def _fit_all(self) -> None:
        for view in self.views.values():
            view.canvas.fit()

    def _restyle(self) -> None:
        for view in self.views.values():
            view.canvas.restyle()
        self._scale.update()

    def _write(self) -> None:
        link = self._link
        parts = [self._line()]
        if link.sequence is not None:
            parts.append(fill_in(self.tr("batch %1"), quantities.count(link.sequence)))
        if link.heard is not None:
            parts.append(
                fill_in(self.tr("last heard %1 ago"), quantities.duration(max(0, round(time.time() - link.heard))))
            )
        self._facts.setText(" · ".join(parts))
        self._notice.setText("\n".join(self._notices()))
        self._notice.setVisible(bool(self._notice.text()))
        nothing = not any(len(pool) for _, pool in link.cache)
        waiting = self.tr("Nothing was told yet. Blocks appear here as the server's prefix cache stores them.")
        if link.connected is False:
            waiting = fill_in(self.tr("No server was found at %1. It is awaited."), link.source.endpoint)
        self._invitation.say(waiting if nothing and link.open else "", button=False)

    def _line(self) -> str:
        link = self._link
        if not link.open:
            return self.tr("disconnected")
        if link.connected is None:
            return self.tr("connecting …")
        if link.connected:
            return self.tr("connected")
        return self.tr("the server is gone, and awaited") if link.heard else self.tr("waiting for the server")

    def _notices(self) -> list[str]:
        link, notices = self._link, []
        if link.partial:
            notices.append(
                self.tr("Partial since attach: what the server stored before was not told, and is not shown.")
            )
        if link.lost:
            text = self.tr("%1 batches of events were lost: what they stored or removed is not known.")
            notices.append(fill_in(text, quantities.count(link.lost)))
        if link.metrics_error:
            notices.append(fill_in(self.tr("The server's figures cannot be read: %1"), link.metrics_error))
        return notices

    # --- coming and going -----------------------------------------------------------------------------------------

    def _toggle(self) -> None:
        """Let go of the server, or attach to it again, knowing nothing."""
        if self._link.open:
            self._link.close()
            self._ageing.stop()
        else:
            try:
                again = AttachedLink(self._link.source, self)
            except Refused as refused:
                self._notice.setText(engine_texts.say(str(refused)))
                self._notice.show()
                return
            self._link.changed.disconnect(self.draw)
            self._link.deleteLater()
            self._follow(again)
        self._say_state()
        self._write()

    def _say_state(self) -> None:
        self.disconnecting.setText(self.tr("Disconnect") if self._link.open else self.tr("Attach again"))

    def closeEvent(self, event: QCloseEvent) -> None:
        self._ageing.stop()
        if self._link.open:
            self._link.close()
        super().closeEvent(event)
        self.closed.emit()

    def retranslate(self) -> None:
        self.setWindowTitle(fill_in(self.tr("Prefix cache of %1"), self._link.source.endpoint))
        self._colouring_label.setText(self.tr("Colour by"))
        names = {Colouring.DEPTH: self.tr("prefix depth"), Colouring.AGE: self.tr("age")}
        for index, colouring in enumerate(COLOURINGS):
            self.colouring.setItemText(index, names[colouring])
        self.fit.setText(self.tr("Fit"))
        self.fit.setToolTip(self.tr("Show the whole pool (F)"))
        self._recolour()
        self._say_state()
        self._write()
