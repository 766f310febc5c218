"""Formatting, lint and types are tests like others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def check(*arguments: str, cwd: Path = ROOT) -> None:
    answer = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=cwd, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_lint() -> None:
    check("ruff", "check", "--no-cache")


def test_format() -> None:
    check("ruff", "format", "--check", "--no-cache")


#: Under the package's own name: mypy would take it from the folder, which a clone may call anything.
TYPES = """
import subprocess, sys, tempfile
from pathlib import Path
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "pagedeck").symlink_to(sys.argv[1], target_is_directory=True)
    command = [sys.executable, "-m", "mypy", "--config-file", "pagedeck/pyproject.toml", "-p", "pagedeck"]
    sys.exit(subprocess.run(command, cwd=folder).returncode)
"""


@pytest.mark.timeout(600)
@pytest.mark.ahead(sys.executable, "-c", TYPES, str(ROOT))
def test_types(ahead: subprocess.CompletedProcess[str]) -> None:
    assert ahead.returncode == 0, ahead.stdout + ahead.stderr
