"""What the READMEs tell people to run runs as it stands there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pagedeck import cli
from pagedeck.commands.doctor import QT_PACKAGES

ROOT = Path(__file__).parent.parent
ENGLISH = ROOT.joinpath("README.md").read_text(encoding="utf-8")
CHINESE = ROOT.joinpath("README.zh-CN.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands() -> list[str]:
    lines = [line for block in blocks(ENGLISH, "sh") for line in block.splitlines()]
    return [line.removeprefix(".venv/bin/pagedeck").strip() for line in lines if line.startswith(".venv/bin/pagedeck")]


def test_both_languages_tell_the_same_commands() -> None:
    for language in ("sh", "python"):
        assert blocks(ENGLISH, language) == blocks(CHINESE, language)
    assert ENGLISH.count("\n## ") == CHINESE.count("\n## ")


def test_files_that_are_linked_exist() -> None:
    for text in (ENGLISH, CHINESE):
        for target in re.findall(r"\]\(([^)]+)\)", text):
            assert ROOT.joinpath(target).exists(), target


def test_doctor_names_the_same_packages() -> None:
    [line] = re.findall(r"^sudo apt-get install -y (.*)$", ENGLISH, re.MULTILINE)
    assert set(QT_PACKAGES.split()) == {name for name in line.split() if name.startswith("lib")}


@pytest.mark.parametrize("command", commands())
def test_commands_are_understood(command: str) -> None:
    cli.parser().parse_args(shlex.split(command))


@pytest.mark.parametrize("program", blocks(ENGLISH, "python"), ids=["sync", "async", "telemetry"])
def test_programs_run(program: str, engine_process) -> None:
    with engine_process():
        answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()
