"""The specification itself, against arithmetic written out a number at a time."""

from __future__ import annotations

import math

import kv_checks
import pytest
import row_checks
import torch
from paged_cases import Case, Problem, build, decodes
from pagedeck.kernels.formats import decode, encode
from pagedeck.kernels.reference import ReferenceOps


def written_out(problem: Problem, sequence: int, query_index: int, head: int) -> list[float]:
    """One row of the result by Python's own floats, from the definitions in the op table's documentation."""
    batch, options = problem.batch, problem.options
    start = int(batch.query_start[sequence])
    count = int(batch.query_start[sequence + 1]) - start
    own = int(batch.context_len[sequence]) - count + query_index
    kv_head = head // (problem.query.shape[1] // problem.pool.shape[2])
    q = problem.query[start + query_index, head].tolist()
    scores, values = [], []
    for position in range(own + 1):
        if options["window"] and position <= own - options["window"]:
            continue
        block = int(batch.block_tables[sequence, position // batch.block_size])
        slot = block * batch.block_size + position % batch.block_size
        key = problem.pool[0, slot, kv_head].tolist()
        score = options["scale"] * sum(a * b for a, b in zip(q, key, strict=True))
        if options["softcap"]:
            score = options["softcap"] * math.tanh(score / options["softcap"])
        scores.append(score)
        values.append(problem.pool[1, slot, kv_head].tolist())
    total = sum(math.exp(s) for s in scores)
    if options["sinks"] is not None:
        total += math.exp(float(options["sinks"][head]))
    return [sum(math.exp(s) / total * v[d] for s, v in zip(scores, values, strict=True)) for d in range(len(q))]


CASES = [
    decodes(1, 17, 40, dtype="float64"),
    Case((1, 3, 20), (9, 30, 20), dtype="float64", block_size=8),
    Case((1, 20), (33, 33), dtype="float64", window=5),
    Case((1, 6), (12, 20), dtype="float64", softcap=2.0),
    Case((1, 6), (12, 20), dtype="float64", sinks=True),
    Case((2, 6), (12, 20), dtype="float64", sinks=True, softcap=3.0, window=4, group=1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.label)
def test_attention_is_as_written_out(case: Case) -> None:
    problem = build(case)
    result = ReferenceOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
    for sequence, count in enumerate(case.queries):
        start = int(problem.batch.query_start[sequence])
        for index in {0, count // 2, count - 1}:
            for head in {0, case.kv_heads * case.group - 1}:
                wanted = written_out(problem, sequence, index, head)
                assert result[start + index, head].tolist() == pytest.approx(wanted, rel=1e-12, abs=1e-13)


def test_empty_contexts_and_padding_give_zeros() -> None:
    problem = build(decodes(0, 5, padding=2))
    result = ReferenceOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
    assert not result[0].any()
    assert result[1].isfinite().all()
    assert not result[2:].any()


POOLS = [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", POOLS, ids=str)
@pytest.mark.parametrize("check", kv_checks.CHECKS.values(), ids=kv_checks.CHECKS.keys())
def test_keys_and_values(check, dtype: torch.dtype) -> None:
    check(ReferenceOps(), dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("check", row_checks.CHECKS.values(), ids=row_checks.CHECKS.keys())
def test_rows(check, dtype: torch.dtype) -> None:
    check(ReferenceOps(), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norm_and_rotary_are_those_of_transformers(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

    norm = LlamaRMSNorm(48, eps=1e-5).to(dtype)
    norm.weight.data = torch.randn(48).to(dtype)
    x, residual = torch.randn(2, 7, 48).to(dtype)
    wanted = norm(residual + x)
    assert torch.equal(ReferenceOps().rms_norm(x, norm.weight, 1e-5, residual), wanted)

    query, key = torch.randn(7, 4, 16), torch.randn(7, 2, 16)
    angle = torch.randn(7, 8).repeat(1, 2)
    cos, sin = angle.cos(), angle.sin()
    turned = apply_rotary_pos_emb(query.transpose(0, 1)[None], key.transpose(0, 1)[None], cos[None], sin[None])
    pool = torch.zeros(2, 7, 2, 16)
    result = ReferenceOps().rotate_and_write_kv(query, key, key, cos, sin, pool, torch.arange(7))
    assert torch.equal(result, turned[0][0].transpose(0, 1))
    assert torch.equal(pool[0], turned[1][0].transpose(0, 1))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_narrow_pools_lose_as_much_as_their_bits_say(dtype: torch.dtype) -> None:
    rows = torch.randn(50, 3, 64, dtype=torch.float64) * torch.tensor([1e-3, 1.0, 100.0])[:, None]
    read = decode(encode(rows, dtype), 64)
    error = (read - rows).abs()
    if dtype == torch.int8:
        assert (error <= rows.abs().amax(-1, keepdim=True) / 127 / 2 * 1.0001).all()
    else:
        assert (error <= torch.maximum(rows.abs() / 16, torch.tensor(2.0**-10))).all()
    torch.testing.assert_close(decode(encode(read, dtype), 64), read)
