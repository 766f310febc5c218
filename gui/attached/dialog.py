"""Attaching to another server: where it publishes the events of its prefix cache."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QDialog, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from ...ipc.vocabulary import KV_EVENTS_ADDRESS, KV_REPLAY_ADDRESS, Refused
from .. import engine_texts, theme
from ..i18n import Translated
from .link import AttachedLink, Source

_WIDTH = 64 * theme.GRID


class AttachDialog(Translated, QDialog):
    """Asks for the addresses; :attr:`attached` tells the link that they made."""

    attached = Signal(object)  # AttachedLink

    def __init__(self, parent: QWidget | None) -> None:
        super().__init__(parent)
        self.endpoint = QLineEdit(KV_EVENTS_ADDRESS)
        self.replay, self.metrics = QLineEdit(), QLineEdit()
        self.bind = QCheckBox()
        self._intro = QLabel(wordWrap=True)
        self._intro.setProperty("role", "muted")
        self.refusal = QLabel(wordWrap=True)
        self.refusal.setProperty("role", "error")
        self.refusal.hide()
        self.buttons = QDialogButtonBox()
        self._attach = self.buttons.addButton("", QDialogButtonBox.ButtonRole.AcceptRole)
        self._attach.setProperty("role", "primary")
        self._cancel = self.buttons.addButton("", QDialogButtonBox.ButtonRole.RejectRole)
        self.buttons.accepted.connect(self.accept)
        self.buttons.rejected.connect(self.reject)
        self._labels = [QLabel() for _ in range(3)]
        layout = self._lay_out()
        self.setMinimumWidth(_WIDTH)
        self.retranslate()
        layout.activate()
        self.resize(_WIDTH, layout.totalHeightForWidth(_WIDTH))  # no higher than the wrapped text needs

    def _lay_out(self) -> QVBoxLayout:
        form = QFormLayout()
        form.setSpacing(theme.GRID)
        fields = (self.endpoint, self.replay, self.metrics)
        for label, field in zip(self._labels, fields, strict=True):
            field.setFont(theme.mono_font())
            label.setBuddy(field)
            form.addRow(label, field)
        form.insertRow(1, "", self.bind)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(*[2 * theme.GRID] * 4)
        layout.setSpacing(2 * theme.GRID)
        layout.addWidget(self._intro)
        layout.addLayout(form)
        layout.addWidget(self.refusal)
        layout.addWidget(self.buttons)
        return layout

    @property
    def source(self) -> Source:
        endpoint, replay, metrics = (field.text().strip() for field in (self.endpoint, self.replay, self.metrics))
        return Source(endpoint, replay, metrics, self.bind.isChecked())

    def accept(self) -> None:
        """Attach, or say why that cannot be."""
        try:
            link = AttachedLink(self.source)
        except Refused as refused:
            self.refusal.setText(engine_texts.say(str(refused)))
            self.refusal.show()
            self.adjustSize()
            return
        super().accept()
        self.attached.emit(link)

    def retranslate(self) -> None:
        self.setWindowTitle(self.tr("Attach to vLLM or SGLang"))
        self._intro.setText(
            self.tr(
                "Shows the blocks of another server's prefix cache as its KV events tell of them; it is only looked "
                "at. vLLM and SGLang publish them with --kv-events-config, `pagedeck serve` with --kv-events."
            )
        )
        titles = (self.tr("Endpoint"), self.tr("Replay"), self.tr("Metrics"))
        for label, title in zip(self._labels, titles, strict=True):
            label.setText(title)
        self.bind.setText(self.tr("Listen there: the server connects to this address"))
        optional = self.tr("optional")
        self.replay.setPlaceholderText(f"{KV_REPLAY_ADDRESS} · {optional}")
        self.metrics.setPlaceholderText(f"http://127.0.0.1:8000/metrics · {optional}")
        self.replay.setToolTip(
            self.tr("Where the server repeats what it published before; without it the map is partial.")
        )
        self.metrics.setToolTip(self.tr("Tells how many blocks the server has, and how full they are."))
        self._attach.setText(self.tr("Attach"))
        self._cancel.setText(self.tr("Cancel"))
