"""One request of the playground as a card: its samples side by side as they stream, rendered from Markdown, and its
figures."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QButtonGroup,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from ...ipc.protocol import Accepted, Failed, Finished, Tokens
from ...ipc.vocabulary import FinishReason
from .. import quantities, theme, words
from ..i18n import Translated, fill_in

#: The shortest time between two renderings of a streaming answer. A long one is rendered more seldom: never more than
#: a tenth of the time is spent on it.
RENDER_MS = 80
_RENDER_SHARE = 0.1


class MarkdownView(QTextBrowser):
    """Markdown in a browser as high as its text. Streaming text is rendered by a timer, not by the token."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.source_text = ""
        self._shown = ""
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenExternalLinks(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setProperty("role", "answer")
        self.setMinimumWidth(10 * theme.GRID)
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(2.5 * theme.GRID)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._timer = QTimer(self, interval=RENDER_MS, singleShot=True)
        self._timer.timeout.connect(self.render_now)
        self._fit()

    def append_text(self, text: str) -> None:
        self.source_text += text
        if not self._timer.isActive():
            self._timer.start()

    def render_now(self) -> None:
        if self._shown == self.source_text:
            return
        started = time.perf_counter()
        self._shown = self.source_text
        self.setMarkdown(self._shown)
        took_ms = 1000 * (time.perf_counter() - started)
        self._timer.setInterval(max(RENDER_MS, round(took_ms / _RENDER_SHARE)))

    def _fit(self) -> None:
        margins = self.contentsMargins()
        height = self.document().size().height() + margins.top() + margins.bottom()
        self.setFixedHeight(max(self.fontMetrics().lineSpacing() + 4, round(height) + 4))


class Sample(QWidget):
    """One sample: its text, and why it ended."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.view = MarkdownView()
        self.ending = QLabel(wordWrap=True)
        self.ending.setProperty("role", "muted")
        self.ending.hide()
        self.choose = QPushButton()
        self.choose.setCheckable(True)
        self.choose.setProperty("role", "chip")
        self.choose.hide()
        foot = QHBoxLayout()
        foot.addWidget(self.choose)
        foot.addWidget(self.ending, 1)
        foot.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(theme.GRID // 2)
        layout.addWidget(self.view)
        layout.addLayout(foot)
        layout.addStretch(1)
        self.reason = ""

    def end(self, reason: str) -> None:
        self.reason = reason
        self.view.render_now()


class Answer(Translated, QFrame):
    """A request and what comes back. Feed it the request's messages by :meth:`take`."""

    ended = Signal()
    shown = Signal(int)  # the user wants to see this request (number) on the map

    def __init__(self, samples: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.id = ""
        self.number: int | None = None
        self.samples = [Sample() for _ in range(samples)]
        self.finished: Finished | None = None
        self.failed: Failed | None = None
        self._forgotten = False
        self._asked = time.monotonic()
        self._first: float | None = None
        self._tokens = 0
        self._waiting = QLabel()
        self._waiting.setProperty("role", "muted")
        self._error = QLabel(wordWrap=True)
        self._error.setProperty("role", "error")
        self._error.hide()
        self._figures = QLabel(wordWrap=True)
        self._figures.setProperty("role", "muted")
        self._figures.setFont(theme.number_font(self._figures.font()))
        self.map_button = QPushButton()
        self.copy_button = QPushButton()
        for button in (self.map_button, self.copy_button):
            button.setProperty("role", "flat")
        self.map_button.setEnabled(False)
        self.map_button.clicked.connect(lambda: self.number is not None and self.shown.emit(self.number))
        self.copy_button.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.text))
        self._choices = QButtonGroup(self)

        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * theme.GRID)
        grid.setVerticalSpacing(2 * theme.GRID)
        columns = 1 if samples == 1 else 2
        for place, sample in enumerate(self.samples):
            grid.addWidget(sample, place // columns, place % columns)
            self._choices.addButton(sample.choose, place)
        for column in range(columns):
            grid.setColumnStretch(column, 1)
        self.samples[0].choose.setChecked(True)
        foot = QHBoxLayout()
        foot.addWidget(self._figures, 1)
        foot.addWidget(self.copy_button)
        foot.addWidget(self.map_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addWidget(self._waiting)
        layout.addLayout(grid)
        layout.addWidget(self._error)
        layout.addLayout(foot)
        self.retranslate()

    @property
    def text(self) -> str:
        """The chosen sample's text."""
        return self.samples[max(0, self._choices.checkedId())].view.source_text

    @property
    def done(self) -> bool:
        return self.finished is not None or self.failed is not None

    def lose_number(self) -> None:
        """Its number means another request now, until it is told another one."""
        self.number = None
        self.map_button.setEnabled(False)

    def forget(self) -> None:
        """It is shown no more; what still comes for it is not taken."""
        self._forgotten = True

    def take(self, message: Accepted | Tokens | Finished | Failed) -> None:
        if self._forgotten:
            return
        if isinstance(message, Accepted):
            self.number = message.number
            self.map_button.setEnabled(True)
        elif isinstance(message, Tokens):
            self._first = self._first or time.monotonic()
            self._tokens += len(message.token_ids)
            self.samples[message.index].view.append_text(message.text)
        elif isinstance(message, Finished):
            self.finished = message
            for sample in message.samples:
                self.samples[sample.index].end(sample.finish_reason)
        else:
            self.failed = message
            for shown in self.samples:
                shown.end("")
        self._show()
        if self.done:
            self.ended.emit()

    def _show(self) -> None:
        self._waiting.setVisible(self._first is None and not self.done)
        self._error.setVisible(self.failed is not None)
        self._error.setText(words.failure(self.failed) if self.failed is not None else "")
        self._figures.setText(" · ".join(self._figure_texts()))
        for sample in self.samples:
            sample.ending.setText(self._ending(sample.reason))
            sample.ending.setVisible(bool(sample.ending.text()))
            sample.choose.setVisible(len(self.samples) > 1 and self.finished is not None)

    def _figure_texts(self) -> list[str]:
        done = self.finished
        tokens = done.output_tokens if done is not None else self._tokens
        if not tokens:
            return []
        ttft = done.ttft_s if done is not None else (self._first or self._asked) - self._asked
        spent = done.e2e_s - done.ttft_s if done is not None else time.monotonic() - (self._first or self._asked)
        texts = [
            fill_in(self.tr("TTFT %1"), quantities.duration(ttft)),
            self.tr("%Ln token(s)", "", tokens),
        ]
        rate = (tokens - len(self.samples)) / spent if spent > 0 else 0.0
        if rate > 0:
            texts.append(fill_in(self.tr("%1 tok/s"), quantities.number(rate)))
        if done is not None:
            cached, prompt = quantities.count(done.cached_tokens), quantities.count(done.prompt_tokens)
            texts.append(fill_in(self.tr("%1 of %2 prompt tokens from the cache"), cached, prompt))
        return texts

    def _ending(self, reason: str) -> str:
        if reason == FinishReason.LENGTH:
            return self.tr("cut at the length limit")
        return self.tr("stopped") if reason == FinishReason.CANCELLED else ""

    def retranslate(self) -> None:
        self._waiting.setText(self.tr("Waiting for the first token …"))
        self.map_button.setText(self.tr("Show on the map"))
        self.copy_button.setText(self.tr("Copy"))
        for place, sample in enumerate(self.samples):
            sample.choose.setText(self.tr("Go on with this one"))
            sample.view.setAccessibleName(fill_in(self.tr("Answer %1"), str(place + 1)))
        self._show()
