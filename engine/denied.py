"""Memory that was asked for and denied."""

from __future__ import annotations


def is_denial(error: BaseException) -> bool:
    """Whether an error says that there was too little memory."""
    # By name and text: torch's own class may not be imported here, and its CPU allocator raises a bare RuntimeError.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )
