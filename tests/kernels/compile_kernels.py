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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="kernels-")  # a cached binary prints no log

import triton
from pagedeck.kernels.triton import activation, decode, kv, merge, norm, prefill, rotary, tilings
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

GROUP, KV_HEADS = 4, 8
POINTERS = {
    **dict.fromkeys(("query", "key", "value", "sinks", "out", "x", "weight", "residual", "gate_up"), "*bf16"),
    **dict.fromkeys(("cos", "sin", "source", "target"), "*bf16"),
    **dict.fromkeys(("partial", "largest_in", "total_in", "largest_out", "total_out"), "*fp32"),
    **dict.fromkeys(("tables", "context", "query_start"), "*i32"),
    **dict.fromkeys(("slots", "source_rows", "target_rows"), "*i64"),
}
POOLS = {"bfloat16": "*bf16", "int8": "*i8", "float8": "*fp8e4nv"}
FLOATS = ("scale", "softcap", "eps")
PLAIN = (
    "window",
    "block_shift",
    "sequences",
    "table_stride",
    "row",
    "span",
    "segments",
    "first_row",
)  # nothing is known of these


@dataclass(frozen=True)
class Variant:
    """A kernel as it is launched for keys and values of 8 heads, each shared by 4 of queries, in bfloat16."""

    kernel: str
    head_dim: int = 128
    pool: str = "bfloat16"
    featured: bool = False  # sliding window, softcap and sinks; prefill cut in segments

    @property
    def label(self) -> str:
        return f"{self.kernel} {self.head_dim} {self.pool}{' featured' if self.featured else ''}"


NVIDIA = (
    *(Variant(kernel, head_dim) for kernel in ("decode", "prefill") for head_dim in (64, 80, 128, 256)),
    *(Variant("decode", head_dim, pool) for head_dim in (64, 128, 256) for pool in ("int8", "float8")),
    *(Variant("prefill", 128, pool) for pool in ("int8", "float8")),
    *(Variant(kernel, featured=True) for kernel in ("decode", "prefill")),
    *(Variant("rotate", pool=pool) for pool in ("bfloat16", "int8", "float8")),
    *(Variant(kernel) for kernel in ("write", "merge", "copy", "norm", "silu_mul")),
)
AMD = (
    *(Variant("decode", pool=pool) for pool in ("bfloat16", "int8", "float8")),
    *(Variant(kernel) for kernel in ("prefill", "rotate", "merge", "copy", "norm", "silu_mul")),
)
SHIPPED = {80: NVIDIA, 90: NVIDIA, tilings.ROCM: AMD}


class Launch(NamedTuple):
    kernel: Any
    constants: dict[str, Any]
    warps: int = 4
    stages: int = 3


def launch(variant: Variant, arch: int) -> Launch:
    """What the launching code in each kernel's file says for this variant."""
    head_dim = variant.head_dim
    width = tilings.next_power_of_two(head_dim)
    head_stride = head_dim + 16 * (variant.pool == "int8")
    head = {"HEAD_DIM": head_dim, "WIDTH": width, "HEAD_STRIDE": head_stride}
    features = {"WINDOWED": variant.featured, "CAPPED": variant.featured, "SINKS": variant.featured}
    if variant.kernel in ("decode", "prefill"):
        choose = tilings.decode_tiling if variant.kernel == "decode" else tilings.prefill_tiling
        tiling = choose(arch, head_dim, 2, GROUP, narrow=variant.pool != "bfloat16")
        constants = {**head, **features, "GROUP": GROUP, "ROWS": tiling.rows, "TILE": tiling.positions, "UPCAST": False}
        if variant.kernel == "decode":
            return Launch(decode.decode_kernel, {**constants, "SPLIT": True}, tiling.warps, tiling.stages)
        strip = {"STRIP": tiling.rows // GROUP, "SPLIT": variant.featured}
        return Launch(prefill.prefill_kernel, {**constants, **strip}, tiling.warps, tiling.stages)
    if variant.kernel == "rotate":
        halves = {"HALF": head_dim // 2, "HALF_WIDTH": width // 2, "REST": 0, "REST_WIDTH": 1}
        return Launch(rotary.rotate_kernel, {**head, **halves, "GROUP": GROUP, "GROUP_ROWS": GROUP}, 1)
    if variant.kernel == "write":
        return Launch(kv.write_kernel, head, 1)
    if variant.kernel == "merge":
        return Launch(merge.merge_kernel, {"HEAD_DIM": head_dim, "WIDTH": width, "PIECES": merge.PIECES})
    if variant.kernel == "norm":
        return Launch(norm.norm_kernel, {"N": 4096, "ROW": 4096}, tilings.row_warps(4096))
    if variant.kernel == "silu_mul":
        return Launch(activation.silu_mul_kernel, {"CHUNK": activation.CHUNK})
    return Launch(kv.copy_kernel, {"CHUNK": kv.CHUNK})


def compile_kernel(launch: Launch, arch: int, pool: str, **options: Any) -> tuple[Any, str]:
    """The compiled kernel and what its assembler printed."""
    by_hand = arch in (80, tilings.ROCM) or launch.kernel is rotary.rotate_kernel
    number = "*u8" if pool == "float8" and by_hand else POOLS[pool]
    pointers = POINTERS | {"pool": number, "scales": "*fp32" if pool == "int8" else number}
    signature, attributes = {}, {}
    for index, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
        elif name in pointers:
            signature[name] = pointers[name]
        else:
            signature[name] = "fp32" if name in FLOATS else "i32"
        if name not in launch.constants and name not in FLOATS and name not in PLAIN:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constexprs=launch.constants, attrs=attributes)
    target = GPUTarget("hip", "gfx942", 64) if arch == tilings.ROCM else GPUTarget("cuda", arch, 32)
    options |= {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": True}
    with tempfile.TemporaryFile("w+") as log:
        printed = os.dup(1)
        sys.stdout.flush()
        os.dup2(log.fileno(), 1)
        try:
            compiled = triton.compile(source, target=target, options=options)
        finally:
            sys.stdout.flush()
            os.dup2(printed, 1)
            os.close(printed)
        log.seek(0)
        return compiled, log.read()


def needs(variant: Variant, arch: int, **options: Any) -> dict[str, Any]:
    """Registers, what is spilled of them (bytes; on AMD's, registers), and bytes of shared memory."""
    compiled, log = compile_kernel(launch(variant, arch), arch, variant.pool, **options)
    read = _amd_registers(compiled) if arch == tilings.ROCM else _nvidia_registers(compiled, log)
    return {**asdict(variant), "label": variant.label, "arch": arch, **read, "shared": compiled.metadata.shared}


def _nvidia_registers(compiled: Any, log: str) -> dict[str, int]:
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
    return {"registers": registers, "spills": sum(spills)}


def _amd_registers(compiled: Any) -> dict[str, int]:
    found = dict(re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", compiled.asm["amdgcn"]))
    return {"registers": int(found["vgpr_count"]), "spills": int(found["vgpr_spill_count"])}


def _shipped(place: tuple[Variant, int]) -> str:
    return json.dumps(needs(*place))


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(needs(Variant("decode"), 90, maxnreg=int(sys.argv[1]))))
        return
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for line in workers.map(_shipped, [(variant, arch) for arch in SHIPPED for variant in SHIPPED[arch]]):
            print(line, flush=True)


if __name__ == "__main__":
    main()
