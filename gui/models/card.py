"""One model as a card: what it is, what it takes, and what can be done with it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QDateTime, QLocale, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from .. import engine_texts, quantities, theme
from ..i18n import Translated, fill_in


@dataclass(slots=True)
class Model:
    """What is known of a model. ``facts`` is how ``pagedeck models list`` describes it, empty where it is not on this
    machine; ``look`` is the answer of ``pagedeck models show``."""

    name: str
    facts: dict[str, Any]
    look: dict[str, Any] | None = None
    downloading: bool = False
    have: int = 0
    total: int = 0
    problem: str = ""
    local: bool = False  # a folder or a file of the user's own

    @property
    def complete(self) -> bool:
        return bool(self.facts.get("complete"))

    @property
    def partial(self) -> bool:
        """Whether a part of it was downloaded."""
        return not self.complete and bool(self.facts.get("bytes"))

    @property
    def default(self) -> bool:
        return self.facts.get("kind") == "default"

    @property
    def engine(self) -> str:
        """The engine that runs it."""
        return str(self.facts.get("engine", ""))

    @property
    def fits(self) -> bool:
        return self.look is None or not self.look["footprint"]["problem"]


class Estimate(Translated, QLabel):
    """What a model would take of this machine's memory and disk, in sentences."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, wordWrap=True)
        self.setFont(theme.number_font(self.font()))
        self._look: dict[str, Any] | None = None

    def show_look(self, look: dict[str, Any] | None) -> None:
        self._look = look
        self.setVisible(look is not None)
        self.retranslate()

    def retranslate(self) -> None:
        self.setText("\n".join(self._sentences(self._look)) if self._look is not None else "")

    def _sentences(self, look: dict[str, Any]) -> list[str]:
        footprint, size, count = look["footprint"], quantities.size, quantities.count
        texts = []
        if look["to_download"]:
            text = self.tr("To download: %1. Free on the disk: %2.")
            texts.append(fill_in(text, size(look["to_download"]), size(look["disk_free"])))
        text = self.tr("Weights: about %1 in %2. Free memory, without what runs now: %3.")
        texts.append(fill_in(text, size(footprint["weight_bytes"]), footprint["dtype"], size(footprint["free"])))
        if footprint["problem"]:
            return [*texts, self.tr("It does not fit: ") + engine_texts.say(footprint["problem"])]
        text = self.tr("Cache: %1 a token. About %2 tokens fit into %3, as in %4 of %5 tokens each.")
        requests = self.tr("%Ln request(s)", "", footprint["requests"])
        figures = (footprint["token_bytes"], footprint["tokens"], footprint["pool_bytes"], footprint["request_tokens"])
        token, tokens, pool, each = figures
        texts.append(fill_in(text, size(token), count(tokens), size(pool), requests, count(each)))
        if footprint["windowed"]:
            text = self.tr("Layers with a sliding window, which keep less of long texts: %1 of %2.")
            texts.append(fill_in(text, count(footprint["windowed"]), count(footprint["layers"])))
        return [*texts, self.tr("These are estimates.")]


