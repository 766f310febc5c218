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


@pytest.mark.timeout(600)
def test_types(tmp_path: Path) -> None:
    """Under the package's own name: mypy would take it from the folder, which a clone may call anything."""
    tmp_path.joinpath("pagedeck").symlink_to(ROOT, target_is_directory=True)
    check("mypy", "--config-file", "pagedeck/pyproject.toml", "-p", "pagedeck", cwd=tmp_path)
