"""Compile the Triton kernels ahead of time, without a GPU, and report what each needs, as JSON lines.

Run as a program: ``python compile_kernels.py [maxnreg]``. Its own process, because a process that interprets kernels
cannot compile them. Spills are read from the assembler's log as Triton prints it, registers from the binary.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="kernels-")  # a cached binary prints no log

import triton
from pagedeck.kernels.triton import kv, tilings
from pagedeck.kernels.triton.decode import decode_kernel, merge_kernel
from pagedeck.kernels.triton.prefill import prefill_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ARCHES = (80, 90)
HEAD_SIZES = (64, 80, 128, 256)
FEATURES: tuple[dict[str, bool], ...] = (
    {"WINDOWED": False, "CAPPED": False, "SINKS": False},
    {"WINDOWED": True, "CAPPED": True, "SINKS": True},
)
POINTERS = {
    "query": "*bf16", "keys": "*bf16", "values": "*bf16", "key": "*bf16", "value": "*bf16", "sinks": "*bf16",
    "out": "*bf16", "partial": "*fp32", "largest": "*fp32", "total": "*fp32", "largest_out": "*fp32",
    "total_out": "*fp32", "tables": "*i32", "context": "*i32", "query_start": "*i32", "slots": "*i64",
    "source": "*bf16", "target": "*bf16", "source_rows": "*i64", "target_rows": "*i64",
}  # fmt: skip
FLOATS = ("scale", "softcap")
PLAIN = ("window", "block_shift", "sequences", "table_stride", "row")  # integers of which nothing is known


def compile_kernel(kernel: Any, arch: int, constants: dict[str, Any], **options: Any) -> tuple[Any, str]:
    """The compiled kernel and what its assembler printed."""
    names = kernel.arg_names
    signature, attributes = {}, {}
    for index, name in enumerate(names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in POINTERS:
            signature[name] = POINTERS[name]
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
        if name not in constants and name not in FLOATS and name not in PLAIN:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
    with tempfile.TemporaryFile("w+") as log:
        printed = os.dup(1)
        sys.stdout.flush()
        os.dup2(log.fileno(), 1)
        try:
            compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
        finally:
            sys.stdout.flush()
            os.dup2(printed, 1)
            os.close(printed)
        log.seek(0)
        return compiled, log.read()


def needs(kernel: Any, arch: int, constants: dict[str, Any], **options: Any) -> dict[str, int]:
    """Registers, bytes spilled and bytes of shared memory."""
    compiled, log = compile_kernel(kernel, arch, constants, enable_fp_fusion=True, **options)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)]
    if not spills:
        raise RuntimeError(f"the assembler's log tells no spills: {log!r}")
    logged = re.search(r"Used (\d+) registers", log)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        usage = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers = int(re.search(r"REG:(\d+)", usage.stdout).group(1))  # type: ignore[union-attr]
    if logged is None or int(logged.group(1)) != registers:
        raise RuntimeError(f"log and binary disagree about registers: {registers}, {log!r}")
    return {"registers": registers, "spills": sum(spills), "shared": compiled.metadata.shared}


def attention(name: str, arch: int, head_dim: int, features: dict[str, bool], **options: Any) -> dict[str, int]:
    """What decode (split over segments) or prefill needs for bfloat16 and four query heads a key-value head."""
    width = tilings.next_power_of_two(head_dim)
    shared = {"HEAD_DIM": head_dim, "WIDTH": width, "UPCAST": False, "GROUP": 4, **features}
    if name == "decode":
        tiling = tilings.decode_tiling(arch, head_dim, 2, 4)
        kernel, own = decode_kernel, {"HEADS": 32, "SEGMENTS": 8}
    else:
        tiling = tilings.prefill_tiling(arch, head_dim, 2, 4)
        kernel, own = prefill_kernel, {"STRIP": tiling.rows // 4}
    constants = {**shared, **own, "ROWS": tiling.rows, "TILE": tiling.positions}
    return needs(kernel, arch, constants, num_warps=tiling.warps, num_stages=tiling.stages, **options)


def report(name: str, arch: int, head_dim: int, featured: bool, found: dict[str, int]) -> None:
    print(json.dumps({"kernel": name, "arch": arch, "head_dim": head_dim, "featured": featured, **found}), flush=True)


def main() -> None:
    if len(sys.argv) > 1:
        found = attention("decode", 90, 128, FEATURES[0], maxnreg=int(sys.argv[1]))
        report("decode", 90, 128, False, found)
        return
    for arch in ARCHES:
        for head_dim in HEAD_SIZES:
            for features in FEATURES:
                for name in ("decode", "prefill"):
                    report(name, arch, head_dim, features["SINKS"], attention(name, arch, head_dim, features))
        merge = {"HEADS": 32, "HEAD_DIM": 128, "WIDTH": 128, "SEGMENTS": 128}
        report("merge", arch, 128, False, needs(merge_kernel, arch, merge, num_warps=4))
        write = {"HEAD_DIM": 128, "ROW": 1024, "WIDTH": 1024}
        report("write_kv", arch, 128, False, needs(kv.write_kernel, arch, write, num_warps=4))
        copy = {"CHUNK": kv.CHUNK}
        report("copy", arch, 128, False, needs(kv.copy_kernel, arch, copy, num_warps=4))


if __name__ == "__main__":
    main()
