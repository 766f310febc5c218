"""Languages: complete, up to date, switched live, and nothing visible left in English."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pagedeck.engine.config import EngineConfig
from pagedeck.gui import engine_texts, i18n, words
from pagedeck.gui.main_window import MainWindow
from pagedeck.gui.rail import PAGES
from pagedeck.ipc.protocol import DescribeBlock, DescribeRequest, Failed, Reconfigure, Reconfigured, ReconfigureReport
from pagedeck.ipc.telemetry import Event
from PySide6.QtGui import QAction
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QComboBox,
    QDockWidget,
    QGraphicsScene,
    QGroupBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QTableView,
    QWidget,
)
from pytestqt.qtbot import QtBot

from .feeder import Feeder
from .scripted_link import ScriptedLink
from .test_inspector import detail

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
UPDATE = (
    "pyside6-lupdate $(git ls-files 'gui/*.py') -ts assets/translations/pagedeck_zh_CN.ts"
    " -source-language en -target-language zh_CN -no-obsolete -locations none"
)

#: Words that stand in a Chinese text as they are: names, units, and terms that the field uses untranslated.
KEPT = {
    "SmolLM2",
    "vLLM",
    "SGLang",
    "pagedeck",
    "KV",
    "TTFT",
    "P50",
    "P95",
    "P99",
    "p50",
    "p95",
    "p99",
    "tok",
    "s",
    "ms",
    "min",
    "h",
    "GiB",
    "MiB",
    "KiB",
    "B",
    "MB",
    "TiB",
    "token",
    "EN",
    "Pagedeck",
    "SmolLM",
    "Instruct",
    "Markdown",
    "Top",
    "p",
    "Python",
    "CSV",
    "PNG",
    "CPU",
    "GPU",
    "GGUF",
    "safetensors",
    "Hub",
    "ID",
    "Enter",
    "Shift",
    "Esc",
    "Ctrl",
    "F",
    "ref",
    "tiny",
    "test",
    "chat",
    "app",
    "client",
    "cuda",
    "float32",
    "pip",
    "serve",
    "Delete",
    "http",
    "transformers",
    "generate",
    "BurstGPT",
    "Mooncake",
    "JSON",
}


def messages(language: str) -> Iterator[tuple[str, str, ET.Element]]:
    for context in ET.parse(i18n.TRANSLATIONS / f"pagedeck_{language}.ts").getroot().iter("context"):
        for message in context.iter("message"):
            yield context.findtext("name", ""), message.findtext("source", ""), message.find("translation")  # type: ignore[misc]


@pytest.mark.parametrize("language", ["zh_CN", "en"])
def test_every_text_is_translated(language: str) -> None:
    unfinished = [(context, source) for context, source, text in messages(language) if text.get("type")]
    assert unfinished == []
    empty = [s for _, s, text in messages(language) if not "".join(text.itertext()).strip() and s.strip()]
    assert empty == []


def test_translations_keep_their_places_for_figures() -> None:
    for context, source, text in messages("zh_CN"):
        for form in [text] if text.find("numerusform") is None else text.findall("numerusform"):
            assert sorted(re.findall(r"%L?[\dn]", source)) == sorted(re.findall(r"%L?[\dn]", form.text or "")), (
                context,
                source,
            )


@pytest.mark.parametrize("language", ["zh_CN", "en"])
def test_translation_files_know_every_text_of_the_sources(language: str, tmp_path: Path) -> None:
    plural = ["-pluralonly"] if language == "en" else []
    made = tmp_path / f"pagedeck_{language}.ts"
    sources = [str(path) for path in sorted((ROOT / "gui").rglob("*.py"))]
    tool = [str(TOOLS / "pyside6-lupdate"), *sources, "-ts", str(made), "-source-language", "en"]
    subprocess.run([*tool, "-target-language", language, *plural], check=True, capture_output=True)
    now = {
        (context.findtext("name"), message.findtext("source"))
        for context in ET.parse(made).getroot().iter("context")
        for message in context.iter("message")
    }
    committed = {(context, source) for context, source, _ in messages(language)}
    assert now == committed, f"run: {UPDATE}"


@pytest.mark.parametrize("language", ["zh_CN", "en"])
def test_compiled_translations_are_up_to_date(language: str, tmp_path: Path) -> None:
    made = tmp_path / "made.qm"
    source = i18n.TRANSLATIONS / f"pagedeck_{language}.ts"
    subprocess.run([str(TOOLS / "pyside6-lrelease"), str(source), "-qm", str(made)], check=True, capture_output=True)
    assert made.read_bytes() == source.with_suffix(".qm").read_bytes(), f"run: pyside6-lrelease {source.name}"


def test_the_language_follows_the_system_or_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert i18n.parse_language("zh") == i18n.Language.CHINESE
    assert i18n.parse_language("en") == i18n.Language.ENGLISH
    for system, expected in (("zh-Hans-CN", i18n.Language.CHINESE), ("zh_TW", i18n.Language.CHINESE), ("de-DE", "en")):

        class System:
            @staticmethod
            def uiLanguages(name: str = system) -> list[str]:
                return [name]

        class Locale:
            system = System

        monkeypatch.setattr(i18n, "QLocale", Locale)
        assert i18n.parse_language(None) == expected


def test_english_counts_have_their_plural(languages: i18n.Languages) -> None:
    assert words.counted.blocks_moved(1) == "1 block moved"
    assert words.counted.blocks_moved(1212) == "1,212 blocks moved"


# --- the engine's words ---------------------------------------------------------------------------------------------


def test_every_setting_of_the_engine_has_words(languages: i18n.Languages) -> None:
    languages.switch(i18n.Language.CHINESE)
    for spec in fields(EngineConfig):
        assert chinese(words.title(spec.name)), spec.name
        unit = spec.metadata["unit"]
        assert not unit or unit == "GiB" or foreign(words.unit(unit)) == [], unit


def test_an_unknown_setting_is_shown_as_the_engine_names_it(languages: i18n.Languages) -> None:
    assert words.title("brand_new") == "brand_new"


def said_by_the_engine(path: str, call: str) -> Iterator[str]:
    """The texts that ``call(…)`` is given in a source of the engine, with ``7`` for each figure."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != call or not node.args:
            continue
        text = node.args[0]
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield text.value
        elif isinstance(text, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "7" for part in text.values)


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("engine/reconfigure.py", "notes.append"),
        ("engine/reconfigure.py", "report.notes.append"),
        ("engine/reconfigure.py", "Refused"),
        ("engine/cache/capacity.py", "Refused"),
        ("engine/assembly.py", "report"),
        ("engine/serving/service.py", "report"),
        ("engine/model/loading.py", "report"),
        ("engine/model/checkpoint.py", "report"),
        ("engine/model/convert.py", "report"),
        ("engine/model/fetch.py", "report"),
    ],
)
def test_the_engines_sentences_are_known(path: str, call: str) -> None:
    texts = [*said_by_the_engine(path, call)]
    assert texts
    assert [text for text in texts if not engine_texts.known(text)] == []


