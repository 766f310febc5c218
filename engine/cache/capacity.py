"""How much of the pool a request can come to need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ipc.vocabulary import Refused, priority_name
from ..config import EngineConfig, parse_class_limits
from ..request import Request

if TYPE_CHECKING:
    from .cache_groups import CacheGroups
    from .kv_cache import KVCache


def blocks_for(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)


def longest(request: Request, context_length: int) -> int:
    """The most tokens, prompt and output, that one sample of the request can reach."""
    return min(len(request.prompt) + request.sampling.max_tokens, context_length)


def blocks_needed(request: Request, context_length: int, block_size: int) -> int:
    """Blocks that the request needs with all its samples at full length.

    The last token of a sample is never computed, so it needs no slot. Samples share the full blocks of all prompt
    tokens but the last.
    """
    samples = request.sampling.width
    each = blocks_for(longest(request, context_length) - 1, block_size)
    shared = (len(request.prompt) - 1) // block_size if samples > 1 else 0
    return shared + samples * (each - shared)


def shortage(
    request: Request,
    context_length: int,
    cache: KVCache | CacheGroups,
    block_size: int,
    num_blocks: int | None = None,
) -> tuple[int, int] | None:
    """Blocks of that size that the request needs and that there are, where the whole pool of a group of layers is too
    small for it. With ``num_blocks``: if the first group's pool had so many."""
    whole = blocks_needed(request, context_length, block_size)
    for group, blocks in zip(cache.groups, cache.shape(block_size, num_blocks), strict=True):
        needed = min(whole, group.bound(request.sampling.width, blocks, block_size))
        if needed > blocks:
            return int(needed), blocks
    return None


def check_length(length: int, context_length: int) -> None:
    """Raises :class:`Refused` (``too_long``) for a prompt that leaves no room in the model's context."""
    if length >= context_length:
        raise Refused(
            f"The prompt has {length:,} tokens; accepted are up to {context_length - 1:,}, since prompt and output "
            f"share a context of {context_length:,}.",
            field="prompt",
            code="too_long",
        )


def check_fits(request: Request, context_length: int, cache: KVCache | CacheGroups) -> None:
    """A request that can never be served is said so at once, with the numbers.

    Raises:
        Refused: the whole pool is too small for the request (``too_large``).
    """
    short = shortage(request, context_length, cache, cache.block_size)
    if short is not None:
        needed, num_blocks = short
        samples = request.sampling.width
        length = len(request.prompt)
        output = longest(request, context_length) - length
        raise Refused(
            f"A prompt of {length:,} tokens and {samples} x {output:,} output tokens needs {needed:,} blocks of "
            f"{cache.block_size} tokens; accepted are up to {num_blocks:,}, the whole pool. Lower max_tokens, n, "
            f"best_of or beam_width, or shorten the prompt.",
            field="max_tokens",
            code="too_large",
        )


def check_samples(request: Request, config: EngineConfig) -> None:
    """Raises :class:`Refused` for several samples without blocks that they could share."""
    if config.allocation == "contiguous" and request.sampling.width > 1:
        name = "beam_width" if request.sampling.beam_width else "best_of" if request.sampling.n == 1 else "n"
        raise Refused.value(name, request.sampling.width, "one sample with allocation contiguous")


def check_places(request: Request, priority: int, config: EngineConfig) -> None:
    """Beams only get on together, so a step must have a place for each of them.

    Raises:
        Refused: the request, with that priority, has more beams than a step may have sequences.
    """
    width = request.sampling.beam_width
    name = priority_name(priority)
    limit = parse_class_limits(config.class_limits).get(name, config.max_batch_size)
    if width > min(limit, config.max_batch_size):
        setting = "class_limits" if limit < config.max_batch_size else "max_batch_size"
        raise Refused(
            f"beam_width is {width} for request {request.id!r} of class {name}; accepted are up to "
            f"{min(limit, config.max_batch_size)}, the most sequences in a step ({setting}).",
            field="beam_width",
            code="too_large",
        )
