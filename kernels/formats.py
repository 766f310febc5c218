"""What a pool may hold of a key or value besides the numbers themselves: float8 without a scale, or int8 with one."""

from __future__ import annotations

import torch
from torch import Tensor

SCALE_BYTES = 16  # behind a head's int8 values; the scale takes 4 of them, the rest keep heads aligned for wide loads
LARGEST_INT8 = 127


def pool_width(head_dim: int, dtype: torch.dtype) -> int:
    """The last dimension of a pool of ``dtype`` for heads of ``head_dim``."""
    return head_dim + SCALE_BYTES if dtype == torch.int8 else head_dim


def encode(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """``rows`` [..., D] as a pool of ``dtype`` holds them, [..., :func:`pool_width`]. A row that is not finite does
    not become finite in int8; in float8 only infinities do."""
    if dtype == torch.float8_e4m3fn:
        largest = torch.finfo(dtype).max
        return rows.clamp(-largest, largest).to(dtype)
    if dtype != torch.int8:
        return rows.to(dtype)
    rows = rows.float()
    scale = rows.abs().amax(-1, keepdim=True) / LARGEST_INT8
    values = (rows / torch.where(scale == 0, 1, scale)).nan_to_num()
    values = values.clamp(-LARGEST_INT8, LARGEST_INT8).round().to(torch.int8)
    padding = torch.zeros((*rows.shape[:-1], SCALE_BYTES - 4), dtype=torch.int8, device=rows.device)
    return torch.cat([values, scale.view(torch.int8), padding], dim=-1)


def decode(stored: Tensor, head_dim: int) -> Tensor:
    """What :func:`encode` made of rows [..., D]: float32 of float8 and int8, and otherwise what is stored."""
    if stored.dtype == torch.float8_e4m3fn:
        return stored.float()
    if stored.dtype != torch.int8:
        return stored
    scale = stored[..., head_dim : head_dim + 4].contiguous().view(torch.float32)
    return stored[..., :head_dim].float() * scale


def raw(pool: Tensor) -> Tensor:
    """The same memory in a type that every torch function can move."""
    return pool.view(torch.uint8) if pool.dtype == torch.float8_e4m3fn else pool
