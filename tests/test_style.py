"""Formatting, lint and types are tests like others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "arguments",
    [["ruff", "check", "--no-cache"], ["ruff", "format", "--check", "--no-cache"], ["mypy", "--no-error-summary", "."]],
    ids=["ruff-check", "ruff-format", "mypy"],
)
def test_style(arguments: list[str]) -> None:
    answer = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