class ModelCard(Translated, QFrame):
    """Signals carry the model's name: ``used``, ``looked`` (what does it take), ``fetched``, ``paused``, ``dropped`` (a
    download and what there is of it), ``removed``."""

    used = Signal(str)
    looked = Signal(str)
    fetched = Signal(str)
    paused = Signal(str)
    dropped = Signal(str)
    removed = Signal(str)

    def __init__(self, model: Model, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = model
        self.setProperty("role", "card")
        self.title = QLabel(textFormat=Qt.TextFormat.PlainText)
        self.title.setProperty("role", "title")
        self.mark = QLabel()
        self.mark.setProperty("role", "good")
        self.facts = QLabel(wordWrap=True)
        self.facts.setProperty("role", "muted")
        self.facts.setFont(theme.number_font(self.facts.font()))
        self.estimate = Estimate()
        self.problem = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.problem.setProperty("role", "error")
        self.progress = QProgressBar(textVisible=False)
        self.use_button, self.fetch_button, self.pause_button = QPushButton(), QPushButton(), QPushButton()
        self.look_button, self.drop_button, self.remove_button = QPushButton(), QPushButton(), QPushButton()
        self.question = QLabel()
        self.sure_button, self.keep_button = QPushButton(), QPushButton()
        self._asking = False
        for button, signal in (
            (self.use_button, self.used),
            (self.fetch_button, self.fetched),
            (self.pause_button, self.paused),
            (self.look_button, self.looked),
            (self.drop_button, self.dropped),
            (self.sure_button, self.removed),
        ):
            button.clicked.connect(lambda _=False, signal=signal: signal.emit(self.model.name))
        self.remove_button.clicked.connect(lambda: self._ask(True))
        self.keep_button.clicked.connect(lambda: self._ask(False))
        self._lay_out()
        self.retranslate()

    def _lay_out(self) -> None:
        head, buttons = QHBoxLayout(), QHBoxLayout()
        head.addWidget(self.title)
        head.addWidget(self.mark)
        head.addStretch(1)
        for button in (
            self.use_button, self.fetch_button, self.pause_button, self.drop_button, self.look_button,
            self.remove_button, self.question, self.sure_button, self.keep_button,
        ):  # fmt: skip
            buttons.addWidget(button)
        buttons.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        layout.setSpacing(theme.GRID)
        layout.addLayout(head)
        for part in (self.facts, self.estimate, self.problem, self.progress):
            layout.addWidget(part)
        layout.addLayout(buttons)

    def show_model(self, model: Model) -> None:
        self.model = model
        self._show()

    def _ask(self, asking: bool) -> None:
        self._asking = asking
        self._show()
        (self.keep_button if asking else self.remove_button).setFocus()

    def _show(self) -> None:
        model = self.model
        self.title.setText(str(model.facts.get("title") or model.name))
        self.mark.setText(fill_in(self.tr("● runs in %1"), model.engine) if model.engine else "")
        self.facts.setText(" · ".join(self._fact_texts()))
        self.facts.setVisible(bool(self.facts.text()))
        self.estimate.show_look(model.look)
        self.problem.setText(engine_texts.say(model.problem))
        self.problem.setVisible(bool(model.problem))
        self.progress.setVisible(model.downloading or (model.partial and not model.complete))
        self.progress.setRange(0, 1000 if model.total else 0)
        self.progress.setValue(round(1000 * model.have / model.total) if model.total else 0)
        idle = not model.downloading
        self.use_button.setVisible(idle and not model.engine and (model.complete or model.default or model.local))
        self.use_button.setEnabled(model.fits)
        self.fetch_button.setVisible(idle and not model.complete and not model.local)
        self.fetch_button.setText(self.tr("Go on") if model.partial else self.tr("Download"))
        self.pause_button.setVisible(model.downloading)
        self.drop_button.setVisible(not model.complete and not model.default and (model.downloading or model.partial))
        self.look_button.setVisible(idle and model.look is None)
        removable = idle and model.complete and not model.engine
        self.remove_button.setVisible(removable and not self._asking)
        self.question.setText(fill_in(self.tr("Delete %1?"), quantities.size(model.facts.get("bytes", 0))))
        for part in (self.question, self.sure_button, self.keep_button):
            part.setVisible(removable and self._asking)

    def _fact_texts(self) -> list[str]:
        model, facts = self.model, self.model.facts
        if model.downloading or model.partial:
            have, total = quantities.size(model.have), quantities.size(model.total)
            text = self.tr("Downloading: %1 of %2") if model.downloading else self.tr("Downloaded: %1 of %2, paused")
            return [fill_in(text, have, total) if model.total else self.tr("Asking the hub …")]
        if model.complete:
            texts = [fill_in(self.tr("%1 on the disk"), quantities.size(facts["bytes"]))]
            texts += [facts["architecture"], facts["dtype"]]
            texts.append(fill_in(self.tr("%1 million parameters"), quantities.count(facts["parameters"] / 1e6)))
            texts.append(fill_in(self.tr("context of %1 tokens"), quantities.count(facts["context_length"])))
            texts.append(self._used(facts["used"]))
            return [text for text in texts if text]
        if model.look is not None:
            footprint = model.look["footprint"]
            parameters = quantities.count(footprint["parameters"] / 1e6)
            return [
                footprint["architecture"],
                fill_in(self.tr("%1 million parameters"), parameters),
                fill_in(self.tr("context of %1 tokens"), quantities.count(footprint["context_length"])),
            ]
        return [self.tr("Not on this machine yet; the first start downloads it.")] if model.default else []

    def _used(self, when: float) -> str:
        if not when:
            return self.tr("not used yet")
        day = QDateTime.fromSecsSinceEpoch(round(when))
        shown = QLocale().toString(day, "HH:mm" if time.time() - when < 86_400 else "yyyy-MM-dd")
        return fill_in(self.tr("last used %1"), shown)

    def retranslate(self) -> None:
        self.use_button.setText(self.tr("Use"))
        self.use_button.setToolTip(self.tr("Restart this window's engine with the model"))
        self.fetch_button.setToolTip(self.tr("Download it; it can be paused, and goes on where it was"))
        self.pause_button.setText(self.tr("Pause"))
        self.drop_button.setText(self.tr("Cancel"))
        self.drop_button.setToolTip(self.tr("End the download and delete what there is of it"))
        self.look_button.setText(self.tr("What it takes"))
        self.look_button.setToolTip(self.tr("Estimate what it takes of this machine's memory"))
        self.remove_button.setText(self.tr("Delete …"))
        self.sure_button.setText(self.tr("Delete"))
        self.keep_button.setText(self.tr("Keep"))
        self._show()
