"""The check for a machine with a GPU, in little and on the CPU: it must not rot where nobody can run it in full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pagedeck.bench import gpu_check
from pagedeck.bench.inside import correctness
from pagedeck.bench.inside.rows import Row
from pagedeck.kernels import Ops

ROOT = Path(__file__).parent.parent.parent
ABSENT = ("zmq", "msgspec", "PySide6", "pyqtgraph", "gguf")  # what a bare machine lacks


@pytest.mark.timeout(300)
def test_all_parts_run_from_a_bare_checkout(tmp_path: Path) -> None:
    for name in ABSENT:
        tmp_path.joinpath(f"{name}.py").write_text("raise ImportError('not on this machine')\n")
    output = tmp_path / "found.json"
    answer = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "gpu_check.py"), "--small", "--output", str(output)],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    facts = json.loads(output.read_text())
    rows = facts["rows"]
    assert {row["part"] for row in rows} == set(gpu_check.LIMITS)
    assert not [row for row in rows if row["error"] or row["good"] is False]
    assert all(row["measured"] > 0 for row in rows if row["part"] not in ("correctness", "repage"))
    assert all(row["good"] for row in rows if row["part"] == "correctness")
    assert "results are right" in answer.stdout and "on the CPU" in answer.stdout


def test_every_op_is_compared() -> None:
    ops = {name for name, value in vars(Ops).items() if callable(value) and not name.startswith("_")}
    compared = {name.partition(",")[0] for name in correctness.CASES}
    assert ops - {"warm_up"} == compared | {"paged_attention"}


def test_a_wrong_result_is_seen() -> None:
    right = torch.arange(6.0)
    assert correctness.distance(right.half(), right) == 0
    assert correctness.distance(right * 1.01, right) == pytest.approx(0.01, rel=1e-4)
    assert correctness.distance(right / 0, right) == float("inf")


def test_an_op_that_fails_is_a_row_and_the_others_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bench: correctness.Bench) -> Iterator[None]:
        raise RuntimeError("a broken kernel")
        yield

    cases = {"silu_mul": broken, "copy_blocks": correctness.CASES["copy_blocks"]}
    monkeypatch.setattr(correctness, "CASES", cases)
    made = gpu_check.rows("correctness", small=True)
    first, second = next(made), next(made)
    assert "a broken kernel" in first.error and first.good is False
    assert second.what.startswith("copy_blocks") and second.good


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what happens without a GPU")
def test_a_part_has_a_process_and_a_limit_of_its_own() -> None:
    [row] = gpu_check.isolated("swap", 60.0)
    assert "there is no GPU that torch can use" in row.error
    assert gpu_check.line(row).startswith("swap        the part as a whole: Traceback")
    [row] = gpu_check.isolated("swap", 0.001)
    assert row.error == "ended after 0 s"
    [row] = gpu_check.isolated("swap", 0.0)
    assert row.error == "not run: all parts together have 480 s"


def test_a_verdict_needs_an_aim_and_a_number() -> None:
    assert Row("p", "w", 0.9, at_least=0.85).good is True
    assert Row("p", "w", 0.8, at_least=0.85).good is False
    assert Row("p", "w", 1e-5, at_most=2e-5).good is True
    assert Row("p", "w", float("nan"), at_least=0.85).good is False
    assert Row("p", "w", float("nan"), at_most=0.85).good is False
    assert Row("p", "w", 0.9).good is None
    assert Row("p", "w", error="it broke").good is False


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gpu_check.main(["--parts", "decode,train"])
    assert "there is no part train" in capsys.readouterr().err
