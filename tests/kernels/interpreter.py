"""Runs the Triton kernels in Triton's interpreter, in a process of its own: the choice between interpreting and
compiling is made when kernels are decorated.

Reads one JSON request a line, {"case": …} or {"check": name, "dtype": name}; answers each with one line, {"error":
largest error} or {"failure": traceback}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import kv_checks
import torch
from paged_cases import Case, Problem, build, worst
from pagedeck.kernels.triton import decode
from pagedeck.kernels.triton.ops import TritonOps, device_facts
from pagedeck.kernels.triton.tilings import decode_tiling

torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN


def attend(case: Case, problem: Problem) -> torch.Tensor:
    if not case.segments:
        return TritonOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)
    arch, _ = device_facts(problem.query.device)
    out = torch.full_like(problem.query, float("nan"), memory_format=torch.contiguous_format)
    decode.decode_attention(
        problem.query, problem.pool, problem.batch.block_tables, problem.batch.context_len, case.block_size,
        **problem.options, out=out, segments=case.segments, upcast=case.dtype == "bfloat16",
        tiling=decode_tiling(arch, case.head_dim, problem.pool.element_size(), case.group),
    )  # fmt: skip
    return out


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "check" in request:
            kv_checks.CHECKS[request["check"]](TritonOps(), getattr(torch, request["dtype"]))
            return {"error": 0.0}
        case = Case(**request["case"])
        problem = build(case)
        return {"error": worst(attend(case, problem), problem)}
    except Exception:
        return {"failure": traceback.format_exc()}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
