"""The specification itself, against arithmetic written out a number at a time."""

from __future__ import annotations

import math

import kv_checks
import pytest
import torch
from paged_cases import Case, Problem, build, decodes
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


@pytest.mark.parametrize("check", kv_checks.CHECKS.values(), ids=kv_checks.CHECKS.keys())
def test_keys_and_values(check) -> None:
    check(ReferenceOps(), torch.float32)
