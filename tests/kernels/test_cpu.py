"""The CPU's op table against the reference."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import kv_checks
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_cases import TOLERANCE, Case, build, decodes, worst
from pagedeck.kernels import cpu_decode, cpu_jit, ops_for
from pagedeck.kernels.cpu import CpuOps
from pagedeck.kernels.cpu_chunks import chunk_attention
from pagedeck.kernels.formats import decode, encode, raw
from pagedeck.kernels.reference import ReferenceOps

TILE = cpu_decode.TILE

CASES = [
    decodes(1),
    decodes(0, 1, TILE - 1, TILE, TILE + 1, 0),
    decodes(3 * TILE + 5, 2, 900, block_size=8),
    decodes(1000, 5, block_size=256),
    decodes(70, 200, head_dim=64, group=1, kv_heads=8),
    decodes(70, 200, head_dim=80, group=16, kv_heads=1),
    decodes(70, 200, head_dim=20, group=7, kv_heads=2),
    decodes(70, 200, head_dim=96, group=4, kv_heads=2),
    decodes(70, 200, head_dim=128, group=2, kv_heads=4),
    decodes(70, 200, head_dim=256, group=5, kv_heads=1),
    decodes(100, 300, 20, window=64),
    decodes(100, 300, 20, window=1),
    decodes(100, 300, softcap=4.0),
    decodes(0, 100, 300, sinks=True),
    decodes(100, 300, sinks=True, window=37, softcap=2.0),
    Case((33,), (33,)),
    Case((64, 65, 200), (64, 300, 201), block_size=32),
    Case((1, 1, 7, 130), (50, 200, 7, 400), padding=3),
    Case((1, 100), (90, 180), window=50),
    Case((97, 300), (97, 500), window=130),
    Case((1, 100), (90, 180), softcap=3.0),
    Case((1, 100), (90, 180), sinks=True),
    Case((1, 100), (90, 180), sinks=True, window=20, softcap=3.0, group=16, kv_heads=1, head_dim=80),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_attention(case: Case, dtype: str) -> None:
    check(dataclasses.replace(case, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("case", CASES[9:], ids=lambda c: c.label)
def test_attention_in_half_precision(case: Case, dtype: str) -> None:
    check(dataclasses.replace(case, dtype=dtype))


def check(case: Case) -> None:
    problem = build(case)
    result = CpuOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
    assert result.dtype == problem.query.dtype
    assert worst(result, problem) < TOLERANCE[case.dtype]


@pytest.mark.parametrize("kept", [torch.int8, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_attention_over_a_narrower_pool(case: Case, kept: torch.dtype) -> None:
    """Decodes and chunks, against the reference's reading of the same bytes."""
    problem = build(case)
    problem.pool = encode(problem.pool, kept)
    result = CpuOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
    assert result.dtype == torch.float32
    options = problem.options | {"sinks": problem.options["sinks"].double() if case.sinks else None}
    wanted = ReferenceOps().paged_attention(problem.query.double(), problem.pool, problem.batch, **options)
    rows = int(problem.batch.query_start[-1])
    torch.testing.assert_close(result[:rows].double(), wanted[:rows], rtol=0, atol=1e-5)


def test_every_float8_is_read_as_what_it_is() -> None:
    """A context of one position gives its value back."""
    numbers = torch.arange(256, dtype=torch.uint8)
    numbers = numbers[(numbers & 127) != 127].view(torch.float8_e4m3fn)  # without NaN
    pool = torch.stack([torch.zeros_like(numbers.view(torch.uint8)), numbers.view(torch.uint8)])
    pool = pool.view(torch.float8_e4m3fn)[:, None, None]
    batch = dataclasses.replace(build(decodes(1)).batch, block_tables=torch.zeros((1, 1), dtype=torch.int32))
    result = CpuOps().paged_attention(torch.zeros(1, 1, 254), pool, batch, scale=1.0)
    assert torch.equal(result[0, 0], numbers.float())


