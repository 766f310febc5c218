"""The Triton kernels: what they compute, in the interpreter, and what they need, compiled ahead of time."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import kv_checks
import pytest
import row_checks
from bounds import BOUNDS
from paged_cases import TOLERANCE, Case, decodes

pytest.importorskip("triton")
HERE = Path(__file__).parent
COMPILE = (sys.executable, str(HERE / "compile_kernels.py"))
Ask = Callable[[dict], float]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Puts a request to the interpreting process and returns the largest error."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(HERE / "interpreter.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(request: dict) -> float:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the interpreting process ended"
        reply = json.loads(line)
        assert "failure" not in reply, reply["failure"]
        return reply["error"]

    yield ask
    process.stdin.close()
    process.wait(timeout=30)


TILE = 64  # the largest of the tables' tiles that these cases meet; tile ± 1 below is tile ± 1 for the smaller, too

DECODES = [
    decodes(1, 0, block_size=8),
    decodes(31, 32, 33, TILE - 1, TILE, TILE + 1, block_size=32),
    decodes(200, 1, 130, block_size=8, dtype="float16"),
    decodes(600, 300, block_size=256, dtype="float16"),
    decodes(70, 130, group=1, kv_heads=3, dtype="float16"),
    decodes(70, 130, head_dim=80, group=16, kv_heads=1, dtype="float16", block_size=64),
    decodes(70, 130, head_dim=96, group=5, block_size=128),
    decodes(70, 130, head_dim=128, group=4, dtype="float16", block_size=32),
    decodes(70, 130, head_dim=256, group=2, kv_heads=1, dtype="float16"),
    decodes(70, 130, head_dim=128, group=8, kv_heads=1, dtype="bfloat16", block_size=32),
    decodes(70, 130, head_dim=80, kv_heads=1, dtype="bfloat16", block_size=8),
    decodes(100, 300, 20, window=64),
    decodes(100, 20, window=1, dtype="float16"),
    decodes(150, softcap=4.0),
    decodes(0, 100, 150, sinks=True),
    decodes(100, 300, sinks=True, window=37, softcap=2.0, dtype="float16"),
    # Segments: fewer than tiles, as many, more; empty ones; a context of nothing.
    *(decodes(0, 1, 33, 100, 257, span=s, kv_heads=1) for s in (128, 32, 16)),
    decodes(300, 40, span=64, window=150, sinks=True, softcap=5.0, dtype="float16"),
    decodes(0, 70, span=16, sinks=True, head_dim=80, dtype="bfloat16"),
    # As a captured graph has them: cut for longer contexts; and for shorter ones, which is slow but right.
    decodes(0, 1, 256, 257, 600, bucket=8192, kv_heads=1, dtype="float16"),
    decodes(300, 600, bucket=64, span=128, kv_heads=1),
    decodes(0, 70, 130, pool="float8_e4m3fn", dtype="float16", arch=90),  # which converts float8 itself
    *(decodes(0, 70, 130, pool=p, dtype=d) for p in ("int8", "float8_e4m3fn") for d in ("float32", "float16")),
    decodes(70, 130, pool="int8", dtype="bfloat16", head_dim=80, block_size=8),
    decodes(70, 130, pool="float8_e4m3fn", dtype="bfloat16", head_dim=96, block_size=256),
    decodes(0, 1, 100, 257, pool="int8", span=32, window=90, sinks=True, softcap=3.0, head_dim=128, group=4),
    decodes(0, 1, 100, 257, pool="float8_e4m3fn", span=32, window=90, sinks=True, softcap=3.0, dtype="float16"),
]  # fmt: skip

PREFILLS = [
    Case((1, 2, 40), (1, 90, 40), dtype="float16", kv_heads=1),
    Case((5, 21, 22, 43), (5, 21, 22, 60), block_size=8, kv_heads=1),
    Case((70,), (70,), group=16, kv_heads=1, dtype="float16"),
    Case((130,), (200,), group=1, kv_heads=1, dtype="float16", block_size=32),
    Case((1, 1, 30, 64), (50, 7, 100, 64), padding=3, dtype="bfloat16", kv_heads=1),
    Case((30,), (150,), window=40, kv_heads=1),
    Case((70,), (150,), window=3, kv_heads=1, group=1, dtype="float16"),
    Case((30,), (60,), softcap=3.0, kv_heads=1),
    # Few queries over long contexts, in segments.
    *(Case((1, 3, 30), (90, 200, 150), span=s, kv_heads=1, dtype=d) for s, d in ((32, "float32"), (128, "float16"))),
    Case((3, 30), (200, 150), span=64, window=70, sinks=True, softcap=3.0, padding=2, dtype="float16"),
    Case((2, 30), (600, 31), bucket=4096, kv_heads=1, dtype="float16"),
    Case((5, 21), (5, 60), pool="float8_e4m3fn", dtype="float16", arch=90, kv_heads=1),
    Case((2, 3), (140, 131), span=32, sinks=True, pool="int8", kv_heads=1, head_dim=80),
    Case((30,), (60,), sinks=True, dtype="float16"),
    Case((1, 30), (60, 80), sinks=True, window=20, softcap=3.0, head_dim=80, kv_heads=1, dtype="float16"),
    Case((20,), (40,), head_dim=96, block_size=128, kv_heads=1),
    Case((20,), (70,), head_dim=256, block_size=16, kv_heads=1, group=2, dtype="float16"),
    *(Case((1, 30), (50, 90), pool=p, dtype=d) for p in ("int8", "float8_e4m3fn") for d in ("float32", "float16")),
    Case((5, 21), (5, 60), pool="int8", window=20, sinks=True, softcap=3.0, head_dim=80, kv_heads=1, dtype="bfloat16"),
    Case((5, 21), (5, 60), pool="float8_e4m3fn", window=20, sinks=True, softcap=3.0, head_dim=96, kv_heads=1),
]


def shuffled(seed: int) -> Case:
    """A small batch of any shape."""
    draw = random.Random(seed)
    decodes = draw.randint(0, 3)
    chunks = [draw.randint(2, 25) for _ in range(draw.randint(0 if decodes else 1, 2))]
    queries = (1,) * decodes + tuple(chunks)
    lengths = (0, 1, TILE - 1, TILE, TILE + 1, draw.randint(0, 150))
    return Case(
        queries,
        tuple(draw.choice(lengths) if n == 1 else n + draw.choice(lengths) for n in queries),
        block_size=draw.choice((8, 16, 32, 64, 128, 256)),
        kv_heads=draw.randint(1, 2),
        group=draw.choice((1, 2, 3, 4, 7, 16)),
        head_dim=draw.choice((64, 80, 96, 128, 192)),
        dtype=draw.choice(("float32", "float16", "bfloat16")),
        pool=draw.choice(("", "", "int8", "float8_e4m3fn")),
        window=draw.choice((0, 0, 1, 33, 100)),
        softcap=draw.choice((0.0, 3.0)),
        sinks=draw.random() < 0.5,
        padding=draw.randint(0, 2),
        arch=draw.choice((80, 90)),
        bucket=draw.choice((0, 1024)),
        span=draw.choice((0, 32, 128)),
    )


@pytest.mark.parametrize("case", DECODES + PREFILLS + [shuffled(seed) for seed in range(16)], ids=lambda c: c.label)
def test_attention(ask: Ask, case: Case) -> None:
    assert ask({"case": dataclasses.asdict(case)}) < TOLERANCE[case.dtype]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("check", kv_checks.CHECKS)
def test_keys_and_values(ask: Ask, check: str, dtype: str) -> None:
    ask({"check": check, "dtype": dtype})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("check", row_checks.CHECKS)
def test_rows(ask: Ask, check: str, dtype: str) -> None:
    ask({"check": check, "dtype": dtype})


def entries(run: subprocess.CompletedProcess[str]) -> list[dict]:
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def excesses(found: list[dict]) -> list[str]:
    """What is over its bound, in words."""
    wrong = []
    for entry in found:
        registers, kib = BOUNDS[entry["label"]][entry["arch"]]
        for what, bound in (("spills", 0), ("registers", registers), ("shared", kib * 1024)):
            if entry[what] > bound:
                wrong.append(f"{entry['label']} on {entry['arch']}: {entry[what]} {what}, bound {bound}")
    return wrong


@pytest.mark.timeout(600)
@pytest.mark.ahead(*COMPILE)
def test_kernels_fit_the_machines_they_are_tiled_for(ahead: subprocess.CompletedProcess[str]) -> None:
    found = entries(ahead)
    assert {(e["label"], e["arch"]) for e in found} == {(label, arch) for label in BOUNDS for arch in BOUNDS[label]}
    assert excesses(found) == []


def test_the_bounds_can_be_exceeded() -> None:
    """A kernel that is denied its registers spills, and the check sees it."""
    (entry,) = entries(subprocess.run([*COMPILE, "32"], capture_output=True, text=True))
    assert [w for w in excesses([entry]) if "spills, bound 0" in w]


def test_ops_import_without_a_driver() -> None:
    program = (
        "import sys; from pagedeck.kernels.triton.ops import TritonOps; TritonOps();"
        "assert 'triton' not in sys.modules, 'triton was loaded'"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
