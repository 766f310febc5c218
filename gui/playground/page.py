"""Chat with the model, see what each answer cost, and fill the server to see its memory at work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut, QTextOption
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPlainTextEdit,
    QPushButton,
    QSizePolicy,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from ...ipc.protocol import Accepted, ChatMessage, Failed, Finished, Submit, Tokens
from ...ipc.vocabulary import PRIORITIES, SamplingParams
from .. import i18n, theme, words
from ..i18n import Translated, fill_in
from ..link import EngineLink
from ..scroll import Column, plain_scroll
from ..state import ConnectionState
from . import samples
from .answer import Answer

_MAX_LINES = 8

#: Longer lines are hard to read.
_READABLE = 120 * theme.GRID


class PromptEdit(QPlainTextEdit):
    """Enter sends, Shift+Enter is a newline; grows with its text up to some lines."""

    sent = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTabChangesFocus(True)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.textChanged.connect(self._fit)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.sent.emit()
            return
        super().keyPressEvent(event)

    def sizeHint(self) -> QSize:
        return QSize(40 * theme.GRID, self.height())

    def _fit(self) -> None:
        lines = min(_MAX_LINES, max(2, round(self.document().size().height())))
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 3 * theme.GRID)


class Parameters(Translated, QWidget):
    """System prompt and sampling, as fields."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.system = QPlainTextEdit(tabChangesFocus=True)
        self.system.setFixedHeight(10 * theme.GRID)
        self.system.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)  # as wide as the fields
        self.temperature = QDoubleSpinBox(minimum=0.0, maximum=100.0, singleStep=0.1, value=0.7, decimals=2)
        self.top_p = QDoubleSpinBox(minimum=0.01, maximum=1.0, singleStep=0.05, value=0.95, decimals=2)
        self.max_tokens = QSpinBox(minimum=1, maximum=10_000_000, value=256)
        self.seed = QLineEdit()
        self.samples = QSpinBox(minimum=1, maximum=64, value=1)
        self.priority = QComboBox()
        for name in PRIORITIES:
            self.priority.addItem("", name)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setSpacing(theme.GRID)
        form.setLabelAlignment(Qt.AlignmentFlag.AlignVCenter)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        self._labels = [QLabel() for _ in range(7)]
        form.addRow(self._labels[0])
        form.addRow(self.system)
        fields = (self.temperature, self.top_p, self.max_tokens, self.samples, self.seed, self.priority)
        for label, field in zip(self._labels[1:], fields, strict=True):
            form.addRow(label, field)
            label.setBuddy(field)
            field.setMinimumWidth(10 * theme.GRID)
            if isinstance(field, QAbstractSpinBox):
                theme.pad(field)
        self._labels[0].setBuddy(self.system)
        self.retranslate()

    def sampling(self) -> SamplingParams:
        """Raises ValueError when the seed is none."""
        seed = self.seed.text().strip()
        sampling = SamplingParams(
            max_tokens=self.max_tokens.value(),
            temperature=self.temperature.value(),
            top_p=self.top_p.value(),
            n=self.samples.value(),
            seed=int(seed) if seed else None,
        )
        sampling.check()
        return sampling

    def retranslate(self) -> None:
        names = (
            (self.system, self.tr("System prompt"), self.tr("What the model is told before the conversation")),
            (self.temperature, self.tr("Temperature"), self.tr("0 always takes the likeliest token")),
            (self.top_p, "Top-p", self.tr("Only the likeliest tokens that add up to this share; 1 is off")),
            (self.max_tokens, self.tr("Max tokens"), self.tr("The answer ends after so many tokens")),
            (self.samples, self.tr("Samples"), self.tr("Answers side by side; they share the prompt's blocks")),
            (self.seed, self.tr("Seed"), self.tr("The same seed gives the same answer, whatever else runs")),
            (self.priority, self.tr("Class"), self.tr("Interactive requests run before normal and batch ones")),
        )
        for label, (field, name, hint) in zip(self._labels, names, strict=True):
            label.setText(name)
            field.setAccessibleName(name)
            for widget in (label, field):
                widget.setToolTip(hint)
        self.seed.setPlaceholderText(self.tr("random"))
        self.system.setPlaceholderText(self.tr("none"))
        for place, name in enumerate(PRIORITIES):
            self.priority.setItemText(place, words.class_name(name))


@dataclass
class Turn:
    """One exchange. ``history`` is the conversation before it."""

    prompt: str
    history: list[ChatMessage]
    question: QLabel
    answer: Answer


