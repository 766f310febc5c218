"""The most that each Triton kernel may take of a processor, as it is shipped, by architecture.

Registers a thread, and KiB of shared memory a program. A processor of sm_80 or sm_90 has 65,536 registers for all its
threads, so 128 of them let four programs of 4 warps run side by side, and 164 or 228 KiB of shared memory; one of
gfx942 (942) has 512 registers a thread and 64 KiB. Nothing may spill.
"""

from __future__ import annotations

BOUNDS: dict[str, dict[int, tuple[int, int]]] = {
    "decode 64 bfloat16": {80: (72, 21), 90: (112, 40)},
    "decode 80 bfloat16": {80: (104, 40), 90: (120, 40)},
    "decode 128 bfloat16": {80: (104, 40), 90: (96, 40), 942: (136, 17)},
    "decode 256 bfloat16": {80: (120, 42), 90: (168, 76)},
    "prefill 64 bfloat16": {80: (176, 33), 90: (240, 50)},
    "prefill 80 bfloat16": {80: (224, 66), 90: (184, 99)},
    "prefill 128 bfloat16": {80: (224, 66), 90: (184, 99), 942: (200, 33)},
    "prefill 256 bfloat16": {80: (200, 70), 90: (255, 196)},
    "decode 64 int8": {80: (104, 14), 90: (120, 25)},
    "decode 64 float8": {80: (104, 13), 90: (96, 23)},
    "decode 128 int8": {80: (104, 23), 90: (136, 24), 942: (168, 9)},
    "decode 128 float8": {80: (128, 23), 90: (112, 23), 942: (104, 13)},
    "decode 256 int8": {80: (104, 26), 90: (136, 27)},
    "decode 256 float8": {80: (112, 26), 90: (128, 26)},
    "prefill 128 int8": {80: (255, 29), 90: (208, 83)},
    "prefill 128 float8": {80: (255, 29), 90: (176, 82)},
    "decode 128 bfloat16 featured": {80: (104, 40), 90: (120, 40)},
    "prefill 128 bfloat16 featured": {80: (232, 66), 90: (200, 99)},
    "rotate 128 bfloat16": {80: (64, 0), 90: (64, 0), 942: (40, 1)},
    "rotate 128 int8": {80: (64, 0), 90: (64, 0)},
    "rotate 128 float8": {80: (64, 0), 90: (64, 0)},
    "write 128 bfloat16": {80: (16, 0), 90: (24, 0)},
    "merge 128 bfloat16": {80: (48, 3), 90: (48, 3), 942: (40, 3)},
    "copy 128 bfloat16": {80: (72, 0), 90: (72, 0), 942: (40, 0)},
    "norm 128 bfloat16": {80: (64, 1), 90: (56, 1), 942: (40, 1)},
    "silu_mul 128 bfloat16": {80: (40, 0), 90: (32, 0), 942: (40, 0)},
}
