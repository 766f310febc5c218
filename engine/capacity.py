"""How much of the pool a request can come to need."""

from __future__ import annotations

from .request import Request


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
    samples = request.sampling.n
    each = blocks_for(longest(request, context_length) - 1, block_size)
    shared = (len(request.prompt) - 1) // block_size if samples > 1 else 0
    return shared + samples * (each - shared)
