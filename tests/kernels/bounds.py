"""The most that each Triton kernel may take of a processor, as it is shipped, by architecture: what Triton 3.6, 3.7
or 3.9 makes of it, whichever is most, rounded up.

Registers a thread, and KiB of shared memory a program. A processor of sm_80 or sm_90 has 65,536 registers for all its
threads, so 128 of them let four programs of 4 warps run side by side, and 164 or 228 KiB of shared memory; one of
gfx942 (942) has 512 registers a thread and 64 KiB. Nothing may spill.
"""

from __future__ import annotations

BOUNDS: dict[str, dict[int, tuple[int, int]]] = {
    "decode 64 bfloat16": {80: (72, 21), 90: (120, 39)},
    "decode 80 bfloat16": {80: (160, 39), 90: (128, 39)},
    "decode 128 bfloat16": {80: (128, 39), 90: (128, 39), 942: (136, 16)},
    "decode 256 bfloat16": {80: (120, 41), 90: (168, 74)},
    "prefill 64 bfloat16": {80: (176, 33), 90: (232, 49)},
    "prefill 80 bfloat16": {80: (224, 64), 90: (184, 97)},
    "prefill 128 bfloat16": {80: (216, 64), 90: (176, 97), 942: (192, 32)},
    "prefill 256 bfloat16": {80: (240, 68), 90: (255, 192)},
    "decode 64 int8": {80: (128, 13), 90: (128, 13)},
    "decode 64 float8": {80: (96, 13), 90: (112, 13)},
    "decode 128 int8": {80: (128, 14), 90: (144, 14), 942: (120, 4)},
    "decode 128 float8": {80: (128, 14), 90: (128, 14), 942: (104, 6)},
    "decode 256 int8": {80: (168, 17), 90: (168, 17)},
    "decode 256 float8": {80: (160, 17), 90: (128, 17)},
    "prefill 128 int8": {80: (255, 29), 90: (240, 81)},
    "prefill 128 float8": {80: (255, 28), 90: (176, 81)},
    "decode 128 bfloat16 featured": {80: (128, 39), 90: (128, 39)},
    "prefill 128 bfloat16 featured": {80: (248, 64), 90: (200, 97)},
    "rotate 128 bfloat16": {80: (64, 1), 90: (64, 1), 942: (48, 1)},
    "rotate 128 int8": {80: (64, 1), 90: (64, 1)},
    "rotate 128 float8": {80: (64, 1), 90: (64, 1)},
    "write 128 bfloat16": {80: (16, 0), 90: (24, 0)},
    "merge 128 bfloat16": {80: (48, 2), 90: (48, 2), 942: (48, 2)},
    "copy 128 bfloat16": {80: (72, 0), 90: (64, 0), 942: (40, 0)},
    "norm 128 bfloat16": {80: (56, 1), 90: (56, 1), 942: (40, 1)},
    "silu_mul 128 bfloat16": {80: (32, 0), 90: (32, 0), 942: (40, 0)},
}
