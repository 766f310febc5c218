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
import row_checks
import torch
from paged_cases import Case, Problem, build, worst
from pagedeck.kernels.triton import ops, prefill
from pagedeck.kernels.triton.ops import DeviceFacts, TritonOps
from pagedeck.kernels.triton.split import Split, split

CHECKS = kv_checks.CHECKS | row_checks.CHECKS

torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN


def attend(case: Case, problem: Problem) -> torch.Tensor:
    cut = split
    if case.span:

        def cut(*facts: int) -> Split:
            return Split(-(-max(1, max(case.contexts)) // case.span), case.span)

    ops.split = prefill.split = cut
    ops.device_facts = lambda device: DeviceFacts(case.arch, 108)
    return TritonOps().paged_attention(problem.query, problem.pool, problem.batch, **problem.options)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "check" in request:
            CHECKS[request["check"]](TritonOps(), getattr(torch, request["dtype"]))
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
