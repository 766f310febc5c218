"""The window's language: finding the system's, loading translations, switching live.

Installing a translator makes Qt send ``LanguageChange`` to every widget; each widget writes its own texts again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, QLibraryInfo, QLocale, QTranslator
from PySide6.QtWidgets import QWidget

from .. import assets

#: A sentence that is kept, and worded anew in the language of each moment.
Said = Callable[[], str]


def QT_TRANSLATE_NOOP(context: str, text: str) -> str:
    """Marks a text that is translated where it is shown. PySide6 has it too, typed as giving any object."""
    return text


def fill_in(text: str, *parts: str) -> str:
    """A translated text with ``%1``, ``%2`` … replaced, in whatever order the language has them."""
    return re.sub(r"%(\d)", lambda place: parts[int(place[1]) - 1], text)


TRANSLATIONS = Path(assets.__file__).parent / "translations"


if TYPE_CHECKING:
    _Base = QWidget
else:  # Qt's classes do not mix
    _Base = object


class Translated(_Base):
    """Mixin of a widget that writes texts: it writes them again (:meth:`retranslate`) when the language changes."""

    def retranslate(self) -> None:
        raise NotImplementedError

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.LanguageChange:
            self.retranslate()


class Language(StrEnum):
    """A language that the window speaks. Values are file name suffixes and what ``--language`` accepts."""

    ENGLISH = "en"
    CHINESE = "zh_CN"

    @property
    def locale(self) -> QLocale:
        return QLocale("en_US" if self is Language.ENGLISH else "zh_CN")

    @property
    def own_name(self) -> str:
        """The language's name in itself: the one text that is never translated."""
        return "English" if self is Language.ENGLISH else "简体中文"


def system_language() -> Language:
    """Simplified Chinese for every Chinese system, English for all others."""
    first = next(iter(QLocale.system().uiLanguages()), "en")
    return Language.CHINESE if first.lower().startswith("zh") else Language.ENGLISH


def parse_language(text: str | None) -> Language:
    """The language that an option or a stored setting names; the system's for anything else."""
    if text and text.lower().startswith("zh"):
        return Language.CHINESE
    if text and text.lower().startswith("en"):
        return Language.ENGLISH
    return system_language()


class Languages:
    """Holds the installed translators of one application."""

    def __init__(self) -> None:
        self.current = Language.ENGLISH
        self._installed: list[QTranslator] = []

    def switch(self, language: Language) -> None:
        """Load and install ``language``, replacing the one before."""
        self.current = language
        QLocale.setDefault(language.locale)
        for translator in self._installed:
            QCoreApplication.removeTranslator(translator)
        qt_folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
        self._installed = [
            translator
            for folder, name in ((qt_folder, f"qtbase_{language}"), (str(TRANSLATIONS), f"pagedeck_{language}"))
            if (translator := QTranslator()).load(name, folder)
        ]
        for translator in self._installed:
            QCoreApplication.installTranslator(translator)