def test_a_sentence_keeps_its_figures(languages: i18n.Languages) -> None:
    text = "The device pool has 2,016 blocks of 64 tokens."
    assert engine_texts.say(text) == text
    languages.switch(i18n.Language.CHINESE)
    assert engine_texts.say(text) == "设备池有 2,016 个块，每块 64 个 token。"
    assert engine_texts.say("Something new happened 3 times.") == "Something new happened 3 times."


# --- the window -----------------------------------------------------------------------------------------------------


def chinese(text: str) -> bool:
    return bool(re.search(r"[\u4e00-\u9fff]", text))


def foreign(text: str) -> list[str]:
    """English words in a text that do not belong there. A setting's name for programs may stand alone."""
    if text in {spec.name for spec in fields(EngineConfig)}:
        return []
    text = re.sub(r"<[^>]+>", " ", text)
    return [word for word in re.findall(r"[A-Za-z][A-Za-z0-9]*", text) if word not in KEPT and len(word) > 1]


def visible_texts(window: QWidget) -> Iterator[tuple[str, str]]:
    """Every text that can be seen, read out, or called up by hovering, with the class of its widget."""
    for widget in [window, *window.findChildren(QWidget)]:
        if not widget.isVisible():
            continue
        name = type(widget).__name__
        yield name, widget.toolTip()
        yield name, widget.accessibleName()
        yield name, widget.accessibleDescription()
        if isinstance(widget, QLabel | QAbstractButton):
            yield name, widget.text()
        if isinstance(widget, QGroupBox):
            yield name, widget.title()
        if isinstance(widget, QDockWidget):
            yield name, widget.windowTitle()
        if isinstance(widget, QLineEdit | QPlainTextEdit):
            yield name, widget.placeholderText()
        if isinstance(widget, QComboBox):
            yield from ((name, widget.itemText(place)) for place in range(widget.count()))
        if isinstance(widget, QTableView):
            yield from table_texts(widget)
        for action in widget.findChildren(QAction):
            if not isinstance(action.parent(), QGraphicsScene):  # pyqtgraph's own, of a menu that is turned off
                yield f"{name} action", action.text()