class Playground(Translated, QWidget):
    """The page. ``shown`` asks for a request on the map, ``said`` carries a sentence for the status bar."""

    shown = Signal(int)
    said = Signal(object)  # Said

    def __init__(self, link: EngineLink, languages: i18n.Languages, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._languages = languages
        self.turns: list[Turn] = []
        self._load: dict[str, bool] = {}  # ids of the fill's requests -> whether they ended
        self._repeated = 0  # of the fill's requests, where each that ends is followed by another
        self._epoch = link.live.epoch

        self.parameters = Parameters()
        self.prompt = PromptEdit()
        self.send_button, self.stop_button = QPushButton(), QPushButton()
        self.send_button.setProperty("role", "primary")
        self.regenerate_button, self.clear_button, self.fill_button = QPushButton(), QPushButton(), QPushButton()
        self.keep_full = QCheckBox()
        self.samples_button = QPushButton()
        self._samples_menu = QMenu(self)
        self.samples_button.setMenu(self._samples_menu)
        self.load_label = QLabel()
        self.load_label.setProperty("role", "muted")
        self.empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self.empty.setProperty("role", "muted")
        self._arrange()

        self.prompt.sent.connect(self.send)
        self.prompt.textChanged.connect(self._show_buttons)
        self.send_button.clicked.connect(self.send)
        self.stop_button.clicked.connect(self.stop)
        self.regenerate_button.clicked.connect(self.regenerate)
        self.clear_button.clicked.connect(self.clear)
        self.fill_button.clicked.connect(self.fill)
        self.keep_full.toggled.connect(self._show_buttons)
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.stop)
        escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        link.connectionChanged.connect(self._show_buttons)
        link.connectionChanged.connect(self._watch_life)
        self.retranslate()

    def _arrange(self) -> None:
        grid = theme.GRID
        self._transcript = Column()
        self._column = QVBoxLayout(self._transcript)
        self._column.setContentsMargins(2 * grid, 2 * grid, 2 * grid, 2 * grid)
        self._column.setSpacing(2 * grid)
        self._column.addWidget(self.empty, 1)
        self._column.addStretch(1)
        self._scroll = plain_scroll(self._transcript)
        self._at_end = True
        bar = self._scroll.verticalScrollBar()
        bar.valueChanged.connect(lambda value: setattr(self, "_at_end", value >= bar.maximum() - 3 * grid))
        bar.rangeChanged.connect(lambda _, maximum: bar.setValue(maximum) if self._at_end else None)

        entry = QHBoxLayout()
        entry.addWidget(self.prompt, 1)
        send = QVBoxLayout()
        send.addWidget(self.send_button)
        send.addWidget(self.stop_button)
        send.addStretch(1)
        entry.addLayout(send)
        tools = QHBoxLayout()
        tools.setSpacing(grid)
        for button in (self.samples_button, self.regenerate_button, self.clear_button):
            tools.addWidget(button)
        tools.addStretch(1)
        left = QVBoxLayout()
        left.setContentsMargins(0, 0, 0, 0)
        left.setSpacing(0)
        left.addWidget(self._scroll, 1)
        foot = QVBoxLayout()
        foot.setContentsMargins(2 * grid, grid, 2 * grid, grid)
        foot.setSpacing(grid)
        foot.addLayout(entry)
        foot.addLayout(tools)
        left.addLayout(foot)
        side = QVBoxLayout()
        side.setContentsMargins(grid, 2 * grid, 2 * grid, grid)
        side.setSpacing(grid)
        side.addWidget(self.parameters)
        side.addStretch(1)
        side.addWidget(self.load_label)
        side.addWidget(self.keep_full)
        side.addWidget(self.fill_button)
        panel = QWidget()
        panel.setLayout(side)
        panel.setMinimumWidth(30 * grid)
        panel.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        talk = QWidget()
        talk.setLayout(left)
        talk.setMaximumWidth(_READABLE)
        layout.addStretch(1)  # beyond a readable width, the conversation stands in the middle
        layout.addWidget(talk, 1000)
        layout.addStretch(1)
        layout.addWidget(panel)

    # --- verbs --------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return any(not turn.answer.done for turn in self.turns)

    def send(self) -> None:
        """Send what is written."""
        text = self.prompt.toPlainText().strip()
        if text and self.send_button.isEnabled() and self._ask(text, self._history()):
            self.prompt.clear()

    def stop(self) -> None:
        """Stop the answer that streams, and the load."""
        for turn in self.turns:
            if not turn.answer.done:
                self._link.cancel(turn.answer.id)
        self.keep_full.setChecked(False)
        for id, ended in self._load.items():
            if not ended:
                self._link.cancel(id)

    def regenerate(self) -> None:
        """Ask the last question again, with the parameters as they are now."""
        if self.turns and not self.busy:
            last = self.turns[-1]
            if self._ask(last.prompt, last.history):
                del self.turns[-2]
                self._remove(last)

    def clear(self) -> None:
        """Stop, and begin a new conversation."""
        self.stop()
        for turn in self.turns:
            self._remove(turn)
        self.turns.clear()
        self._show_buttons()

    def fill(self) -> None:
        """Submit eight requests of all classes, so that the map has something to show."""
        self._load, self._repeated = {}, 0
        for submit in samples.fill(self._link.view.status):
            self._submit_load(submit)
        sent = len(self._load)
        self.said.emit(lambda: self.tr("Sent %Ln request(s) of all classes: watch the map", "", sent))
        self._show_buttons()

    # --- inner --------------------------------------------------------------------------------------------------

    def _watch_life(self) -> None:
        """Another engine, or another life of one, counts requests anew."""
        if self._link.live.epoch != self._epoch:
            self._epoch = self._link.live.epoch
            for turn in self.turns:
                turn.answer.lose_number()

    def _history(self) -> list[ChatMessage]:
        history: list[ChatMessage] = []
        for turn in self.turns:
            if turn.answer.text:
                history += [ChatMessage("user", turn.prompt), ChatMessage("assistant", turn.answer.text)]
        return history

    def _ask(self, text: str, history: list[ChatMessage]) -> bool:
        try:
            sampling = self.parameters.sampling()
        except ValueError:
            self.said.emit(lambda: self.tr("The seed must be a whole number of up to 18 digits, or empty."))
            self.parameters.seed.setFocus()
            return False
        submit = samples.ask(text, self._link.view.status, history=history, system=self.parameters.system.toPlainText())
        submit.sampling = sampling
        submit.priority = self.parameters.priority.currentData()
        question = QLabel(text, wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        question.setProperty("role", "question")
        question.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        answer = Answer(sampling.n)
        answer.shown.connect(self.shown)
        answer.ended.connect(self._show_buttons)
        self.turns.append(Turn(text, history, question, answer))
        self.empty.hide()
        place = self._column.count() - 1
        self._column.insertWidget(place, question)
        self._column.insertWidget(place + 1, answer)
        self._at_end = True
        answer.id = self._link.submit(submit, answer.take)
        self._show_buttons()
        return True

    def _remove(self, turn: Turn) -> None:
        turn.answer.forget()
        for widget in (turn.question, turn.answer):
            self._column.removeWidget(widget)
            widget.hide()
            widget.deleteLater()

    def _submit_load(self, submit: Submit) -> None:
        id = self._link.submit(submit, partial(self._loaded, submit))
        self._load.setdefault(id, False)

    def _loaded(self, submit: Submit, message: Accepted | Tokens | Finished | Failed) -> None:
        if not isinstance(message, Finished | Failed):
            return
        self._load[message.id] = True
        if isinstance(message, Finished) and self.keep_full.isChecked():
            del self._load[message.id]
            self._repeated += 1
            self._submit_load(submit)
        if isinstance(message, Failed) and message.code != "gone":
            self.said.emit(partial(words.failure, message))
        self._show_buttons()

    def _use_sample(self, sample: samples.Sample) -> None:
        self.prompt.setPlainText(sample.prompt)
        self.parameters.samples.setValue(sample.n)
        self.prompt.setFocus()

    def _show_buttons(self) -> None:
        ready = self._link.view.connection == ConnectionState.READY
        loading = sum(not ended for ended in self._load.values())
        self.send_button.setEnabled(ready and not self.busy and bool(self.prompt.toPlainText().strip()))
        self.stop_button.setEnabled(self.busy or loading > 0)
        self.regenerate_button.setEnabled(ready and bool(self.turns) and not self.busy)
        self.clear_button.setEnabled(bool(self.turns))
        self.fill_button.setEnabled(ready and not loading)
        self.load_label.setVisible(bool(loading))
        done, total = str(len(self._load) - loading), str(len(self._load))
        if self.keep_full.isChecked():
            self.load_label.setText(fill_in(self.tr("Load: %1 ended so far"), str(self._repeated)))
        else:
            self.load_label.setText(fill_in(self.tr("Load: %1 of %2 ended"), done, total))
        self.empty.setVisible(not self.turns)

    def retranslate(self) -> None:
        self.prompt.setPlaceholderText(self.tr("Ask the model (Enter sends, Shift+Enter begins a line, Esc stops)"))
        self.prompt.setAccessibleName(self.tr("Prompt"))
        self.send_button.setText(self.tr("Send"))
        self.stop_button.setText(self.tr("Stop"))
        self.regenerate_button.setText(self.tr("Regenerate"))
        self.clear_button.setText(self.tr("Clear"))
        self.samples_button.setText(self.tr("Sample prompts"))
        self.samples_button.setToolTip(self.tr("Prompts to try"))
        self.keep_full.setText(self.tr("Keep it full"))
        self.keep_full.setToolTip(self.tr("Whatever ends is followed by another request, until you stop it"))
        self.fill_button.setText(self.tr("Fill the server"))
        self.fill_button.setToolTip(
            self.tr("Send eight requests of all classes at once, some with a common beginning, and watch the map")
        )
        self.empty.setText(
            self.tr(
                "Write to the model below, or take one of the samples.\n“Fill the server” shows the map under load."
            )
        )
        self._samples_menu.clear()
        for sample in samples.samples():
            action = self._samples_menu.addAction(sample.title(self._languages.current))
            action.triggered.connect(lambda _=False, sample=sample: self._use_sample(sample))
        self._show_buttons()