@pytest.mark.parametrize("kept", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_rotary_into_a_narrower_pool(kept: torch.dtype) -> None:
    matrix, (cos, sin) = torch.randn(30, 8, 64), torch.randn(2, 30, 64)
    query, key, value = matrix.split((4, 2, 2), dim=1)
    slots = torch.randperm(50)[:30]
    slots[4] = -1
    pool = encode(torch.zeros(2, 50, 2, 64), kept)
    other = pool.clone()
    result = CpuOps().rotate_and_write_kv(query, key, value, cos, sin, pool, slots)
    wanted = ReferenceOps().rotate_and_write_kv(query, key, value, cos, sin, other, slots)
    torch.testing.assert_close(result, wanted)
    # Rotated numbers may differ by their last bit, and so fall to the other side of a tie.
    torch.testing.assert_close(decode(pool, 64), decode(other, 64), rtol=0.07, atol=0.05)
    assert float((raw(pool) == raw(other)).float().mean()) > 0.99


def test_int8_is_rounded_as_the_format_says() -> None:
    """Bit for bit, also where all is zero, at ties, and where something is not finite."""
    rows = torch.randn(6, 2, 20)
    rows[0] = 0
    rows[1, 0] = torch.arange(20) + 0.5
    rows[1, 0, 0] = 127
    rows[2] = 1e-44
    pool = torch.zeros(2, 9, 2, 36, dtype=torch.int8)
    wanted = pool.clone()
    slots = torch.tensor([3, 8, 0, -1, 5, 1])
    CpuOps().write_kv(rows, rows.flip(0), pool, slots)
    ReferenceOps().write_kv(rows, rows.flip(0), wanted, slots)
    assert torch.equal(pool, wanted)
    for number in (float("nan"), float("inf")):
        rows[5, 1, 7] = number
        CpuOps().write_kv(rows, rows, pool, slots)
        read = decode(pool[0, slots], 20)
        assert not read[5, 1].isfinite().any()
        assert read[5, 0].isfinite().all()


@settings(max_examples=60, deadline=None)
@given(
    contexts=st.lists(st.integers(0, 3 * TILE), min_size=1, max_size=9),
    shares=st.integers(1, 12),
    window=st.sampled_from([0, 0, 1, TILE, 100]),
    sinks=st.booleans(),
)
def test_any_cut_of_the_work_gives_the_same(contexts: list[int], shares: int, window: int, sinks: bool) -> None:
    """However many shares the positions are dealt into, wherever the cuts fall."""
    case = decodes(*contexts, window=window, sinks=sinks, dtype="float64", kv_heads=1, head_dim=16)
    problem = build(case)
    out = torch.full_like(problem.query, float("nan"), memory_format=torch.contiguous_format)
    cpu_decode.decode_attention(
        problem.query.contiguous().numpy(), problem.pool.numpy(), problem.batch.block_tables.numpy(),
        problem.batch.context_len.numpy(), case.block_size, scale=problem.options["scale"], window=window,
        softcap=0.0, sinks=problem.options["sinks"].numpy() if sinks else np.empty(0), out=out.numpy(),
        shares=shares,
    )  # fmt: skip
    assert worst(out, problem) < TOLERANCE["float64"]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_ragged_chunks_of_any_shape(data: st.DataObject) -> None:
    queries = sorted(data.draw(st.lists(st.integers(1, 150), min_size=1, max_size=5)))
    contexts = [n + data.draw(st.integers(0, 200)) for n in queries]
    case = Case(
        tuple(queries),
        tuple(contexts),
        block_size=data.draw(st.sampled_from([8, 16, 32, 256])),
        kv_heads=data.draw(st.integers(1, 3)),
        group=data.draw(st.integers(1, 4)),
        head_dim=data.draw(st.sampled_from([64, 80])),
        window=data.draw(st.sampled_from([0, 1, 33, 500])),
        softcap=data.draw(st.sampled_from([0.0, 5.0])),
        sinks=data.draw(st.booleans()),
        dtype=data.draw(st.sampled_from(["float32", "float64"])),
    )
    check(case)


def test_scores_far_apart_neither_overflow_nor_vanish() -> None:
    """Softmax over scores that differ by thousands: the largest wins, whichever tile it stands in."""
    for winner in (0, TILE - 1, TILE, 5 * TILE + 3):
        problem = build(decodes(6 * TILE, dtype="float32"))
        block = problem.batch.block_tables[0, winner // 16]
        slot = int(block) * 16 + winner % 16
        problem.pool[0, slot] = problem.query[0, ::3] * 3000
        result = CpuOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
        assert worst(result, problem) < 1e-4


@pytest.mark.parametrize("window", [0, 70])
def test_a_row_of_a_chunk_gives_the_same_bits_however_the_prompt_is_cut(window: int) -> None:
    """And however many threads share the work."""
    problem = build(Case((250,), (300,), window=window, sinks=True))
    pool = problem.pool
    whole = CpuOps().paged_attention(problem.query, pool, problem.batch, **problem.options)
    for cuts in ([0, 20, 250], [0, 100, 131, 250], [0, 3, 249, 250]):
        for first, last in pairwise(cuts):
            part = dataclasses.replace(
                problem.batch,
                query_start=torch.tensor([0, last - first], dtype=torch.int32),
                context_len=torch.tensor([50 + last], dtype=torch.int32),
            )
            for shares in (1, 3):
                out = torch.empty(last - first, *problem.query.shape[1:])
                chunk_attention(
                    problem.query[first:last].contiguous().numpy(), pool.numpy(), part.block_tables.numpy(),
                    part.query_start.numpy(), part.context_len.numpy(), 0, 16, scale=problem.options["scale"],
                    window=window, softcap=0.0, sinks=problem.options["sinks"].numpy(), out=out.numpy(), shares=shares,
                )  # fmt: skip
                assert torch.equal(out, whole[first:last])


def test_neighbouring_blocks_are_read_where_they_lie() -> None:
    """Torch's path without a copy, with a window that begins inside a block."""
    problem = build(Case((40,), (200,), window=100, dtype="float64"))
    first, count = (200 - 40 - 100 + 1) // 16, 13
    ordered = torch.arange(first, count, dtype=torch.int32)
    pool = torch.full_like(problem.pool, float("nan"))
    for new, old in enumerate(problem.batch.block_tables[0, first:count].tolist(), first):
        pool[:, new * 16 : new * 16 + 16] = problem.pool[:, old * 16 : old * 16 + 16]
    problem.pool, problem.batch.block_tables[0, first:count] = pool, ordered
    result = CpuOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
    assert worst(result, problem) < TOLERANCE["float64"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("check", kv_checks.CHECKS.values(), ids=kv_checks.CHECKS.keys())
def test_keys_and_values(check, dtype: torch.dtype) -> None:
    check(CpuOps(), dtype)


def test_the_cpu_gets_these_ops() -> None:
    assert ops_for("cpu").name == "cpu"
    assert ops_for(torch.device("cpu")).name == "cpu"


def test_compiled_code_is_kept_in_the_users_cache(tmp_path: Path) -> None:
    """A second process loads what the first compiled, and nothing is written beside the source."""
    program = (
        "from numpy import float32; from pagedeck.kernels import cpu_decode;"
        "cpu_decode.compile_decode(64, float32, float32);"
        "print(*(sum(f.stats.cache_hits.values()) for f in (cpu_decode.attend, cpu_decode.attend_in_shares)))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}

    def hits() -> str:
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return run.stdout.split()

    assert hits() == ["0", "0"]
    assert hits() == ["1", "1"]
    assert list(tmp_path.rglob("*.nbi"))


def test_code_of_other_sources_is_given_up_when_it_was_not_used_for_long(tmp_path: Path) -> None:
    now, day = time.time(), 24 * 3600
    for name, days in (("own", 90), ("old", 31), ("recent", 29)):
        (tmp_path / name / "kernels").mkdir(parents=True)
        (tmp_path / name / "kernels" / "attend.nbc").write_bytes(b"code")
        os.utime(tmp_path / name, (now - days * day,) * 2)
    cpu_jit.take_folder(tmp_path / "own")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own", "recent"]
    assert (tmp_path / "own" / "kernels" / "attend.nbc").exists()
    assert (tmp_path / "own").stat().st_mtime > now - day


def test_a_process_whose_folder_was_given_up_goes_on(tmp_path: Path) -> None:
    program = (
        "import shutil, numba; from numpy import float32; from pagedeck.kernels import cpu_decode;"
        "shutil.rmtree(numba.config.CACHE_DIR);"
        "cpu_decode.compile_decode(64, float32, float32)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.rglob("*.nbi"))


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    """Neither the user's cache nor the folder of the source can be written to."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    environment = os.environ | {"XDG_CACHE_HOME": str(blocked), "HOME": str(blocked), "LOCALAPPDATA": str(blocked)}
    environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "UserProvidedCacheLocator"  # leaves out the source's own folder
    environment.pop("NUMBA_CACHE_DIR", None)
    program = "from pagedeck.kernels import cpu_decode; print(type(cpu_decode.attend._cache).__name__)"
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["NullCache"]