def table_texts(view: QTableView) -> Iterator[tuple[str, str]]:
    model = view.model()
    name = type(view.parent()).__name__
    for column in range(model.columnCount()):
        yield f"{name} header", str(model.headerData(column, view.horizontalHeader().orientation()) or "")
        for row in range(min(30, model.rowCount())):
            yield f"{name} cell", str(model.index(row, column).data() or "")


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_no_visible_text_is_left_in_the_other_language(
    window: MainWindow, link: ScriptedLink, languages: i18n.Languages, qtbot: QtBot, language: str
) -> None:
    """Fill every page, switch the language live, and read everything."""
    make_everything_visible(window, link)
    languages.switch(i18n.Language.CHINESE)
    if language == "en":
        languages.switch(i18n.Language.ENGLISH)
    left: set[tuple[str, str, str]] = set()
    for page in PAGES:
        window.rail.choose(page.key)
        window.grab()  # lays out and paints what is shown for the first time
        QApplication.processEvents()
        for kind, text in visible_texts(window):
            wrong = foreign(text) if language == "zh_CN" else re.findall(r"[\u4e00-\u9fff]{2,}", text)
            if wrong and text != i18n.Language.ENGLISH.own_name and text != i18n.Language.CHINESE.own_name:
                left.add((page.key, kind, text))
    assert left == set()


def make_everything_visible(window: MainWindow, link: ScriptedLink) -> None:
    feeder = Feeder(num_blocks=512, host_blocks=128)
    link.view.begin(feeder.epoch)
    link.become_ready(feeder.status())
    link.view.apply_snapshot(feeder.snapshot())
    for _ in range(6):
        link.tell(feeder.advance(20, arrivals=0.3, stats=True))
    link.tell([feeder.message(b"event", Event(feeder.epoch, 0.0, "state", "A client asked for it.", state="ready"))])
    window.log.show_pending()
    running = next(row for row in link.view.requests.values() if row.state == "running")
    window.selection.select_block("device", 3, running.number)
    reply = detail()
    reply.row = running
    link.answer(DescribeRequest, reply)
    link.answer(DescribeBlock, Failed(message="No request x is known."))
    choice = window.settings_panel.editors["block_size"].field
    assert isinstance(choice, QComboBox)
    choice.setCurrentIndex(choice.findData(64))
    window.settings_panel.preview()
    report = ReconfigureReport(True, {"block_size": (32, 64)}, 38.0, 212, 41 << 20, 12, 2)
    report.notes = ["The device pool has 256 blocks of 64 tokens."]
    link.answer(Reconfigure, Reconfigured(report=report))
    window.playground.prompt.setPlainText("?")
    window.playground.send()
    window.playground.prompt.clear()
