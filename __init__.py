"""Pagedeck: run a language model on your own machine and see what its memory does."""

from __future__ import annotations

__version__ = "0.1.0"
