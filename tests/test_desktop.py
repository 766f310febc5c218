"""``pagedeck desktop``: what it puts where, that it starts this installation, and that it takes all away again."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from pagedeck import __version__
from pagedeck.cli import main
from pagedeck.commands import desktop

pytestmark = pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="desktop entries are for Linux and BSDs")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def entry(home: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(home / "applications" / "pagedeck.desktop", encoding="utf-8")
    return parser["Desktop Entry"]


def test_the_entry_starts_this_installation(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["desktop", "install"]) == 0
    *command, file = shlex.split(entry(home)["Exec"])
    assert file == "%f"
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, cwd=home).stdout
    assert __version__ in said
    assert str(home / "applications" / "pagedeck.desktop") in capsys.readouterr().out


def test_recordings_have_a_type_that_the_entry_opens(home: Path) -> None:
    main(["desktop", "install"])
    space = "{http://www.freedesktop.org/standards/shared-mime-info}"
    kind = ET.parse(home / "mime" / "packages" / "pagedeck.xml").getroot().find(f"{space}mime-type")
    assert kind is not None
    assert entry(home)["MimeType"] == f"{kind.get('type')};"
    glob, match = kind.find(f"{space}glob"), kind.find(f"{space}magic/{space}match")
    from pagedeck.gui.recording.file import MAGIC, SUFFIX

    assert glob is not None and glob.get("pattern") == f"*{SUFFIX}"
    assert match is not None and MAGIC.startswith(match.get("value", "?").encode())
    icon = home / "icons" / "hicolor" / "scalable" / "apps" / f"{entry(home)['Icon']}.svg"
    assert ET.parse(icon).getroot().tag.endswith("svg")


def test_remove_takes_all_away_and_nothing_else(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["desktop", "install"])
    other = home / "applications" / "other.desktop"
    other.write_text("[Desktop Entry]\n")
    assert main(["desktop", "remove"]) == 0
    ours = [path for path in home.rglob("*pagedeck*") if path.is_file() and path.suffix != ".cache"]
    assert ours == [] and other.exists()
    capsys.readouterr()
    assert main(["desktop", "remove"]) == 0
    assert "was not among" in capsys.readouterr().out


def test_a_relative_data_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert desktop._data_home() == tmp_path / ".local" / "share"


def test_an_odd_path_is_quoted_as_an_entry_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / 'a "b" 100%' / "python"
    monkeypatch.setattr(sys, "executable", os.fspath(program))
    line = desktop._quoted(desktop._program())
    # The file's own escape comes first, then the command line's.
    assert shlex.split(line.replace("\\\\", "\\").replace("%%", "%")) == [str(program), "-m", "pagedeck"]
